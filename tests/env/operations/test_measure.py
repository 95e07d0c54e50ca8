"""env/operations/measure.sh leaves a verdict that the gate reads, once at a time on a machine."""

from __future__ import annotations

import fcntl
import os

import pytest
from typer.testing import CliRunner

from tests.env.operations.conftest import OPERATIONS, write_verdict
from xpulab import cli

pytestmark = pytest.mark.integration


def runs(site):
    return sorted(path.parent.name for path in site.verdicts.glob("*Z/result.json"))


@pytest.fixture
def gate(site):
    """Exit code and line of the gate for this site."""

    def ask():
        done = CliRunner().invoke(cli.app, ["gate", str(site.verdicts)])
        return done.exit_code, done.stdout

    return ask


@pytest.mark.parametrize(("measured", "code", "word"), [(2, 0, "green"), (1, 1, "red")])
def test_the_gate_reads_what_it_measured_and_the_exit_codes_are_the_same(site, measured, code, word, gate):
    textfiles = site.folder / "textfiles"
    textfiles.mkdir()
    site.set(XPULAB_TEXTFILES=str(textfiles))
    done = site.recipe("measure.sh", site.notebook(measured), "--cold")
    assert (done.returncode, len(runs(site))) == (code, 1), done.stderr
    assert (gate()[0], gate()[1].startswith(f"xpulab: {word} 0.0 h ago")) == (code, True)
    assert f'xpulab_run_green{{cards="1",device="cpu",level="smoke"}} {1.0 - code}' in (textfiles / "xpulab.prom").read_text()
    assert [path.name for path in textfiles.iterdir()] == ["xpulab.prom"]


@pytest.fixture
def pretended(site):
    """pretended(code, settings): measure.sh with a run that ends so and a green gate; its exit code and what it printed."""

    def measure(code, gate="xpulab: green", **settings):
        said = f'[ "$3" = gate ] && exec echo "{gate}"; ls -l /proc/self/fd > {site.folder}/open'
        site.tool(
            "python",
            f'{said}; until [ "$1" = --out ]; do shift; done; mkdir "$2"; cd "$2"; touch metrics.prom result.json; exit {code}',
        )
        site.set(XPULAB_PYTHON=str(site.bin / "python"), **settings)
        done = site.recipe("measure.sh")
        return done.returncode, done.stderr

    return measure


@pytest.mark.parametrize("code", [0, 1, 2, 7, 130])
def test_its_exit_code_is_that_of_the_run_also_where_the_metrics_cannot_be_published(pretended, code):
    assert pretended(code)[0] == code
    exits, printed = pretended(code, XPULAB_TEXTFILES="/nowhere")
    assert exits == code and "the metrics were not published" in printed


def test_a_python_that_cannot_start_is_no_verdict(site):
    site.set(PYTHONHOME="/nowhere")
    done = site.run("/bin/sh", "-c", f"export PYTHONHOME=/nowhere; exec {OPERATIONS}/measure.sh")
    assert done.returncode == 2 and runs(site) == []


def test_a_run_is_not_one_that_everybody_can_change(site):
    site.run("/bin/sh", "-c", f"umask 0; exec {OPERATIONS}/measure.sh {site.notebook()} --cold")
    assert len(runs(site)) == 1 and not [path for path in [site.verdicts, *site.verdicts.rglob("*")] if path.stat().st_mode & 2]


def test_where_nothing_can_be_measured_its_exit_code_is_no_verdict(pretended):
    assert pretended(0, XPULAB_VERDICTS="/proc/nowhere")[0] == 2


def test_what_a_run_leaves_running_does_not_hold_the_lock(pretended, site):
    pretended(0)
    assert str(site.verdicts) not in (site.folder / "open").read_text()


def test_a_machine_is_measured_once_at_a_time(site):
    site.verdicts.mkdir()
    folder = os.open(site.verdicts, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    done = site.recipe("measure.sh", site.notebook(), "--cold")
    os.close(folder)
    assert (done.returncode, runs(site)) == (2, []) and "another run measures this machine" in done.stderr


def test_a_machine_with_fewer_cards_than_expected_is_red_and_so_is_its_gate(site, gate):
    site.set(XPULAB_DEVICE="auto", XPULAB_EXPECT="8")
    assert site.recipe("measure.sh", site.notebook(), "--cold").returncode == 1
    assert gate()[0] == 1 and "show an accelerator" in gate()[1]


def test_the_run_that_ended_a_red_one_is_kept_for_as_long_as_that_is_there(site, gate):
    write_verdict(site.verdicts / "the first one", red=True, hours=20, level="quick")
    for day in range(1, 7):
        level = "quick" if day == 2 else "smoke"
        write_verdict(site.verdicts / f"2026-01-0{day}T000000Z", red=False, hours=20 - day, level=level)
    site.tool("python", f'[ "$3" = gate ] && exec {site.python} "$@"; exit 2')  # nothing is measured
    site.set(XPULAB_PYTHON=str(site.bin / "python"), XPULAB_KEEP="2")
    assert site.recipe("measure.sh").returncode == 2
    assert runs(site) == ["2026-01-02T000000Z", "2026-01-05T000000Z", "2026-01-06T000000Z"] and gate()[0] == 0


@pytest.mark.parametrize("keep", ["0", "1"])
def test_the_new_run_is_never_removed(pretended, site, keep):
    (site.verdicts / "2999-01-01T000000Z").mkdir(parents=True)  # of a clock that was wrong
    (site.verdicts / "2999-01-01T000000Z/result.json").touch()
    pretended(0, XPULAB_KEEP=keep)
    assert len([name for name in runs(site) if name < "2999"]) == 1


def test_old_runs_are_removed_while_the_gate_is_green_and_nothing_else_ever(pretended, site):
    site.verdicts = site.folder / "the verdicts"  # and not what "the" is
    old = [site.verdicts / name for name in ("2026-01-01T000000Z", "2026-01-02T000000Z", "20 mine Z", "mine")]
    others = [site.folder / "the", site.verdicts / "2026-01-03T000000Z", *old[2:]]
    for folder in (*old, *others[:2]):
        folder.mkdir(parents=True)
    for folder in old:
        (folder / "result.json").touch()
    (site.verdicts / "2026-01-04T000000Z").symlink_to(old[2])
    pretended(0, "xpulab: unknown", XPULAB_KEEP="1")
    assert all(folder.is_dir() for folder in (*old, *others))  # one of them may be why the gate is red
    pretended(0, XPULAB_KEEP="1")
    assert not any(folder.exists() for folder in old[:2]) and all(folder.is_dir() for folder in others)
    assert (
        len(runs(site)) == 3 and (site.verdicts / "2026-01-04T000000Z").is_symlink()
    )  # the last one, "20 mine Z" and the link
