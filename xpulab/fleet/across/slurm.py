"""Slurm's side: nodes in a list, their addresses, the command line of srun, the end of a step."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence

from xpulab.errors import InputError

_SECONDS = 30
_FIELD = re.compile(r"\b(NodeName|NodeAddr)=(\S+)")
TASK = "xpulab.fleet.across.node"


def hostnames(nodes: str) -> tuple[str, ...]:
    """The nodes in a list such as node[1-3]. Raises InputError for a list that Slurm does not understand."""
    return tuple(_run("scontrol", "show", "hostnames", nodes).split())


def addresses(nodes: Sequence[str]) -> dict[str, str]:
    """The address of each node by its name: NodeAddr, because the name of a node need not be the name of a host."""
    found: dict[str, str] = {}
    name = ""
    for key, value in _FIELD.findall(_run("scontrol", "--oneliner", "show", "node", ",".join(nodes))):
        if key == "NodeName":
            name = value
        else:
            found[name] = value
    return {node: found.get(node, node) for node in nodes}


def srun(nodes: str, cards: int, python: Sequence[str], options: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The command line that starts a task for each card.

    nodes: a list of nodes, a number of them, or "" for those of the allocation that this process runs in. python: the
    words that start the interpreter on the nodes. options: more options of srun. Raises InputError without nodes.
    """
    if nodes.isdigit():
        count, chosen = int(nodes), []
    elif nodes or environment.get("SLURM_JOB_NODELIST"):
        names = hostnames(nodes or environment["SLURM_JOB_NODELIST"])
        count, chosen = len(names), [f"--nodelist={','.join(names)}"]
    else:
        raise InputError("no nodes: give --nodes LIST or --nodes NUMBER, or call it in a job of Slurm, whose nodes are taken")
    if count < 1:
        raise InputError(f"--nodes {nodes}: give a list of nodes, or a number of at least 1")
    inside = ["--overlap"] if "SLURM_JOB_ID" in environment else []
    return [
        "srun",
        f"--nodes={count}",
        *chosen,
        f"--ntasks={count * cards}",
        f"--ntasks-per-node={cards}",
        "--job-name=xpulab-links",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--mpi=none",
        *inside,
        *options,
        *python,
        "-m",
        TASK,
    ]


def default_python() -> tuple[str, ...]:
    """This interpreter: the nodes see the same files on most clusters."""
    return (sys.executable,)


def cancel(step: str) -> None:
    """End a step "JOB.STEP", whatever its tasks do."""
    subprocess.run(["scancel", "--signal=KILL", step], capture_output=True, timeout=_SECONDS, check=False)


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except FileNotFoundError as error:
        raise InputError(f"{command[0]}: not found; this needs Slurm's commands on the PATH") from error
    except subprocess.TimeoutExpired as error:
        raise InputError(f"{' '.join(command)}: no answer within {_SECONDS} s; is slurmctld up? See `scontrol ping`") from error
    if done.returncode:
        raise InputError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
