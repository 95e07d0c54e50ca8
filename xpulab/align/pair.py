"""Which steps of two logs belong together: by number, by number and a shift, or as the means of windows of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from xpulab.align.read import QUANTITIES, TrainingLog

BEGINNING, MOST = 32, 100_000
"""So many losses with which a log begins are looked for among so many of the other one."""
CLOSER = 0.1
"""A shift is one when the losses are then apart by at most so much of what they are apart without it."""


@dataclass(frozen=True)
class Pair:
    """The steps that two logs have in common. numbers: those of a. shift: b's number of a step is larger by it.

    values: by quantity those of a and of b, step by step; rounding: half a unit of their last digits. window: how many steps a
    line of a and of b stands for, when these are not the same. batches: of a and b, or None.
    """

    numbers: np.ndarray
    shift: int
    values: dict[str, tuple[np.ndarray, np.ndarray]]
    rounding: dict[str, np.ndarray]
    window: tuple[int, int] | None
    batches: tuple[np.ndarray, np.ndarray] | None


def numbered(log: TrainingLog, other: TrainingLog) -> TrainingLog:
    """A log whose file has no numbers of steps takes those of the other one, in its order: all, or each n-th."""
    each = max(1, len(other.steps) // len(log.steps))
    steps = other.steps[each - 1 :: each][: len(log.steps)]
    if not log.is_counted or other.is_counted or len(steps) < len(log.steps):
        return log
    note = f"{log.path.name} has no numbers of steps: its lines are taken for steps {steps[0]} to {steps[-1]}, each {each}"
    return replace(log, steps=steps, notes=(*log.notes, note))


def paired(a: TrainingLog, b: TrainingLog, shift: int = 0) -> Pair | None:
    """The steps that both have; None when there are none."""
    numbers, *places = np.intersect1d(a.steps, b.steps - shift, assume_unique=True, return_indices=True)
    if not len(numbers):
        return None
    names = [name for name in QUANTITIES if name in a.columns and name in b.columns]
    values = {name: (a.columns[name].values[places[0]], b.columns[name].values[places[1]]) for name in names}
    rounding = {
        name: a.columns[name].resolution(values[name][0]) + b.columns[name].resolution(values[name][1]) for name in names
    }
    window = None
    if any((np.diff(at) != 1).any() for at in places):
        means = (_means(a, places[0]), _means(b, places[1]))
        if np.median(np.abs(means[0] - means[1])) < np.median(np.abs(values["loss"][0] - values["loss"][1])):
            values["loss"] = means
            window = (int(np.median(np.diff(a.steps))), int(np.median(np.diff(b.steps))))
    batches = None if a.batches is None or b.batches is None else (a.batches[places[0]], b.batches[places[1]])
    return Pair(numbers, shift, values, rounding, window, batches)


def _means(log: TrainingLog, at: np.ndarray) -> np.ndarray:
    """The mean loss from each of these lines back to the one before; a line stands for all steps since the line before."""
    begin = log.steps[at[0]] - (log.steps[at[1]] - log.steps[at[0]])
    first = int(np.searchsorted(log.steps, begin, "right"))
    steps, losses = log.steps[first : at[-1] + 1], log.columns["loss"].values[first : at[-1] + 1]
    counts = np.diff(steps, prepend=min(begin, steps[0] - 1)).astype(float)
    starts = np.append(0, at[:-1] + 1 - first)
    return np.add.reduceat(losses * counts, starts) / np.add.reduceat(counts, starts)


def shift_of(a: TrainingLog, b: TrainingLog) -> int:
    """By how much b's numbers of the same steps are larger than a's: 0 unless another shift fits far better."""
    shifts = {0, 1, -1, _found(b, a), -_found(a, b)}
    apart = {shift: _apart(paired(a, b, shift)) for shift in sorted(shifts, key=abs)}
    best = min(apart, key=apart.__getitem__)
    return best if apart[best] < CLOSER * min(apart[0], _apart_but_scaled(paired(a, b))) else 0


def _found(short: TrainingLog, long: TrainingLog) -> int:
    """By how much the numbers of a log are larger than those of another one, where its first losses fit best."""
    first, losses = (log.columns["loss"].values for log in (short, long))
    count = min(BEGINNING, len(first), len(losses))
    windows = np.lib.stride_tricks.sliding_window_view(losses[:MOST], count)
    apart = np.nan_to_num(np.abs(windows - first[:count]).mean(axis=1), nan=np.inf)
    return int(short.steps[0] - long.steps[int(np.argmin(apart))])


def _apart(pair: Pair | None) -> float:
    """How far two logs are apart: the median of the losses' differences; other batches are further than any loss."""
    if pair is None or len(pair.numbers) < 5:
        return np.inf
    other = 0.0 if pair.batches is None else float(np.mean(pair.batches[0] != pair.batches[1]))
    middle = float(np.median(np.abs(pair.values["loss"][0] - pair.values["loss"][1])))
    return (middle if np.isfinite(middle) else np.inf) + (1e9 if other > 0.5 else 0.0)


def _apart_but_scaled(pair: Pair | None) -> float:
    """How far the losses are apart at the median without a factor or an offset: a smooth curve that has one looks shifted."""
    if pair is None:
        return np.inf
    ours, theirs = pair.values["loss"]
    with np.errstate(divide="ignore", invalid="ignore"):
        left = (theirs - ours * np.median(theirs / ours), theirs - ours - np.median(theirs - ours))
    return min(value if np.isfinite(value) else np.inf for value in (float(np.median(np.abs(each))) for each in left))


def rates_of(log: TrainingLog, numbers: Sequence[int] | np.ndarray) -> np.ndarray:
    """The learning rates at these steps; no number where there is none."""
    at = np.searchsorted(log.steps, numbers).clip(0, len(log.steps) - 1)
    return np.where(log.steps[at] == numbers, log.columns["learning_rate"].values[at], np.nan)
