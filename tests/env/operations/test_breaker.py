"""What keeps Slurm's recipes from draining without cause: a dry run, a breaker, a hold; and root runs only what is root's."""

from __future__ import annotations

import os
import re
import shutil
import sys
from datetime import datetime, timedelta, timezone

import pytest

from tests.env.operations.conftest import DRAIN_REASON, OPERATIONS
from xpulab.files import ROOT


def ago(**parts):
    """That time as Slurm shows it, in UTC."""
    return (datetime.now(timezone.utc) - timedelta(**parts)).strftime("%Y-%m-%dT%H:%M:%S")


def drained(*nodes, minutes=5.0, of=3):
    """A cluster in which xpulab drained these nodes so long ago."""
    lines = {f"node{number}": f"node{number}|Unknown|none" for number in range(8 - of, 8)}
    return "\n".join((lines | {each: f"{each}|{ago(minutes=minutes)}|{DRAIN_REASON}" for each in nodes}).values())


@pytest.fixture
def recipe(site):
    """recipe(path, settings) runs it on node7 as slurmd does; returns its exit code, and what it printed."""

    def run(path, **settings):
        site.set(**settings)
        done = site.recipe(f"slurm/{path}", SLURMD_NODENAME="node7")
        assert done.stderr == ""
        return done.returncode, done.stdout

    return run


@pytest.mark.parametrize(("path", "exits"), [("health_check.sh", 0), ("prolog.sh", 1), ("epilog.sh", 0)])
def test_a_red_node_is_drained_and_its_comment_says_since_when(site, recipe, path, exits):
    site.put(red=True)
    site.slurm()
    assert recipe(path)[0] == exits
    assert site.asked[:2] == ["State=DRAIN", f"Reason={DRAIN_REASON}"] and site.asked[2].startswith(
        "Comment=xpulab: red; drained 2"
    )


@pytest.mark.parametrize("path", ["health_check.sh", "prolog.sh", "epilog.sh"])
def test_a_dry_run_says_what_it_would_drain_and_does_not(site, recipe, path):
    site.put(red=True)
    site.slurm()
    assert recipe(path, XPULAB_DRY_RUN="1") == (0, f"xpulab: dry run, node7 would be drained: {DRAIN_REASON}\n")
    assert site.asked == [f"Comment=xpulab: dry run, would be drained: {DRAIN_REASON}"]
    site.put()
    site.slurm("drained", DRAIN_REASON)
    assert recipe("health_check.sh", XPULAB_DRY_RUN="1") == (0, "xpulab: dry run, node7 would be resumed\n")
    assert len(site.asked) == 1


@pytest.mark.parametrize("path", ["health_check.sh", "prolog.sh", "epilog.sh"])
@pytest.mark.parametrize(
    ("most", "nodes", "is_drained"),
    [
        ("10%", drained("node6"), False),
        ("10%", drained("node6", minutes=61), True),
        ("10%", drained("node1", of=20), True),
        ("10%", drained("node1", "node2", of=20), False),
        ("2", drained("node6"), True),
        ("2", drained("node5", "node6"), False),
        ("0", drained(), False),
        ("10%", "node6|2026-01-01T00:00:00|Not responding", True),
    ],
)
def test_no_more_than_so_many_nodes_are_drained_within_an_hour(site, recipe, path, most, nodes, is_drained):
    site.put(red=True)
    site.slurm(nodes=nodes)
    code, _ = recipe(path, XPULAB_MOST_DRAINED=most)
    assert ("State=DRAIN" in site.asked, code) == (is_drained, 1 if is_drained and path == "prolog.sh" else 0)
    assert is_drained or site.asked[0].startswith("Comment=xpulab: not drained, too many nodes were within an hour")


def test_a_share_is_one_of_the_nodes_of_the_partition_that_the_site_names(site, recipe):
    """Of 100 nodes ten have cards; one of these was drained already."""
    site.put(red=True)
    site.slurm(nodes=drained("node1", of=100))
    site.tool("sinfo", f'case "$*" in *" --partition xpu") tail -n 10 {site.folder}/nodes; exit ;; esac; {site.sinfo}')
    assert recipe("prolog.sh", XPULAB_AMONG="xpu") == (0, "") and "State=DRAIN" not in site.asked
    assert recipe("prolog.sh")[0] == 1 and "State=DRAIN" in site.asked


