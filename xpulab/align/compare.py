"""Compares two logs step by step: batches, the first step that differs to the bit, the first beyond the noise, the trend."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from xpulab.align.band import Band, band_of, resolution
from xpulab.align.explain import Difference, differences
from xpulab.align.read import QUANTITIES, TrainingLog, numbers_compared, read_log

SAME, WITHIN, DIFFERS = "the same to the bit", "within the noise", "differs"
"""The verdicts; the last one is red."""
TREND_PARTS = 4
"""The trend compares the first and the last quarter of the steps after the first one beyond the noise."""
GROWS, SHRINKS = 2.0, 0.5
"""Ratios of these quarters' mean differences."""


@dataclass(frozen=True)
class Batches:
    """What the digests of the batches say.

    logged: whether both logs have them. parts_at: the first step with other batches, None when all are the same.
    reordered: both have the same batches in another order.
    """

    logged: bool
    parts_at: int | None = None
    reordered: bool = False


@dataclass(frozen=True)
class Parting:
    """The first step at which something differs. place: what differs first within it: "batch", "weights", "learning rate",
    "forward", "backward" or "update", which is that of the step before. quantities: all that differ at that step."""

    step: int
    place: str
    quantities: tuple[str, ...]


@dataclass(frozen=True)
class Quantity:
    """One number of the steps. first_bit, first_beyond: steps, None when there is none. values: of a and b at first_beyond, or
    else at the step of the largest difference; difference, width: theirs, and the band's. largest_ratio: difference / width."""

    name: str
    first_bit: int | None
    first_beyond: int | None
    step: int
    values: tuple[float, float]
    difference: float
    width: float
    largest_ratio: float


@dataclass(frozen=True)
class Alignment:
    """Two logs, compared. numbers: of the steps that were compared. bit, beyond: where they part, None when they do not.

    trend: how the difference of the loss goes on after the first step beyond the noise, in words.
    """

    a: TrainingLog
    b: TrainingLog
    numbers: tuple[int, ...]
    band: Band
    batches: Batches
    bit: Parting | None
    beyond: Parting | None
    quantities: tuple[Quantity, ...]
    trend: str | None
    environment: tuple[Difference, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """SAME, WITHIN or DIFFERS. Other batches are a difference whatever the loss is, and so is a loss that is no number."""
        if self.beyond is not None:
            return DIFFERS
        return SAME if self.bit is None else WITHIN


def align(a: Path, b: Path, noise: Sequence[Path] = (), common: bool = False) -> Alignment:
    """Compare two logs.

    noise: logs of the training of a that differ from it by noise only. common: compare only the steps that all have.

    Raises InputError for what is no log, and for logs that cannot be compared.
    """
    first, second, *others = logs = [read_log(path) for path in (a, b, *noise)]
    numbers = numbers_compared(logs, common)
    names, notes = _compared_quantities(first, second, numbers)
    for log in others:
        notes += _notes_on_noise(first, log, numbers)
    band = band_of(first, second, others, numbers, names)
    batches = _batches(first, second, numbers)
    notes += _notes(first, second, numbers, names, batches)
    quantities = tuple(_quantity(first, second, numbers, name, band.widths[name]) for name in names)
    bit = _parting(quantities, numbers, batches, lambda quantity: quantity.first_bit)
    beyond = _parting(quantities, numbers, batches, lambda quantity: quantity.first_beyond)
    if bit and beyond and bit.step == beyond.step != numbers[0]:  # all bits agreed before, so what differs first is no noise
        beyond = Parting(beyond.step, bit.place, beyond.quantities)
    parting = beyond or bit
    found = differences(first.environment, second.environment, None if parting is None else parting.place)
    trend = None if beyond is None else _trend(first, second, numbers[numbers.index(beyond.step) :])
    return Alignment(first, second, tuple(numbers), band, batches, bit, beyond, quantities, trend, tuple(found), tuple(notes))


def _compared_quantities(a: TrainingLog, b: TrainingLog, numbers: Sequence[int]) -> tuple[list[str], list[str]]:
    """The names that both logs have at every step, and a note for each other one."""
    names, notes = [], []
    for name in QUANTITIES:
        lacking = [log.path.name for log in (a, b) if any(name not in log.steps[number].values for number in numbers)]
        if lacking:
            notes.append(f"{name} is not compared: {' and '.join(lacking)} does not have it at every step")
        elif name == "weights" and a.environment.get("weights.sampled") != b.environment.get("weights.sampled"):
            notes.append("weights is not compared: the logs sampled other tensors (environment weights.sampled)")
        else:
            names.append(name)
    return names, notes


def _notes_on_noise(a: TrainingLog, noise: TrainingLog, numbers: Sequence[int]) -> list[str]:
    """What is to be said of a log of noise: one that is the same measures nothing."""
    if any(a.steps[number].values != noise.steps[number].values for number in numbers):
        return []
    return [
        f"{noise.path.name} is the same as {a.path.name} to the bit, so it measures no noise; "
        "call xpulab.align.perturb(model) before its first step"
    ]


def _batches(a: TrainingLog, b: TrainingLog, numbers: Sequence[int]) -> Batches:
    ours, theirs = ([log.steps[number].batch for number in numbers] for log in (a, b))
    if None in ours or None in theirs:
        return Batches(logged=False)
    parts = next((index for index, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]), None)
    if parts is None:
        return Batches(logged=True)
    return Batches(True, numbers[parts], Counter(ours) == Counter(theirs))


