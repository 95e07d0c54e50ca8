"""xpulab compare: two runs, or the machines of a fleet; it says the same on the console and as JSON."""

from __future__ import annotations

import json

import jsonschema
import pytest
from typer.testing import CliRunner

from tests.fleet.compare.made_up import check, measurement, measuring, notebook, of, red, result
from xpulab import cli, files
from xpulab.fleet import outliers
from xpulab.fleet.compare import two_runs
from xpulab.verdict import exit_code

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
    assert done.exit_code == exit_code(comparison["verdict"])
    return comparison


@pytest.mark.parametrize(
    ("results", "kind"),
    [
        ((GREEN, GREEN, RED), "fleet"),
        ((GREEN, GREEN), "two runs"),
        ((GREEN, {**RED, "versions": OTHER_RELEASE["versions"]}), "two runs"),
        ((GREEN, {**GREEN, "device": "cpu"}), "two runs"),
    ],
)
def test_findings_and_notes_are_the_same_on_the_console_and_in_json(put, results, kind):
    folders = put(**{f"r{at}": each for at, each in enumerate(results)})
    comparison, printed = in_json(*folders), call(*folders).output
    assert comparison["kind"] == kind and bool(comparison["findings"]) is (
        RED["notebooks"][0] in [r["notebooks"][0] for r in results]
    )
    for finding in comparison["findings"]:
        assert finding["sentence"] in printed and finding["repeat"] in printed
    assert all(text in printed for text in (*comparison["notes"], *comparison["scopes"], comparison["share"]))


OTHER_CHECK = of(check("demo.other"), device="cpu")
LONGER = of(measuring(measurement("loss", 3.0, 2.0, 1.0)), check())


@pytest.mark.parametrize(
    ("results", "decides"),
    [
        ((GREEN, OTHER_CHECK), "0 of 3 checks"),
        ((of(measuring(measurement("loss", 3.0, 2.0)), check()), LONGER), "losses of 2 and of 3 steps"),
        ((GREEN, GREEN, OTHER_RELEASE), "name at least 3"),
        ((of(check()), of(check("demo.two")), of(check("demo.three"))), "run the same"),
    ],
    ids=["nothing in common", "other steps", "few of a type", "other checks on each"],
)
def test_runs_that_were_hardly_compared_are_undecided_and_what_decides_is_said(put, results, decides):
    folders = put(**{f"r{at}": each for at, each in enumerate(results)})
    done, comparison = call(*folders), in_json(*folders)
    assert (done.exit_code, comparison["verdict"]) == (1, "undecided") and decides in done.output
    assert "undecided: " not in call(*put(a=GREEN, b=GREEN)).output


def test_the_same_finding_on_many_nodes_is_one_entry(put):
    done = call(*put(**{f"n{at}": RED for at in range(9)}))
    assert "red check, n0, n1, n2, n3, n4 and 4 more: demo.sum measured 2.5" in done.output
    assert "9 findings on 9 of 9 runs: 9 red check" in done.output


def test_many_slow_cases_of_one_check_on_one_node_are_one_entry(put):
    def node(rate):
        return of(measuring(*(measurement("rate", rate, case=case) for case in ("copy", "add", "product"))))

    done = call(*put(a=node(10.0), b=node(10.0), c=node(10.0), d=node(5.0)))
    assert "slow, d: demo.rates, copy: 5 GB/s" in done.output and "    also: add, product" in done.output


def test_values_without_a_majority_are_shown_with_their_nodes(put):
    split = [of(check(measured=value)) for value in (0.25, 0.25, 0.5, 0.5)]
    (found,) = in_json(*put(**{f"n{at}": each for at, each in enumerate(split)}))["findings"]
    assert (found["kind"], found["node"]) == ("no majority", "") and "2 runs (n2, n3): 0.5" in found["sentence"]


def test_machines_of_several_types_are_named_with_their_groups(put):
    compared = in_json(*put(a=GREEN, b=GREEN, c=OTHER_RELEASE))
    assert compared["findings"] == [] and "1 run (c): paddlepaddle-xpu 3.2.0" in compared["subject"]


def test_a_run_under_way_is_never_healthy(put):
    running = {**GREEN, "outcome": "running"}
    folders = put(a=GREEN, b=GREEN, c=running)
    assert [each["kind"] for each in in_json(*folders)["findings"]] == ["unfinished"]
    assert call(*folders[1:]).exit_code == 2


def test_what_cannot_be_read_is_an_error_unless_it_is_one_of_a_fleet(put, pack):
    bad, (first, second) = pack("bad", GREEN, digest="0" * 64), put(a=GREEN, b=GREEN)
    assert [each["kind"] for each in in_json(first, second, bad)["findings"]] == ["unreadable"]
    for arguments in ((first,), (first, bad), (bad, bad.with_name("none.zip"))):
        assert call(*arguments).exit_code == 2


def test_the_schema_names_every_kind_of_finding():
    kinds = {*outliers.KINDS, *two_runs.FINDINGS}
    assert set(SCHEMA["$defs"]["finding"]["properties"]["kind"]["enum"]) == kinds
