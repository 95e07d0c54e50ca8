"""The step of Slurm: nodes and their addresses, srun with a task for each card, its messages as they arrive, and its end."""

from __future__ import annotations

import contextlib
import queue
import re
import signal
import threading
from collections.abc import Mapping, Sequence
from subprocess import PIPE
from typing import IO

from xpulab.child import Child, run, signal_group
from xpulab.errors import InputError
from xpulab.fleet.across import links
from xpulab.fleet.across.links import Group, Message, Setup

TASK = "xpulab.fleet.across.node"

GONE = "gone"
"""A kind of message of the step itself: a task has ended. Its fields: node, and reason as srun says it; node "" for all."""

_END_SECONDS = 10.0
_TASK_ENDED = re.compile(r"^srun: error: (?P<node>[^\s:]+): tasks? [\d,\-]+: (?P<reason>.+)$")
_KEPT_LINES = 40
_SECONDS = 30
_FIELD = re.compile(r"\b(NodeName|NodeAddr)=(\S+)")


class Step:
    """A step of Slurm. Use it as a context; its end is the end of all tasks."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._messages: queue.Queue[Message] = queue.Queue()
        self._errors: list[str] = []
        self._step = ""
        try:
            self._srun = Child(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=dict(environment))
        except FileNotFoundError as error:
            raise InputError("srun: not found; this needs Slurm's commands on the PATH") from error
        assert self._srun.stdout is not None and self._srun.stderr is not None
        self._threads = [
            threading.Thread(target=self._read, args=(self._srun.stdout,), daemon=True),
            threading.Thread(target=self._read_errors, args=(self._srun.stderr,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Step:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tell(self, kind: str, body: Setup | Group) -> None:
        """Send a message to all tasks; nothing happens when the step has ended."""
        assert self._srun.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._srun.stdin.write(f"{links.dumps(kind, body)}\n".encode())
            self._srun.stdin.flush()

    def next(self, seconds: float) -> Message | None:
        """The next message of a task or of the step; None when none comes in this time."""
        try:
            return self._messages.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None

    def errors(self) -> str:
        """The last lines that srun, or a task, wrote to standard error."""
        return "\n".join(self._errors[-_KEPT_LINES:])

    def close(self) -> None:
        """End all tasks: by the end of their input, then by scancel, then srun itself."""
        with self._srun:
            self._srun.close_input()
            if self._srun.wait(_END_SECONDS) is None and self._step:
                run(["scancel", "--signal=KILL", self._step], _SECONDS)
            if self._srun.wait(_END_SECONDS) is None:
                signal_group(self._srun.pid, signal.SIGTERM)
            self._srun.end(_END_SECONDS)
            for thread in self._threads:
                thread.join(_END_SECONDS)

    def _read(self, lines: IO[bytes]) -> None:
        reader = links.Reader()
        for line in lines:
            if message := reader.read(line.decode(errors="replace")):
                if message[0] == links.HELLO:
                    self._step = message[1]["step"]
                self._messages.put(message)
        self._messages.put((GONE, {"node": "", "reason": "srun has ended"}))

    def _read_errors(self, lines: IO[bytes]) -> None:
        for line in lines:
            self._errors.append(line.decode(errors="replace").rstrip())
            if ended := _TASK_ENDED.match(self._errors[-1]):
                self._messages.put((GONE, {"node": ended["node"], "reason": ended["reason"]}))


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


def _run(*command: str) -> str:
    try:
        done = run(command, _SECONDS)
    except FileNotFoundError as error:
        raise InputError(f"{command[0]}: not found; this needs Slurm's commands on the PATH") from error
    if done.status is None:
        raise InputError(f"{' '.join(command)}: no answer within {_SECONDS} s; is slurmctld up? See `scontrol ping`")
    if done.status:
        raise InputError(f"{' '.join(command)}: {done.errors.strip() or done.output.strip()}")
    return done.output
