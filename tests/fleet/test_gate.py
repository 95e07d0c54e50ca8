"""The gate answers from the runs and soaks of this machine: green, red with the command that repeats it, or unknown."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from tests.fleet.compare.made_up import card, check, notebook, row
from tests.fleet.compare.made_up import result as made_up_result
from xpulab import cli, files
from xpulab.doctor.system import boot_id
from xpulab.errors import InputError
from xpulab.fleet.gate import gate, verdict_in
from xpulab.records.origin import node_name

NOW = datetime.now(timezone.utc)
"""When the test begins."""
GREEN, RED, UNKNOWN = 0, 1, 2


@pytest.fixture(autouse=True)
def now(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "NOW", datetime.now(timezone.utc))


@pytest.fixture
def put(tmp_path):
    """put(notebook, ..., hours=age): a result.json in a folder of its own, or in `folder`; returns the folder of all runs."""

    def write(*notebooks, hours=1.0, outcome="passed", green=True, folder=None, **more):
        folder = tmp_path / (folder or f"run{len(list(tmp_path.iterdir()))}")
        folder.mkdir()
        date = (NOW - timedelta(hours=hours)).isoformat()
        here = {"level": "smoke", "device": "sim", "node": node_name(), "boot": boot_id()}
        result = made_up_result(*notebooks, outcome=outcome, **{**here, "green": green, "date": date, **more})
        (folder / "result.json").write_text(json.dumps(result))
        return tmp_path

    return write


TWO = [notebook(check()), notebook(check("other.sum"), name="01_other")]
RED_NOTEBOOK = notebook(check("demo.product", "failed", measured=2.5), outcome="failed")
TABLE = check("demo.table", "failed", measured="1 of 2 rows", rows=[row("two ranks"), row("four", "failed", measured=3.0)])
NEVER_RAN = check("demo.sum", "missing", measured=None, reason="interrupted before it started")
INTERRUPTED = notebook(NEVER_RAN, name="02_rest", outcome="missing", reason="interrupted before it started")
REPEAT = "xpulab run 00_demo --check demo.product --device sim"


def test_a_green_run_that_is_young_is_green_and_one_that_is_too_old_is_unknown(put):
    folder = put(notebook(check(), check("demo.product")), folder="one")
    for given in (folder, folder / "one"):
        answer = gate(given, 24)
        assert (answer.code, answer.line) == (GREEN, "xpulab: green 1.0 h ago, 2 of 2 checks at level smoke on sim")
    answer = gate(folder, 0.9)
    assert answer.code == UNKNOWN and "too old" in answer.line


@pytest.mark.parametrize(
    ("notebooks", "changed", "said"),
    [
        ([TWO[1], RED_NOTEBOOK], {"hours": 0}, f"measured 2.5, expected < 1; rerun: {REPEAT} --level smoke"),
        ([TWO[1], RED_NOTEBOOK], {"hours": 1000}, f"measured 2.5, expected < 1; rerun: {REPEAT} --level smoke"),
        ([RED_NOTEBOOK], {"cards": 8, "seed": 3}, f"{REPEAT} --cards 8 --level smoke --seed 3"),
        ([notebook(TABLE, outcome="failed")], {}, "demo.table measured 3, four, expected < 1"),
        ([notebook(NEVER_RAN, outcome="missing")], {}, "demo.sum is missing: interrupted before it started"),
        ([notebook(check(), outcome="failed", reason="the kernel died")], {}, "00_demo is failed: the kernel died"),
        ([notebook(outcome="skipped")], {}, "run is red: no notebook was green; rerun: xpulab run --device sim --level"),
        ([INTERRUPTED, RED_NOTEBOOK], {}, "--check demo.sum"),
    ],
    ids=["young", "old", "cards and seed", "table", "never ran", "no red check", "nothing", "interrupted"],
)
def test_a_red_run_names_what_is_red_and_the_command_that_repeats_it(put, notebooks, changed, said):
    answer = gate(put(*notebooks, **{"green": False, "outcome": "failed", **changed}), 24)
    assert answer.code == RED and said in answer.line
    assert answer.reason.startswith("[node_problem] xpulab ") and said in answer.reason


def test_a_folder_without_a_whole_run_is_an_error_that_says_what_makes_one(put, tmp_path):
    with pytest.raises(InputError, match="nowhere: cannot be read: No such file"):
        gate(tmp_path / "nowhere", 24)
    with pytest.raises(InputError, match=r"holds no result\.json of a whole run"):
        gate(tmp_path, 24)
    with pytest.raises(InputError, match=r"holds no result\.json of a whole run"):
        gate(put(notebook(check(), outcome="partial"), outcome="partial"), 24)


def test_a_drain_reason_is_one_line_that_ends_with_the_command_whatever_was_measured(put):
    long = check("demo.text", "failed", measured="a\nb\x1b[31m" + "x" * 500, expected="y" * 500)
    reason = gate(put(notebook(long, outcome="failed"), green=False, outcome="failed"), 24).reason
    assert reason.isprintable() and len(reason) < 400 and reason.endswith("--level smoke")


# ------------------------------------------------------------------------------- which runs count, of several in one folder

REQUIRED = "device=xpu,cards=8,level=quick,notebooks=all"
CARDS = [card(number, f"S{number}") for number in range(8)]
WHOLE = {"device": "xpu", "cards": 8, "level": "quick", "is_whole": True, "card_facts": CARDS}
REPEATED = "demo.product measured 2.5, expected < 1; rerun: xpulab run 00_demo --check demo.product --device xpu --cards 8"


@pytest.fixture
def whole(put):
    """whole(state, hours, ...): a run of all notebooks on eight cards, but for what is given; returns put's folder."""

    def write(state="green", hours=1.0, *notebooks, **changed):
        if state == "red":
            notebooks = [RED_NOTEBOOK, *changed.pop("notebooks", TWO)[1:]]
            changed = {"green": False, "outcome": "failed", **changed}
        return put(*(notebooks or TWO), hours=hours, **{**WHOLE, **changed})

    return write


