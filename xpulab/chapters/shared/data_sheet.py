"""A measured rate beside what the data sheet of the card promises (xpulab.records.hardware).

A rate above the promised one means that the clock stopped too early; one far below it, that something is wrong with the card,
its link or its place in the machine. Bounds are wide, because nothing here was run on a GPU or XPU; a site names its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xpulab.checks.ledger import ledger
from xpulab.checks.table import Table
from xpulab.messages import N_
from xpulab.records import hardware
from xpulab.records.hardware import Sheet
from xpulab.records.record import CardFacts

ABOVE = 1.05
"""How far a rate may be above the promised one: clocks are measured with an error, and boost clocks differ."""
LEAST = {"product": 0.2, "memory": 0.3, "pinned": 0.25, "between": 0.2, "size": 0.85, "limit": 0.0}
"""By kind the least share of a data sheet's value. Not measured on a card: other links, lower clocks and ECC must not be red,
nor boards on which two cards share a third of the switch's links (A100 and H100 in groups of four)."""


@dataclass(frozen=True)
class Rate:
    """A measured value and what the data sheet promises, in the same unit.

    kind: a key of LEAST. promised: None where the sheet has no number. least: that of the sheet.
    """

    case: str
    kind: str
    value: float
    promised: float | None
    unit: str
    least: float | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest value that the check accepts; of a site's numbers as far above as below."""
        promised = self.promised or 0.0
        return (self.least or LEAST[self.kind]) * promised, (1 / self.least if self.least else ABOVE) * promised


def sheet_of_cards() -> tuple[Sheet | None, str]:
    """The data sheet of the cards by the model that the vendor's tool prints, and why there is none; "" where there is one."""
    model = ", ".join(sorted({card.model for card in card_facts()}))
    if not model:
        return None, N_("the card has no name to look up in data/hardware.yaml")
    sheet = next((sheet for sheet in hardware.sheets() if model in sheet.models), None)
    facts = {"model": model, "variable": hardware.SITE}
    return sheet, "" if sheet else N_(
        "the card {model} is not in data/hardware.yaml; add it to a file that {variable} names", **facts
    )


def compare(rows: Table, rates: Sequence[Rate]) -> None:
    """Add a row for each rate: between its bounds. The control is half of the least, else twice the most."""
    for rate in rates:
        case = f"{rate.case}, {rate.unit}"
        if rate.promised is None:
            rows.skip(case, N_("{value} were measured, and the file has no number for it", value=f"{rate.value:.4g}"))
        else:
            low, high = rate.bounds
            rows.between(case, rate.value, low, high, control=low / 2 or 2 * high)


def card_facts() -> tuple[CardFacts, ...]:
    """What the vendor's tool shows of the cards; nothing before use_device."""
    return ledger.run_context.card_facts if ledger.run_context else ()
