"""One task on each node at a time, each with its own deadlines; a node that hangs, dies or is silent delays no other one.

ClusterShell's event loop starts the commands, reads their output and wakes up this module once a second.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ClusterShell.Event import EventHandler
from ClusterShell.Task import task_self

from xpulab.fleet.cluster.answer import CANCELLED, LOST, SILENT, WAITING, Answer
from xpulab.fleet.cluster.engine import Engine, Look
from xpulab.fleet.cluster.messages import Ended, Part, Started, content_of, parse_message
from xpulab.fleet.cluster.progress import Progress
from xpulab.messages import N_

GRACE = 300.0
"""Seconds that a task has after the time limit of its run: to stop it, and for the diagnosis in its bundle."""

_LOOKS_EVERY = 2.0
_LAST_LINES = 200


@dataclass(frozen=True)
class Deadlines:
    """Seconds that every node has, and retries: how often a lost task is started again.

    run: for the run. wait: for a turn on the node. answers: from the turn to the task's first message. gone: that a node must
    seem to be gone before it counts as silent. clears: for the engine to clean up after a task.
    """

    run: float
    wait: float = 600.0
    answers: float = 120.0
    gone: float = 10.0
    clears: float = 60.0
    retries: int = 1


@dataclass
class _Attempt:
    """One start of a task. queued, turn, started, ended: when; None until then. turn: since when it does not wait.

    gone: since when the node seems to be gone; None when it does not.
    """

    number: int
    queued: float | None = None
    turn: float | None = None
    started: float | None = None
    ended: float | None = None
    gone: float | None = None
    message: Ended | None = None
    parts: list[Part] = field(default_factory=list)
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))


class _Node(EventHandler):
    """The task of one node, over all its attempts. answer: None until it is final."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, deadlines: Deadlines, engine: Engine, progress: Progress
    ) -> None:
        super().__init__()
        self.name = name
        self.answer: Answer | None = None
        self._command, self._folder, self._deadlines = command, folder, deadlines
        self._engine, self._progress = engine, progress
        self._attempt = _Attempt(0)
        self._worker: Any = None
        self._look = Look(over=False)

    def start(self) -> None:
        """Start the task, for the first time or again."""
        self._attempt = _Attempt(self._attempt.number + 1)
        longest = self._deadlines.answers + self._deadlines.run + GRACE
        self._worker = self._engine.worker(self.name, self._command, longest, self)
        task_self().schedule(self._worker)

    def abandon(self) -> None:
        """The fleet run is interrupted: the answer is what there is."""
        if self.answer is None:
            self._finish(CANCELLED, N_("the fleet run was interrupted before this node had answered"))

    def ev_pickup(self, worker: Any, node: str) -> None:
        if worker is self._worker:
            self._attempt.queued = self._attempt.turn = time.monotonic()
            number = self._attempt.number
            self._show(N_("submitted") if number == 1 else N_(f"submitted again, attempt {number}"))

    def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
        if worker is not self._worker or self.answer is not None:
            return
        line = msg.decode("utf-8", "replace")
        message = parse_message(line)
        if isinstance(message, Started):
            self._attempt.started = time.monotonic()
            self._show(N_(f"running on {message.host}"))
        elif isinstance(message, Part):
            self._attempt.parts.append(message)
        elif isinstance(message, Ended):
            self._attempt.message = message
        elif line.strip():
            (self._attempt.errors if sname == "stderr" else self._attempt.lines).append(line)
            if sname != "stderr":
                self._progress.on_line(self.name, line)

    def ev_hup(self, worker: Any, node: str, rc: int) -> None:
        if worker is self._worker and self.answer is None:
            self._attempt.ended = time.monotonic()
            self._ended(rc)

    def ev_close(self, worker: Any, timedout: bool) -> None:
        if timedout and worker is self._worker and self.answer is None:
            self._give_up(N_("its command did not end in time"))

    def on_look(self, look: Look, now: float) -> None:
        """What the engine knows of the node now; called every few seconds."""
        self._look, attempt = look, self._attempt
        if self.answer is not None or attempt.queued is None or attempt.turn is None:
            return
        attempt.gone = (attempt.gone or now) if look.gone else None
        if attempt.message is not None and attempt.ended is not None:
            self._clear(attempt.message, now, now - attempt.ended)
        elif attempt.started is not None:
            if now - attempt.started > self._deadlines.run + GRACE:
                self._give_up(N_(f"it started, and gave no message within {self._deadlines.run + GRACE:.0f} s"))
        elif attempt.gone is not None:
            if now - attempt.gone >= self._deadlines.gone:
                self._give_up(N_("it never answered"))
        elif look.waits:
            attempt.turn = now
            self._show(N_(f"waits: {look.waits}"))
            if now - attempt.queued > self._deadlines.wait:
                self._end_worker()
                self._finish(
                    WAITING, self._and_state(N_(f"it had no turn within {self._deadlines.wait / 60:g} min: {look.waits}"))
                )
        elif now - attempt.turn > self._deadlines.answers:
            self._give_up(N_(f"it never answered within {self._deadlines.answers:.0f} s of its turn"))

    def _ended(self, code: int) -> None:
        """The command of the engine has ended; without a message the task is lost, and started again."""
        attempt = self._attempt
        if attempt.message is not None:
            self.on_look(self._engine.look([self.name])[self.name], time.monotonic())
            return
        why = self._last_error() or N_(f"its command ended with exit code {code}")
        self._look = self._engine.look([self.name])[self.name]
        if attempt.number <= self._deadlines.retries and not self._look.gone:
            self._show(N_(f"lost: {why}"))
            self.start()
            return
        if attempt.started is None:
            outcome, what, why = SILENT, N_("it never answered"), self._and_state(why)
        elif self._look.gone:
            outcome, what, why = SILENT, N_("it stopped answering during the run"), self._and_state(why)
        else:
            outcome, what = LOST, N_("its task ended without a message")
        if (number := attempt.number) > 1:
            what = N_(f"{what} ({number} attempts)")
        self._finish(outcome, f"{what}: {why}")

    def _clear(self, message: Ended, now: float, waited: float) -> None:
        """The task has ended; the node counts when the engine has finished with it, or finds that it is gone."""
        gone = self._attempt.gone
        if self._look.gone and gone is not None and now - gone < self._deadlines.gone:
            return
        if self._look.over or self._look.gone or waited > self._deadlines.clears:
            sentence = message.sentence
            outcome, bundle = message.outcome, self._store_bundle()
            if outcome == "done" and bundle is None:
                outcome, sentence = LOST, N_("its bundle did not arrive")
            self._finish(outcome, sentence, bundle, message.seconds)

    def _store_bundle(self) -> str | None:
        """The name of the node's bundle in the folder."""
        path = self._folder / f"{self.name}.zip"
        if self._attempt.parts:
            try:
                path.write_bytes(content_of(self._attempt.parts))
            except (OSError, ValueError) as error:
                self._attempt.errors.append(f"xpulab: the bundle cannot be stored: {error}")
        return path.name if path.exists() else None

    def _give_up(self, why: str) -> None:
        self._end_worker()
        self._finish(SILENT, self._and_state(": ".join(filter(None, (why, self._last_error())))))

    def _end_worker(self) -> None:
        self._engine.cancel([self.name])
        worker, self._worker = self._worker, None
        worker.abort()

    def _finish(self, outcome: str, sentence: str, bundle: str | None = None, seconds: float = 0.0) -> None:
        gone = self._look.gone if bundle else ""
        self.answer = Answer(self.name, outcome, sentence, self._attempt.number, seconds, bundle, gone)
        if self._attempt.lines or self._attempt.errors:
            self._log()
        self._progress.on_answer(self.answer)

    def _log(self) -> None:
        try:
            text = "\n".join([*self._attempt.lines, *self._attempt.errors, ""])
            (self._folder / f"{self.name}.log").write_text(text, encoding="utf-8")
        except OSError:
            pass  # the folder is full: the sentences, which are shown, say more than the log

    def _last_error(self) -> str:
        """The first error that the engine's command wrote: what follows it are its consequences."""
        errors = [line for line in self._attempt.errors if "error" in line.lower() or self._engine.name == "ssh"]
        return errors[0].strip() if errors else ""

    def _and_state(self, why: str) -> str:
        return "; ".join(filter(None, (why, self._look.state)))

    def _show(self, state: str) -> None:
        self._progress.on_state(self.name, state)


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
            return
        if time.monotonic() - self._last >= _LOOKS_EVERY:
            looks = self._engine.look([node.name for node in unfinished])
            self._last = time.monotonic()
            for node in unfinished:
                node.on_look(looks[node.name], self._last)


@dataclass(frozen=True)
class Submitted:
    """answers: one for each node, in order. interrupted: whether Ctrl-C ended the fleet run."""

    answers: tuple[Answer, ...]
    interrupted: bool


def submit(
    commands: Mapping[str, Sequence[str]], folder: Path, deadlines: Deadlines, engine: Engine, progress: Progress
) -> Submitted:
    """Run the task on each node, and wait until each has answered or its deadlines are over.

    commands: by node, the one that runs the task. folder: where bundles and logs go. On Ctrl-C the commands that run are
    cancelled, and the answers say what there is.
    """
    nodes = [_Node(name, command, folder, deadlines, engine, progress) for name, command in commands.items()]
    loop = task_self()
    loop.set_info("fanout", engine.fanout)
    interrupted = False
    try:
        with progress:
            for node in nodes:
                node.start()
            loop.timer(1.0, handler=_Clock(nodes, engine), interval=1.0)
            loop.resume()
    except KeyboardInterrupt:
        interrupted = True
        running = [node for node in nodes if node.answer is None]
        for node in running:
            node.abandon()
        engine.cancel([node.name for node in running])
        loop.abort()
    return Submitted(tuple(node.answer for node in nodes if node.answer), interrupted)
