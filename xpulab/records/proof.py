"""The proof of a run: faults that were injected on the same node after it, and the checks that detected them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from xpulab.messages import N_

SCHEMA = 1
FILE = "prove.json"
"""In the folder of the run; its schema is data/schema/prove.schema.json."""


@dataclass(frozen=True)
class InjectedFault:
    """One fault and what came of it.

    fault: its name in the catalogue. what: what it breaks. notebook: the one that it was injected into.
    expected: the checks that had to turn red. detected_by: those that did, in this order.
    missed: why it was not detected, else None. seconds: how long that took.
    """

    fault: str
    what: str
    notebook: str
    expected: tuple[str, ...]
    detected_by: tuple[str, ...]
    missed: str | None
    seconds: float


@dataclass(frozen=True)
class Proof:
    """What was injected. A fault of which nothing was seen is a check that cannot fail.

    node: where. device, cards: as in the run. level: at which the faults were tried, "smoke" or "quick".
    seed: of the choice. candidates: how many faults of the catalogue fit this run.
    faults: those that were injected, in the order in which they ended. seconds: how long all took.
    """

    node: str
    device: str
    cards: int
    level: str
    seed: int
    candidates: int
    faults: tuple[InjectedFault, ...]
    seconds: float

    @property
    def missed(self) -> tuple[InjectedFault, ...]:
        """The faults that were not detected."""
        return tuple(fault for fault in self.faults if fault.missed)

    @property
    def is_green(self) -> bool:
        """Whether a fault was injected, and each was detected."""
        return bool(self.faults) and not self.missed

    @property
    def reason(self) -> str | None:
        """Why it is not green, in one line; None when it is."""
        if not self.faults:
            return N_("--prove: no fault of the catalogue fits the checks that are green here, so nothing was proved")
        if self.missed:
            names = ", ".join(fault.fault for fault in self.missed)
            return N_(
                "--prove: {missed} of {faults} injected faults were not detected: {names}",
                missed=len(self.missed),
                faults=len(self.faults),
                names=names,
            )
        return None


def to_json(proof: Proof) -> dict[str, Any]:
    """What prove.json holds."""
    return {"schema": SCHEMA, "green": proof.is_green, **asdict(proof)}


def from_json(stored: dict[str, Any]) -> Proof:
    """The proof in prove.json. Raises KeyError or TypeError for what is none."""
    fields = {name: value for name, value in stored.items() if name not in ("schema", "green")}
    faults = tuple(
        InjectedFault(**{**each, "expected": tuple(each["expected"]), "detected_by": tuple(each["detected_by"])})
        for each in fields.pop("faults")
    )
    return Proof(**fields, faults=faults)
