"""The proof itself can fail: a fault that nobody sees is reported, and being red for another reason proves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext

import nbformat
import pytest
from nbformat import v4
from typer.testing import CliRunner

from xpulab import cli, files
from xpulab.errors import InputError
from xpulab.faults import CATALOGUE, selftest, table
from xpulab.faults.fault import Fault, in_every_rank
from xpulab.faults.sections import Slice

CELLS = (
    'device = "auto"\nlevel = "quick"\ncards = 1\nseed = 0',
    "import math\nfrom xpulab.checks import check\nfrom xpulab.checks.verdict import verdict",
    "nine = 9\nunused = open({mark!r} + '-not-needed', 'w')",
    'check.equal("demo.root", math.sqrt(9), 3.0, control=4.0)',
    'check.equal("demo.nine", lambda: math.sqrt(nine), 3.0, control=4.0)',
    'check.equal("demo.sine", math.sin(0), 0.0, control=1.0)',
    'import pathlib\npathlib.Path({mark!r}).touch()\ncheck.equal("demo.text", "a".upper(), "A", control="B")',
    'check.equal("demo.wrong", 1.0, 2.0, control=3.0)',
    'if cards > 100:\n    check.equal("demo.never", 1.0, 1.0, control=2.0)',
    "verdict()",
)
WRONG_ROOT = "import math; math.sqrt = lambda x: 4.0"


@pytest.fixture
def fault(tmp_path, monkeypatch):
    """Makes a fault of the notebook `demo`; tmp_path / "reached" is there once its last check has run."""
    cells = [v4.new_code_cell(source.replace("{mark!r}", repr(str(tmp_path / "reached")))) for source in CELLS]
    cells[0].metadata["tags"] = ["parameters"]
    notebook = v4.new_notebook(cells=cells)
    budget = {"quick": 30, "standard": 30}
    notebook.metadata["xpulab"] = {"title": "A demo", "capabilities": ["demo"], "cards": 1, "budget_seconds": budget}
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, tmp_path / "demo.ipynb")
    monkeypatch.setattr(files, "NOTEBOOKS", tmp_path)
    return lambda **given: Fault(**{"name": "demo", "what": "a demo", "notebook": "demo", "seen_by": ("demo.root",), **given})


def test_a_fault_is_caught_and_the_rest_of_the_notebook_is_not_run(fault, tmp_path):
    trial = selftest.try_fault(fault(breaks=WRONG_ROOT), os.environ)
    assert (trial.survived, trial.seen_by) == (None, ("demo.root",))
    assert not (tmp_path / "reached").exists()


def test_a_fault_that_changes_nothing_survives(fault):
    trial = selftest.try_fault(fault(breaks="pass"), os.environ)
    assert trial.seen_by == ()
    assert trial.survived.startswith("not seen by demo.root; ")


def test_all_that_must_see_it_do_and_nothing_less_counts(fault, tmp_path):
    trial = selftest.try_fault(fault(breaks=WRONG_ROOT, seen_by=("demo.root", "demo.text")), os.environ)
    assert trial.seen_by == ("demo.root",)
    assert trial.survived.startswith("not seen by demo.text; ")
    assert (tmp_path / "reached").exists()


def test_what_these_checks_do_not_need_is_not_run(fault, tmp_path):
    selftest.try_fault(fault(breaks="pass"), os.environ)
    assert not (tmp_path / "reached-not-needed").exists()


def test_a_fault_that_ends_the_notebook_is_tried_in_all_of_it(fault, tmp_path):
    selftest.try_fault(fault(breaks="pass", says="no roots"), os.environ)
    assert (tmp_path / "reached-not-needed").exists()


@pytest.fixture
def without_nine(monkeypatch):
    """The sections of `demo.nine` lack what it needs."""
    whole = selftest.sliced

    def lacking(cells, checks):
        part = whole(cells, checks)
        return Slice(tuple(source.replace("nine = 9", "") for source in part.sources), part.cut | {"nine"})

    monkeypatch.setattr(selftest, "sliced", lacking)


def test_sections_that_break_by_themselves_are_no_proof(fault, without_nine):
    trial = selftest.try_fault(fault(breaks=WRONG_ROOT, seen_by=("demo.nine",)), os.environ)
    assert trial.seen_by == ("demo.nine",)
    assert trial.survived == "its sections lack nine, so that they break by themselves"


def test_a_notebook_that_breaks_down_has_not_seen_the_fault(fault):
    trial = selftest.try_fault(fault(breaks="import math; del math.sqrt"), os.environ)
    assert trial.survived.startswith("not seen by demo.root; ")


@pytest.mark.parametrize("breaks", ["import no_such_module", "if:", "raise KeyboardInterrupt"])
def test_a_fault_that_cannot_be_let_loose_is_no_proof(fault, breaks):
    assert selftest.try_fault(fault(breaks=breaks), os.environ).survived.startswith("it could not be let loose: ")


def test_a_fault_may_be_indented_like_its_surroundings(fault):
    indented = """
        import math
        def sqrt(x):
            return 4.0
        math.sqrt = sqrt
    """
    assert selftest.try_fault(fault(breaks=indented), os.environ).survived is None


def test_a_fault_leaves_no_name_in_the_notebook(fault):
    looks = "import math\nmath.sqrt = lambda x: 0.0 if 'fault' in vars(__import__('__main__')) else 3.0"
    trial = selftest.try_fault(fault(breaks=looks), os.environ)
    assert trial.survived.startswith("not seen by demo.root; ")


def test_a_fault_that_ends_the_notebook_must_be_named(fault):
    breaks = "import math\ndef sqrt(x):\n    raise ArithmeticError('no roots today')\nmath.sqrt = sqrt"
    assert selftest.try_fault(fault(breaks=breaks, says="no roots"), os.environ).survived is None
    survived = selftest.try_fault(fault(breaks=breaks, says="overflow"), os.environ).survived
    assert survived.startswith("the notebook does not say 'overflow' but: ")


def test_several_are_tried_at_a_time(fault):
    faults = [fault(name="good", breaks=WRONG_ROOT), fault(name="bad", breaks="pass")]
    outcomes = {trial.fault.name: bool(trial.survived) for trial in selftest.trials(faults, 2, os.environ)}
    assert outcomes == {"good": False, "bad": True}


def the_control(*faults):
    (control,) = selftest.controls(faults, 1, os.environ)
    return control


def test_without_the_fault_all_is_well(fault):
    control = the_control(fault(breaks=WRONG_ROOT))
    assert (control.wrong, control.faults, control.checks, control.cells) == (None, ("demo",), ("demo.root",), (3, 10))


def test_a_check_that_is_red_without_the_fault_proves_nothing(fault):
    assert the_control(fault(seen_by=("demo.root", "demo.wrong"))).wrong.startswith("demo.wrong is failed; ")


def test_a_check_that_does_not_come_proves_nothing(fault):
    assert the_control(fault(seen_by=("demo.never",))).wrong.startswith("demo.never is missing; ")


def test_sections_that_lack_a_name_are_wrong_without_a_fault(fault, without_nine):
    assert the_control(fault(seen_by=("demo.nine",))).wrong == "its sections lack nine, so that they break by themselves"


def test_the_same_sections_run_once_without_a_fault(fault):
    assert the_control(fault(name="one"), fault(name="other")).faults == ("one", "other")


def test_a_fault_that_ends_the_notebook_has_no_control(fault):
    assert list(selftest.controls([fault(says="no roots")], 1, os.environ)) == []


@pytest.mark.parametrize(("check", "exit_code", "said"), [("demo.root", 0, "1 of 1 well"), ("demo.wrong", 1, "0 of 1 well")])
def test_the_command_runs_the_control(fault, monkeypatch, check, exit_code, said):
    monkeypatch.setattr(selftest, "CATALOGUE", (fault(breaks=WRONG_ROOT, seen_by=(check,)),))
    monkeypatch.setattr("xpulab.harness.run.kernel_environment", lambda device: nullcontext(dict(os.environ)))
    done = CliRunner().invoke(cli.app, ["selftest", "--control"])
    assert (done.exit_code, said in done.stdout) == (exit_code, True), done.output


def test_what_is_wrong_without_a_fault_comes_first():
    well, wrong = (
        selftest.Control("demo", "cpu", (name,), ("demo.root",), (2, 4), why, 1.0) for name, why in (("a", None), ("b", "red"))
    )
    lines = table.controls_as_text([well, wrong]).splitlines()
    assert lines[0].startswith("WRONG  demo.root (demo, cpu, 2 of 4 cells") and lines[-1] == "1 of 2 well without a fault"
    assert table.controls_to_json([well, wrong])["well"] == 1


def test_survivors_come_first():
    caught, survivor = (
        selftest.Trial(Fault(name, "what", "demo", ("demo.root",)), (), survived, 1.0)
        for name, survived in (("a", None), ("b", "not seen"))
    )
    lines = table.as_text([caught, survivor]).splitlines()
    assert lines[0].startswith("SURVIVED  b") and lines[-1] == "1 of 2 faults caught"
    assert table.to_json([caught, survivor])["caught"] == 1


def test_a_name_that_no_fault_has_is_refused():
    with pytest.raises(InputError, match=r"no fault 'nobody'.*--list"):
        selftest.faults_named(["nobody"])


def test_without_names_all_are_tried():
    assert selftest.faults_named([]) == CATALOGUE


def test_what_runs_in_every_rank_runs_before_the_function(monkeypatch):
    from xpulab import ranks

    given = []
    monkeypatch.setattr(ranks, "run", lambda function, n, *arguments: given.append(function(*arguments)))
    exec(in_every_rank("import math\nmath.tau = 6"), {})
    import math

    monkeypatch.setattr(math, "tau", math.tau)
    ranks.run(lambda x: (x, math.tau), 2, "argument")
    assert given == [("argument", 6)]


def command(*arguments):
    done = [sys.executable, "-m", "xpulab", "selftest", *arguments]
    return subprocess.run(done, capture_output=True, text=True, timeout=250)


def test_the_command_says_which_check_saw_a_fault():
    done = command("--fault", "inputs-held-on-to", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["caught"], said["faults"][0]["fault"]) == (1, "inputs-held-on-to")
    assert "pipeline.released" in said["faults"][0]["seen_by"]


def test_the_command_refuses_a_name_that_no_fault_has():
    done = command("--fault", "nobody")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no fault 'nobody'" in done.stderr and "Traceback" not in done.stderr


def test_the_command_lists_all_faults():
    done = command("--list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == [fault.name for fault in CATALOGUE]
