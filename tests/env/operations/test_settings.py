"""What a site's settings can do to the recipes: a file that cannot be read, or is wrong, drains and measures nothing."""

from __future__ import annotations

import os
import re
import sys
import time

import pytest

from tests.env.operations.conftest import DRAIN_REASON, OPERATIONS
from xpulab.doctor.meant import VISIBILITY_VARIABLES

NOBODY = 65534


@pytest.fixture
def recipe(site):
    """recipe(path, variables) runs it on node7, whose verdict is red: its exit code, and what it said on standard output."""
    site.put(red=True)
    site.slurm()
    given = {"XPULAB_PYTHON": site.python, "XPULAB_VERDICTS": str(site.verdicts), "XPULAB_DEVICE": "cpu"}

    def run(path, **variables):
        done = site.recipe(path, SLURMD_NODENAME="node7", **{**given, **variables})
        return done.returncode, done.stdout

    return run


def no_file(conf):
    conf.unlink()


def a_folder(conf):
    conf.unlink()
    conf.mkdir()


def a_link_that_leads_nowhere(conf):
    conf.unlink()
    conf.symlink_to("nowhere")


UNREADABLE = {
    "an unclosed quote": 'XPULAB_DRY_RUN="1\n',
    "an unclosed if": "XPULAB_DRY_RUN=1\nif true; then\n",
    "an exit": "XPULAB_DRY_RUN=1\nexit 0\n",
    "spaces around =": "XPULAB_DRY_RUN = 1\n",
    "a name with a typo": "XPULAB_DRYRUN=1\n",
    "an exported name with a typo": "XPULAB_CARDS=1; export XPULAB_DRYRUN=1\n",
    "a unit of time": "XPULAB_MAX_AGE=36h\n",
    "what is not set": "set -u\nXPULAB_DRY_RUN=$NOTHING\n",
    "line ends of Windows": "XPULAB_DRY_RUN=0\r\n",
    "no file": no_file,
    "a folder": a_folder,
    "a link": a_link_that_leads_nowhere,
}


@pytest.mark.parametrize("given", UNREADABLE.values(), ids=UNREADABLE)
def test_settings_that_cannot_be_read_are_said_and_nothing_is_drained_or_measured(site, recipe, given):
    conf = site.folder / "xpulab.conf"
    conf.write_text(given, newline="") if isinstance(given, str) else given(conf)
    assert [recipe(f"slurm/{name}.sh")[0] for name in ("prolog", "epilog", "health_check")] == [0, 0, 0]
    code, said = recipe("node-problem-detector/check_xpulab.sh")
    named = "XPULAB_MAX_AGE=36h is no number of hours" if given == UNREADABLE["a unit of time"] else f"{conf} "
    assert code == 2 and said.startswith(f"xpulab: unknown, {named}"[:80])
    assert recipe("measure.sh")[0] == 2 and len(list(site.verdicts.iterdir())) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who can take another user")
def test_settings_that_this_user_must_not_read_are_not_taken_as_none(site, recipe, tmp_path):
    site.set()
    for folder in (tmp_path, *list(tmp_path.parents)[:-2]):
        folder.chmod(0o755)
    (site.folder / "xpulab.conf").chmod(0o600)
    as_nobody = ("/usr/bin/setpriv", f"--reuid={NOBODY}", "--clear-groups")
    done = site.run(*as_nobody, "/bin/sh", "-c", f'here={OPERATIONS}; . "$here/settings.sh"; xpulab_verdict')
    assert done.stdout == f"xpulab: unknown, {site.folder}/xpulab.conf cannot be read\n"


def test_every_setting_and_what_xpulab_reads_can_stand_in_the_file(site, recipe):
    site.set()
    named = re.findall(r"^: \"\$\{(XPULAB_\w+)", (OPERATIONS / "settings.sh").read_text(), re.MULTILINE)
    lines = [f"{name}=${name}" for name in (*named, "XPULAB_BASELINES")]  # what they have here
    with (site.folder / "xpulab.conf").open("a") as conf:
        conf.write("\n".join(["# XPULAB_DRYRUN=1", *lines, ""]))
    assert len(named) > 10 and recipe("slurm/prolog.sh")[0] == 1


def test_what_xpulab_reads_reaches_it_and_the_cards_of_a_job_do_not(site, recipe):
    """Slurm names the cards of a job to its prolog: a node whose jobs have one card each has all of them."""
    site.set(XPULAB_EXPECT="1", XPULAB_BASELINES="/site/baselines")
    site.tool("python3", f'env >>{site.folder}/seen; exec {sys.executable} "$@"')
    recipe("slurm/prolog.sh", **{name: "0" for names in VISIBILITY_VARIABLES.values() for name in names})
    seen = (site.folder / "seen").read_text()
    assert "\nXPULAB_BASELINES=/site/baselines\n" in seen and "VISIBLE" not in seen


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_reads_no_settings_that_a_group_or_an_access_list_can_change(site):
    site.set()
    (site.folder / "xpulab.conf").chmod(0o664)
    done = site.run("/bin/sh", "-c", f'here={OPERATIONS}; . "$here/settings.sh"; xpulab_verdict')
    assert done.stdout.startswith("xpulab: unknown, root runs nothing that others can change")