@pytest.fixture
def soaked(tmp_path):
    """soaked(hours, ...): a soak.json in a folder of its own; returns the folder of all runs."""

    def write(hours=1.0, **changed):
        folder = tmp_path / f"soak{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        soak = {"schema": 3, "date": (NOW - timedelta(hours=hours)).isoformat(), "node": node_name(), "boot": boot_id(),
                "outcome": "passed", "device": "xpu", "scope": "...", "level": "quick", "cards": 8, "hours_asked": None,
                "hours": 1.0, "checks": ["demo.product", "demo.sum"], "notebooks": ["00_demo"], "rounds": 9, "seeds": [0, 1, 2],
                "repeated": 8, "first_bad_round": None, "problems": []}  # fmt: skip
        (folder / "soak.json").write_text(json.dumps({**soak, **changed}))
        return tmp_path

    return write


BAD_ROUND = {"round": 7, "seed": 2, "notebook": "00_demo", "check": "demo.sum", "reason": "its values differ"}
RED_SOAK = {"outcome": "failed", "first_bad_round": 7, "problems": [BAD_ROUND]}

LESS = {
    "another device": {"device": "cpu"},
    "fewer cards": {"cards": 4},
    "a lower level": {"level": "smoke"},
    "one notebook": {"is_whole": False, "notebooks": TWO[:1]},
    "notebooks by name": {"is_whole": False},
    "some checks": {"outcome": "partial"},
    "another host": {"node": "node17"},
    "another boot": {"boot": "f00"},
    "an older version": {"boot": None},
    "a rehearsal": {"judges": "rehearsal", "stands_for": "xpu"},
    "a release": {"judges": "release"},
    "interrupted": {"green": False, "outcome": "failed", "notebooks": [*TWO, INTERRUPTED]},
    "not ended": {"outcome": "running"},
    "no verdict": {"outcome": "unknown", "green": False, "reason": "disk", "notebooks": [notebook(check(), outcome="failed")]},
}
OTHER = {"another seed": {"seed": 3}, "without a card": {"card_facts": CARDS[1:]}}
"""Runs that are green, and no repetition of a red one."""