@pytest.mark.parametrize(
    ("rows", "is_too_many"),
    [
        ("node6 2026-01-01T00:00:01\nnode7 2026-01-01T00:00:02\nnode5", True),
        ("node6 2026-01-01T00:00:02\nnode7 2026-01-01T00:00:01\nnode5", False),
        ("node6 2026-01-01T00:00:01\nnode7 2026-01-01T00:00:01\nnode5", True),
        ("node8 2026-01-01T00:00:01\nnode7 2026-01-01T00:00:01\nnode5", False),
        ("", True),
    ],
    ids=["after another", "before another", "with one that is named before", "with one that is named after", "no answer"],
)
def test_of_nodes_that_are_drained_at_once_the_first_stay(site, rows, is_too_many):
    script = f". {OPERATIONS}/breaker.sh; ago() {{ echo 2026-01-01T0$(($1 < 0)):00:00; }}; printf '{rows}' | is_too_many node7"
    done = site.run("/bin/sh", "-c", script, PATH="/usr/bin:/bin", XPULAB_MOST_DRAINED="1")
    assert (done.returncode == 0, done.stderr) == (is_too_many, "")


@pytest.mark.parametrize(("days", "is_held"), [((1, 3, 6), True), ((1, 3, 8), False)], ids=["within a week", "in eight days"])
def test_a_node_that_was_drained_three_times_within_a_week_is_held_until_an_operator_resumes_it(site, recipe, days, is_held):
    site.put()
    times = " ".join(ago(days=day) for day in sorted(days, reverse=True))
    site.slurm("drained", DRAIN_REASON, f"xpulab: red; drained {times}")
    recipe("health_check.sh")
    assert ("State=RESUME" not in site.asked) == is_held
    if is_held:
        (asked,) = site.asked
        held = asked.removeprefix("Reason=")
        assert held.startswith("[node_problem] xpulab held: green, but drained 3 times within a week")
        site.slurm("drained", held, "")
        recipe("health_check.sh")
        assert site.asked == [asked]  # the comment was emptied, the operator has not resumed it


def test_what_is_no_time_in_a_comment_holds_no_node_and_stops_no_drain(site, recipe):
    far = (datetime.now(timezone.utc) + timedelta(days=400)).strftime("%Y-%m-%dT%H:%M:%S")
    site.put()
    site.slurm("drained", DRAIN_REASON, f"xpulab: red; drained 9 9 9 {far} {far} {far}")
    recipe("health_check.sh")
    assert site.asked[0] == "State=RESUME"
    site.put(red=True, hours=0.5)
    site.slurm(nodes="\n".join(f"node{number}|{at}|{DRAIN_REASON}" for number, at in enumerate(("9", "Unknown", far))))
    recipe("health_check.sh")
    assert "State=DRAIN" in site.asked


def test_where_the_number_that_holds_a_node_is_none_it_is_held(site):
    site.put()
    site.slurm("drained", DRAIN_REASON)
    site.set(XPULAB_HOLD_AFTER="three")
    site.recipe("slurm/health_check.sh", SLURMD_NODENAME="node7")
    assert site.asked[0].startswith("Reason=[node_problem] xpulab held: ")


def test_a_node_that_cannot_be_resumed_is_counted_as_drained(site, recipe):
    site.put(red=True)
    site.slurm(nodes=drained())
    other = f"node6|{ago(minutes=1)}|{DRAIN_REASON}"  # at the same time as this one
    at_once = f'case "$*" in *State=DRAIN*) echo "{other}" >> {site.folder}/nodes ;; *State=RESUME*) exit 1 ;; esac'
    site.tool("scontrol", f'[ "$1" = show ] && exit; {at_once}; shift 2; printf "%s\\n" "$@" >> {site.folder}/asked')
    assert recipe("prolog.sh")[0] == 1 and site.asked[:1] == ["State=DRAIN"] and len(site.asked) == 2


def test_a_prolog_that_wants_a_verdict_drains_with_a_reason_that_a_green_verdict_undoes(site, recipe):
    site.slurm()
    assert recipe("prolog.sh", XPULAB_WITHOUT_VERDICT="1")[0] == 1
    assert site.asked[1].startswith("Reason=[node_problem] xpulab unknown, ")
    assert recipe("prolog.sh")[0] == 0


def test_where_slurm_does_not_answer_nothing_is_drained_and_the_job_starts(site):
    site.put(red=True)
    for name in ("sinfo", "scontrol"):
        site.tool(name, "exit 1")
    assert [site.recipe(f"slurm/{name}.sh", SLURMD_NODENAME="node7").returncode for name in ("prolog", "health_check")] == [
        0,
        0,
    ]


@pytest.mark.parametrize("red", [True, False])
def test_a_comment_that_slurm_did_not_show_is_not_lost(site, recipe, red):
    site.put(red=red)
    site.tool("scontrol", f'[ "$1" = show ] && exit 1; shift 2; printf "%s\\n" "$@" >> {site.folder}/asked')
    for state in (("idle", "none"), ("drained", DRAIN_REASON)):
        site.slurm(*state, comment="ticket 7")
        site.tool("scontrol", f'[ "$1" = show ] && exit 1; shift 2; printf "%s\\n" "$@" >> {site.folder}/asked')
        assert recipe("health_check.sh")[0] == 0
    assert site.asked == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whose health check this is")
