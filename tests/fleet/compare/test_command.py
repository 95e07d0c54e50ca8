"""xpulab compare: it chooses the comparison that fits, and says the same on the console, as JSON and on the page."""

from __future__ import annotations

import html
import json

import jsonschema
import pytest
from typer.testing import CliRunner

from tests.conftest import CHINESE
from tests.fleet.compare.made_up import card, check, measurement, measuring, notebook, red, result, row
from tests.fleet.compare.many_nodes import make_fleet, named
from xpulab import cli, files, messages
from xpulab.fleet import outliers
from xpulab.fleet.compare import parity, upgrade

GREEN = result(notebook(check(), measuring(measurement("rate", 10.0))))
RED = result(red(), notebook(check("other.one"), name="01_other"), outcome="failed")
OTHER_RELEASE = {**GREEN, "versions": {"paddlepaddle-xpu": "3.2.0"}}
SCHEMA = json.loads(files.data("schema", "compare.schema.json").read_text(encoding="utf-8"))


def call(*arguments):
    return CliRunner().invoke(cli.app, ["compare", *map(str, arguments)])


def in_json(*arguments):
    """The JSON of a comparison, which fits its schema."""
    done = call(*arguments, "--json")
    comparison = json.loads(done.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(comparison)
    assert done.exit_code == int(comparison["found"])
    assert all(len(row) == len(table["columns"]) for table in comparison["tables"] for row in table["rows"])
    return comparison


@pytest.mark.parametrize(
    ("results", "kind"),
    [
        ((GREEN, GREEN, GREEN), "fleet"),
        ((GREEN, GREEN), "fleet"),
        ((GREEN, OTHER_RELEASE), "upgrade"),
        (({**GREEN, "node": "a"}, {**GREEN, "node": "b"}), "fleet"),
        ((GREEN, {**GREEN, "device": "cpu"}), "parity"),
        ((GREEN, {**GREEN, "device": "cpu"}, {**GREEN, "device": "sim"}), "parity"),
    ],
)
def test_what_is_compared_follows_from_the_runs(put, results, kind):
    assert in_json(*put(**{f"r{at}": each for at, each in enumerate(results)}))["kind"] == kind


def test_repeated_runs_are_an_upgrade_when_they_name_the_same_cards_or_when_that_is_asked_for(put):
    runs = [GREEN, GREEN, OTHER_RELEASE]
    anonymous = put(**{f"a{at}": each for at, each in enumerate(runs)})
    assert call(*anonymous).exit_code == 2
    assert in_json(*anonymous, "--as", "upgrade")["kind"] == "upgrade"
    named = put(**{f"n{at}": {**each, "card_facts": [card(0, "A")]} for at, each in enumerate(runs)})
    assert in_json(*named)["kind"] == "upgrade"


@pytest.mark.parametrize("of_one", [{"node": "b"}, {"card_facts": [card(0, "B")]}], ids=["node", "card"])
def test_two_machines_with_different_versions_are_no_upgrade(put, of_one):
    first = {**GREEN, "node": "a", "card_facts": [card(0, "A")]}
    done = call(*put(first=first, second={**first, **OTHER_RELEASE, "node": "a", "card_facts": [card(0, "A")], **of_one}))
    assert done.exit_code == 2 and "2 types of machines" in done.stderr


def test_findings_are_the_same_on_the_console_in_json_and_on_the_page(put, tmp_path):
    folders = put(a=GREEN, b=GREEN, c=GREEN, d=RED)
    comparison = in_json(*folders)
    done = call(*folders, "--out", tmp_path / "report")
    page = (tmp_path / "report" / "compare.html").read_text(encoding="utf-8")
    stored = json.loads((tmp_path / "report" / "compare.json").read_text(encoding="utf-8"))
    assert (done.exit_code, stored) == (1, comparison) and len(comparison["findings"]) > 0
    for finding in comparison["findings"]:
        assert finding["sentence"] in done.output and finding["repeat"] in done.output
        assert finding["sentence"].replace("<", "&lt;") in page and finding["repeat"] in page
    assert comparison["summary"] in done.output and comparison["summary"] in page
    assert comparison["scopes"][0] in done.output and comparison["scopes"][0] in page


SLOWER = result(notebook(check(measured=0.5), measuring(measurement("rate", 1.0))))
ON_CPU = {**RED, "device": "cpu"}


@pytest.mark.parametrize(
    ("runs", "kind", "said"),
    [
        ((GREEN, GREEN, GREEN, RED), "fleet", ("红色的检查", "测得 2.5，应为 < 1", "4 个运行中有 1 个出现")),
        ((GREEN, GREEN, GREEN, SLOWER), "fleet", ("与多数不同", "4 个节点中有 3 个为", "低于", "4 个节点的中位数为")),
        ((GREEN, SLOWER), "fleet", ("没有多数", "2 个节点太少")),
        (
            (GREEN, {**RED, "versions": OTHER_RELEASE["versions"]}),
            "upgrade",
            ("变为错误", "测得 2.5", "之前为", "有差别的版本"),
        ),
        ((GREEN, ON_CPU), "parity", ("错误", "测得 2.5，应为 < 1", "各章中作了比较的检查")),
    ],
)
def test_a_comparison_is_chinese_for_people_and_the_same_for_programs(put, tmp_path, runs, kind, said):
    folders = put(**{f"r{at}": each for at, each in enumerate(runs)})
    texts, stored = {}, {}
    for language in ("en", "zh"):
        out = tmp_path / language
        done = call(*folders, "--as", kind, "--out", out, "--lang", language)
        page = html.unescape((out / "compare.html").read_text(encoding="utf-8"))
        texts[language], stored[language] = (done.stdout, page), (done.exit_code, (out / "compare.json").read_bytes())
    assert stored["en"] == stored["zh"] and not CHINESE.search(stored["zh"][1].decode())
    for text in texts["en"]:
        assert not CHINESE.search(text)
    for text in texts["zh"]:
        assert all(each in text for each in said), text
        for sentence in (each["sentence"] for each in json.loads(stored["zh"][1])["findings"]):
            assert sentence not in text and CHINESE.search(shown_in_chinese(sentence)), sentence


def shown_in_chinese(text):
    return messages.catalogue("zh").translate(text)


def test_a_page_shows_names_as_text(put, tmp_path):
    nasty = result(notebook(check("demo.<b>", "failed", reason="<script>alert(1)</script>", measured=None), outcome="failed"))
    call(*put(a=GREEN, b=GREEN, c={**nasty, "outcome": "failed"}), "--out", tmp_path / "report")
    page = (tmp_path / "report" / "compare.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page and "&lt;script&gt;" in page


def test_the_same_finding_on_many_nodes_is_one_line(put):
    done = call(*put(**{f"n{at}": RED for at in range(9)}))
    assert "red check, n0, n1, n2, n3, n4 and 4 more: demo.sum measured 2.5" in done.output
    assert "9 findings on 9 of 9 runs: 9 red check" in done.output


def test_many_slow_cases_of_one_check_on_one_node_are_one_entry(put):
    def node(rate):
        return result(notebook(measuring(*(measurement("rate", rate, case=case) for case in ("copy", "add", "product")))))

    done = call(*put(a=node(10.0), b=node(10.0), c=node(10.0), d=node(5.0)))
    assert "slow, d: demo.rates, copy: 5 GB/s" in done.output and "    and 2 more: add, product" in done.output


def test_mixed_types_are_an_error_or_compared_apart(put):
    folders = put(a=GREEN, b=GREEN, c=OTHER_RELEASE)
    refused = call(*folders, "--as", "fleet")
    assert refused.exit_code == 2 and "Traceback" not in refused.output
    assert in_json(*folders, "--mixed")["kind"] == "fleet"


@pytest.mark.parametrize("options", [["--as", "speed"], ["--as", "upgrade", "--mixed"], ["--as", "parity"]], ids=" ".join)
def test_what_cannot_be_compared_is_an_error(put, options):
    done = call(*put(a=GREEN, b=GREEN), *options)
    assert (done.exit_code, done.stdout) == (2, "")


def test_one_run_is_no_comparison(put):
    assert call(*put(a=GREEN)).exit_code == 2


def test_a_run_under_way_is_never_healthy(put):
    running = {**GREEN, "outcome": "running"}
    assert [each["kind"] for each in in_json(*put(a=GREEN, b=GREEN, c=running))["findings"]] == ["unfinished"]
    assert call(*put(d=GREEN, e=running), "--as", "upgrade").exit_code == 2


def test_what_cannot_be_read_is_an_error_unless_it_is_one_of_a_fleet(put, pack):
    bad = pack("bad", GREEN, digest="0" * 64)
    assert [each["kind"] for each in in_json(*put(a=GREEN, b=GREEN), bad)["findings"]] == ["unreadable"]
    assert call(*put(c=GREEN, d=OTHER_RELEASE), bad, "--as", "upgrade").exit_code == 2
    assert call(bad, bad.with_name("none.zip")).exit_code == 2


def test_a_folder_that_cannot_be_written_is_an_error(put, tmp_path):
    (tmp_path / "file").write_text("")
    done = call(*put(a=GREEN, b=GREEN), "--out", tmp_path / "file" / "report")
    assert done.exit_code == 2 and "cannot be written" in done.stderr


def test_the_schema_names_every_kind_of_finding():
    kinds = {*outliers.KINDS, *upgrade.FINDINGS, *parity.FINDINGS, upgrade.NOW_RIGHT, upgrade.NOW_COMPARED}
    kinds |= {upgrade.FASTER, upgrade.LESS_MEMORY}
    assert set(SCHEMA["$defs"]["finding"]["properties"]["kind"]["enum"]) == kinds


def test_of_fifty_nodes_those_with_a_planted_defect_are_named_and_no_healthy_one_is(tmp_path):
    source = result(
        notebook(check(), check("demo.table", rows=[row("a"), row("b")]), check("demo.more")),
        notebook(measuring(measurement("rate", 10.0), measurement("loss", 3.0, 2.0, case="losses")), name="01_rates"),
        card_facts=[card(0), card(1)],
    )
    expected = make_fleet(source, tmp_path, nodes=50, seed=7)
    assert len(expected) == 10 and named(in_json(tmp_path)) == expected
