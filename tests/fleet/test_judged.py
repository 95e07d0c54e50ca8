"""The run of a bundle is judged again from its notebooks, and a claim that they do not support is named."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import jsonschema
import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.conftest import make, save, section
from xpulab import cli, files
from xpulab.errors import InputError
from xpulab.fleet import bundle
from xpulab.fleet.judged import judge_again, judged_to_json
from xpulab.fleet.redact import Redactor
from xpulab.fleet.signature import Signature
from xpulab.harness import report
from xpulab.harness import run as harness
from xpulab.harness.execute import Target
from xpulab.harness.judge import not_run
from xpulab.harness.plan import make_plans
from xpulab.harness.report.result import Result
from xpulab.records.proof import InjectedFault, Proof

pytestmark = pytest.mark.integration

TARGET = Target("cpu", "quick", 1)
CHECKS = {
    "good": {"one": 'check.below("good.one", 1.0, 2.0, control=3.0)', "two": 'check.equal("good.two", 2, 2, control=3)'},
    "red": {"one": 'check.below("red.one", 3.0, 2.0, control=4.0)'},
}
VERSIONS = ("versions.json", json.dumps({"commit": "0123456789"}))


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A whole run of `good` and `red`, and one of the section of good.two alone."""
    folder = tmp_path_factory.mktemp("book")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "NOTEBOOKS", folder)
        for name, sections in CHECKS.items():
            cells = [each for title, source in sections.items() for each in (section(title), source)]
            notebook = make(*cells, title=name, capabilities=[name], budget=30)
            notebook.cells.pop(2)  # the section "all"
            save(notebook, folder / f"{name}.ipynb")
        for name, plans in (("whole", make_plans([], "quick")), ("partial", make_plans([], "quick", ["good.two"]))):
            harness.prepare(folder / name)
            harness.run(plans, TARGET, 1, folder / name, Console(quiet=True), cold=True)
        yield folder


@pytest.fixture
def whole(ran, tmp_path):
    """The folder of the whole run, which a test may change."""
    return shutil.copytree(ran / "whole", tmp_path / "whole")


@pytest.fixture
def green(whole):
    """As `whole`, without the red notebook."""
    (whole / "notebooks" / "red.ipynb").unlink()

    def only_good(result):
        result["notebooks"] = [each for each in result["notebooks"] if each["name"] == "good"]
        result.update(green=True, outcome="passed")

    edit(whole / "result.json", only_good)
    return whole


def edit(path, change):
    """Change what a JSON file holds."""
    stored = json.loads(path.read_text())
    change(stored)
    path.write_text(json.dumps(stored))


def bundled(folder, *evidence):
    """The bundle of a run's folder."""
    out = folder.with_suffix(".zip")
    bundle.make(folder, evidence, Redactor({}), out)
    return out


def judge(folder, tmp_path, *evidence):
    """The run, judged again from its bundle."""
    (again,) = judge_again(bundled(folder, *evidence), tmp_path / "again")
    return again


def test_a_green_run_is_judged_green_again_and_a_red_one_red(ran, green, tmp_path):
    again = judge(green, tmp_path)
    assert again.is_green and again.differences == ()
    assert again.result.outcome == again.claimed["outcome"] == "passed"
    again = judge(shutil.copytree(ran / "whole", tmp_path / "red"), tmp_path / "more")
    assert (again.is_green, again.result.outcome, again.differences) == (False, "failed", ())


def test_a_partial_run_is_judged_partial_again(ran, tmp_path):
    again = judge(shutil.copytree(ran / "partial", tmp_path / "partial"), tmp_path)
    assert (again.is_green, again.result.outcome, again.differences) == (True, "partial", ())
    assert [record.name for record in again.result.verdicts[0].records] == ["good.two"]


def test_an_interrupted_run_is_judged_red_again(green, tmp_path):
    good, red = make_plans([], "quick")
    first = judge(green, tmp_path).result.verdicts[0]
    verdicts = (replace(first, executed=green / "notebooks" / "good.ipynb"), not_run(red, "missing", "interrupted before it"))
    report.write(Result(TARGET, verdicts, 1.0, green))
    (green.with_suffix(".zip")).unlink()
    (again,) = judge_again(bundled(green), tmp_path / "more")
    assert (good.name, again.result.outcome, again.differences) == ("good", "failed", ())


def test_a_claim_that_is_greener_than_the_notebook_is_named(whole, tmp_path):
    def lie(result):
        result.update(green=True, outcome="passed")
        red = next(each for each in result["notebooks"] if each["name"] == "red")
        red.update(outcome="passed", reason=None)
        red["checks"][0].update(outcome="passed", measured=1.0)

    edit(whole / "result.json", lie)
    again = judge(whole, tmp_path)
    assert not again.is_green
    told = "\n".join(again.differences)
    assert "green: result.json says true, the notebooks say false" in told
    assert 'red.one: outcome: result.json says "passed", it is "failed"' in told
    assert "red.one: measured: result.json says 1.0, it is 3.0" in told