@pytest.mark.parametrize(
    "path",
    [
        "xpulab/start.py",
        "env/operations/settings.sh",
        "notebooks/00_environment.ipynb",
        "data/schema/gate.schema.json",
        "venv/pyvenv.cfg",
        "venv/lib/python3.10/site-packages/typer/core.py",
        "base/lib/python3.10/json/decoder.py",
        "xpulab.conf",
        "clone",
    ],
)
@pytest.mark.parametrize("how", ["its owner", "everybody"])
def test_root_runs_nothing_that_others_can_change(site, tmp_path, path, how):
    clone = tmp_path / "opt"
    clone.symlink_to(tmp_path / "clone")  # the folders above what a link names count too
    shutil.copytree(OPERATIONS, tmp_path / "clone/env/operations")
    for name in ("xpulab/start.py", path, "base/bin/python", "venv/bin/none"):
        if "/" in name and not (clone / name).exists():
            (clone / name).parent.mkdir(parents=True)
            (clone / name).touch()
    (clone / "xpulab/start.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (clone / "base/bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (clone / "base/bin/python").chmod(0o755)
    (clone / "venv/bin/python").symlink_to(tmp_path / "clone/base/bin/python")
    (clone / "env/.#edit").symlink_to("nobody@nowhere.1")  # as an editor leaves it: nobody can change that
    site.set(XPULAB_HOME=str(clone), XPULAB_PYTHON=f"{clone}/venv/bin/python")

    def check():
        script = f'here={clone}/env/operations; . "$here/settings.sh"; xpulab_verdict'  # as each recipe begins
        return site.run("/bin/sh", "-c", script).stdout

    check()
    assert (tmp_path / "ran").exists()  # the control
    (tmp_path / "ran").unlink()
    changed = {"xpulab.conf": site.folder / path, "clone": tmp_path / path}.get(path, clone / path)
    os.chown(changed, 65534, 0) if how == "its owner" else changed.chmod(0o777)
    assert "xpulab: unknown, root runs nothing that others can change: " in (said := check())
    assert f"{path.replace('clone', 'opt')}; chown -R root:root {clone}/; " in said.replace("/./", "/")
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(("name", "is_asked"), [("typer", False), ("paddle", True)])
def test_a_measurement_looks_at_all_packages_and_a_health_check_at_those_that_it_imports(site, tmp_path, name, is_asked):
    package = tmp_path / "lib/python3.10/site-packages" / name
    package.mkdir(parents=True)
    os.chown(package, 65534, 0)
    site.put()
    assert (site.recipe("node-problem-detector/check_xpulab.sh").returncode == 0) == is_asked
    done = site.recipe("measure.sh", site.notebook(), "--cold")
    assert done.returncode == 2 and "root runs nothing that others can change" in done.stderr


@pytest.mark.parametrize("command", [("gate", "/nowhere"), ("gate", "--bogus"), ("host", "--json"), ("host", "--reason")])
def test_root_looks_at_every_package_that_its_questions_import(site, command):
    listed = site.run("/bin/sh", "-c", f'here={OPERATIONS}; . "$here/settings.sh"; echo $not_imported').stdout.split()
    (site.folder / "imports.py").write_text(
        "import atexit, runpy, sys\n"
        "files = lambda: (getattr(module, '__file__', '') for module in sys.modules.values())\n"
        "atexit.register(lambda: print(*files(), file=sys.__stderr__))\n"
        "del sys.argv[0]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    program = (sys.executable, str(site.folder / "imports.py"), str(ROOT / "xpulab/start.py"))
    files = re.findall(r"/site-packages/([^/ ]+)/\S", site.run(*program, "xpulab", *command).stderr)
    assert {"typer"} <= {*files} <= {*listed[2::3], "coverage"}


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        ({}, "device=xpu,cards=8,level=smoke,notebooks=all"),
        ({"XPULAB_REQUIRE": "level=quick"}, "level=quick"),
        ({"XPULAB_REQUIRE": ""}, ""),
    ],
)
def test_the_gate_gets_the_contract_of_the_settings(site, settings, given):
    site.tool("python", f'echo "$@" > {site.folder}/given')
    lines = {"XPULAB_PYTHON": site.bin / "python", "XPULAB_CARDS": 8, **settings}
    (site.folder / "xpulab.conf").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    site.recipe("node-problem-detector/check_xpulab.sh")
    words = (site.folder / "given").read_text().split()
    assert words[1:3] == ["xpulab", "gate"] and words[words.index("--reason") + 1 :] == (["--require", given] if given else [])
