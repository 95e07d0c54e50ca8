"""Compares two logs step by step: batches, the first step that differs to the bit, the first beyond the noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from xpulab.align.band import band_of, resolution
from xpulab.align.explain import Difference, differences
from xpulab.align.read import QUANTITIES, TrainingLog, common_steps, read_log

SAME, WITHIN, DIFFERS = "the same to the bit", "within the noise", "differs"
"""The verdicts; the last one is red."""


@dataclass(frozen=True)
class Parting:
    """The first step at which something differs. place: what differs first within it: "batch", "learning rate", "forward",
    "backward", or "update or forward" where the step before may be the cause. quantities: all that differ at that step."""

    step: int
    place: str
    quantities: tuple[str, ...]


@dataclass(frozen=True)
class Quantity:
    """One number of the steps. first_bit, first_beyond: steps, None when there is none. values: of a and b at first_beyond, or
    else at the step of the largest difference; difference, width: theirs, and the band's."""

    name: str
    first_bit: int | None
    first_beyond: int | None
    step: int
    values: tuple[float, float]
    difference: float
    width: float


@dataclass(frozen=True)
class Alignment:
    """Two logs, compared. numbers: of the steps that were compared. band: where the width of the noise comes from. bit, beyond:
    where they part, None when they do not.

    has_batches: whether both logs have digests of them. batches_part: the first step with other batches, or None.
    """

    a: TrainingLog
    b: TrainingLog
    numbers: tuple[int, ...]
    band: str
    has_batches: bool
    batches_part: int | None
    bit: Parting | None
    beyond: Parting | None
    quantities: tuple[Quantity, ...]
    environment: tuple[Difference, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """SAME, WITHIN or DIFFERS. Other batches are a difference whatever the loss is, and so is a loss that is no number."""
        if self.beyond is not None:
            return DIFFERS
        return SAME if self.bit is None else WITHIN


def align(a: Path, b: Path, noise: Sequence[Path] = ()) -> Alignment:
    """Compare two logs at the steps that all have.

    noise: logs of the training of a that differ from it by noise only.
    Raises InputError for what is no log, and for logs that have no step in common.
    """
    first, second, *others = logs = [read_log(path) for path in (a, b, *noise)]
    numbers = common_steps(logs)
    names = [name for name in QUANTITIES if all(name in log.steps[number].values for log in logs[:2] for number in numbers)]
    widths, band = band_of(first, second, others, numbers, names)
    ours, theirs = ([log.steps[number].batch for number in numbers] for log in logs[:2])
    has_batches = None not in ours and None not in theirs
    pairs = zip(numbers, ours, theirs, strict=True)
    batches_part = next((number for number, x, y in pairs if x != y), None) if has_batches else None
    quantities = tuple(_quantity(first, second, numbers, name, widths[name]) for name in names)
    bit = _parting(quantities, numbers, batches_part, lambda quantity: quantity.first_bit)
    beyond = _parting(quantities, numbers, batches_part, lambda quantity: quantity.first_beyond)
    if bit and beyond and bit.step == beyond.step != numbers[0]:  # all bits agreed before, so what differs first is no noise
        beyond = Parting(beyond.step, bit.place, beyond.quantities)
    parting = beyond or bit
    found = differences(first.environment, second.environment, None if parting is None else parting.place)
    notes = tuple(_notes(logs, numbers, names, has_batches))
    return Alignment(
        first, second, tuple(numbers), band, has_batches, batches_part, bit, beyond, quantities, tuple(found), notes
    )


def _notes(logs: Sequence[TrainingLog], numbers: Sequence[int], names: Sequence[str], has_batches: bool) -> list[str]:
    """What was not compared, or only in part."""
    others = [(log, len(log.steps) - len(numbers)) for log in logs]
    notes = [f"{log.path.name} has {count} other steps, which were not compared" for log, count in others if count]
    for name in QUANTITIES:
        if name not in names:
            notes.append(f"{name} is not compared: a log does not have it at every step")
        elif name != "learning_rate" and (rounded := sum(resolution(log, name) for log in logs[:2])):
            notes.append(f"{name} is rounded in a log: it is compared to {rounded:.1g}")
    if not has_batches:
        notes.append("the batches are not compared: a log has no digests of them; give batch=input_ids to Log.step")
    return notes


def _quantity(a: TrainingLog, b: TrainingLog, numbers: Sequence[int], name: str, widths: Sequence[float]) -> Quantity:
    pairs = list(zip(a.values(name, numbers), b.values(name, numbers), strict=True))
    apart = [abs(x - y) if math.isfinite(x) and math.isfinite(y) else math.inf for x, y in pairs]
    ratios = [distance / width if width else distance and math.inf for distance, width in zip(apart, widths, strict=True)]
    bit = next((index for index, (x, y) in enumerate(pairs) if x != y and not (math.isnan(x) and math.isnan(y))), None)
    beyond = next((index for index, ratio in enumerate(ratios) if ratio > 1), None)
    index = max(range(len(ratios)), key=ratios.__getitem__) if beyond is None else beyond
    first_bit, first_beyond = (None if place is None else numbers[place] for place in (bit, beyond))
    return Quantity(name, first_bit, first_beyond, numbers[index], pairs[index], apart[index], widths[index])


def _parting(
    quantities: Sequence[Quantity],
    numbers: Sequence[int],
    batches_part: int | None,
    first: Callable[[Quantity], int | None],
) -> Parting | None:
    """The first step at which batches or numbers differ, and where within it. first: the step of a quantity."""
    starts = [step for step in (batches_part, *map(first, quantities)) if step is not None]
    if not starts:
        return None
    step = min(starts)
    found = ["batch"] if step == batches_part else []
    found += [quantity.name for quantity in quantities if first(quantity) == step]
    return Parting(step, _place(found, is_first=step == numbers[0]), tuple(found))


def _place(found: Sequence[str], is_first: bool) -> str:
    """What a step does first of what differs in it. is_first: whether it is the first step that is compared."""
    if "batch" in found:
        return "batch"
    if "learning_rate" in found:
        return "learning rate"
    if "loss" in found:
        return "forward" if is_first else "update or forward"
    return "backward"
