"""Compares two logs step by step: batches, the first step that differs to the bit, the first beyond the noise; and judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from xpulab import verdict
from xpulab.align import patterns
from xpulab.align.band import LAST_PLACES, MOST_OF_NORM, ROUNDING, dtype_of, fall, origin, widths
from xpulab.align.explain import Difference, differences
from xpulab.align.pair import Pair, numbered, paired, rates_of, shift_of
from xpulab.align.read import QUANTITIES, TrainingLog, read_log
from xpulab.errors import InputError

SAME, WITHIN, UNDECIDED, DIFFERS = "the same to the bit", "within the noise", "undecided", "differs"
"""The verdicts: two are right, one decides nothing, the last one is wrong."""
ALLOWED = {"loss": 0.05, "grad_norm": 0.1}
"""No larger difference is ever right, whatever the band: of the loss's fall, and of the norm of the gradients."""


PLACES = {
    "batch": "other batches",
    "learning rate": "another learning rate",
    "forward": "the weights to begin with, or the forward pass",
    "backward": "the backward pass: the loss agrees, the gradients do not",
    "update or forward": "the update of the step before, or the forward pass",
}
"""By place what differs first within a step."""


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
    else at the step of the largest difference; difference, width: theirs, and the band's.

    largest: the difference of all steps. relative: the mean one, relative to a. is_small: none is larger than ALLOWED.
    """

    name: str
    first_bit: int | None
    first_beyond: int | None
    step: int
    values: tuple[float, float]
    difference: float
    width: float
    largest: float
    relative: float
    is_small: bool


@dataclass(frozen=True)
class Alignment:
    """Two logs, compared. numbers: of the steps that were compared. band: where the width of the noise comes from. bit, beyond:
    where they part, None when they do not.

    has_batches: whether both logs have digests of them. batches_part: the first step with other batches, or None.
    patterns: what the differences look like. verdict: one of the four, reason: in words. falls_by: the loss, the less of both;
    size: its largest value; widest: of its band.
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
    patterns: tuple[patterns.Pattern, ...]
    environment: tuple[Difference, ...]
    notes: tuple[str, ...]
    falls_by: float
    size: float
    widest: float
    verdict: str
    reason: str

    @property
    def answer(self) -> str:
        """RIGHT, WRONG or UNDECIDED of xpulab.verdict."""
        return {UNDECIDED: verdict.UNDECIDED, DIFFERS: verdict.WRONG}.get(self.verdict, verdict.RIGHT)


@np.errstate(all="ignore")
def align(
    a: Path,
    b: Path,
    noise: Sequence[Path] = (),
    names: Mapping[str, Sequence[str]] | None = None,
    dtype: str = "",
    within: float | None = None,
    after: int = 0,
) -> Alignment:
    """Compare two logs at the steps that all have.

    noise: logs of the training of a that differ from it by noise only. names: by quantity what else a file may call it.
    dtype: of the products, where a log does not say it. within: what the mean relative difference of the loss may be behind
    step after; it takes the band's place. Raises InputError for what is no log, and for logs that have no step in common.
    """
    first, second, *others = [read_log(path, names) for path in (a, b, *noise)]
    first, second = numbered(first, second), numbered(second, first)
    pair = _common(first, second, shift_of(first, second))
    pairs = [_common(first, numbered(log, first), 0) for log in others]
    stated = [dtype_of(log) or dtype for log in (first, second)]
    strict, loose = (min((name or unknown for name in stated), key=ROUNDING.__getitem__) for unknown in ("float32", "bfloat16"))
    pair, notes = _same_rates(pair, second)
    falls_by = fall(*pair.values["loss"])
    apart = {
        name: [(p.numbers, np.abs(p.values[name][0] - p.values[name][1])) for p in pairs if name in p.values]
        for name in pair.values
    }
    bands = {name: widths(name, pair.numbers, *pair.values[name], apart[name], loose) for name in pair.values}
    quantities = tuple(_quantity(pair, name, bands[name], falls_by, after) for name in pair.values)
    doubts = [
        _quantity(pair, name, widths(name, pair.numbers, *pair.values[name], (), strict), falls_by, after).first_beyond
        is not None
        for name in pair.values
        if strict != loose and not noise
    ]
    index = {int(number): place for place, number in enumerate(pair.numbers)}
    places = {row.name: None if row.is_small and row.first_beyond is None else index[row.step] for row in quantities}
    found = tuple(patterns.find(pair, places, first, second))
    other = np.flatnonzero(pair.batches[0] != pair.batches[1]) if pair.batches else np.zeros(0, int)
    batches_part = int(pair.numbers[other[0]]) if len(other) else None
    bit = _parting(quantities, pair, batches_part, lambda quantity: quantity.first_bit)
    beyond = _parting(quantities, pair, batches_part, lambda quantity: quantity.first_beyond)
    if (
        bit and beyond and bit.step == beyond.step != pair.numbers[0]
    ):  # all bits agreed before, so what differs first is no noise
        beyond = Parting(beyond.step, bit.place, beyond.quantities)
    judged, reason = _judged(quantities, found, bit, beyond, falls_by, within, strict if any(doubts) else "")
    parting = beyond or bit
    causes = differences(first.environment, second.environment, None if parting is None else parting.place)
    return Alignment(
        first,
        second,
        tuple(index),
        origin(first, others, loose) + ("" if strict == loose else "; no log says its type: --dtype"),
        pair.batches is not None,
        batches_part,
        bit,
        beyond,
        quantities,
        found,
        tuple(causes),
        (*notes, *_notes((first, second, *others), pair)),
        falls_by,
        float(np.nanmax(np.abs(pair.values["loss"][0]), initial=0.0)),
        float(bands["loss"][-1]),
        judged,
        reason,
    )


