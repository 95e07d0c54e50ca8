"""A known issue applies to the devices and versions on which it was seen, and to no others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from xpulab.devices import DEVICES
from xpulab.errors import InputError
from xpulab.records import environments
from xpulab.records.known_issues import KnownIssue, load

ENTRY = """\
- id: wrong-sum
  check: numerics.sum
  versions: {numpy: "==1.26.4"}
  devices: [cpu, xpu]
  symptom: sums are wrong
  reference: measured here
  workaround: add them up by hand
"""


@pytest.fixture
def listed(tmp_path):
    """A function that loads a list of known issues from text."""

    def load_text(text):
        path = tmp_path / "known_issues.yaml"
        path.write_text(text)
        return load(path)

    return load_text


@pytest.fixture
def installed(monkeypatch):
    """The versions that are installed in the test, by package."""
    versions = {"numpy": "1.26.4", "paddlepaddle-xpu": "3.3.1"}

    def distributions(name):
        return [SimpleNamespace(version=versions[name])] if name in versions else []

    monkeypatch.setattr(environments, "distributions", distributions)
    return versions


def an_issue(versions=None, devices=("cpu",), check="a.b", case=None):
    return KnownIssue("it", check, versions or {"numpy": ">=1"}, devices, "symptom", "reference", "workaround", case=case)


def test_an_entry_is_loaded_with_all_its_fields(listed):
    (issue,) = listed(ENTRY + "  case: float16\n")
    texts = ("sums are wrong", "measured here", "add them up by hand")
    assert issue == KnownIssue("wrong-sum", "numerics.sum", {"numpy": "==1.26.4"}, ("cpu", "xpu"), *texts, case="float16")
    assert listed(ENTRY)[0].case is None
    assert listed("[]\n") == ()


WRONG = {
    "a field is missing": (
        ENTRY.replace("  symptom: sums are wrong\n", ""),
        "line 1: 'symptom' is a required property",
    ),
    "an unknown device": (ENTRY.replace("xpu]", "tpu]"), "line 4: 'tpu' is not one of ['cpu', 'gpu', 'xpu', 'sim']"),
    "no version": (ENTRY.replace('{numpy: "==1.26.4"}', "{}"), "line 3: {} should be non-empty"),
    "a check without capability": (ENTRY.replace("numerics.sum", "sum"), "line 2: 'sum' does not match"),
    "an unknown cause": (ENTRY + "  cause: magic\n", "line 8: 'magic' is not one of"),
    "an invalid version": (ENTRY.replace("==1.26.4", "=1.26.4"), "line 3: '=1.26.4' does not match"),
    "the second entry": (ENTRY + ENTRY.replace("[cpu, xpu]", "cpu"), "line 11: 'cpu' is not of type 'array'"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_malformed_list_is_refused_with_file_and_line(listed, tmp_path, text, message):
    with pytest.raises(InputError) as refused:
        listed(text)
    assert str(refused.value).startswith(f"{tmp_path / 'known_issues.yaml'} {message}")


def test_the_list_of_this_repository_fits_its_schema_with_one_entry_for_each_place():
    places = [(issue.check, issue.case, str(issue.when)) for issue in load()]
    assert len(places) == len(set(places))


@pytest.mark.parametrize("issue", load(), ids=lambda issue: issue.id)
def test_the_cause_decides_the_devices_and_what_was_only_read_is_marked(issue):
    everywhere = issue.cause == "software"
    assert set(issue.devices) == set(DEVICES) or not everywhere
    assert set(issue.unseen) == (set() if everywhere else {"gpu", "xpu"} & {*issue.devices})  # until a card has run


@pytest.mark.parametrize(
    ("versions", "applies"),
    [
        ({"numpy": "==1.26.4"}, True),
        ({"numpy": "<1.26"}, False),
        ({"paddlenlp": ">=0"}, False),
        ({"numpy": "==1.26.4", "paddlepaddle-xpu": "==3.3.1"}, True),
        ({"numpy": "==1.26.4", "paddlepaddle-xpu": "==3.3.2"}, False),
        ({"paddle": "==3.3.1"}, True),
    ],
    ids=str,
)
def test_an_issue_applies_to_its_versions(installed, versions, applies):
    assert an_issue(versions).applies("cpu") is applies
