"""A machine that is broken around a run: exit code 1 stays a verdict; what kept a run from one is 2, with its cause in a line.

All by the command as its user types it. What is in the notebooks costs nothing: they import no Paddle.
"""

from __future__ import annotations

import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jsonschema
import psutil
import pytest
from typer.testing import CliRunner

from tests.conftest import make, save
from tests.fleet.compare.made_up import check, notebook, result
from xpulab import cli, files

pytestmark = pytest.mark.integration

XPULAB = f"{shlex.quote(sys.executable)} -m xpulab"
GOOD = 'check.equal("{name}.good", 2, 2, control=3, means="two is two")'
RAISES = "def save():\n    raise OSError(28, 'No space left on device')\ncheck.raises('{name}.good', %s, save, control=int)"
BOOK = {
    "good": [GOOD],
    "red": ['check.equal("{name}.good", 2, 3, control=4)'],
    "slow": ["import os, time\nopen(os.environ['STARTED'], 'w').close()\ntime.sleep(2)", GOOD],
    "endless": ["import os, time\nopen(os.environ['STARTED'], 'w').close()\nwhile True:\n    time.sleep(0.01)", GOOD],
    "home": ["import os\nos.makedirs(os.path.expanduser('~/.cache/demo'))", GOOD],
    "large": [
        "import tempfile\nwith tempfile.TemporaryFile() as file:\n    file.write(bytes(40 << 20))\n    file.flush()",
        GOOD,
    ],
    "fills": ["import os\ntry:\n    open(os.environ['FILLED'], 'wb').write(bytes(40 << 20))\nexcept OSError:\n    pass", GOOD],
    "memory": ["bytearray(1 << 50)", GOOD],
    "descriptors": ["raise OSError(24, 'Too many open files')", GOOD],
    "mount": ["raise OSError(30, 'Read-only file system', '/data')", GOOD],
    "expected": [RAISES % "OSError"],
    "unexpected": [RAISES % "ValueError"],
}


@pytest.fixture(scope="module", autouse=True)
def book(tmp_path_factory):
    """The folder with the notebooks."""
    folder = tmp_path_factory.mktemp("book")
    for name, cells in BOOK.items():
        cells = [cell.replace("{name}", name) for cell in cells]
        save(make(*cells, level="smoke", title=name, capabilities=[name], budget=30), folder / f"{name}.ipynb")
    return folder


@pytest.fixture
def run(book, tmp_path):
    """run(*names): the command that runs these notebooks into {tmp_path}/out."""
    return lambda *names, out=tmp_path / "out": " ".join(
        [XPULAB, "run", *(str(book / f"{name}.ipynb") for name in names), "--device cpu --cold --jobs 1 --out", str(out)]
    )


def shell(line, **variables):
    """What a line of bash ended with; a variable that is None is not set."""
    environment = {name: value for name, value in {**os.environ, **variables}.items() if value is not None}
    return subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=120)


def outcome(out):
    """The outcome of a run, whose result.json fits its schema."""
    stored = json.loads((out / "result.json").read_text(encoding="utf-8"))
    jsonschema.validate(stored, json.loads(files.data("schema", "result.schema.json").read_text(encoding="utf-8")))
    assert (stored["outcome"] == "unknown") == bool(stored.get("reason"))
    return stored["outcome"]


def one_line(done):
    """What a command that ended with 2 wrote to standard error: one line."""
    assert (done.returncode, "Traceback" in done.stdout + done.stderr) == (2, False), done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("xpulab: ")
    return line


# ------------------------------------------------------------------------------------------------------------ the console


@pytest.mark.parametrize(
    ("name", "ending", "code", "found"),
    [
        ("red", "2>&1 | true; exit ${PIPESTATUS[0]}", 1, "failed"),
        ("good", "<&- >&- 2>&-", 0, "passed"),
        ("good", ">/dev/full 2>&1", 0, "passed"),
    ],
    ids=["its reader is gone", "closed", "its disk is full"],
)
def test_a_lost_console_changes_no_verdict(run, tmp_path, name, ending, code, found):
    done = shell(f"{run(name)} {ending}")
    assert (done.returncode, outcome(tmp_path / "out"), done.stderr) == (code, found, "")


