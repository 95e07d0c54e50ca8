"""What came of a run: one record for each rank, and one for the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from xpulab.ranks import stacks

RETURNED, RAISED, KILLED, LATE, ABSENT = "returned", "raised", "killed", "late", "absent"


@dataclass(frozen=True)
class Raised:
    """An exception that left a rank's function.

    kind: its type's name. message: its text. trace: the traceback as text. frames: file and function of each frame, the
    innermost first.
    """

    kind: str
    message: str
    trace: str
    frames: tuple[tuple[str, str], ...]


@dataclass(eq=False)
class Rank:
    """What is known of one rank, during a run and after it.

    pid, connection: None until it has said which rank it is. is_connected: whether more may come from it. entered: whether it
    has called the function. steps: the arguments of its calls of ranks.step(), in order.
    value: the serialized return value; also set for a rank that was killed or did not end after its function had returned.
    at: time.monotonic() of its end, 0.0 while it is at work. ended, status: whether its process has ended, and its exit status
    (negative: the signal that ended it; None: unknown). stays: whether it can take another call. is_late: whether
    it was still at work when the run was ended. stack: what faulthandler wrote, of a rank that was late or crashed. printed:
    the end of its output.
    """

    number: int
    pid: int | None = None
    connection: Connection | None = None
    is_connected: bool = False
    entered: bool = False
    steps: list[str] = field(default_factory=list)
    value: bytes | None = None
    raised: Raised | None = None
    at: float = 0.0
    ended: bool = False
    stays: bool = False
    status: int | None = None
    is_late: bool = False
    stack: stacks.Stack = stacks.NONE
    printed: str = ""

    @property
    def done(self) -> bool:
        """Whether there is nothing more to come from it."""
        return self.value is not None or self.raised is not None or self.ended

    @property
    def outcome(self) -> str:
        """How it ended.

        RETURNED; RAISED; KILLED (it ended without an error message, by a signal or an exit of its own); LATE (it was still at
        work when the run was ended); ABSENT (it never started).
        """
        if self.raised is not None:
            return RAISED
        if self.pid is None:
            return ABSENT
        if self.is_late:
            return LATE
        return RETURNED if self.value is not None and self.status in (0, None) else KILLED


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended.

    ranks: one record each, in the order of the ranks. launcher_log: what paddle.distributed.launch wrote, "" for forked ranks.
    started: the time.monotonic() from which the time limit counts. seconds: from there to the end. interrupted: by Ctrl-C.
    """

    ranks: tuple[Rank, ...]
    launcher_log: str
    started: float
    seconds: float
    interrupted: bool

    @property
    def succeeded(self) -> bool:
        """Whether every rank has returned, without an interrupt."""
        return not self.interrupted and all(rank.outcome == RETURNED for rank in self.ranks)
