"""What the engine Slurm knows of nodes and jobs, from commands of Slurm that a test pretends."""

from __future__ import annotations

import pytest

from xpulab.fleet.cluster.engine import Look
from xpulab.fleet.cluster.slurm import PROGRAMS, Slurm

NODES = "echo 'a|idle|none'; echo 'b|down*|no power'"


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A function: the engine, on a machine where sinfo and squeue are these lines of a shell."""

    def made(sinfo, squeue):
        for name, line in {**dict.fromkeys(PROGRAMS, "exit 1"), "sinfo": sinfo, "squeue": squeue}.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        return Slurm()

    return made


def test_a_node_that_is_down_is_gone_and_a_job_that_is_not_shown_is_over(slurm):
    looks = slurm(NODES, "true").look(["a", "b"])
    assert looks["a"] == Look(state="Slurm: idle")
    assert looks["b"] == Look(gone="Slurm: down, does not respond, no power", state="Slurm: down, does not respond, no power")


@pytest.mark.parametrize(("sinfo", "squeue"), [(NODES, "exit 1"), ("exit 1", "true"), ("exit 1", "exit 1")])
def test_when_slurm_does_not_answer_its_nodes_wait_and_are_not_silent(slurm, sinfo, squeue):
    assert slurm(sinfo, squeue).look(["a"]) == {"a": Look(waits="Slurm does not answer", over=False)}