@pytest.mark.parametrize(
    ("line", "code", "written"),
    [
        ("--help | true; exit ${PIPESTATUS[0]}", 0, ""),
        ("run nope 2>&1 | true; exit ${PIPESTATUS[0]}", 2, ""),
        ("run --nope 2>&1 | true; exit ${PIPESTATUS[0]}", 2, ""),
        ("run --nope >&- 2>&-", 2, ""),
        ("run 07 --list >/dev/full", 2, "xpulab: no verdict: OSError: [Errno 28] No space left on device\n"),
    ],
)
def test_a_command_without_a_console_says_by_its_exit_code_how_it_ended(line, code, written):
    done = shell(f"{XPULAB} {line}")
    assert (done.returncode, done.stderr) == (code, written)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run --nope", "--nope; see xpulab run --help"),
        ("judge", "'bundle'; see xpulab judge --help"),
        ("fleet nope", "'nope'; see xpulab fleet --help"),
        ("nope", "'nope'; see xpulab --help"),
        ("gate --max-age x", "see xpulab gate --help"),
        ("run --device", "'--device' requires an argument; see xpulab --help"),
    ],
)
def test_a_command_that_cannot_be_understood_ends_with_one_line_that_names_its_help(line, said):
    assert one_line(shell(f"{XPULAB} {line}")).endswith(said)