def _judged(
    quantities: Sequence[Quantity],
    found: Sequence[patterns.Pattern],
    bit: Parting | None,
    beyond: Parting | None,
    falls_by: float,
    within: float | None,
    doubt: str,
) -> tuple[str, str]:
    """The verdict, and why. doubt: a type whose band is narrower than a difference, when no log says its type; else empty.

    Right is only what differs by less than ALLOWED: of a loss that falls, a band is no excuse for more.
    """
    loss = next(quantity for quantity in quantities if quantity.name == "loss")
    large = [quantity for quantity in quantities if not quantity.is_small]
    if wrong := [pattern for pattern in found if pattern.is_wrong]:
        return DIFFERS, wrong[0].says
    if within is not None:
        asked = f"the mean relative difference of the loss is {loss.relative:.2%}, {within:.2%} was asked for"
        if not loss.relative <= within:
            return DIFFERS, asked
        if within * abs(loss.values[0]) >= falls_by:
            return UNDECIDED, f"{asked}, and the loss falls by less ({falls_by:.2g}): one that does not fall would pass too"
        gradients = [row for row in quantities if row.name == "grad_norm" and not row.relative <= MOST_OF_NORM]
        return (
            (UNDECIDED, f"{asked}; the norms of the gradients are {gradients[0].relative:.0%} apart")
            if gradients
            else (WITHIN, asked)
        )
    if beyond is not None:
        seen = [f": {pattern.says}" for pattern in found if pattern.name not in ("counted", "window")]
        return DIFFERS, f"{DIFFERS} from step {beyond.step} on{[*seen, ', ' + PLACES[beyond.place]][0]}"
    if large:
        row = large[0]
        of = f"{ALLOWED['loss']:.0%} of what the loss falls by ({falls_by:.2g})" if row.name == "loss" else "10 % of it"
        return UNDECIDED, (
            f"{row.name} differs by {row.difference:.2g} at step {row.step}: the band ({row.width:.2g}) allows it, but it may "
            f"be more than {of}; a log of the noise (--noise), float32 on both sides, or more steps decide"
        )
    if doubt:
        return (
            UNDECIDED,
            f"beyond the noise of {doubt}, within that of bfloat16: --dtype says the type of the products, --noise measures",
        )
    shifted = "".join(f", {pattern.says}" for pattern in found if pattern.name == "counted")
    return (SAME, SAME + shifted) if bit is None else (WITHIN, WITHIN + shifted)


def _common(a: TrainingLog, b: TrainingLog, shift: int) -> Pair:
    """The steps that both have. Raises InputError when there are none."""
    if (pair := paired(a, b, shift)) is None:
        ranges = ", ".join(f"{log.path} has steps {log.steps[0]} to {log.steps[-1]}" for log in (a, b))
        raise InputError(f"the logs have no step in common: {ranges}; compare logs of the same steps")
    return pair