def damage(folder, how):
    """What a run leaves that no gate can read."""
    run = folder / f"damaged{len(list(folder.iterdir()))}"
    run.mkdir()
    ahead = json.dumps({**GREEN_ONE, "boot": boot_id(), "date": how})
    writes = {"a pipe": os.mkfifo, "a folder": os.mkdir, "a link": lambda path: os.symlink("nowhere", path)}
    writes["1 GiB"] = lambda path: (path.touch(), os.truncate(path, 2**30))
    writes.get(how, lambda path: path.write_text(ahead if how[:1] in "123" else how))(run / "result.json")


GREEN_ONE = made_up_result(*TWO, **WHOLE)
NAIVE, NULL = "2026-11-22T12:00:00", json.dumps({**GREEN_ONE, "date": None})
UNREADABLE = [
    json.dumps({**GREEN_ONE, "judges": "nothing"}),
    "",
    "[]",
    "{}",
    '{"date": 3',
    NULL,
    NAIVE,
    "3000-01-01T00:00:00+00:00",
    "a pipe",
    "a folder",
    "a link",
    "1 GiB",
]


@pytest.mark.parametrize("less", [*LESS, *OTHER])
def test_a_run_that_is_less_neither_clears_a_red_one_nor_hides_it(whole, less):
    whole("red", 3)
    folder = whole("green", 1, **{**LESS, **OTHER}[less])
    for require in ("", REQUIRED):
        code, printed = answered("gate", folder, "--reason", "--require", require)
        assert (code, REPEATED in printed) == (RED, True)


@pytest.mark.parametrize("less", [each for each in LESS if each not in ("interrupted", "not ended", "no verdict")])
def test_a_red_run_counts_unless_it_says_nothing_of_this_machine(whole, less):
    whole("green", 3)
    says_nothing = less in ("some checks", "another host", "a rehearsal", "a release")
    assert answered("gate", whole("red", 1, **LESS[less]), "--require", REQUIRED)[0] == (GREEN if says_nothing else RED)


@pytest.mark.parametrize("less", LESS)
def test_a_run_that_is_less_than_required_is_no_green_one(whole, less):
    code, printed = answered("gate", whole("green", 1, **LESS[less]), "--reason", "--require", REQUIRED)
    assert (code, printed.startswith("xpulab: unknown, ")) == (UNKNOWN, True)


@pytest.mark.parametrize("how", UNREADABLE)
def test_what_cannot_be_read_neither_clears_a_red_run_nor_counts_as_green_and_is_named(whole, tmp_path, how):
    damage(tmp_path, how)
    code, printed = answered("gate", tmp_path)
    assert (code, "damaged0/result.json" in printed and "remove it" in printed) == (UNKNOWN, True)
    whole("green", 1)
    assert answered("gate", tmp_path)[0] == UNKNOWN
    whole("red", 3, boot="f00", seed=1)
    assert answered("gate", tmp_path)[0] == RED


def changed(part, **changes):
    """A notebook, or what else has a place in a result, with other fields."""
    return {**part, **changes}