def test_an_interrupt_at_the_very_start_is_no_verdict_and_shows_no_traceback(tmp_path):
    """What is imported in place of Python's ast, before signals are handled, is interrupted."""
    (tmp_path / "ast.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n")
    done = shell(f"{XPULAB} host; exit $?", PYTHONPATH=f"{tmp_path}:{files.ROOT}")
    assert (done.returncode, done.stdout, done.stderr) in ((130, "", ""), (-signal.SIGINT, "", ""))


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_run_under_nohup_ends_with_its_verdict_when_the_terminal_is_gone(run, tmp_path, monkeypatch):
    started = tmp_path / "started"
    monkeypatch.setenv("STARTED", str(started))
    ours, theirs = pty.openpty()
    command = ["setsid", "--ctty", "bash", "-c", f"trap '' HUP; exec {run('slow', 'good')}"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        until(started.exists)
        os.close(ours)
    assert (process.returncode, outcome(tmp_path / "out")) == (0, "passed")


@pytest.mark.parametrize("signals", [(signal.SIGHUP,), (signal.SIGINT, signal.SIGINT)], ids=["lost ssh", "Ctrl-C twice"])
def test_a_run_that_is_ended_says_so_in_a_line_and_leaves_nothing(run, tmp_path, monkeypatch, signals):
    started, temporary = tmp_path / "started", tmp_path / "t"
    temporary.mkdir()
    monkeypatch.setenv("STARTED", str(started))
    monkeypatch.setenv("TMPDIR", str(temporary))
    command = ["bash", "-c", f"exec {run('endless')}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until(started.exists)
        family = psutil.Process(process.pid).children(recursive=True)
        for number in signals:
            process.send_signal(number)
            time.sleep(0.2)  # two signals that come at once are one
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "xpulab: interrupted\n")
    assert (psutil.wait_procs(family, timeout=10)[1], list(temporary.iterdir())) == ([], [])


# ------------------------------------------------------------------------------------------------------ disks and memory


def mounted(line):
    """The line in a name space of its own, where it may mount."""
    return f"unshare --mount bash -ec {shlex.quote(line)}"


CAN_MOUNT = shutil.which("unshare") and subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
needs_mount = pytest.mark.skipif(not CAN_MOUNT, reason="only root may mount")


def test_a_notebook_that_a_full_disk_ended_has_no_verdict_and_runs_again_when_there_is_room(run, tmp_path):
    """A limit on the size of files stands for a full disk: the same call fails."""
    done = shell(f"ulimit -f 32768; exec {run('large', 'good')}")
    assert (done.returncode, outcome(tmp_path / "out")) == (2, "unknown"), done.stdout + done.stderr
    assert "CPU: no verdict\nno verdict: large: cell 3: a file could not be written" in done.stdout
    assert "large  0 of 1 checks" in done.stdout and "fix: df -h" in done.stdout
    assert "xpulab_run_green" not in (tmp_path / "out/metrics.prom").read_text()
    assert "CPU: no verdict" in (tmp_path / "out/index.html").read_text(encoding="utf-8")
    done = shell(f"{run('large', 'good')} --resume")
    assert (done.returncode, outcome(tmp_path / "out")) == (0, "passed")
    assert "good: started" not in done.stdout


def test_other_limits_give_no_verdict_either(run, tmp_path):
    done = shell(run("memory", "descriptors", "mount"))
    assert (done.returncode, outcome(tmp_path / "out")) == (2, "unknown"), done.stdout + done.stderr
    stored = json.loads((tmp_path / "out/result.json").read_text(encoding="utf-8"))
    known = {each["name"]: each["explanations"][0]["id"] for each in stored["notebooks"]}
    assert known == {"memory": "memory-limit", "descriptors": "too-many-open-files", "mount": "read-only"}


def test_what_a_check_compared_stays_a_verdict_beside_a_full_disk_and_when_its_error_is_one(run, tmp_path):
    done = shell(run("expected", "unexpected", "mount"))
    assert (done.returncode, outcome(tmp_path / "out")) == (1, "failed"), done.stdout + done.stderr
    stored = json.loads((tmp_path / "out/result.json").read_text(encoding="utf-8"))
    assert {each["name"]: each["checks"][0]["outcome"] for each in stored["notebooks"]} == {
        "expected": "passed",
        "unexpected": "failed",
        "mount": "missing",
    }


@needs_mount
def test_reports_that_no_longer_fit_are_no_verdict(run, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    line = f"mount -t tmpfs -o size=20m tmpfs {place}; exec {run('fills', out=place / 'out')}"
    done = shell(mounted(line), FILLED=str(place / "filled"))
    assert one_line(done) == f"xpulab: {place}/out: cannot be written: No space left on device"


BEFORE = {
    "temporary files": ("size=64k", "{place}", "No space left on device; a run needs 16 MiB there"),
    "reports": ("ro", "{place}", "Read-only file system; name another folder with --out"),
    "shared memory": ("ro", "/dev/shm", "Read-only file system; a run needs 16 MiB there"),
}


@needs_mount
@pytest.mark.parametrize("what", BEFORE)
def test_a_place_that_cannot_be_written_is_named_before_anything_runs(run, tmp_path, what):
    options, where, said = BEFORE[what]
    place = tmp_path / "place"
    place.mkdir()
    where = where.format(place=place)
    out = place / "out" if what == "reports" else tmp_path / "out"
    temporary = place if what == "temporary files" else None
    done = shell(
        mounted(f"mount -t tmpfs -o {options} tmpfs {where}; exec {run('good', out=out)}"), TMPDIR=temporary and str(place)
    )
    line = one_line(done)
    assert line.startswith(f"xpulab: {where}") and line.endswith(f"cannot be written: {said}")
    assert done.stdout == ""


@pytest.mark.parametrize(("limit", "said"), [("-n 32", "Too many open files"), ("-f 100", "File too large")])
def test_a_limit_that_no_run_can_keep_is_named_before_anything_runs(run, limit, said):
    assert said in one_line(shell(f"ulimit {limit}; exec {run('good')}"))


# ------------------------------------------------------------------------------------------------------- the user's account


@pytest.mark.parametrize("home", ["/dev/null", "/proc"])
def test_a_home_that_cannot_be_written_is_none_of_the_machine_s_faults(run, tmp_path, home):
    done = shell(run("home"), HOME=home, XDG_CACHE_HOME=f"{home}/.cache")
    assert (done.returncode, outcome(tmp_path / "out")) == (0, "passed"), done.stdout + done.stderr


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root may become another user")
def test_a_user_without_a_name_without_a_home_and_with_a_hostile_umask_gets_a_verdict(book):
    python = f"/usr/bin/python3.{sys.version_info.minor}"  # that of the environment may be in root's home
    if not os.path.exists(python):
        pytest.skip(f"{python} is not there")
    site = next(path for path in sys.path if path.endswith("site-packages"))
    variables = {"HOME": "/root", "USER": None, "LOGNAME": None, "PYTHONPATH": f"{files.ROOT}:{site}", "TMPDIR": None}
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # pytest's own is root's alone
        os.chmod(name, 0o777)
        shutil.copy(book / "home.ipynb", name)
        command = f"{python} -m xpulab run {name}/home.ipynb --device cpu --cold --out {name}/out"
        done = shell(f"cd /; umask 777; exec setpriv --reuid 12345 --regid 12345 --clear-groups {command}", **variables)
        assert (done.returncode, outcome(Path(name, "out"))) == (0, "passed"), done.stdout + done.stderr


def test_a_current_folder_that_is_gone_is_no_verdict(run, tmp_path):
    done = shell(f"mkdir {tmp_path}/gone; cd {tmp_path}/gone; rmdir {tmp_path}/gone; exec {run('good')}")
    assert (done.returncode, outcome(tmp_path / "out")) == (2, "unknown"), done.stdout + done.stderr


def test_what_cannot_be_imported_is_no_verdict(tmp_path):
    (tmp_path / "rich.py").write_text("raise MemoryError")
    said = one_line(shell(f"{XPULAB} run --help", PYTHONPATH=f"{tmp_path}:{files.ROOT}"))
    assert said.startswith("xpulab: no verdict: MemoryError: ") and "rich.py:1" in said


# ------------------------------------------------------------------------------------------------------------ bad input


def test_making_the_environment_needs_no_console(tmp_path):
    make_venv = f"{shlex.quote(sys.executable)} -IS {files.ROOT}/env/make_venv.py --set cpu -- -c pass"
    blocked = tmp_path / "file"
    blocked.touch()
    done = shell(f"{make_venv} 2>&1 | true; exit ${{PIPESTATUS[0]}}", XPULAB_VENV=str(blocked / "venv"))
    assert (done.returncode, done.stderr) == (2, "")


@pytest.fixture
def xpulab(tmp_path, monkeypatch):
    """Runs the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(cli.app, arguments, catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ("run --list --out x", "--out has no effect beside --list"),
        ("run --list --expect 8", "--expect has no effect beside --list"),
        ("bundle . --list --out x", "--out has no effect beside --list"),
        ("report --known sft.loss --run .", "--check has no effect beside --known"),
        ("report --known --run . --out x", "--out has no effect beside --known"),
        ("exercise lora --answer --out x", "--out has no effect beside --answer"),
        ("model --list --optional", "--optional has no effect beside --list"),
    ],
)
def test_an_option_without_effect_is_refused(xpulab, tmp_path, arguments, option):
    done = xpulab(*arguments.split())
    assert (done.exit_code, done.stdout, option in done.stderr) == (2, "", True), done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["run", "soak"])
@pytest.mark.parametrize(("given", "variable", "source"), [("8", "3", "--expect 8"), (None, "8", "XPULAB_EXPECT=8")])
def test_too_few_cards_name_what_asked_for_more(book, xpulab, monkeypatch, command, given, variable, source):
    monkeypatch.setenv("XPULAB_EXPECT", variable)
    expect = ["--expect", given] if given else []
    chosen = ["--check", "good.good"] if command == "soak" else []
    done = xpulab(command, str(book / "good.ipynb"), *chosen, "--device", "sim", "--cards", "1", *expect)
    assert (done.exit_code, f"because: {source} says so" in done.stdout) == (1, True), done.stdout + done.stderr


@pytest.mark.parametrize("date", [None, 3, "yesterday", "2026-11-22T12:00:00"])
def test_a_date_that_is_none_or_has_no_time_zone_is_named(xpulab, tmp_path, date):
    for name, changed in (("a", {}), ("b", {"date": date})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(json.dumps(result(notebook(check()), **changed)))
    done = xpulab("compare", "a", "b")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("xpulab: b: not what `xpulab run` writes")
