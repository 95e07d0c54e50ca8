"""A node of a fleet run that sends what it should not is named, and hurts neither the others nor the machine that asks."""

from __future__ import annotations

import json
import os
import re

import pytest

from tests.fleet.compare.made_up import check, notebook, result
from xpulab.fleet.cluster.task import Ended, Started, format_message, parts_of

pytestmark = pytest.mark.integration

NASTY = "\x1b]0;title\x07\n[   0.1 s] good: done"
GREEN = result(notebook(check()))
SENDS = {
    "flood": "exec yes xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "line": "exec cat /dev/zero",
    "types": 'echo \'xpulab-task {"message": "Part", "text": 3}\'; '
    'echo \'xpulab-task {"message": "Ended", "outcome": "done", "sentence": 1, "seconds": "x", "size": 0}\'',
    "number": f"echo '{format_message(Started('bad'))}'; "
    """echo 'xpulab-task {"message": "Ended", "outcome": "done", "sentence": "", "seconds": 1e999, "size": 0}'""",
    "digits": f"echo '{format_message(Started('bad'))}'; "
    f"""echo 'xpulab-task {{"message": "Ended", "outcome": "failed", "sentence": "", "seconds": {10**400}, "size": 0}}'""",
    "huge": "cat huge",
    "nasty": f"cat <<'END'\n{NASTY}\n{format_message(Started(NASTY))}\n{format_message(Ended('failed', NASTY, 1.0, 0))}\nEND",
}


@pytest.fixture
def fleet(xpulab, packed, tmp_path):
    """fleet("flood"): a fleet run of this node and a good one; `ssh` is a script. Exit code, output, by node its entry."""
    bundle = packed("bundle", GREEN).read_bytes()
    messages = [Started("good"), *parts_of(bundle), Ended("done", "", 1.0, len(bundle))]
    (tmp_path / "good").write_text("\n".join(map(format_message, messages)))
    bundle = packed("huge", json.dumps(GREEN).replace(": 0.25", f": {10**400}").encode()).read_bytes()
    messages = [Started("bad"), *parts_of(bundle), Ended("done", "", 1.0, len(bundle))]
    (tmp_path / "huge").write_text("\n".join(map(format_message, messages)))
    (tmp_path / "bin").mkdir()

    def run(bad):
        script = f'case " $* " in *" good "*) cat {tmp_path}/good;; *) {SENDS[bad]}\n;; esac'
        (tmp_path / "bin" / "ssh").write_text(f"#!/bin/bash\n{script}\n")
        (tmp_path / "bin" / "ssh").chmod(0o755)
        path = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
        run = ("fleet", "run", "--nodes", "bad,good", "--engine", "ssh", "--timeout", "0.1", "--out", "out", "00")
        code, shown = xpulab(*run, variables=path)
        return code, shown, {each["node"]: each for each in json.loads((tmp_path / "out" / "fleet.json").read_text())["nodes"]}

    return run


@pytest.mark.parametrize("bad", SENDS)
def test_the_node_is_named_and_the_other_one_is_judged(fleet, tmp_path, bad):
    code, shown, nodes = fleet(bad)
    assert (code, nodes["good"]["status"]) == (1, "green"), shown
    assert nodes["bad"]["status"] == {"nasty": "red", "huge": "unknown"}.get(bad, "silent")
    if bad in ("flood", "line"):
        assert "it sent more than 64 MiB" in nodes["bad"]["sentence"]
    log = tmp_path / "out" / "bad.log"
    assert not log.exists() or (log.stat().st_size < 2**20 and b"\x1b" not in log.read_bytes())
    assert len(re.findall(r"(?m)^\[ *\d+\.\d s\] good: done$", shown)) == 1


@pytest.mark.parametrize("nodes", ["../../x", "/tmp/x", "-oProxyCommand=x", "a/b", ".."])
def test_a_name_that_is_none_of_a_node_is_refused_and_nothing_is_written(xpulab, tmp_path, nodes):
    code, shown = xpulab("fleet", "run", f"--nodes={nodes}", "--engine", "ssh", "--out", "here/out", "00")
    assert code == 2 and f"--nodes {nodes}: " in shown, shown
    assert not (tmp_path / "here").exists()
