"""One task on each node at a time; a node that hangs, dies or is silent delays no other one.

ClusterShell's event loop starts the commands, reads their output and wakes up this module once a second.
"""

from __future__ import annotations

import base64
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ClusterShell.Event import EventHandler
from ClusterShell.Task import task_self

from xpulab.fleet.cluster.engines import MOST_BYTES, Engine, Look
from xpulab.fleet.cluster.task import DONE, ENDED, Ended, Part, Started, parse_message
from xpulab.messages import N_, plain

LEFT_OUT, SILENT, WAITING, CANCELLED = N_("left out"), N_("silent"), N_("waiting"), N_("cancelled")
OUTCOMES = (*ENDED, LEFT_OUT, SILENT, WAITING, CANCELLED)
"""How a node's part can end: what its task says itself (ENDED), and what is seen from outside.

left out: drained or down from the beginning. silent: its task gave no last message. waiting: it never got a turn.
cancelled: the fleet run was interrupted first.
"""

GRACE = 300.0
"""Seconds that a task has after the time limit of its run: to stop it, and for the diagnosis in its bundle."""
ANSWERS_WITHIN = 120.0
"""Seconds from a node's turn to the first message of its task: Python has to start, often from a shared disk."""

_LOOKS_EVERY = 2.0
_LAST_LINES = 200
_LONGEST_LINE = 2000
"""Characters."""


@dataclass(frozen=True)
class Answer:
    """What came back from a node.

    outcome: of OUTCOMES. sentence: what was wrong, "" when nothing was. seconds: how long its task took.
    bundle: the name of its bundle in the folder of the fleet run, None when there is none.
    """

    node: str
    outcome: str
    sentence: str
    seconds: float = 0.0
    bundle: str | None = None


@dataclass(frozen=True)
class Limits:
    """Seconds. run: of a run, and before it for a turn on the node. answers: from the turn to the task's first message."""

    run: float
    answers: float = ANSWERS_WITHIN

    @property
    def task(self) -> float:
        """From the first message of a task to its last one."""
        return self.run + GRACE


