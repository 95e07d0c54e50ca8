"""What came of a run: one record for each rank, and one for the run. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class RankOutcome:
    """How one rank ended.

    outcome: RETURNED; RAISED; KILLED (it ended without an error message, by a signal or an exit of its own); LATE (it was
    still at work when the run was ended); ABSENT (it never started).
    at: time.monotonic() of its end, 0.0 when it was late or absent.
    raised: set if and only if the outcome is RAISED. stack: what faulthandler wrote, of a rank that was late or crashed.
    steps: the arguments of its calls of ranks.step(), in order.
    value: the serialized return value; also set for a rank that was killed or did not end after its function had returned.
    status: the exit status (negative: the signal that ended it), None when unknown. printed: the end of its output.
    """

    rank: int
    outcome: str
    at: float = 0.0
    raised: Raised | None = None
    stack: stacks.Stack = stacks.NONE
    steps: tuple[str, ...] = ()
    value: bytes | None = None
    status: int | None = None
    printed: str = ""


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended.

    ranks: one record each, in the order of the ranks. launcher_log: what paddle.distributed.launch wrote, "" for forked ranks.
    started: the time.monotonic() from which the time limit counts. seconds: from there to the end. interrupted: by Ctrl-C.
    """

    ranks: tuple[RankOutcome, ...]
    launcher_log: str
    started: float
    seconds: float
    interrupted: bool

    @property
    def succeeded(self) -> bool:
        """Whether every rank has returned, without an interrupt."""
        return not self.interrupted and all(rank.outcome == RETURNED for rank in self.ranks)