def test_a_disk_that_hangs_is_said_in_time_and_the_job_starts(site, recipe):
    site.set(XPULAB_CHECK_HOST="1")
    site.tool("find", f'case "$*" in *{site.verdicts}*) exec sleep 60 ;; esac; exec /usr/bin/find "$@"')
    started = time.monotonic()
    assert recipe("slurm/prolog.sh", disk_seconds="1")[0] == 0 and time.monotonic() - started < 20
    recipe("slurm/health_check.sh", disk_seconds="1")
    assert site.asked == [f"Comment=xpulab: unknown, a disk does not answer within 1 s: {site.verdicts}"]


def test_a_prolog_that_wants_a_verdict_drains_nothing_where_the_settings_are_wrong(site, recipe):
    site.set(XPULAB_WITHOUT_VERDICT="1", XPULAB_CHECK_HOST="yes")
    assert recipe("slurm/prolog.sh")[0] == 0 and site.asked == []
    site.set(XPULAB_WITHOUT_VERDICT="1")
    site.verdicts.chmod(0o777)
    assert recipe("slurm/prolog.sh")[0] == 0 and site.asked == []


@pytest.mark.parametrize("line", ["set -eu", "[ -n '' ]", "[ -r /nowhere ] && . /nowhere"])
def test_a_line_that_ends_no_shell_changes_nothing(site, recipe, line):
    site.set()
    with (site.folder / "xpulab.conf").open("a") as conf:
        conf.write(f"{line}\n")
    assert recipe("slurm/prolog.sh")[0] == 1 and site.asked[:2] == ["State=DRAIN", f"Reason={DRAIN_REASON}"]


@pytest.mark.parametrize("name", ["XPULAB_WITHOUT_VERDICT", "XPULAB_CHECK_HOST"])
@pytest.mark.parametrize("value", ["yes", "1\r"])
def test_a_flag_that_is_neither_0_nor_1_is_said_and_nothing_is_drained(site, recipe, name, value):
    site.set()
    assert [recipe(f"slurm/{path}.sh", **{name: value})[0] for path in ("prolog", "health_check")] == [0, 0]
    asked = "".join(site.asked)
    assert asked.startswith(f"Comment=xpulab: unknown, {name}={value.strip()}") and asked.endswith("is neither 0 nor 1")


@pytest.mark.parametrize("value", ["true", "yes", "1\r"])
def test_whatever_is_not_0_is_a_dry_run(site, recipe, value):
    site.set()
    said = f"xpulab: dry run, node7 would be drained: {DRAIN_REASON}\n"
    assert recipe("slurm/prolog.sh", XPULAB_DRY_RUN=value) == (0, said)
    assert site.asked == [f"Comment=xpulab: dry run, would be drained: {DRAIN_REASON}"]


@pytest.mark.parametrize("value", ["0", ""])
def test_nothing_and_0_are_none(site, recipe, value):
    site.set()
    assert recipe("slurm/prolog.sh", XPULAB_DRY_RUN=value)[0] == 1 and site.asked[0] == "State=DRAIN"


@pytest.mark.parametrize("path", ["", "run0", "run0/result.json"])
def test_a_verdict_that_everybody_can_change_is_none(site, recipe, path):
    site.set()
    changed = site.verdicts / path
    changed.chmod(0o1777 if changed.is_dir() else 0o666)
    assert [recipe(f"slurm/{name}.sh")[0] for name in ("prolog", "health_check")] == [0, 0]
    assert site.asked == [f"Comment=xpulab: unknown, everybody can change the verdicts: chmod o-w {changed}".rstrip("/")]


def test_cards_that_are_lost_drain_the_node_and_nothing_else_of_the_host_does(site, recipe):
    (site.folder / "root").mkdir()  # a host without /dev/shm
    host = {"XPULAB_SYSTEM_ROOT": str(site.folder / "root"), "XPULAB_EXPECT": "8"}
    site.set()
    site.put()
    assert recipe("slurm/prolog.sh", **host) == (0, "") and site.asked == []
    site.set(XPULAB_DEVICE="xpu", XPULAB_REQUIRE="")
    assert recipe("slurm/prolog.sh", **host, XPULAB_LANG="zh")[0] == 1
    lost = "neither bus, driver, device nodes nor the vendor's tool show a card"
    again = "xpulab host --expect 8 --device xpu --beside-jobs"
    assert site.asked[:2] == ["State=DRAIN", f"Reason=[node_problem] xpulab cards {lost}; rerun: {again}"]


@pytest.mark.parametrize("program", ["echo Traceback >&2; exit 1", "exit 137", "echo late; exit 124", "exit 0"])
def test_cards_that_cannot_be_counted_drain_nothing(site, recipe, program):
    site.tool("broken", program)
    site.set(XPULAB_PYTHON=str(site.bin / "broken"), XPULAB_EXPECT="8")
    assert recipe("slurm/prolog.sh")[0] == 0
    recipe("slurm/health_check.sh")
    assert site.asked == ["Comment=xpulab: unknown, the cards cannot be counted (XPULAB_EXPECT=8)"]


def test_the_gate_has_as_long_as_its_caller_can_wait(site, recipe):
    site.set()
    site.tool("timeout", f'case "$*" in *start.py*) echo "$3" >> {site.folder}/seconds ;; esac; exec /usr/bin/timeout "$@"')
    recipe("slurm/health_check.sh")
    recipe("node-problem-detector/check_xpulab.sh")
    slurm, plug_in = map(int, (site.folder / "seconds").read_text().split())
    assert plug_in < 5 and 10 <= slurm < 60 - 30  # Slurm's own commands have 10 s each