def test_a_red_notebook_that_is_claimed_to_be_skipped_is_named(whole, tmp_path):
    def skip(result):
        result.update(green=True, outcome="passed")
        red = next(each for each in result["notebooks"] if each["name"] == "red")
        red.update(outcome="skipped", executed=None)

    edit(whole / "result.json", skip)
    again = judge(whole, tmp_path)
    assert not again.result.is_green
    assert "notebooks/red.ipynb: it is in the bundle, and result.json does not name it" in again.differences


@pytest.mark.parametrize(("name", "value"), [("device", "gpu"), ("cards", 8), ("level", "standard"), ("seed", 5)])
def test_another_device_level_or_seed_than_the_notebooks_ran_with_is_named(green, tmp_path, name, value):
    edit(green / "result.json", lambda result: result.update({name: value}))
    again = judge(green, tmp_path)
    assert any(each.startswith(f"good: {name}: result.json says {value}") for each in again.differences)


def record_of(notebook, name):
    """The stored record of a check, and its output."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            stored = output.get("metadata", {}).get("xpulab", {}).get("check")
            if stored and stored["name"] == name:
                return stored, output
    raise AssertionError(name)


def whitewash(whole):
    """Make the record of red.one green, and the claim too."""

    def record(notebook):
        record_of(notebook, "red.one")[0].update(outcome="passed", reason=None)

    def claim(result):
        result.update(green=True, outcome="passed")
        red = next(each for each in result["notebooks"] if each["name"] == "red")
        red.update(outcome="passed", reason=None)
        red["checks"][0].update(outcome="passed", reason=None)

    edit(whole / "notebooks" / "red.ipynb", record)
    edit(whole / "result.json", claim)


def test_a_record_that_was_edited_alone_contradicts_its_line_and_its_bound(whole, tmp_path):
    whitewash(whole)
    told = "\n".join(judge(whole, tmp_path).differences)
    assert "red: red.one: its record says 'passed  red.one" in told
    assert "red: red.one: it is passed, measured 3.0, expected < 2" in told


def test_an_output_that_was_edited_as_a_whole_cannot_be_told_from_a_real_one(whole, tmp_path):
    """No signature: this is what docs/evidence.md says of a notebook that its owner forges with care."""
    whitewash(whole)

    def forge(notebook):
        stored, output = record_of(notebook, "red.one")
        stored.update(measured=1.0)
        output["data"]["text/plain"] = "passed  red.one  " + stored["means"]
        notebook["cells"][-1]["outputs"] = []

    edit(whole / "notebooks" / "red.ipynb", forge)
    edit(whole / "result.json", lambda result: result["notebooks"][1]["checks"][0].update(measured=1.0))
    assert judge(whole, tmp_path).is_green


def test_a_check_that_was_removed_from_a_notebook_is_missing(green, tmp_path):
    edit(green / "notebooks" / "good.ipynb", lambda notebook: record_of(notebook, "good.one")[1]["metadata"].clear())
    again = judge(green, tmp_path)
    assert not again.result.is_green
    assert 'good.one: outcome: result.json says "passed", it is "missing"' in again.differences


def change_a_cell(notebook):
    next(cell for cell in notebook["cells"] if "good.one" in "".join(cell["source"]))["source"] = "pass"


def test_other_cells_are_red_in_this_version_and_cannot_be_judged_of_another_commit(green, tmp_path):
    again = judge(green, tmp_path, VERSIONS)
    assert again.is_green and any("commit 0123456789, judged by" in note for note in again.notes)
    green.with_suffix(".zip").unlink()
    edit(green / "notebooks" / "good.ipynb", change_a_cell)
    assert "the committed notebook" in judge(green, tmp_path / "same").result.verdicts[0].reason
    green.with_suffix(".zip").unlink()
    with pytest.raises(InputError, match=r"good has other cells than here: it was made by .* commit 0123456789"):
        judge(green, tmp_path / "other", VERSIONS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda result: result.update(later="field"), "none that xpulab .* reads: .*'later' was unexpected"),
        (lambda result: result["notebooks"][0].update(name="../evil"), "this version has no notebook '../evil'"),
        (lambda result: result["notebooks"][0].update(name="unknown"), "this version has no notebook 'unknown'"),
        (lambda result: result["notebooks"][0].update(executed="notebooks/x.ipynb"), "holds no run/notebooks/x.ipynb"),
        (lambda result: result.update(proof={"green": True, "injected": 1, "missed": [], "reason": None}), "do not agree"),
    ],
)
def test_a_result_that_cannot_be_judged_says_why(green, tmp_path, change, message):
    edit(green / "result.json", change)
    with pytest.raises(InputError, match=message):
        judge(green, tmp_path)


def test_records_that_are_none_are_refused(green, tmp_path):
    edit(green / "notebooks" / "good.ipynb", lambda notebook: record_of(notebook, "good.one")[0].pop("means"))
    with pytest.raises(InputError, match=r"good\.ipynb is not what `xpulab run` writes"):
        judge(green, tmp_path)


def test_a_summary_cannot_be_judged(green, tmp_path):
    out = tmp_path / "summary.zip"
    bundle.write(bundle.collect(green, [], Redactor({}), bundle.SUMMARY), out)
    with pytest.raises(InputError, match="has no executed notebooks"):
        judge_again(out, tmp_path / "again")


def test_the_kept_rounds_of_a_soak_are_judged_each(ran, whole, green, tmp_path):
    soak = tmp_path / "soak"
    for number, folder in (("0001", green), ("0007", ran / "whole")):
        shutil.copytree(folder, soak / "rounds" / number)
    (soak / "soak.jsonl").write_text("{}\n")
    first, second = judge_again(bundled(soak), tmp_path / "again")
    assert (first.name, first.is_green, second.name, second.is_green) == ("rounds/0001", True, "rounds/0007", False)


# ------------------------------------------------------------------------------------------------------------- the proof


def with_proof(folder, ran_folder, **changed):
    """The run with the proof of one fault of the catalogue."""
    fault = InjectedFault("two-frameworks", "w", "00", ("install.one-framework",), ("install.one-framework",), None, 1.0)
    proof = Proof("n", "cpu", 1, "quick", 0, 1, (replace(fault, **changed),), 1.0)
    again = judge(folder, ran_folder)
    folder.with_suffix(".zip").unlink()
    verdicts = tuple(replace(each, executed=folder / "notebooks" / each.executed.name) for each in again.result.verdicts)
    report.write(Result(TARGET, verdicts, 1.0, folder, proof=proof))


@pytest.mark.parametrize(
    ("changed", "is_green", "missed", "difference"),
    [
        ({}, True, [], ""),
        ({"detected_by": ("install.other",)}, False, ["not detected by install.one-framework"], ""),
        ({"expected": ("good.one",), "detected_by": ("good.one",)}, True, [], "detected by install.one-framework, hardware"),
    ],
    ids=["detected", "not detected, whatever is claimed", "other checks than in the catalogue"],
)
def test_the_proof_of_a_run_is_judged_with_it(green, tmp_path, changed, is_green, missed, difference):
    with_proof(green, tmp_path / "before", **changed)
    again = judge(green, tmp_path)
    assert again.result.is_green is is_green and len(again.result.proof.faults) == 1
    assert [each.missed for each in again.result.proof.missed] == missed
    assert difference in "\n".join(again.differences)


# ----------------------------------------------------------------------------------------------------------- the command


def command(*arguments):
    return CliRunner().invoke(cli.app, ["judge", *map(str, arguments)])


def test_the_command_shows_both_verdicts_and_writes_reports(green, tmp_path):
    done = command(bundled(green), "--out", tmp_path / "reports")
    assert (done.exit_code, "claimed green (passed), judged again green (passed)" in done.output) == (0, True)
    assert "not signed" in done.output
    assert json.loads((tmp_path / "reports" / "result.json").read_text())["outcome"] == "passed"
    shown = judged_to_json(judge_again(green.with_suffix(".zip"), tmp_path / "again"), Signature("none"))
    assert [each["judged"] for each in shown["runs"]] == [{"green": True, "outcome": "passed"}]


def test_the_command_fails_for_a_red_run_and_for_a_false_claim(whole, tmp_path):
    whitewash(whole)
    done = command(bundled(whole), "--json")
    shown = json.loads(done.output)
    assert done.exit_code == 1 and not shown["green"] and shown["runs"][0]["differences"]
    schema = json.loads(files.data("schema", "judged.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(shown)


def test_the_command_fails_where_signers_are_named_and_none_of_them_signed(green, tmp_path):
    (tmp_path / "signers").write_text("ann@site ssh-ed25519 AAAA\n")
    done = command(bundled(green), "--json", "--signers", tmp_path / "signers")
    shown = json.loads(done.output)
    assert (done.exit_code, shown["green"], shown["signature"]["outcome"]) == (1, False, "refused")


def test_the_command_says_what_it_cannot_judge(tmp_path):
    (tmp_path / "x.zip").write_text("no zip")
    done = command(tmp_path / "x.zip")
    assert (done.exit_code, "is no bundle that can be read" in done.output + done.stderr) == (2, True)
