"""After a cell cost its kernel, what does not need its section runs in a new kernel, and nothing is counted twice or lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from xml.etree import ElementTree

import nbformat
import psutil
import pytest

from tests.conftest import make, save, section
from xpulab.harness.execute import LIMIT_IN_BUDGETS, Execution, Target
from xpulab.harness.judge import judge
from xpulab.harness.lost import can_go_on_without
from xpulab.harness.plan import plan_of_checks, read_plan
from xpulab.sim.build import built

pytestmark = pytest.mark.integration

CHECK = 'check.equal("demo.{0}", {1}, 2, control=3)'
BASE = CHECK.format("base", 2)
KILL = "import os, signal\nos.write(2, b'last line\\n')\nos.kill(os.getpid(), signal.SIGKILL)"
ENDLESS = "import time\nwhile True:\n    time.sleep(0.01)"
DEAF = "import time\nwhile True:\n    try:\n        time.sleep(0.01)\n    except KeyboardInterrupt:\n        pass"
STICKY = 'from xpulab import sim\nsim.set_faults("{0}")\nraise ValueError("the first of many")'
ON_SIM = 'import paddle\nfrom xpulab.chapters.shared.device import use_device\nuse_device("sim", 1)'


@pytest.fixture
def ran(tmp_path):
    """ran(): a letter for each cell of a section that has run, in order; ran.code(letter) is the line of source for it."""

    def letters():
        return (tmp_path / "ran").read_text()

    letters.code = lambda letter: f"ran = open({str(tmp_path / 'ran')!r}, 'a')\nprint('{letter}', end='', file=ran, flush=True)"
    letters.again = f"open({str(tmp_path / 'ran')!r}).read().count('b') > 1"
    return letters


@pytest.fixture
def notebook(ran):
    """notebook(loses, base=..., head=...): code cells 3 of section all; 4 base; 5 data, which needs base and runs `loses`;
    6 uses, which needs data; 7 alone, which needs base; 8 last, which needs nothing; 9 verdict()."""

    def made(loses, base=BASE, head="", **changed):
        cells = make(
            f"{ran.code('f')}\n{CHECK.format('first', 2)}",
            section("base"),
            f"{ran.code('b')}\nvalue = 2\n{base}",
            section("data", "base"),
            f"{ran.code('d')}\n{loses}",
            section("uses", "data"),
            CHECK.format("uses", 2),
            section("alone", "base"),
            f"{ran.code('a')}\n{CHECK.format('alone', 'value')}",
            section("last"),
            f"{ran.code('l')}\n{CHECK.format('last', 2)}",
            **changed,
        )
        cells.cells[1].source += f"\n{ran.code('h')}\n{head}"
        return cells

    return made


@pytest.fixture
def run(tmp_path, in_fork_server):
    """run(notebook, device, checks): the verdict on it, or on the sections of these checks."""

    def execute(notebook, device="cpu", checks=()):
        if device == "sim":
            built()  # not within a notebook's time
        plan = read_plan(save(notebook, tmp_path / "demo.ipynb"), "quick")
        plan = plan_of_checks(plan.chapter, "quick", checks) if checks else plan
        (tmp_path / "out").mkdir()
        [(_, executed)] = Execution(Target(device, "quick", 1), tmp_path / "out", lambda *cell: None).run([plan], 1)
        return judge(plan, executed)

    return execute


@pytest.fixture
def short_cells(monkeypatch):
    """A cell may take a sixth of the budget."""
    monkeypatch.setattr("xpulab.harness.execute.LEFT_IN_BUDGETS", LIMIT_IN_BUDGETS - 1 / 6)


def outcomes(verdict):
    return {record.name.removeprefix("demo."): record.outcome for record in verdict.records}


def reasons(verdict):
    return {record.name.removeprefix("demo."): record.reason for record in verdict.records if record.outcome == "missing"}


def code(verdict):
    """The executed code cells without the one that papermill has added."""
    cells = nbformat.read(verdict.executed, as_version=4).cells
    return [cell for cell in cells if cell.cell_type == "code" and cell.metadata.get("tags") != ["injected-parameters"]]


GREEN = dict.fromkeys(("first", "base", "alone", "last"), "passed")
AFTER_DATA = GREEN | {"uses": "missing"}


def test_after_a_dead_kernel_what_does_not_need_its_section_runs_in_a_new_one(run, notebook, ran, tmp_path):
    file = tmp_path / "pid"
    start = f"import subprocess\nchild = subprocess.Popen(['sleep', '1000'])\nopen({str(file)!r}, 'w').write(str(child.pid))\n"
    verdict = run(notebook(start + KILL, head="import os; os.write(2, b'a kernel\\n')"))
    assert outcomes(verdict) == AFTER_DATA and verdict.outcome == "failed"
    assert reasons(verdict) == {"uses": "after cell 5 of section data ended its kernel"}
    assert ran() == "hfbdhbal"
    assert verdict.run.stopped is None and verdict.reasons[0] == "the kernel died in cell 5 of section data"
    assert verdict.notes == ("the kernel died in cell 5 of section data; went on in a new kernel",)
    # each cell is shown once
    cells = code(verdict)
    ended = [cell.metadata.papermill.status for cell in cells[3:8]]
    assert ended == ["completed", "failed", "pending", "completed", "completed"]
    records = [[each.metadata["xpulab"]["check"]["outcome"] for each in cell.outputs if each.get("metadata")] for cell in cells]
    assert records[2:8] == [["passed"], ["passed"], [], [], ["passed"], ["passed"]]
    # verdict() knows the checks of the first kernel, the log has what both wrote, and nothing of the first runs on
    last = str(cells[-1].outputs)
    assert "4 of 5 planned checks compared" in last and "Cell 5 of section data ended its kernel" in last
    assert "demo.first" in last and "NOT READY" in last
    log = verdict.executed.with_suffix(".log").read_text()
    assert log.index("last line") < log.index("new kernel of this notebook") < log.rindex("a kernel\n")
    pid = int(file.read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_an_excerpt_goes_on_in_a_new_kernel_and_calls_its_cells_as_the_whole_notebook_does(run, notebook, ran):
    verdict = run(notebook(KILL), checks=["demo.uses", "demo.alone"])
    assert outcomes(verdict) == {"base": "passed", "uses": "missing", "alone": "passed"} and ran() == "hbdhba"
    assert reasons(verdict) == {"uses": "after cell 5 of section data ended its kernel"}


@pytest.mark.parametrize("endless", [ENDLESS, DEAF])
def test_after_a_cell_that_never_ends_the_rest_runs_in_a_new_kernel(run, notebook, ran, short_cells, monkeypatch, endless):
    monkeypatch.setattr("xpulab.harness.watchdog._GRACE_SECONDS", 0.5)
    verdict = run(notebook(endless, budget=60))
    assert outcomes(verdict) == AFTER_DATA and ran() == "hfbdhbal"
    assert reasons(verdict) == {"uses": "after cell 5 of section data had not ended after 10 s"}
    assert verdict.reasons[0] == "cell 5 of section data had not ended after 10 s"
    assert not any("KeyboardInterrupt" in reason for reason in verdict.reasons)
    assert verdict.notes == ("cell 5 of section data had not ended after 10 s; went on in a new kernel",)


def test_a_cell_has_a_limit_of_its_own_only_where_a_section_below_could_go_on_without_it(notebook, tmp_path):
    plan = read_plan(save(notebook(KILL), tmp_path / "demo.ipynb"), "quick")
    limited = [number for number in range(1, 10) if can_go_on_without(plan, number)]
    assert limited == [3, 4, 5, 6, 7]  # not the parameters, the imports, the last section and verdict()


@pytest.mark.parametrize("fault", ["lose task", "flip copy kind=d2h bit=30", "hang copy kind=d2h"])
def test_after_an_error_that_the_device_does_not_recover_from_the_rest_runs_in_a_new_kernel(
    run, notebook, ran, monkeypatch, fault
):
    if "hang" in fault:
        monkeypatch.setattr("xpulab.harness.engine.ANSWER_SECONDS", 0.5)
    verdict = run(notebook(STICKY.format(fault), head=ON_SIM), "sim")
    assert outcomes(verdict) == AFTER_DATA and ran() == "hfbdhbal"
    assert verdict.reasons[0].startswith("cell 5 of section data raised")
    assert verdict.notes == ("the device computed no more after cell 5 of section data raised; went on in a new kernel",)


def test_after_an_error_from_which_the_device_recovers_the_kernel_goes_on(run, notebook, ran):
    verdict = run(notebook("raise ValueError('no data')", head=ON_SIM), "sim")
    assert outcomes(verdict) == AFTER_DATA and ran() == "hfbdal" and verdict.notes == ()


def test_a_section_that_costs_its_kernel_when_it_runs_again_is_lost_too(run, notebook, ran):
    dies_again = f"{BASE}\nimport os\nif {ran.again}:\n    os._exit(3)"
    verdict = run(notebook(KILL, base=dies_again))
    assert ran() == "hfbdhbhl"
    assert outcomes(verdict) == AFTER_DATA | {"alone": "missing"}
    assert reasons(verdict)["alone"] == "after cell 4 of section base ended its kernel"
    assert [note.split(";")[0] for note in verdict.notes] == [
        "the kernel died in cell 4 of section base",
        "the kernel died in cell 5 of section data",
    ]


def test_a_section_that_raises_when_it_runs_again_is_lost_and_shows_both(run, notebook, ran):
    raises_again = f"{BASE}\nif {ran.again}:\n    raise OSError('gone')"
    verdict = run(notebook(KILL, base=raises_again))
    assert ran() == "hfbdhbl"
    assert outcomes(verdict) == AFTER_DATA | {"alone": "missing"}
    assert "cell 4 of section base raised OSError: gone" in verdict.reasons


@pytest.mark.parametrize(("first", "second"), [("2", "4"), ("4", "2")])
def test_a_check_that_is_red_in_one_of_two_runs_is_red(run, notebook, ran, first, second):
    base = CHECK.format("base", f"{second} if {ran.again} else {first}")
    verdict = run(notebook(KILL, base=base))
    assert outcomes(verdict) == AFTER_DATA | {"base": "failed"}
    assert "demo.base (failed)" in str(code(verdict)[-1].outputs)


def test_when_a_new_kernel_does_not_get_past_the_imports_the_rest_is_missing(run, notebook, ran):
    head = "import pathlib\nif 'd' in pathlib.Path(ran.name).read_text():\n    raise OSError('no card')"
    verdict = run(notebook(KILL, head=head))
    assert ran() == "hfbdh"
    assert outcomes(verdict) == {"first": "passed", "base": "passed"} | dict.fromkeys(("uses", "alone", "last"), "missing")
    assert reasons(verdict)["alone"] == "after cell 2 raised"
    assert "cell 2 raised OSError: no card" in verdict.reasons


def test_a_kernel_that_cannot_be_started_again_ends_the_notebook_with_a_reason(run, notebook, tmp_path, monkeypatch):
    spec = tmp_path / "kernels" / "once" / "kernel.json"
    spec.parent.mkdir(parents=True)
    start = f'mkdir {tmp_path / "once"} && exec {sys.executable} -m ipykernel_launcher -f "$0"'
    argv = ["sh", "-c", start, "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "Once", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    verdict = run(notebook(KILL, kernel={"name": "once", "display_name": "Once", "language": "python"}))
    assert verdict.run.stopped.startswith("the kernel died in cell 5; ")
    assert "no new kernel could be started" in verdict.run.stopped
    assert outcomes(verdict) == {"first": "passed", "base": "passed"} | dict.fromkeys(("uses", "alone", "last"), "missing")


def test_where_nothing_is_left_the_notebook_ends_with_its_kernel(run):
    verdict = run(make(CHECK.format("good", 2), KILL))
    assert verdict.run.stopped.startswith("the kernel died in cell 4; its last log lines are in") and verdict.notes == ()


def test_console_result_and_junit_say_it(notebook, tmp_path):
    chapter = save(notebook(KILL), tmp_path / "demo.ipynb")
    command = [sys.executable, "-m", "xpulab", "run", str(chapter), "--device", "cpu", "--cold", "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})
    note = "the kernel died in cell 5 of section data; went on in a new kernel"
    assert done.returncode == 1
    assert "demo: RED the kernel died in a cell" in done.stdout + done.stderr and note in done.stdout + done.stderr
    [stored] = json.loads((tmp_path / "run" / "result.json").read_text())["notebooks"]
    assert note in stored["notes"] and "the kernel died in cell 5 of section data" in stored["reason"]
    assert note in ElementTree.parse(tmp_path / "run" / "junit.xml").findtext(".//system-out")
