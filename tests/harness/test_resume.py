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
from xpulab.doctor.system import boot_id
from xpulab.harness import run_folder

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

    def command(self, *options: str) -> list[str]:
        asked = ["run", str(self.notebook), "--device", "cpu", "--cold", "--out", str(self.folder / "out"), *options]
        return [sys.executable, "-m", "xpulab", *asked]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self.temporary)}

    def kill_in_the_middle(self, *options: str, number: int = signal.SIGKILL) -> list[psutil.Process]:
        """Start a run, and kill it while its section `middle` runs; returns the processes of its kernels."""
        while list(self.temporary.glob(f"{run_folder.PREFIX}*")):  # of a run that was killed before: it goes within a second
            time.sleep(0.05)
        with subprocess.Popen(self.command(*options), env=self.environment, stderr=subprocess.PIPE) as run:
            reached = os.open(self.middle, os.O_RDONLY | os.O_NONBLOCK)
            try:
                assert select.select([reached], [], [], SECONDS)[0], "the section was not reached"
                (folder,) = self.temporary.glob(f"{run_folder.PREFIX}*")
                kernels = [psutil.Process(pid) for pid in run_folder.processes(folder)]
            finally:
                run.send_signal(number)
                errors = run.stderr.read()
                os.close(reached)
        assert run.returncode == (130 if number == signal.SIGINT else -number), errors
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
    """One that was killed, of which no kernel is left; the tests go on with it one after another."""
    with killable_in(tmp_path_factory.mktemp("killed")) as made:
        assert psutil.wait_procs(made.kill_in_the_middle(), SECONDS)[1] == []
        yield made


def checks_of(result):
    return {check["name"]: check["outcome"] for notebook in result["notebooks"] for check in notebook["checks"]}


def unchanged(killable, said, *options):
    """--resume with these options is refused with these words, and leaves the run as it was."""
    before = sorted(killable.folder.rglob("out/**/*"))
    code, printed = killable.run("--resume", *options)
    assert (code, said in " ".join(printed.split())) == (2, True), printed
    assert sorted(killable.folder.rglob("out/**/*")) == before


def test_a_killed_run_leaves_what_it_was_asked_for_and_no_verdict(killed):
    asked = json.loads((killed.folder / "out/run.json").read_text())
    jsonschema.validate(asked, json.loads(files.data("schema", "run.schema.json").read_text()))
    assert (killed.ran, (killed.folder / "out/result.json").exists()) == ("dfm", False)


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--seed", "3"], "seed 0, not 3"), (["--check", "demo.end"], "other checks of it are asked for (--check)")],
)
def test_other_options_are_an_error_that_names_them(killed, options, said):
    unchanged(killed, said, *options)


def test_a_changed_notebook_is_an_error(killed):
    stored = killed.notebook.read_bytes()
    changed = nbformat.read(killed.notebook, as_version=4)
    changed.cells[-2].source += "\n"
    nbformat.write(changed, killed.notebook)
    unchanged(killed, "notebook chapter has changed since")
    killed.notebook.write_bytes(stored)


def test_interrupted_again_it_goes_on_to_its_end_which_is_not_resumed(killed):
    (killed.folder / "ran").write_text("")
    killed.kill_in_the_middle("--resume", number=signal.SIGINT)
    assert (killed.ran, killed.result["outcome"], killed.result["boot"]) == ("dfm", "failed", boot_id())
    asked = json.loads((killed.folder / "out/run.json").read_text())
    (killed.folder / "out/run.json").write_text(json.dumps({**asked, "boot": "the one before"}))
    code, printed = killed.run("--resume", "--time-limit", "20")
    assert (code, killed.ran, killed.result["outcome"]) == (0, "dfm" + "dfme", "passed"), printed
    assert killed.result["boot"] is None
    assert list(checks_of(killed.result).values()) == ["passed"] * 4
    assert list(killed.temporary.iterdir()) == []
    code, printed = killed.run("--resume")
    assert (code, killed.ran) == (0, "dfm" + "dfme") and "this run has ended, there is nothing to resume" in printed


def test_a_run_that_has_lost_its_result_is_as_old_as_its_notebooks(killed):
    """It goes on with the one before. What the gate says of a run that was resumed is what it says of any other."""
    out, ended = killed.folder / "out", killed.result["date"]
    asked = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**asked, "boot": boot_id()}))
    (out / "result.json").unlink()
    code, printed = killed.run("--resume")
    assert (code, killed.ran, killed.result["outcome"]) == (0, "dfm" + "dfme", "passed"), printed
    assert killed.result["date"] <= ended
    gate = [sys.executable, "-m", "xpulab", "gate", str(out)]
    assert "green" in subprocess.run(gate, capture_output=True, text=True, timeout=SECONDS, check=True).stdout


def test_a_run_goes_on_in_no_other_folder(killed):
    out = killed.folder / "out"
    (out / "notebooks").rename(killed.folder / "others")
    (out / "notebooks").symlink_to(killed.folder / "others")
    (out / "result.json").unlink()
    unchanged(killed, "out/notebooks: is a link; remove it")


def test_a_check_that_was_red_before_the_kill_stays_red(killable):
    (killable.folder / "fault").touch()
    killable.kill_in_the_middle()
    (killable.folder / "fault").unlink()
    code, printed = killable.run("--resume")
    assert (code, checks_of(killable.result)["demo.first"]) == (1, "failed"), printed
    assert (killable.ran, killable.result["notebooks"][0]["reason"].split(";")[0]) == ("dfm", "its run was killed")
