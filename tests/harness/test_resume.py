"""A run that was killed goes on with the notebooks that had not ended, and no red check is lost."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import nbformat
import psutil
import pytest

from tests.conftest import make, save, section
from xpulab import files
from xpulab.harness import run_folder as leftovers

pytestmark = pytest.mark.integration

SECONDS = 120
SETUP = """
import pathlib, time
folder = pathlib.Path(FOLDER)

def ran(letter):
    with (folder / "ran").open("a") as file:
        file.write(letter)

def wait_for_the_kill():
    if (folder / "ran").read_text().count("m") == 1:
        (folder / "middle").write_text("reached")
        time.sleep(100)

"""


@dataclass
class Killable:
    """A notebook whose section `middle` waits for its death, unless it runs for the second time.

    folder: where all files are. temporary: the folder for temporary files; its path is short, for sockets.
    ran: a letter for each cell that ran.
    """

    folder: Path
    notebook: Path
    middle: Path
    temporary: Path

    @property
    def ran(self) -> str:
        return (self.folder / "ran").read_text()

    @property
    def result(self) -> dict:
        return json.loads((self.folder / "out" / "result.json").read_text())

    @property
    def executed(self) -> nbformat.NotebookNode:
        return nbformat.read(self.folder / "out" / "notebooks" / "chapter.ipynb", as_version=4)

    def command(self, *options: str) -> list[str]:
        asked = ["run", str(self.notebook), "--device", "cpu", "--cold", "--out", str(self.folder / "out"), *options]
        return [sys.executable, "-m", "xpulab", *asked]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self.temporary)}

    def kill_in_the_middle(self, *options: str, number: int = signal.SIGKILL) -> list[psutil.Process]:
        """Start a run, and kill it while its section `middle` runs; returns the processes of its kernels."""
        while list(self.temporary.glob(f"{leftovers.PREFIX}*")):  # of a run that was killed before: it goes within a second
            time.sleep(0.05)
        with subprocess.Popen(self.command(*options), env=self.environment, stderr=subprocess.PIPE) as run:
            reached = os.open(self.middle, os.O_RDONLY | os.O_NONBLOCK)
            try:
                assert select.select([reached], [], [], SECONDS)[0], "the section was not reached"
                (folder,) = self.temporary.glob(f"{leftovers.PREFIX}*")
                kernels = [psutil.Process(pid) for pid in leftovers.processes(folder)]
            finally:
                run.send_signal(number)
                os.close(reached)
        assert kernels
        return kernels

    def run(self, *options: str) -> tuple[int, str]:
        done = subprocess.run(
            self.command(*options), env=self.environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        return done.returncode, done.stdout + done.stderr


def small_book():
    """The notebook of Killable, without SETUP."""
    return make(
        section("data"),
        "ran('d')\nnumbers = [1, 2, 3]",
        section("first", "data"),
        "ran('f')\nvalues = [*numbers, int((folder / 'fault').exists())]",
        'check.equal("demo.first", sum(values), 6, control=9, means="the sum")',
        section("middle", "data"),
        'ran("m")\ncheck.equal("demo.before", numbers[0], 1, control=2, means="one")',
        'wait_for_the_kill()\ncheck.equal("demo.middle", sum(numbers), 6, control=7, means="the sum")',
        section("end"),
        'ran("e")\ncheck.equal("demo.end", 2, 2, control=3, means="two")',
    )


@contextlib.contextmanager
def killable_in(folder):
    os.mkfifo(folder / "middle")
    notebook = small_book()
    notebook.cells[1].source = SETUP.replace("FOLDER", repr(str(folder))) + notebook.cells[1].source
    path = save(notebook, folder / "chapter.ipynb")
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
        yield Killable(folder, path, folder / "middle", Path(temporary))


@pytest.fixture
def killable(tmp_path):
    with killable_in(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """One that was killed, for tests that change nothing of it."""
    with killable_in(tmp_path_factory.mktemp("killed")) as made:
        made.kill_in_the_middle()
        yield made


def checks_of(result):
    return {check["name"]: check["outcome"] for notebook in result["notebooks"] for check in notebook["checks"]}


def texts_of(cell):
    return "".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs)


@dataclass
class Resumed:
    """A run that was killed and went on. before: `ran` of its killable and `result` after the kill, as they were then.

    alive: the kernels that outlived it. code, printed: of the run that went on.
    """

    killable: Killable
    before: tuple[str, dict]
    alive: list[psutil.Process]
    code: int
    printed: str


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """One for tests that change nothing of it."""
    with killable_in(tmp_path_factory.mktemp("resumed")) as made:
        kernels = made.kill_in_the_middle()
        before = made.ran, made.result
        _, alive = psutil.wait_procs(kernels, SECONDS)
        yield Resumed(made, before, alive, *made.run("--resume"))


def test_it_goes_on_and_nothing_is_left_in_between(resumed):
    ran, so_far = resumed.before
    assert ran == "dfm"
    jsonschema.validate(so_far, json.loads(files.data("schema", "result.schema.json").read_text()))
    assert (so_far["outcome"], so_far["green"], so_far["notebooks"][0]["outcome"]) == ("running", False, "waiting")
    assert resumed.alive == []

    killable = resumed.killable
    assert resumed.code == 0, resumed.printed
    assert killable.ran == "dfm" + "dfme"
    assert killable.result["outcome"] == "passed"
    assert list(checks_of(killable.result).values()) == ["passed"] * 4
    assert list(killable.temporary.iterdir()) == []
    assert sorted(path.name for path in (killable.folder / "out").rglob("*") if path.suffix != ".log") == sorted(
        ["index.html", "junit.xml", "metrics.prom", "notebooks", "result.json", "run.json", "chapter.ipynb"]
    )


def test_the_notebook_has_the_cells_of_the_source_and_the_verdict_on_all_checks(resumed):
    source = [cell.source for cell in nbformat.read(resumed.killable.notebook, as_version=4).cells]
    executed = resumed.killable.executed
    assert [cell.source for cell in executed.cells if "injected-parameters" not in cell.metadata.get("tags", [])] == source
    assert "4 of 4 planned checks compared" in texts_of(executed.cells[-1])


def test_a_check_that_was_red_before_the_kill_stays_red(killable):
    (killable.folder / "fault").touch()
    killable.kill_in_the_middle()
    (killable.folder / "fault").unlink()
    code, printed = killable.run("--resume")
    assert (code, checks_of(killable.result)["demo.first"]) == (1, "failed"), printed
    assert (killable.ran, killable.result["notebooks"][0]["reason"].split(";")[0]) == ("dfm", "its run was killed")


def test_a_run_that_is_killed_twice_goes_on(killable):
    killable.kill_in_the_middle()
    (killable.folder / "ran").write_text("")
    killable.kill_in_the_middle("--resume")
    assert killable.ran == "dfm"
    (killable.folder / "ran").write_text("mm")
    code, printed = killable.run("--resume")
    assert code == 0, printed
    assert list(checks_of(killable.result).values()) == ["passed"] * 4


def test_a_run_that_was_interrupted_by_ctrl_c_goes_on_too_also_with_another_time_limit(killable):
    killable.kill_in_the_middle(number=signal.SIGINT)
    assert killable.result["outcome"] == "failed"
    code, printed = killable.run("--resume", "--time-limit", "20")
    assert (code, killable.ran) == (0, "dfm" + "dfme"), printed


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """One that has ended, with --resume where nothing was begun."""
    with killable_in(tmp_path_factory.mktemp("ended")) as made:
        (made.folder / "ran").write_text("mm")
        yield made, made.run("--resume")


def test_where_nothing_was_begun_it_starts(ended):
    killable, (code, printed) = ended
    assert (code, killable.result["outcome"]) == (0, "passed"), printed


def test_a_run_that_has_ended_says_so_and_keeps_its_reports(ended):
    killable, _ = ended
    before = (killable.folder / "out" / "result.json").stat().st_mtime_ns
    code, printed = killable.run("--resume")
    assert (code, killable.ran) == (0, "mm" + "dfme")
    assert "this run has ended, there is nothing to resume" in printed
    assert (killable.folder / "out" / "result.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--seed", "3"], "seed 0, not 3"),
        (["--level", "standard"], "level quick, not standard"),
        (["--check", "demo.end"], "other checks of chapter (--check)"),
    ],
)
def test_other_options_are_an_error_that_names_them(killed, options, said):
    before = sorted(killed.folder.rglob("out/**/*"))
    code, printed = killed.run("--resume", *options)
    assert (code, said in " ".join(printed.split())) == (2, True), printed
    assert sorted(killed.folder.rglob("out/**/*")) == before


def test_a_changed_notebook_is_an_error(killable):
    killable.kill_in_the_middle()
    changed = nbformat.read(killable.notebook, as_version=4)
    changed.cells[-2].source += "\n"
    nbformat.write(changed, killable.notebook)
    code, printed = killable.run("--resume")
    assert (code, "notebook chapter has changed since" in " ".join(printed.split())) == (2, True), printed


def test_a_run_that_is_under_way_is_not_resumed(killable):
    with subprocess.Popen(killable.command(), env=killable.environment) as run:
        reached = os.open(killable.middle, os.O_RDONLY | os.O_NONBLOCK)
        assert select.select([reached], [], [], SECONDS)[0]
        code, printed = killable.run("--resume")
        run.kill()
        os.close(reached)
    assert (code, "under way in another process" in " ".join(printed.split())) == (2, True), printed


def test_a_resume_without_a_folder_is_an_error(tmp_path):
    command = [sys.executable, "-m", "xpulab", "run", "--resume"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 2 and "--resume" in done.stderr
    with contextlib.suppress(FileNotFoundError):
        assert list(tmp_path.iterdir()) == []
