"""What a task on a node does and says: a bundle that arrives whole, or one sentence with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile

import pytest
from typer.testing import CliRunner

from xpulab import cli
from xpulab.fleet import bundle, evidence
from xpulab.fleet.cluster.messages import Ended, Part, Started, content_of, format_message, parse_message, parts_of
from xpulab.fleet.cluster.task import SCRATCH, Task, run_task

WRITES_A_RESULT = 'mkdir -p "$2"; echo "{\\"green\\": true}" > "$2/result.json"; echo green'


@pytest.fixture
def folders(tmp_path):
    """Scratch and shared folder."""
    for name in ("scratch", "shared"):
        (tmp_path / name).mkdir()
    return tmp_path / "scratch", tmp_path / "shared"


@pytest.fixture
def do(folders, monkeypatch):
    """Run a task whose run is a shell script: its last message, and all others."""
    scratch, shared = folders
    monkeypatch.setattr(evidence, "evidence", lambda environ, device: iter([("doctor.json", "{}")]))  # it imports Paddle

    def run(script, limit=60.0, to=shared, **environ):
        said = []
        command = ("sh", "-c", script, "run")  # the script's $1 is --out, $2 the folder
        variables = {**os.environ, SCRATCH: str(scratch), **environ}
        ended = run_task(Task("node7", command, limit, to), variables, said.append, lambda line: None)
        assert isinstance(said[0], Started) and said[-1] is ended
        return ended, said[1:-1]

    return run


def test_a_run_ends_as_a_bundle_in_the_shared_folder_and_leaves_nothing_on_the_node(do, folders):
    ended, _ = do(WRITES_A_RESULT)
    scratch, shared = folders
    assert (ended.outcome, ended.sentence, ended.code) == ("done", "", 0)
    assert [path.name for path in shared.iterdir()] == ["node7.zip"] and list(scratch.iterdir()) == []
    assert "run/result.json" in bundle.read(shared / "node7.zip")[1]


def test_a_red_run_is_delivered_too(do, folders):
    ended, _ = do(f"{WRITES_A_RESULT}; exit 1")
    assert (ended.outcome, ended.code) == ("done", 1) and (folders[1] / "node7.zip").exists()


def test_without_a_shared_folder_the_bundle_comes_in_messages(do, tmp_path):
    ended, said = do(WRITES_A_RESULT, to=None)
    lines = [parse_message(format_message(part)) for part in said]
    (tmp_path / "got.zip").write_bytes(content_of(lines))
    assert ended.outcome == "done" and zipfile.ZipFile(tmp_path / "got.zip").testzip() is None


def test_a_run_that_does_not_end_is_stopped_and_its_last_line_named(do):
    ended, _ = do('trap "exit 130" INT; echo cell 7; while :; do sleep 0.1; done', limit=1.0)
    assert ended.outcome == "late" and ended.sentence.startswith("the run did not end within 1 s")
    assert ended.sentence.endswith("its last line: cell 7")


def test_what_a_run_that_did_not_end_reports_is_delivered(do, folders):
    ended, _ = do(f"trap '{WRITES_A_RESULT}; exit 130' INT; while :; do sleep 0.1; done", limit=1.0)
    assert ended.outcome == "late" and (folders[1] / "node7.zip").exists()


def test_a_run_that_leaves_no_result_is_named_with_its_last_line(do):
    ended, _ = do("echo 'xpulab: xpu: no card' >&2; exit 2")
    assert (ended.outcome, ended.code) == ("failed", 2) and ended.sentence.endswith("xpulab: xpu: no card")


def test_a_command_that_is_not_there_is_named(folders, tmp_path):
    task = Task("node7", (str(tmp_path / "none"),), 5.0, folders[1])
    ended = run_task(task, {SCRATCH: str(folders[0])}, lambda message: None, lambda line: None)
    assert ended.outcome == "failed" and "No such file" in ended.sentence


def test_a_scratch_folder_that_cannot_be_written_is_the_reason(do, tmp_path):
    (tmp_path / "file").touch()
    ended, _ = do(WRITES_A_RESULT, **{SCRATCH: str(tmp_path / "file")})
    assert ended.outcome == "disk" and str(tmp_path / "file") in ended.sentence and SCRATCH in ended.sentence


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 70 MiB: enough to start with."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=70m", "tmpfs", str(folder)], capture_output=True, timeout=30)
    if mounted.returncode != 0:
        pytest.skip(f"mounting needs root: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=30)


def test_a_disk_that_fills_up_during_the_run_is_the_reason(do, small_disk):
    fills = 'mkdir -p "$2"; head -c 100m /dev/zero > "$2/checkpoint"; echo no result'
    ended, _ = do(fills, **{SCRATCH: str(small_disk)})
    assert ended.outcome == "disk" and str(small_disk) in ended.sentence


def test_a_disk_that_has_no_room_for_the_bundle_is_the_reason(do, small_disk):
    fills = f'{WRITES_A_RESULT}; head -c 100m /dev/zero > "$2/checkpoint"; true'
    ended, _ = do(fills, **{SCRATCH: str(small_disk)})
    assert ended.outcome == "disk" and str(small_disk) in ended.sentence


def test_a_shared_folder_that_cannot_be_written_is_the_reason(do, tmp_path):
    ended, _ = do(WRITES_A_RESULT, to=tmp_path / "gone")
    assert (
        ended.outcome == "undelivered"
        and str(tmp_path / "gone") in ended.sentence
        and ended.sentence.endswith("its run is green")
    )


@pytest.mark.parametrize(
    "message", [Started("host"), Part("QUJD"), Ended("late", "why", None, 3.5)], ids=lambda each: str(each)
)
def test_a_message_is_read_as_it_was_written(message):
    assert parse_message(format_message(message)) == message


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[ 3.8 s] started",
        format_message(Ended("done", "", 0, 1.0))[:-3],
        "xpulab-task 7",
        'xpulab-task {"message": "Ended"}',
    ],
)
def test_other_lines_and_broken_ones_are_no_messages(line):
    assert parse_message(line) is None


def test_a_bundle_that_was_damaged_on_its_way_is_an_error():
    (part,) = parts_of(b"abcdef")
    with pytest.raises(ValueError):
        content_of([Part(part.text[:-1] + "?")])


@pytest.mark.integration
def test_the_command_on_the_node_ends_when_its_input_is_closed(folders):
    """As when an ssh connection ends: the run has no time limit that matters."""
    command = [sys.executable, "-m", "xpulab", "fleet", "task", "--node", "node7", "--limit", "600", "--end-with-stdin"]
    command += ["--", "run", "09_collectives", "--level", "standard", "--device", "cpu", "--cards", "2"]
    environ = {**os.environ, SCRATCH: str(folders[0])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as process:
        try:
            assert isinstance(parse_message(process.stdout.readline()), Started)
            process.stdout.readline()
            process.stdin.close()
            assert process.wait(60) == 130
        finally:
            process.kill()
    assert list(folders[0].iterdir()) == []


@pytest.mark.integration
def test_the_command_on_the_node_says_why_nothing_ran(folders, monkeypatch):
    monkeypatch.setenv(SCRATCH, str(folders[0]))
    options = ["--node", "node7", "--limit", "60", "--shared", str(folders[1])]
    done = CliRunner().invoke(cli.app, ["fleet", "task", *options, "--", "run", "99_none"])
    ended = parse_message(done.output.splitlines()[-1])
    assert (done.exit_code, ended.outcome, ended.code) == (1, "failed", 2) and "99_none" in ended.sentence
