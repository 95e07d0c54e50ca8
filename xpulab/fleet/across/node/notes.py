"""What a rank notes while it works: lines in a pipe, which its task reads, also when the rank ends in the middle."""

from __future__ import annotations

import json
import os
from typing import Any

from xpulab.checks.compare import Finding

STARTED, STEP, CHECK, SKIP, RATE, RAISED, DONE = "started", "step", "check", "skip", "rate", "raised", "done"
"""Kinds of notes: Paddle is imported; a step begins; a check did or did not pass; one is skipped; a rate; an error; the end."""


class Notes:
    """Writes notes into a pipe. descriptor: its end for writing."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def started(self) -> None:
        """Paddle is imported: the time limit counts from here."""
        self._write(STARTED)

    def step(self, name: str) -> None:
        """What this rank does from now on."""
        self._write(STEP, name=name)

    def check(self, name: str, finding: Finding, control: Finding) -> None:
        """A check with its control, which must not be accepted."""
        if control.accepted or control.incomparable:
            self._write(CHECK, name=name, outcome="broken", detail="its control passes")
        elif finding.accepted:
            self._write(CHECK, name=name, outcome="passed", detail="")
        else:
            measured = finding.why or str(finding.measured)
            self._write(CHECK, name=name, outcome="failed", detail=f"{measured}; expected {finding.expected}"[:400])

    def skip(self, name: str, reason: str) -> None:
        """A check that this device or this group cannot have."""
        self._write(SKIP, name=name, reason=reason)

    def rate(self, name: str, value: float) -> None:
        """A rate in GB/s."""
        self._write(RATE, name=name, value=value)

    def raised(self, reason: str) -> None:
        """The error that ends this rank, in one line."""
        self._write(RAISED, reason=reason[:600])

    def done(self) -> None:
        """Every section has been run."""
        self._write(DONE)

    def _write(self, kind: str, **fields: Any) -> None:
        os.write(self._descriptor, (json.dumps({"kind": kind, **fields}) + "\n").encode())
