"""env/operations/measure.sh leaves a verdict that the gate reads, once at a time on a machine."""

from __future__ import annotations

import fcntl
import os

import pytest
from typer.testing import CliRunner

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


def test_old_runs_are_removed_and_other_folders_stay(site):
    for name in ("2026-01-01T000000Z", "2026-01-02T000000Z", "mine"):
        (site.verdicts / name).mkdir(parents=True)
    site.set(XPULAB_KEEP="2")
    assert site.recipe("measure.sh", site.notebook(), "--cold").returncode == 0
    assert sorted(path.name for path in site.verdicts.iterdir()) == ["2026-01-02T000000Z", *runs(site), "mine"]


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
