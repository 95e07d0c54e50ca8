"""What a device lacks is declared, with release and source; nothing else is."""

from __future__ import annotations

import pytest
import yaml

from xpulab import processor
from xpulab.errors import InputError
from xpulab.records import known_issues, refusals
from xpulab.records.refusals import format_undeclared, load, refusal

ENTRY = """\
- call: all_reduce
  devices: [cpu]
  versions: {paddle: ">=3.3,<3.4"}
  types: [int8]
  reductions: [PROD]
  reason: it has no product of bytes
  source: its documentation
"""


@pytest.fixture
def listed(tmp_path, monkeypatch):
    path = tmp_path / "refusals.yaml"

    def write(text):
        path.write_text(text, encoding="utf-8")
        entries = load(path)
        monkeypatch.setattr(refusals, "_listed", lambda: entries)
        refusal.cache_clear()
        return path

    yield write
    refusal.cache_clear()


@pytest.mark.parametrize(
    ("call", "is_declared"),
    [
        (("cpu", "all_reduce", "int8", "PROD"), True),
        (("sim", "all_reduce", "int8", "PROD"), False),
        (("cpu", "all_reduce", "uint8", "PROD"), False),
        (("cpu", "all_reduce", "int8", "SUM"), False),
        (("cpu", "reduce", "int8", "PROD"), False),
        (("cpu", "all_reduce"), False),
    ],
)
def test_only_what_an_entry_names_is_declared(listed, monkeypatch, call, is_declared):
    monkeypatch.setattr(known_issues, "installed_version", lambda package: "3.3.1")
    listed(ENTRY)
    assert (refusal(*call) is not None) is is_declared


@pytest.mark.parametrize("lacks", [True, False])
def test_an_entry_for_a_processor_without_a_feature_is_declared_there_only(listed, monkeypatch, lacks):
    monkeypatch.setattr(known_issues, "installed_version", lambda package: "3.3.1")
    monkeypatch.setattr(processor, "lacks", lambda feature: lacks and feature == "avx512f")
    listed(ENTRY + "  without: avx512f\n")
    declared = refusal("cpu", "all_reduce", "int8", "PROD")
    assert (declared is not None) is lacks and (not declared or declared.without == "avx512f")


def test_a_skip_says_where_nobody_has_seen_what_is_declared(listed):
    listed(ENTRY)
    assert load()[0] and "never seen" not in refusals._listed()[0].format_reason()
    listed(ENTRY.replace("[cpu]", "[cpu, gpu, xpu]") + "  unseen: [gpu, xpu]\n")
    assert "its documentation; never seen on gpu, xpu" in refusals._listed()[0].format_reason()


def test_the_entry_that_a_red_row_prints_is_one_that_declares_it(listed):
    text = format_undeclared("RuntimeError: not supported", "xpu", "reduce", "int8", "MAX", "stream")
    assert text.startswith("RuntimeError: not supported") and "data/refusals.yaml" in text
    entry = format_undeclared("an error", "xpu", "reduce", "int8", "MAX", "stream").partition("refusals.yaml: ")[2]
    assert entry in text
    listed(yaml.safe_dump(yaml.safe_load(entry)))
    assert refusal("xpu", "reduce", "int8", "MAX", "stream") is not None
    assert refusal("xpu", "reduce", "int8", "MAX", "call") is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (ENTRY.replace("devices: [cpu]", "devices: [tpu]"), r"line \d+.*tpu"),
        (ENTRY.replace(">=3.3,<3.4", "=="), r"line \d+"),
        ("call: [", r"line \d+"),
        (ENTRY.replace("  source: its documentation\n", ""), "source"),
    ],
    ids=["a device that does not exist", "a version", "not YAML", "no source"],
)
def test_a_wrong_entry_is_refused_with_file_and_line(listed, wrong, message):
    with pytest.raises(InputError, match=message) as refused:
        listed(wrong)
    assert "refusals.yaml" in str(refused.value)


@pytest.mark.parametrize(
    ("call", "is_declared"),
    [
        (("all_reduce", "float32", "PROD", "async"), True),
        (("all_reduce", "float32", "AVG", "stream"), True),
        (("all_reduce", "float32", "AVG", "call"), False),  # there nccl_version is asked for, a known issue
        (("all_reduce", "float32", "SUM", "stream"), False),
        (("all_to_all", "int8", "", "single"), True),
        (("all_to_all", "uint8", "", "single"), False),
        (("gather", "float32", "", "call"), True),
        (("gather", "float32"), False),
        (("scatter", "int8", "", "stream"), True),
        (("scatter", "int8", "", "gradient"), False),
    ],
)
def test_what_bkcl_lacks_is_declared_for_xpus_alone_and_no_operator_of_that_name_is(call, is_declared):
    assert (refusal("xpu", *call) is not None) is is_declared
    assert refusal("gpu", *call) is None