SKIPPED = check("other.sum", "skipped", measured=None, digest=None)
CONTRADICTIONS = {
    "another schema": {"schema": 99},
    "a red check": {"notebooks": [notebook(check(outcome="failed"), outcome="passed"), TWO[1]]},
    "a red row": {"notebooks": [notebook(check(rows=[row("a"), row("b", "broken")])), TWO[1]]},
    "a red notebook": {"notebooks": [*TWO, INTERRUPTED]},
    "outcomes of other checks": {"outcomes": {"passed": 1, "failed": 1}},
    "a lost accelerator": {"lost": {"id": "no-card", "device": "xpu", "since": [], "problem": "x", "steps": [], "expected": 8}},
    "another device's": {"stands_for": "gpu"},
    "a rehearsal of nothing": {"judges": "rehearsal"},
    "a notebook twice": {"notebooks": [*TWO, TWO[1]]},
    "a check twice": {"notebooks": [notebook(check(), check()), TWO[1]]},
    "nothing compared": {"notebooks": [TWO[0], notebook(SKIPPED, name="01_other", outcome="passed")]},
    "everything skipped": {"notebooks": [notebook(SKIPPED, outcome="skipped")]},
    "compared, and skipped": {"notebooks": [TWO[0], changed(TWO[1], outcome="skipped")]},
    "more compared than there is": {"notebooks": [changed(TWO[0], compared=99), TWO[1]]},
    "more planned than there is": {"notebooks": [changed(TWO[0], planned=99), TWO[1]]},
    "failed": {"outcome": "failed"},
    "not green": {"green": False},
    "unknown without a reason": {"outcome": "unknown"},
    "a reason to be unknown": {"reason": "No space left on device"},
    "a part of a notebook": {"notebooks": [changed(TWO[0], outcome="partial"), TWO[1]]},
    "skipped on the CPU": {"device": "cpu", "notebooks": [*TWO, notebook(SKIPPED, name="02_more", outcome="skipped")]},
    "less than one card": {"cards": 0},
    "a day that is none": {"date": "2026-13-45T12:00:00+00:00"},
}
"""What no run says of itself that is green otherwise."""
SOAKS = {
    "a round before the first": {"first_bad_round": -1},
    "a bad round without a problem": {"first_bad_round": 3},
    "another bad round": {**RED_SOAK, "first_bad_round": 6},
    "a bad round after the last": {**RED_SOAK, "rounds": 5},
    "problems, and passed": {**RED_SOAK, "outcome": "passed"},
    "passed, and nothing repeated": {"repeated": 0},
    "no round": {"rounds": 0},
    "another schema": {"schema": 2},
}


@pytest.mark.parametrize("says", CONTRADICTIONS)
def test_a_result_whose_outcome_does_not_follow_from_what_it_holds_is_none(whole, says):
    folder = whole("green", 1, **CONTRADICTIONS[says])
    for require in ("", REQUIRED):
        code, printed = answered("gate", folder, "--reason", "--require", require)
        assert (code, f"{folder}/run0/result.json: not what" in printed, "Error(" in printed) == (UNKNOWN, True, False), printed
    assert answered("gate", whole("red", 3), "--reason")[0] == RED
    assert answered("gate", whole("green", -0.05))[0] == GREEN


@pytest.mark.parametrize("says", SOAKS)
def test_nor_is_a_soak(whole, soaked, says):
    whole("green", 5)
    soaked(4, **RED_SOAK)
    code, printed = answered("gate", soaked(1, **SOAKS[says]))
    assert (code, "demo.sum in round 7" in printed) == (RED, True), printed
    soaked(-0.05)
    assert answered("gate", whole("green", -0.05))[0] == GREEN


def test_what_is_no_json_is_named_with_its_place_and_not_as_python_writes_an_error(whole, tmp_path):
    damage(tmp_path, '{"date": 3')
    code, printed = answered("gate", tmp_path, "--reason")
    assert code == UNKNOWN and "Expecting ',' delimiter: line 1 column 11" in printed and "Error" not in printed


def test_a_notebook_or_a_check_that_was_skipped_clears_none_that_is_red(whole):
    apart = [TWO[1], notebook(name="00_demo", outcome="skipped")]
    some = [notebook(check(), check("demo.product", "skipped")), TWO[1]]
    whole("red", 3)
    whole("green", 2, notebooks=apart)
    code, printed = answered("gate", whole("green", 1, notebooks=some), "--json")
    assert code == RED and [each.rpartition(": ")[2] for each in json.loads(printed)["ignored"]] == [
        "green, but without 00_demo",
        "green, but without demo.product",
    ]
    assert answered("gate", whole("green", 0.5, notebooks=[*TWO, notebook(name="02_more", outcome="skipped")]))[0] == GREEN


