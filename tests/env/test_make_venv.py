"""env/make_venv.py creates the environment once, detects when it is outdated, and repairs interrupted installations."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
from types import SimpleNamespace

import pytest

from xpulab.errors import InputError
from xpulab.files import ROOT

pytestmark = pytest.mark.environments


def test_installs_the_framework_the_rest_and_the_repository_and_writes_the_marker(repository):
    assert repository.make()[0] == 0
    framework, rest, editable = repository.calls
    assert re.search(r"--require-hashes --no-deps -r \S+/framework.txt$", framework)
    assert rest.endswith(f"--require-hashes --no-deps -r {repository.folder / 'env/requirements/common.txt'}")
    assert editable.endswith(f"--no-deps --no-build-isolation --editable {repository.folder}")
    assert repository.marker["device"] == "cpu"
    assert repository.marker["python"] == "{}.{}.{}".format(*sys.version_info)


def test_other_packages_are_installed_beside_it_with_the_same_framework(made):
    assert made.make("--packages", "formers")[0] == 0
    framework, rest, editable = made.calls
    pinned = made.folder / "env/requirements/formers.txt"
    assert framework.endswith("/framework.txt") and rest.endswith(f"-r {pinned}")
    assert editable.endswith(f"--editable {made.folder}")
    assert (made.venv.with_name(".venv-formers") / "xpulab.json").exists()
    assert (made.venv / "stray").exists()
    assert (made.make(), made.make("--packages", "formers")) == ((0, ""), (0, ""))


def test_a_second_run_touches_nothing(made):
    before = {path: path.stat().st_mtime_ns for path in (made.venv / "xpulab.json", made.venv, made.folder)}
    assert made.make() == (0, "")
    assert made.calls == []
    assert {path: path.stat().st_mtime_ns for path in before} == before


def lose_the_marker(repository):
    (repository.venv / "xpulab.json").unlink()


def garble_the_marker(repository):
    (repository.venv / "xpulab.json").write_text("[]")


def break_the_python(repository):
    python = repository.venv / "bin/python"
    python.unlink()
    python.symlink_to("/nowhere/python")


def change_the_common_set(repository):
    repository.write("env/requirements/common.txt", "# nothing\n")


def change_the_project(repository):
    repository.write("pyproject.toml", "# nothing\n")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lose_the_marker, "the last installation was not finished"),
        (garble_the_marker, "its xpulab.json cannot be read"),
        (break_the_python, "no longer runs"),
        (change_the_common_set, "env/requirements or pyproject.toml changed"),
        (change_the_project, "env/requirements or pyproject.toml changed"),
    ],
)
def test_an_outdated_environment_is_created_again_with_the_reason(made, damage, reason):
    damage(made)
    code, printed = made.make()
    assert code == 0
    assert reason in printed.splitlines()[0]
    assert not (made.venv / "stray").exists()
    assert made.make() == (0, "")


def test_a_missing_device_leaves_the_environment_alone(made):
    code, printed = made.make("--device", "xpu")
    assert code == 2
    assert printed.startswith("xpulab: no xpu on this machine") and "modprobe kunlun" in printed
    assert (made.venv / "stray").exists()
    assert made.calls == []


def test_a_lost_card_makes_nothing(repository):
    repository.card()
    code, printed = repository.make()
    assert (code, repository.venv.exists()) == (2, False)
    assert "0000:03:00.0 (1d22:3688)" in printed and "modprobe kunlun" in printed
    assert repository.make("--device", "cpu")[0] == 0


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"pyvenv.cfg": "home = /usr/bin\n"},
        {"pyvenv.cfg": "home = /usr/bin\n", "xpulab.json": "[]"},
        {"xpulab.json": json.dumps({"device": "cpu", "sources": "x", "repository": "/another", "python": "3.11.7"})},
        {"xpulab-steps.json": json.dumps({"device": "cpu", "sources": "x", "repository": "/another", "done": 1})},
    ],
    ids=["no environment", "of the user", "of the user with a marker", "of another clone", "unfinished, of another clone"],
)
def test_what_this_repository_has_not_made_is_not_emptied(repository, tmp_path, files):
    precious = tmp_path / "precious"
    (precious / "checkpoints").mkdir(parents=True)
    for name, text in {**files, "checkpoints/step-100": "weights"}.items():
        (precious / name).write_text(text)
    before, beside = sorted(precious.rglob("*")), sorted(tmp_path.iterdir())
    code, printed = repository.make(XPULAB_VENV=str(precious))
    assert (code, printed.count("\n"), "not an environment that" in printed) == (2, 1, True), printed
    assert (sorted(precious.rglob("*")), sorted(tmp_path.iterdir())) == (before, beside)
    (repository.folder / ".venv").symlink_to(precious)
    assert repository.make()[0] == 2 and sorted(precious.rglob("*")) == before


@pytest.mark.parametrize("is_there", [False, True], ids=["new", "empty"])
def test_an_environment_elsewhere_is_made_goes_on_and_is_made_again(repository, tmp_path, is_there):
    own = tmp_path / "own"
    if is_there:
        own.mkdir()
    repository.behaviour.write_text('case "$*" in *framework.txt) exit 3;; esac\n')
    assert repository.make(XPULAB_VENV=str(own))[0] == 2
    repository.behaviour.write_text("")
    code, printed = repository.make(XPULAB_VENV=str(own))
    assert (code, "goes on after: created\n" in printed) == (0, True)
    (own / "stray").touch()
    change_the_common_set(repository)
    repository.behaviour.write_text('case "$*" in *framework.txt) kill -9 $PPID;; esac\n')
    assert repository.make(XPULAB_VENV=str(own))[0] == -9
    repository.behaviour.write_text("")
    assert repository.make(XPULAB_VENV=str(own))[0] == 0 and not (own / "stray").exists()
    assert repository.make(XPULAB_VENV=str(own)) == (0, "")
    assert sorted(path.name for path in own.glob("xpulab*")) == ["xpulab.json"]


def test_a_failing_installer_shows_its_last_lines_and_keeps_the_log(repository):
    repository.behaviour.write_text('i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo "line <$i>" >&2; done; exit 3\n')
    code, printed = repository.make()
    assert code == 2
    assert "failed with exit code 3" in printed and "To go on with this step, repeat the command." in printed
    assert "<11>" in printed
    assert "<10>" not in printed
    assert "Traceback" not in printed
    log = repository.folder / ".venv.log"
    assert str(log) in printed
    assert "<1>" in log.read_text()


def block(repository, tmp_path):
    """Makes the installer start a child that ignores SIGTERM, write both process ids, and wait until it may continue.

    Returns the two pipes: the first gives the ids, writing to the second lets it continue.
    """
    started, go_on = tmp_path / "started", tmp_path / "go-on"
    os.mkfifo(started)
    os.mkfifo(go_on)
    blocking = f"(trap '' TERM; exec cat '{go_on}') & echo $$ $! > '{started}'; wait\n"
    repository.behaviour.write_text(f": > '{repository.behaviour}'\n{blocking}")  # The next call does not block.
    return started, go_on


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_installer_and_its_children_and_the_next_run_repairs(repository, tmp_path, number, code):
    started, _ = block(repository, tmp_path)
    process = repository.start_make()
    running = [os.pidfd_open(int(pid)) for pid in started.read_text().split()]
    process.send_signal(number)
    _, printed = process.communicate()
    assert process.returncode == code
    assert "Traceback" not in printed
    for handle in running:
        assert select.select([handle], [], [], 10)[0], "a process of the installer is still alive"
        os.close(handle)

    repository.behaviour.write_text("")
    (repository.venv / "stray").touch()
    repaired, printed = repository.make()
    assert (repaired, "was not finished" in printed, "goes on after: created\n" in printed) == (0, True, True)
    assert (repository.venv / "stray").exists() and repository.make() == (0, "")


def test_an_installation_goes_on_with_the_step_that_failed_and_begins_again_when_something_changed(repository):
    repository.behaviour.write_text('case "$*" in *common.txt) exit 3;; esac\n')
    assert repository.make()[0] == 2
    site = next(repository.venv.glob("lib/python*/site-packages"))
    for name, size in (("whole", "3"), ("short", "4")):
        (site / f"{name}-1.dist-info").mkdir()
        (site / f"{name}.py").write_text("abc")
        (site / f"{name}-1.dist-info/RECORD").write_text(f"{name}.py,sha256=x,{size}\n{name}-1.dist-info/RECORD,,\n")
    (site / "killed-1.dist-info").mkdir()
    repository.behaviour.write_text("")
    repository.calls_file.write_text("")
    code, printed = repository.make()
    assert code == 0 and "goes on after: created, installed paddlepaddle==3.3.1\n" in printed
    assert [call.split()[-2] for call in repository.calls] == ["-r", "--editable"]
    assert sorted(path.name for path in site.glob("*-1.dist-info")) == ["whole-1.dist-info"]
    assert not (repository.venv / "xpulab-steps.json").exists()

    (repository.venv / "xpulab.json").unlink()
    repository.behaviour.write_text('case "$*" in *common.txt) exit 3;; esac\n')
    assert repository.make()[0] == 2
    change_the_common_set(repository)
    repository.behaviour.write_text("")
    repository.calls_file.write_text("")
    code, printed = repository.make()
    assert (code, "goes on" in printed, len(repository.calls)) == (0, False, 3)


def usage(free):
    """A disk with so many GB free."""
    return lambda folder: SimpleNamespace(free=free * 1e9)


@pytest.mark.parametrize(
    ("device", "free", "needs"),
    [
        ("cpu", 3.1, None),
        ("cpu", 2.9, "3 GB"),
        ("gpu", 18.9, "19 GB"),
        ("gpu", 19.1, None),
        ("xpu", 7.9, "8 GB"),
        ("book", 0.9, "1 GB"),
    ],
)
def test_disks_are_looked_at_before_anything_is_downloaded(make_venv, monkeypatch, tmp_path, device, free, needs):
    monkeypatch.setattr(make_venv.shutil, "disk_usage", usage(free))
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "cache/pip"))
    monkeypatch.setattr(make_venv.tempfile, "gettempdir", lambda: str(tmp_path))
    disks = make_venv.disks_of(tmp_path / "venv", None)
    if needs is None:
        make_venv.require_room(disks, make_venv.NEEDS[device], 0)
        return
    with pytest.raises(InputError, match=f"^{tmp_path}: needs {needs}, {free} GB are free. Set XPULAB_VENV.*Nothing was downl"):
        make_venv.require_room(disks, make_venv.NEEDS[device], 0)
    make_venv.require_room(disks, make_venv.NEEDS[device], 12)  # goes on: most of it is there


def test_a_full_disk_is_named_when_an_installation_fails(make_venv, monkeypatch, tmp_path):
    log = tmp_path / "log"
    log.write_text("OSError: [Errno 28]\n")
    disks = [(tmp_path, "XPULAB_VENV", "installed")]
    monkeypatch.setattr(make_venv.shutil, "disk_usage", usage(0.1))
    printed = make_venv.format_failure(["pip"], 1, log, 30, disks)
    assert f"the disk of {tmp_path} is full: free some, or set XPULAB_VENV" in printed and "repeat the command" in printed
    monkeypatch.setattr(make_venv.shutil, "disk_usage", usage(50))
    assert "is full" not in make_venv.format_failure(["pip"], 1, log, 30, disks)


@pytest.mark.parametrize(
    ("device", "library", "refused"),
    [
        ("gpu", "glibc 2.27", "2.27"),
        ("gpu", "glibc 2.9", "2.9"),
        ("gpu", None, "none"),
        ("gpu", "glibc 2.28", None),
        ("gpu", "glibc 2.36", None),
        ("cpu", "glibc 2.17", None),
        ("xpu", "glibc 2.17", None),
    ],
)
def test_the_cuda_set_needs_a_c_library_that_cudnn_has_wheels_for(make_venv, monkeypatch, tmp_path, device, library, refused):
    monkeypatch.setattr(make_venv.os, "confstr", lambda name: library)
    if refused is None:
        return make_venv.require_glibc(device)
    monkeypatch.setattr(make_venv, "remove_content", None)
    monkeypatch.setattr(make_venv, "run_step", None)
    with pytest.raises(InputError, match=f"needs glibc 2.28 or newer .*this system has (glibc )?{refused}.*Ubuntu 20.04"):
        make_venv.install(tmp_path / "venv", {"device": device}, sys.executable, "3.11.7", None)


def test_two_callers_make_it_once(repository, tmp_path):
    started, go_on = block(repository, tmp_path)
    first = repository.start_make()
    started.read_text()
    second = repository.start_make()
    assert "waiting for another process" in second.stderr.readline()
    go_on.write_text("")
    first.communicate()
    _, printed = second.communicate()
    assert (first.returncode, second.returncode, printed) == (0, 0, "")
    assert len(repository.calls) == 3


def test_an_installer_that_outlived_its_caller_is_waited_for(repository, tmp_path):
    started, go_on = block(repository, tmp_path)
    killed = repository.start_make()
    started.read_text()
    killed.kill()
    next_one = repository.start_make()
    assert "waiting for another process" in next_one.stderr.readline()
    go_on.write_text("")
    killed.communicate()
    _, printed = next_one.communicate()
    assert (next_one.returncode, "was not finished" in printed) == (0, True)


def test_without_uv_pip_is_updated_to_the_pinned_one_and_installs(make_venv, monkeypatch, tmp_path):
    commands = []
    monkeypatch.setattr(make_venv, "run_step", lambda command, *_: commands.append(" ".join(command)) or 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "venv").mkdir()
    make_venv.install(tmp_path / "venv", {"device": "cpu"}, "python3", "3.11.7", None)
    create, update, framework, rest, editable = commands
    pip = f"{tmp_path / 'venv/bin/python'} -I -m pip install --no-input --disable-pip-version-check "
    hashed = f"{pip}--require-hashes --no-deps -r "
    assert create == f"python3 -I -m venv {tmp_path / 'venv'}"
    assert update.startswith(hashed) and update.endswith("/pip.txt")
    assert framework.startswith(hashed) and framework.endswith("/framework.txt")
    assert rest == f"{hashed}{ROOT / 'env/requirements/common.txt'}"
    assert editable == f"{pip}--no-deps --no-build-isolation --editable {ROOT}"


def running(version: str) -> SimpleNamespace:
    """A stand-in for the module sys of a Python of that version."""
    parts = tuple(map(int, version.split(".")))
    return SimpleNamespace(version_info=parts, base_prefix="/nowhere", executable="/nowhere/python", stderr=sys.stderr)


@pytest.mark.parametrize("version", ["3.8.18", "3.9.18", "3.13.0"])
def test_an_unsupported_python_is_named(make_venv, monkeypatch, tmp_path, version):
    monkeypatch.setattr(make_venv, "sys", running(version))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=f"^needs Python 3.10, 3.11 or 3.12; found {version}. "):
        make_venv.find_python(make_venv.SUPPORTED, tmp_path / "venv")


def test_the_xpu_set_needs_python_3_10(make_venv, monkeypatch, tmp_path):
    monkeypatch.setattr(make_venv, "sys", running("3.11.7"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(make_venv, "install", None)
    with pytest.raises(InputError, match=r"^needs Python 3.10; found 3.11.7\. "):
        make_venv.create_if_needed(tmp_path / "venv", {"device": "xpu"})
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("suffix", [".log", ".lock"])
def test_no_link_beside_the_environment_is_written_through(repository, tmp_path, suffix):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f"own{suffix}").symlink_to(victim)
    code, printed = repository.make(XPULAB_VENV=str(tmp_path / "own"))
    assert (code, victim.read_text()) == (2, "precious") and "cannot be created" in printed