def _same_rates(pair: Pair, b: TrainingLog) -> tuple[Pair, list[str]]:
    """Rates as of the same step: some trainers note the rate of the next one. Returns a note, when it is so."""
    if "learning_rate" in pair.values:
        rates = pair.values["learning_rate"][0]
        tolerance = pair.rounding["learning_rate"] + widths("learning_rate", pair.numbers, rates, rates, (), "float32")
        for later in (0, 1, -1):
            others = rates_of(b, pair.numbers + pair.shift + later)
            is_there = np.isfinite(others)
            if (np.abs(rates - others) <= tolerance)[is_there].all() and is_there.sum() * 2 > len(others):
                if not later:
                    break
                others = np.where(is_there, others, rates)
                which = "step before" if later > 0 else "next step"
                note = f"{b.path.name} notes the learning rate of the {which}: so they are compared"
                return replace(pair, values={**pair.values, "learning_rate": (rates, others)}), [note]
    return pair, []


def _notes(logs: Sequence[TrainingLog], pair: Pair) -> list[str]:
    """What was not compared, or only in part."""
    notes = [note for log in logs for note in log.notes]
    if pair.window is None:
        others = [(log, len(log.steps) - len(pair.numbers)) for log in logs[:2]]
        notes += [f"{log.path.name} has {count} other steps, which were not compared" for log, count in others if count]
    for name in QUANTITIES:
        if name not in pair.values:
            notes.append(f"{name} is not compared: a log does not have it at every step")
        elif (
            name != "learning_rate"
            and (rounded := float(pair.rounding[name].max())) > 1e-12 * np.abs(pair.values[name][0]).max()
        ):
            notes.append(f"{name} is rounded in a log: it is compared to {rounded:.1g}")
    if pair.batches is None:
        notes.append("the batches are not compared: a log has no digests of them; give batch=input_ids to Log.step")
    return notes


def _quantity(pair: Pair, name: str, widths: np.ndarray, falls_by: float, after: int) -> Quantity:
    a, b = pair.values[name]
    rounding = pair.rounding[name]
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.abs(a - b)
        relative = np.where(apart > 0, apart / np.abs(a), 0.0)[pair.numbers > after]
    apart[~np.isfinite(a) | ~np.isfinite(b)] = np.inf
    widths = widths + rounding
    ratios = np.divide(apart, widths, out=np.where(apart > 0, np.inf, 0.0), where=widths > 0)
    bits = np.flatnonzero((a != b) & ~(np.isnan(a) & np.isnan(b)))
    beyond = np.flatnonzero(ratios > 1)
    index = int(beyond[0]) if len(beyond) else int(np.argmax(ratios))
    allowed = np.maximum(ALLOWED["loss"] * falls_by, LAST_PLACES * ROUNDING["float32"] * np.abs(a))
    is_small = (apart + rounding <= allowed) if name == "loss" else (apart - rounding <= ALLOWED["grad_norm"] * np.abs(a))
    first_bit, first_beyond = (int(pair.numbers[places[0]]) if len(places) else None for places in (bits, beyond))
    return Quantity(
        name,
        first_bit,
        first_beyond,
        int(pair.numbers[index]),
        (float(a[index]), float(b[index])),
        float(apart[index]),
        float(widths[index]),
        float(apart.max()),
        float(relative.mean()) if len(relative) else 0.0,
        bool(is_small.all()),
    )


def _parting(
    quantities: Sequence[Quantity], pair: Pair, batches_part: int | None, first: Callable[[Quantity], int | None]
) -> Parting | None:
    """The first step at which batches or numbers differ, and where within it. first: the step of a quantity."""
    starts = [step for step in (batches_part, *map(first, quantities)) if step is not None]
    if not starts:
        return None
    step = min(starts)
    found = ["batch"] if step == batches_part else []
    found += [quantity.name for quantity in quantities if first(quantity) == step]
    return Parting(step, _place(found, is_first=step == pair.numbers[0]), tuple(found))


def _place(found: Sequence[str], is_first: bool) -> str:
    """What a step does first of what differs in it. is_first: whether it is the first step that is compared."""
    if "batch" in found:
        return "batch"
    if "learning_rate" in found:
        return "learning rate"
    if "loss" in found:
        return "forward" if is_first else "update or forward"
    return "backward"