def test_a_run_that_skipped_most_of_its_checks_is_undecided_until_one_compares_them(whole):
    skipped = [check(f"demo.skipped{number}", "skipped", measured=None, reason="no kernel") for number in range(3)]
    whole("green", 3)
    code, printed = answered("gate", whole("green", 2, notebook(check(), *skipped)), "--json")
    answer = json.loads(printed)
    assert (code, answer["state"]) == (RED, "undecided") and "only 1 of 4 checks" in answer["line"]
    assert answer["reason"].endswith("rerun: xpulab run --device xpu --cards 8 --level quick")
    assert answered("gate", whole("green", 1, notebook(check(), check("demo.two"), skipped[0])))[0] == GREEN


def test_a_machine_with_one_card_is_green_without_the_notebooks_for_several(whole):
    folder = whole("green", 1, cards=1, notebooks=[*TWO, notebook(SKIPPED, name="02_more", outcome="skipped")])
    assert answered("gate", folder, "--require", "device=xpu,cards=1,level=quick,notebooks=all")[0] == GREEN


def test_known_issues_and_what_is_expected_of_a_card_leave_a_run_green(whole):
    outcomes = ("known", "fixed", "predicted", "refuted", "skipped")
    rows = [row(outcome, outcome) for outcome in outcomes]
    checks = [check(f"demo.{outcome}", outcome) for outcome in outcomes]
    assert answered("gate", whole("green", 1, notebook(*checks, check("demo.table", "predicted", rows=rows))))[0] == GREEN


def test_a_machine_that_shows_no_boot_id_has_no_run_of_its_present_boot(whole, monkeypatch, tmp_path):
    folder = whole("green", 1, boot=None)
    assert answered("gate", folder)[0] == UNKNOWN
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("XPULAB_SYSTEM_ROOT", str(tmp_path / "nothing"))
    code, printed = answered("gate", folder)
    assert (code, "this machine shows no boot id" in printed) == (UNKNOWN, True)
    whole("red", 2, boot=None)
    assert answered("gate", folder)[0] == RED


def test_what_cannot_be_read_and_is_older_than_the_last_green_run_is_a_warning(whole, tmp_path):
    damage(tmp_path, "[]")
    os.utime(tmp_path / "damaged0/result.json", (0, 0))
    code, printed = answered("gate", whole("green", 1))
    assert code == GREEN and printed.startswith("xpulab: warning, green 1.0 h ago") and "damaged0/result.json" in printed


def test_no_number_of_lesser_runs_makes_a_red_machine_green(whole, soaked, tmp_path):
    chance = random.Random(48)
    for _ in range(20):
        for path in tmp_path.iterdir():
            shutil.rmtree(path)
        whole("red", 50)
        for hours in chance.sample(range(1, 49), 8):
            kind = chance.choice([*LESS, "a soak", "damaged"])
            if kind == "damaged":
                damage(tmp_path, chance.choice(UNREADABLE))
            elif kind == "a soak":
                soaked(hours)
            else:
                whole("green", hours, **{**LESS[chance.choice([*LESS])], **LESS[kind]})
            assert gate(tmp_path, 24, chance.choice(["", REQUIRED])).state == "red", sorted(tmp_path.glob("*/*"))


@pytest.mark.parametrize(
    ("runs", "code", "said"),
    [
        ([("green", 1, "")], GREEN, "xpulab: green 1.0 h ago, 2 of 2 checks at level quick on xpu"),
        ([("green", 1, "before")], UNKNOWN, "not of this boot of the machine; run it again"),
        ([("red", 1, "before")], RED, REPEATED),
        ([("red", 3, "before"), ("green", 2, "")], GREEN, "green 2.0 h ago"),
        ([("red", 3, "before"), ("green", 2, "before")], UNKNOWN, "not of this boot"),
        ([("red", 3, ""), ("green", 2, "before")], RED, REPEATED),
        ([("red", 3, ""), ("green", 2, "")], GREEN, "green 2.0 h ago"),
        ([("green", 3, ""), ("red", 2, "")], RED, REPEATED),
        ([("red", 30, ""), ("green", 29, "")], UNKNOWN, "too old"),
        ([("red", 2, ""), ("green", 2, "")], RED, REPEATED),
    ],
)
def test_red_stays_until_a_later_green_run_and_a_green_one_counts_in_its_boot(whole, runs, code, said):
    for state, hours, boot in runs:
        folder = whole(state, hours, boot=boot or boot_id())
    found, printed = answered("gate", folder, "--require", REQUIRED)
    assert (found, said in printed) == (code, True), printed


