"""The plug-in is built once, by the compiler that is there, and never half."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from xpulab.errors import InputError
from xpulab.sim import build

pytestmark = pytest.mark.integration


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a shell script in the compiler's place; a new cache goes with it."""
    monkeypatch.setenv("XPULAB_SIM_CACHE", str(tmp_path / "cache"))

    def pretend(script: str) -> Path:
        path, new = tmp_path / "cxx", tmp_path / "new_cxx"
        new.write_text("#!/bin/sh\n" + textwrap.dedent(script))
        new.chmod(new.stat().st_mode | stat.S_IXUSR)
        new.replace(path)  # an earlier one may be running still, and cannot be written to
        monkeypatch.setenv("CXX", str(path))
        return path

    return pretend


WRITES_ITS_RESULT = """
    echo "$@" >> {log}
    while [ $# -gt 1 ]; do [ "$1" = -o ] && echo made > "$2"; shift; done
"""


def test_every_source_is_compiled_and_all_are_linked_once_into_a_folder_of_its_own_and_used_again(compiler, tmp_path):
    compiler(WRITES_ITS_RESULT.format(log=tmp_path / "log"))
    library = build.built()
    assert library.read_text() == "made\n"
    assert [path.name for path in library.parent.iterdir()] == [build.LIBRARY]
    assert build.built() == library
    calls = (tmp_path / "log").read_text().splitlines()
    assert sum(" -c " in call for call in calls) == len(list(build.SOURCES.glob("*.cc")))
    assert sum("-shared" in call for call in calls) == 1


def test_another_compiler_other_limits_and_other_sources_build_anew(compiler, tmp_path, monkeypatch):
    path = compiler(WRITES_ITS_RESULT.format(log=tmp_path / "log"))
    found = {build.built()}
    path.write_text(path.read_text() + "# a newer release\n")
    found.add(build.built())
    monkeypatch.setattr(build, "DEFINITIONS", ("-DXPULAB_SIM_MOST_CARDS=8",))
    found.add(build.built())
    assert "-DXPULAB_SIM_MOST_CARDS=8" in (tmp_path / "log").read_text()
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin" / "plugin.cc").write_text("// another one\n")
    monkeypatch.setattr(build, "SOURCES", tmp_path / "plugin")
    found.add(build.built())
    assert len(found) == 4


def test_without_a_compiler_the_remedy_is_named(compiler, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(InputError, match=r"needs a C\+\+ compiler.*tried g\+\+, c\+\+, clang\+\+.*apt-get install g\+\+"):
        build.built()


def test_a_failing_compiler_is_quoted(compiler):
    compiler("""
        echo "x.cc:3:5: error: 'nothing' was not declared" >&2
        echo "note: declared elsewhere" >&2
        exit 1
    """)
    with pytest.raises(InputError, match=r"(?s)does not build: .*cxx stopped at \w+\.cc.*'nothing' was not declared") as caught:
        build.built()
    assert "declared elsewhere" not in str(caught.value)


def start_building(**options) -> subprocess.Popen:
    code = "from xpulab.sim.build import built; print(built())"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, **options)


def test_of_processes_that_ask_at_once_one_builds(compiler, tmp_path):
    compiler(WRITES_ITS_RESULT.format(log=tmp_path / "log"))
    started = [start_building() for _ in range(4)]
    answers = {process.communicate(timeout=60)[0] for process in started}
    assert len(answers) == 1
    assert sum("-shared" in call for call in (tmp_path / "log").read_text().splitlines()) == 1


def test_what_a_killed_build_left_is_not_used(compiler, tmp_path):
    reached = tmp_path / "reached"
    os.mkfifo(reached)
    # Writes a half library at once, so that it is there when the build is killed in the middle of a file.
    compiler(f"""
        while [ $# -gt 1 ]; do [ "$1" = -o ] && echo half > "$2"; shift; done
        echo there > {reached}
        exec sleep 600
    """)
    process = start_building(start_new_session=True)
    with open(reached) as opened:
        assert opened.readline() == "there\n"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    compiler(WRITES_ITS_RESULT.format(log=tmp_path / "log"))
    library = build.built()
    assert library.read_text() == "made\n"
    assert sorted(path.suffix for path in library.parent.parent.iterdir() if library.parent.name in path.name) == ["", ".lock"]