class _Node(EventHandler):
    """The task of one node. answer: None until it is final. sent_too_much: set by its worker."""

    def __init__(self, name: str, folder: Path, limits: Limits, engine: Engine, say: Callable[[str, str], None]) -> None:
        super().__init__()
        self.name = name
        self.answer: Answer | None = None
        self._folder, self._limits, self._engine, self._say = folder, limits, engine, say
        self._path = folder / f"{name}.zip"
        self._submitted = self._turn = self._started = self._message_at = 0.0
        self._message: Ended | None = None
        self._is_over = False
        self.sent_too_much = False
        self._waits, self._not_stored = "", ""
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._errors: deque[str] = deque(maxlen=_LAST_LINES)

    def start(self, command: Sequence[str]) -> None:
        """Submit the task."""
        self._worker = self._engine.worker(self.name, command, self._limits.answers + self._limits.task, self)
        task_self().schedule(self._worker)

    def abandon(self) -> None:
        """The fleet run is interrupted: the answer is what there is."""
        self._finish(CANCELLED, N_("the fleet run was interrupted before this node had answered"))

    def ev_pickup(self, worker: Any, node: str) -> None:
        self._submitted = self._turn = time.monotonic()

    def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
        if self._is_over:
            return
        line = msg.decode("utf-8", "replace")
        message = parse_message(line)
        if isinstance(message, Started):
            self._started = time.monotonic()
            self._say(self.name, N_("running on {host}", host=message.host))
        elif isinstance(message, Part):
            self._store(message)
        elif isinstance(message, Ended):
            self._message, self._message_at = message, time.monotonic()
        elif line.strip():
            (self._errors if sname == "stderr" else self._lines).append(line[:_LONGEST_LINE])

    def ev_hup(self, worker: Any, node: str, rc: int) -> None:
        if not self._is_over:
            self._ended(N_("its command ended with exit code {rc}", rc=rc))

    def ev_close(self, worker: Any, timedout: bool) -> None:
        if timedout and not self._is_over:
            self._ended(N_("its command did not end in time"))

    def on_look(self, look: Look, now: float) -> None:
        """What the engine knows of the node now; called every few seconds."""
        if self._is_over or not self._submitted:
            return
        if self.sent_too_much:
            self._give_up("", look)
        elif self._message is not None:
            if now - self._message_at > self._limits.answers:  # the engine still waits: of the task nothing more comes
                self._end_worker()
                self._ended("")
        elif self._started:
            if now - self._started > self._limits.task:
                self._give_up(N_("it started, and gave no last message within {task} s", task=f"{self._limits.task:.0f}"), look)
        elif look.waits:
            self._turn = now
            if look.waits != self._waits:
                self._waits = look.waits
                self._say(self.name, N_("waits: {waits}", waits=look.waits))
            if now - self._submitted > self._limits.run:
                self._end_worker()
                self._finish(
                    WAITING, N_("it had no turn within {run} min: {waits}", run=f"{self._limits.run / 60:g}", waits=look.waits)
                )
        elif now - self._turn > self._limits.answers:
            self._give_up(N_("it never answered within {answers} s of its turn", answers=f"{self._limits.answers:.0f}"), look)

    def _store(self, part: Part) -> None:
        try:
            with self._path.with_suffix(".part").open("ab") as file:
                file.write(base64.b64decode(part.text, validate=True))
        except (OSError, ValueError) as error:
            self._not_stored = str(error)

    def _ended(self, why: str) -> None:
        """The command of the engine has ended, or is not waited for; with a last message the node has answered."""
        message, part = self._message, self._path.with_suffix(".part")
        if message is None:
            what = N_("it stopped answering during the run") if self._started else N_("it never answered")
            state = self._engine.look([self.name])[self.name].state
            self._finish(SILENT, f"{what}: {'; '.join(filter(None, (self._first_error() or why, state)))}")
            return
        outcome, sentence, bundle = message.outcome, message.sentence, None
        if part.exists() and part.stat().st_size == message.size and not self._not_stored:
            bundle = part.replace(self._path).name
        elif outcome == DONE:
            outcome, sentence = SILENT, N_("its bundle did not arrive whole: {not_stored}", not_stored=self._not_stored or why)
        self._finish(outcome, sentence, bundle, message.seconds)

    def _give_up(self, why: str, look: Look) -> None:
        self._end_worker()
        self._finish(SILENT, "; ".join(filter(None, (why, self._first_error(), look.state))))

    def _end_worker(self) -> None:
        self._engine.cancel([self.name])
        self._is_over = True  # what the worker says of its end is no answer
        self._worker.abort()

    def _finish(self, outcome: str, sentence: str, bundle: str | None = None, seconds: float = 0.0) -> None:
        self._is_over = True
        self.answer = Answer(self.name, outcome, sentence, seconds, bundle)
        self._path.with_suffix(".part").unlink(missing_ok=True)
        if self._lines or self._errors:
            try:
                text = plain("\n".join([*self._lines, *self._errors, ""]))
                (self._folder / f"{self.name}.log").write_text(text, encoding="utf-8")
            except OSError:
                pass  # the folder is full: the sentences, which are shown, say more than the log
        self._say(self.name, f"{outcome}: {sentence}" if sentence else outcome)

    def _first_error(self) -> str:
        """The first error that the engine's command wrote: what follows it are its consequences."""
        if self.sent_too_much:
            return N_("it sent more than {limit} MiB, or a line of more than 1 MiB", limit=MOST_BYTES >> 20)
        errors = [line for line in self._errors if "error" in line.lower() or self._engine.name == "ssh"]
        return errors[0].strip() if errors else ""


class _Clock(EventHandler):
    """Asks the engine every few seconds about all nodes that are not final."""

    def __init__(self, nodes: Sequence[_Node], engine: Engine) -> None:
        super().__init__()
        self._nodes, self._engine = nodes, engine
        self._last = 0.0

    def ev_timer(self, timer: Any) -> None:
        unfinished = [node for node in self._nodes if node.answer is None]
        if not unfinished:
            timer.invalidate()
        elif time.monotonic() - self._last >= _LOOKS_EVERY:
            looks = self._engine.look([node.name for node in unfinished])
            self._last = time.monotonic()
            for node in unfinished:
                node.on_look(looks[node.name], self._last)


def submit(
    commands: Mapping[str, Sequence[str]], folder: Path, limits: Limits, engine: Engine, say: Callable[[str, str], None]
) -> tuple[list[Answer], bool]:
    """Run the task on each node, and wait until each has answered or its time is over.

    Returns an answer for each node, in order, and whether Ctrl-C ended the fleet run.

    commands: by node, the one that runs the task. folder: where bundles and logs go. say: shows a new state of a node.
    On Ctrl-C the commands that run are cancelled, and the answers say what there is.
    """
    nodes = [_Node(name, folder, limits, engine, say) for name in commands]
    loop = task_self()
    loop.set_info("fanout", engine.fanout)
    for stream in ("stdout", "stderr"):
        loop.set_default(f"{stream}_msgtree", False)  # it would keep all that the nodes send
    interrupted = False
    try:
        for node in nodes:
            node.start(commands[node.name])
        loop.timer(1.0, handler=_Clock(nodes, engine), interval=1.0)
        loop.resume()
    except KeyboardInterrupt:
        interrupted = True
        running = [node for node in nodes if node.answer is None]
        for node in running:
            node.abandon()
        engine.cancel([node.name for node in running])
        loop.abort()
    return [node.answer for node in nodes if node.answer], interrupted