def test_a_stronger_run_clears_a_red_one_and_a_replaced_card_may_be_another_one_after_a_boot(whole):
    whole("red", 5, level="smoke", is_whole=False, cards=2, boot="before", card_facts=[card(serial="worn")])
    assert answered("gate", whole("green", 1, level="standard"), "--require", REQUIRED)[0] == GREEN


def test_the_name_of_a_node_has_a_domain_or_none(whole, monkeypatch):
    monkeypatch.setenv("XPULAB_NODE", "Node7")
    for name in ("node70", "10.0.0.7", "node.example.com"):
        assert answered("gate", whole("green", 2, node=name))[0] == UNKNOWN, name
    for name in ("node7.example.com", "NODE7"):
        assert answered("gate", whole("green", 1, node=name))[0] == GREEN, name
        monkeypatch.setenv("XPULAB_NODE", "Node7.example.com")


def test_an_accelerator_that_was_lost_is_found_by_a_run_that_expects_it(whole):
    lost = {"id": "too-few", "since": [], "problem": "7 cards", "steps": [], "expected": 8, "device": "cpu"}
    nothing = [notebook(NEVER_RAN, outcome="missing", reason="not run")]
    whole("green", 5, *nothing, green=False, outcome="failed", device="cpu", cards=1, lost=lost, card_facts=[])
    assert answered("gate", whole("green", 3, device="cpu", cards=1))[0] == RED
    assert answered("gate", whole("green", 2, cards=1))[0] == RED
    assert answered("gate", whole("green", 1, cards=1, expected=8))[0] == GREEN


def test_a_red_soak_counts_until_one_that_is_green_for_as_many_rounds_and_a_green_one_replaces_no_run(whole, soaked):
    again = "rerun: xpulab soak --check demo.sum --device xpu --cards 8"
    folder = soaked(6)
    assert "holds no result.json of a whole run" in answered("gate", folder, "--reason")[1]
    whole("green", 5)
    code, printed = answered("gate", soaked(4, **RED_SOAK), "--reason")
    assert code == RED and "demo.sum in round 7 of a soak (seed 2): its values differ" in printed
    assert printed.endswith(f"{again}\n")
    whole("green", 3.5)
    nothing = {"outcome": "nothing compared", "repeated": 0}
    for less in ({"rounds": 6}, {"checks": ["demo.product"]}, {"cards": 1}, nothing, {"node": "n17"}):
        assert answered("gate", soaked(3, **less))[0] == RED, less
    assert answered("gate", soaked(2))[0] == GREEN
    whole("red", 1)
    assert answered("gate", soaked(0.5))[0] == RED


def test_a_result_beside_the_folders_of_runs_hides_none_of_them(whole, tmp_path):
    whole("red", 3, folder="first")
    os.rename(whole("green", 1, cards=1, folder="second") / "second/result.json", tmp_path / "result.json")
    assert answered("gate", tmp_path)[0] == RED


@pytest.mark.parametrize(
    ("require", "key"),
    [("device=tpu", "device=tpu"), ("cards=0", "cards=0"), ("cards=8,cards=8", "'cards=8'"), ("level=fast", "level=fast"),
     ("notebooks=3", "notebooks=3"), ("card=8", "card=8"), ("device=xpu,", "''"), ("xpu", "'xpu'"), ("cards=٨", "cards=٨")],
)  # fmt: skip
def test_what_cannot_be_required_is_an_error_that_names_the_key(whole, monkeypatch, require, key):
    folder = str(whole())
    with pytest.raises(InputError, match=re.escape(key)):
        gate(Path(folder), 24, require)
    monkeypatch.setenv("XPULAB_REQUIRE", require)
    assert [answered("gate", folder, *form)[0] for form in ((), ("--reason",), ("--json",))] == [UNKNOWN] * 3