def _notes(a: TrainingLog, b: TrainingLog, numbers: Sequence[int], names: Sequence[str], batches: Batches) -> list[str]:
    notes = [
        f"{log.path.name} begins with step {log.first}: the {log.first - other.first} steps before were not compared"
        for log, other in ((a, b), (b, a))
        if log.first > other.first
    ]
    for name in ("loss", "grad_norm"):
        if name in names and (rounded := sum(resolution(log, name) for log in (a, b))):
            notes.append(f"{name} is rounded in a log: it is compared to {rounded:.1g}")
    if not batches.logged:
        notes.append("the batches are not compared: a log has no digests of them; give batch=input_ids to Log.step")
    processes = [log.environment.get("parallel.processes") for log in (a, b)]
    if processes[0] != processes[1] and batches.parts_at is not None:
        notes.append("the logs are of other numbers of processes: give the gathered input_ids of all to Log.step, or no batch")
    return notes


def _quantity(a: TrainingLog, b: TrainingLog, numbers: Sequence[int], name: str, widths: Sequence[float]) -> Quantity:
    pairs = list(zip(a.values(name, numbers), b.values(name, numbers), strict=True))
    apart = [abs(x - y) if math.isfinite(x) and math.isfinite(y) else math.inf for x, y in pairs]
    ratios = [distance / width if width else distance and math.inf for distance, width in zip(apart, widths, strict=True)]
    bit = next((index for index, (x, y) in enumerate(pairs) if x != y and not (math.isnan(x) and math.isnan(y))), None)
    beyond = next((index for index, ratio in enumerate(ratios) if ratio > 1), None)
    index = max(range(len(ratios)), key=ratios.__getitem__) if beyond is None else beyond
    return Quantity(
        name,
        None if bit is None else numbers[bit],
        None if beyond is None else numbers[beyond],
        numbers[index],
        pairs[index],
        apart[index],
        widths[index],
        max(ratios),
    )


def _parting(
    quantities: Sequence[Quantity], numbers: Sequence[int], batches: Batches, first: Callable[[Quantity], int | None]
) -> Parting | None:
    """The first step at which batches or numbers differ, and where within it. first: the step of a quantity."""
    starts = [step for step in (batches.parts_at, *map(first, quantities)) if step is not None]
    if not starts:
        return None
    step, names = min(starts), [quantity.name for quantity in quantities]
    found = ["batch"] if step == batches.parts_at else []
    found += [quantity.name for quantity in quantities if first(quantity) == step]
    return Parting(step, _place(found, names, is_first=step == numbers[0]), tuple(found))


def _place(found: Sequence[str], names: Sequence[str], is_first: bool) -> str:
    """What a step does first of what differs in it. is_first: whether it is the first step that is compared."""
    if "weights" in found:
        return "weights" if is_first else "update"
    if "batch" in found:
        return "batch"
    if "learning_rate" in found:
        return "learning rate"
    if "loss" in found:
        return "forward" if is_first or "weights" in names else "update or forward"
    return "backward"


def _trend(a: TrainingLog, b: TrainingLog, numbers: Sequence[int]) -> str:
    """How the difference of the loss goes on at these steps, and how large it is at their end."""
    apart = [y - x for x, y in zip(a.values("loss", numbers), b.values("loss", numbers), strict=True)]
    part = max(1, len(apart) // TREND_PARTS)
    early, late = (sum(map(abs, values)) / part for values in (apart[:part], apart[-part:]))
    if not all(map(math.isfinite, apart)):
        return "no number at some steps"
    kind = "grows" if late > GROWS * early else "shrinks" if late < SHRINKS * early else "stays"
    above = sum(difference > 0 for difference in apart) / len(apart)
    return f"{kind}; b - a is {sum(apart[-part:]) / part:+.2g} in the last quarter, b is above a at {above:.0%} of these steps"
