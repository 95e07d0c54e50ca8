"""The proof itself can fail: a fault that nothing detects is reported, and red for another reason proves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace

import pytest
from nbformat import v4
from typer.testing import CliRunner

from tests.conftest import make, save, section
from xpulab import cli, files
from xpulab.chapters.shared.fault import Fault, in_every_rank
from xpulab.devices import STANDS_FOR
from xpulab.faults import CATALOGUE, selftest

pytestmark = pytest.mark.integration

SECTIONS = {
    "root": ['check.equal("demo.root", math.sqrt(9), 3.0, control=4.0)'],
    "other": ["unused = open({mark!r} + '-not-needed', 'w')", 'check.equal("demo.sine", math.sin(0), 0.0, control=1.0)'],
    "text": ['import pathlib\npathlib.Path({mark!r}).touch()\ncheck.equal("demo.text", "a".upper(), "A", control="B")'],
    "smoke": ['check.equal("demo.smoke", math.sqrt(4), 2.0, control=4.0)'],
}


def wrong_root():
    import math

    math.sqrt = lambda x: 4.0


def nothing():
    pass


@pytest.fixture
def fault(tmp_path, monkeypatch):
    """Makes a fault of the notebook `demo`; tmp_path / "reached" is there once the section of demo.text has run."""
    cells = []
    for name, sources in SECTIONS.items():
        cells.append(section(name, level="smoke" if name == "smoke" else "quick"))
        cells += [v4.new_code_cell(source.replace("{mark!r}", repr(str(tmp_path / "reached")))) for source in sources]
    notebook = make(*cells, budget=30)
    del notebook.cells[2]  # its section "all"
    notebook.cells[1].source += "\nimport math"
    save(notebook, tmp_path / "demo.ipynb")
    monkeypatch.setattr(files, "NOTEBOOKS", tmp_path)
    selftest._chapter.cache_clear()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.environ["PYTHONPATH"], str(files.ROOT)]))  # kernels ignore this folder

    def of_demo(inject=nothing, *, name="demo", detected_by=("demo.root",), **given):
        # nested, so that it is pickled by value: the kernel cannot import this file
        return Fault(name, "a demo", "demo", ("cpu",), detected_by, lambda: by_value(inject)(), **given)

    return of_demo


def by_value(function):
    """The same function as one that no module has."""
    from types import FunctionType

    return FunctionType(function.__code__, {"__builtins__": __builtins__})


def breaks_down():
    import math

    del math.sqrt


def raises_import_error():
    import no_such_module  # noqa: F401


def test_a_fault_is_detected_by_its_checks_alone_and_several_are_tried_at_a_time(fault, tmp_path):
    faults = [fault(wrong_root, name="good"), fault(breaks_down, name="breaks-down"), fault(raises_import_error, name="raises")]
    trials = {trial.fault.name: trial for trial in selftest.trials(selftest.cases_of(faults), 2, os.environ)}
    assert (trials["good"].missed, trials["good"].detected_by) == (None, ("demo.root",))
    assert trials["breaks-down"].missed.startswith("not detected by demo.root; ")
    assert trials["raises"].missed.startswith("it could not be injected: ")
    assert not (tmp_path / "reached").exists() and not (tmp_path / "reached-not-needed").exists()


def test_a_fault_that_one_of_its_checks_does_not_see_is_missed(fault, tmp_path):
    (trial,) = selftest.trials([(fault(wrong_root, detected_by=("demo.root", "demo.text")), "quick")], 1, os.environ)
    assert trial.detected_by == ("demo.root",) and trial.missed.startswith("not detected by demo.text; ")
    assert (tmp_path / "reached").exists()


def test_at_level_smoke_the_smoke_sections_must_detect_it(fault):
    of_both = fault(wrong_root, smoke=("demo.smoke",))
    tried = selftest.trials(selftest.cases_of([of_both]), 1, os.environ)
    trials = {trial.level: (trial.detected_by, trial.missed) for trial in tried}
    assert trials == {"quick": (("demo.root",), None), "smoke": (("demo.smoke",), None)}
    assert len(selftest.cases_of([of_both, fault()])) == 3


def command(*arguments):
    return CliRunner().invoke(cli.app, ["selftest", *arguments])


def test_the_command_says_which_check_detected_a_fault(fault, monkeypatch):
    monkeypatch.setattr(selftest, "CATALOGUE", (fault(wrong_root),))
    monkeypatch.setattr("xpulab.faults.command.kernel_environment", lambda device, before: nullcontext(dict(os.environ)))
    done = command("--json")
    result = json.loads(done.stdout)
    assert (done.exit_code, result["detected"], result["faults"][0]["detected_by"]) == (0, 1, ["demo.root"])


def test_the_command_lists_all_faults_and_refuses_a_name_that_none_has():
    done = command("--list")
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        fault.name for fault in CATALOGUE if not selftest.chapter_of(fault).environment
    ]
    done = command("--fault", "none")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "no fault 'none'" in done.stderr and "--list" in done.stderr and "Traceback" not in done.stderr


def test_what_runs_in_every_rank_runs_before_the_function(monkeypatch):
    from xpulab import ranks

    given = []
    monkeypatch.setattr(ranks, "run", lambda function, n, *arguments: given.append(function(*arguments)))
    import math

    monkeypatch.setattr(math, "tau", math.tau)
    in_every_rank(lambda: setattr(math, "tau", 6))
    ranks.run(lambda x: (x, math.tau), 2, "argument")
    assert given == [("argument", 6)]


def test_faults_of_which_none_can_be_tried_on_simulated_cards_are_refused(fault, monkeypatch):
    monkeypatch.setattr(selftest, "CATALOGUE", (replace(fault(), lanes=()),))
    monkeypatch.setattr("xpulab.cli.selftest.chosen.show_machine", lambda *given: None)
    monkeypatch.setenv(STANDS_FOR, "gpu")  # the command runs in this process, which then is what it was
    done = command("--as", "xpu", "--fault", "demo")
    assert (done.exit_code, done.stdout) == (2, "") and "none of these faults" in done.stderr


def test_in_a_rehearsal_faults_of_the_machine_meet_that_of_the_rehearsed_device():
    faults = ("card-hidden-from-paddle", "one-card-is-listed-twice")
    done = subprocess.run(
        [sys.executable, "-m", "xpulab", "selftest", "--as", "xpu", *(f"--fault={name}" for name in faults)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "4 of 4 faults detected"), done.stdout