def test_what_a_site_requires_is_read_from_its_variable(whole, monkeypatch):
    folder = whole(cards=4)
    assert answered("gate", folder)[0] == GREEN
    monkeypatch.setenv("XPULAB_REQUIRE", "cards=8")
    assert answered("gate", folder) == (UNKNOWN, answered("gate", folder, "--require", "cards=8")[1])
    assert "cards=4, not 8" in answered("gate", folder)[1]
    monkeypatch.setenv("XPULAB_REQUIRE", "device=auto,cards=4")
    assert answered("gate", folder)[0] == GREEN


# --------------------------------------------------------------------------------------------------- the commands, bundles


def answered(*arguments):
    """The exit code of a command, and what it printed."""
    done = CliRunner().invoke(cli.app, [*map(str, arguments)], catch_exceptions=False)
    return done.exit_code, done.stdout


def test_the_reason_names_the_first_red_check_and_without_a_verdict_says_why_on_standard_output(put, tmp_path):
    code, printed = answered("gate", put(RED_NOTEBOOK, green=False, outcome="failed"), "--reason")
    start = "[node_problem] xpulab demo.product measured 2.5, expected < 1; rerun: xpulab run"
    assert code == RED and printed.startswith(start)
    code, printed = answered("gate", tmp_path / "nowhere", "--reason")
    assert code == UNKNOWN and printed.startswith("xpulab: unknown, ") and "nowhere: cannot be read" in printed


def test_the_answer_as_json_fits_its_schema_also_for_a_folder_that_cannot_be_read(whole, tmp_path):
    schema = json.loads(files.data("schema", "gate.schema.json").read_text())
    folder = whole("red", 3)
    whole("green", 2, cards=1)
    nowhere = [(folder / name, "unknown", UNKNOWN) for name in ("nowhere", "run0/result.json")]
    for given, state, code in [(folder, "red", RED), *nowhere]:
        found, printed = answered("gate", given, "--json")
        answer = json.loads(printed)
        jsonschema.validate(answer, schema)
        assert (found, answer["state"], answer["reason"]) == (code, state, answered("gate", given, "--reason")[1].strip())
        if code == RED:
            assert answer["file"].endswith("run0/result.json")
            assert answer["ignored"] == [f"{folder}/run1/result.json: green, but cards=1, not 8"]
        else:
            assert str(given) in answer["line"]


@pytest.mark.parametrize(
    ("notebooks", "changed", "code", "said"),
    [
        ([notebook(check())], {}, GREEN, "green"),
        ([notebook(check())], {"outcome": "partial"}, GREEN, "a part only: 1 of 1 checks"),
        (
            [RED_NOTEBOOK, notebook(NEVER_RAN, name="01_other", outcome="missing")],
            {"green": False, "outcome": "failed"},
            RED,
            "demo.sum is missing",
        ),
        ([INTERRUPTED], {"green": False, "outcome": "failed"}, UNKNOWN, "interrupted"),
    ],
    ids=["green", "partial", "red", "interrupted"],
)
def test_the_verdict_in_a_bundle_is_shown_once_its_checksums_are_verified(put, pack, notebooks, changed, code, said):
    written = put(*notebooks, folder="one", **changed) / "one" / "result.json"
    result = {**made_up_result(), **json.loads(written.read_text())}
    status, printed = answered("judge", pack("node7", result, node="node7"))
    assert (status, said in printed, "1 files with the right checksums; node7" in printed) == (code, True, True)
    for changed_result, digest, why in (
        (result, "0" * 64, "its checksum is another one"),
        ({**result, "cards": "8"}, None, "not what"),
    ):
        with pytest.raises(InputError, match=why):
            verdict_in(pack("damaged", changed_result, digest=digest))
