"""What the difference of two logs looks like, before any cause: data/alignment.yaml says what to look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xpulab.align.explain import look_at
from xpulab.align.pair import Pair
from xpulab.align.read import TrainingLog

STEADY = 0.05
"""A factor or an offset is steady when 19 of 20 of its values are so close to it, as a share of its distance from none."""
LEAST = 3
"""Steps in which a pattern is one."""
EXACT, LEAST_EXACT = 0.01, 10
"""A level that strays by so small a share of its distance from none, from the first of so many steps on, is no noise, within
any band."""
WORDS = {"learning_rate": "the learning rate", "loss": "the loss", "grad_norm": "the norm of the gradients"}


@dataclass(frozen=True)
class Pattern:
    """What a difference looks like. name: one of data/alignment.yaml. says: what, in words. since: the first step.

    look: what to look at. is_wrong: a training is wrong that has it, whatever the numbers of the other one are.
    """

    name: str
    says: str
    since: int
    look: str
    is_wrong: bool = False


def find(pair: Pair, beyond: Mapping[str, int | None], a: TrainingLog, b: TrainingLog) -> list[Pattern]:
    """The patterns of a pair of logs. beyond: by quantity the index of the first difference that noise does not explain."""
    found = [Pattern(*pattern) for pattern in _stuck(pair)]
    found += [Pattern(*pattern) for pattern in (*_shift(pair, a, b), *_window(pair))]
    if not any(pattern.is_wrong and pattern.name != "shift" for pattern in found):
        for name, first in beyond.items():
            if first is not None:
                found += [
                    Pattern(*pattern) for pattern in (_rate if name == "learning_rate" else _differs)(pair, name, first, a, b)
                ]
            elif name != "learning_rate":
                found += [Pattern(*pattern) for pattern in _exact(pair, name)]
    if [pattern.name for pattern in found] in (["factor of loss"], ["offset of loss"]) and beyond.get("grad_norm", 0) is None:
        found = [replace(found[0], says=f"{found[0].says}; gradients agree: what is logged differs")]
    return found


def _stuck(pair: Pair) -> Iterator[tuple[Any, ...]]:
    """A series that is no number, zero or constant, on one side or on both."""
    for name, both in pair.values.items():
        tests = {"nan": ~np.isfinite(both), "zero": np.array(both) == 0, "constant": np.array(both) == np.array(both)[:, :1]}
        for kind, is_so in tests.items():
            starts = [_tail(values, so, kind) for values, so in zip(both, is_so, strict=True)]
            sides = [side for side, start in zip("ab", starts, strict=True) if start is not None]
            is_usual = kind == "constant" and (name == "learning_rate" or (name == "grad_norm" and len(sides) == 1))
            if sides and not is_usual:
                start = min(start for start in starts if start is not None)
                since = "at every step" if start == 0 else f"from step {pair.numbers[start]} on"
                value = {"nan": "is no number", "zero": "is 0", "constant": f"is {both['ab'.index(sides[0])][0]:.6g}"}[kind]
                says = f"{WORDS[name]} of {' and '.join(sides)} {value} {since}"
                yield kind, says, int(pair.numbers[start]), look_at(kind), True
                break


def _tail(values: np.ndarray, so: np.ndarray, kind: str) -> int | None:
    """The index from which a series is so to its end; for what is no number the first one."""
    if kind == "nan":
        return int(np.argmax(so)) if so.any() else None
    start = len(so) - int(np.argmin(so[::-1])) if not so.all() else 0
    if start == 0:
        return 0 if kind == "zero" or len(so) > 1 else None
    falls_to_it = abs(values[start - 1]) <= 0.01 * np.abs(values).max() if start < len(so) else True
    return start if kind == "zero" and len(so) - start >= LEAST and not falls_to_it else None


def _shift(pair: Pair, a: TrainingLog, b: TrainingLog) -> Iterator[tuple[Any, ...]]:
    """Another number for the same step: explained when the first steps have it too, or one log counts from 0."""
    if pair.shift:
        first = int(b.steps[0] - a.steps[0])
        counts_from_0 = abs(pair.shift) == 1 and 0 in (a.steps[0], b.steps[0])
        is_wrong = not (first == pair.shift or counts_from_0)
        says = f"shifted by {abs(pair.shift)}: step n of a is step n {'+' if pair.shift > 0 else '-'} {abs(pair.shift)} of b"
        name = "shift" if is_wrong else "counted"
        yield name, says, int(pair.numbers[0]), look_at(name), is_wrong


def _window(pair: Pair) -> Iterator[tuple[Any, ...]]:
    if pair.window:
        says = f"a line is the mean of {pair.window[0]} steps in a and of {pair.window[1]} in b: means of the same are compared"
        yield "window", says, int(pair.numbers[0]), look_at("window")


def _rate(pair: Pair, name: str, first: int, a: TrainingLog, b: TrainingLog) -> Iterator[tuple[Any, ...]]:
    """A schedule that begins again: the rates from a step on are those with which the other log begins."""
    for side, log, other, shift in (("b", b, a, pair.shift), ("a", a, b, 0)):
        start = int(np.searchsorted(log.steps, pair.numbers[first] + shift))
        again, begin = log.columns[name].values[start:], other.columns[name].values[: len(log.steps) - start]
        count = min(len(again), len(begin))
        if count >= LEAST and len(set(begin)) > 1 and np.allclose(again[:count], begin[:count], rtol=1e-3, atol=0):
            says = f"the learning rate of {side} begins again at step {pair.numbers[first]}"
            yield "rate", says, int(pair.numbers[first]), look_at("rate")
            return


def _differs(pair: Pair, name: str, first: int, a: TrainingLog, b: TrainingLog) -> Iterator[tuple[Any, ...]]:
    """A factor, an offset, a change at regular steps only, or a difference that grows."""
    ours, theirs = pair.values[name]
    with np.errstate(all="ignore"):
        ratio = theirs / ours
    word, at = WORDS[name], pair.numbers
    if levels := _levels(ours, theirs):
        kind, start, value, _ = levels[0]
        since = "at every step" if start == 0 else f"from step {at[start]} on, and before it they agree"
        name = f"{kind} of {name}" if start == 0 else "change"
        yield name, f"{word} of b is {_much(kind, value)} {since}", int(at[start]), look_at(name)
    elif (regular := _regular(ratio)) is not None:
        places, each = regular
        factor = np.median(ratio[places])
        says = f"{word} differs at each {each}th step only, first at step {at[places[0]]}, by a factor {factor:.2f}"
        yield "last group", says, int(at[places[0]]), look_at("last group")
    else:
        apart = np.abs(theirs - ours)
        before = apart[max(0, first - 5) : first].max(initial=0.0)
        if before and apart[first] < 4 * before:
            start = int(np.argmax(apart > 0))
            grows = ", ".join(f"{apart[place]:.1g} at step {at[place]}" for place in (start, first, -1))
            yield "slow", f"{word} parts slowly: {grows}", int(at[start]), look_at("slow")


def _exact(pair: Pair, name: str) -> Iterator[tuple[Any, ...]]:
    """The same factor or offset at every step."""
    ours, theirs = pair.values[name]
    if len(pair.numbers) >= LEAST_EXACT and pair.rounding[name].max() <= EXACT * np.abs(theirs - ours).min():
        for kind, start, value, strays in _levels(ours, theirs):
            if start == 0 and strays <= EXACT:
                of = f"{kind} of {name}"
                yield of, f"{WORDS[name]} of b is {_much(kind, value)} at every step", int(pair.numbers[0]), look_at(of), True
                return


def _levels(ours: np.ndarray, theirs: np.ndarray) -> list[tuple[str, int, float, float]]:
    """Factor and offset that a series has from a step on, the steadier one first: kind, that step, value, how far it strays."""
    with np.errstate(all="ignore"):
        both = [("factor", *_level(theirs / ours, 1.0)), ("offset", *_level(theirs - ours, 0.0))]
    steady = [(kind, start, value, strays) for kind, start, value, strays in both if start is not None]
    return sorted(steady, key=lambda level: level[3])


def _much(kind: str, value: float) -> str:
    return (
        f"{value:{'.2f' if abs(value - 1) > 0.1 else '.6g'}} times that of a" if kind == "factor" else f"that of a {value:+.4g}"
    )


def _level(series: np.ndarray, none: float) -> tuple[int | None, float, float]:
    """From where a series stays at a value other than none, that value, and how far it strays, as a share of the distance."""
    value = float(np.median(series[-max(LEAST, len(series) // 4) :]))
    distance = abs(value - none)
    start = int(np.argmax(np.abs(series - none) > distance / 2))
    if not np.isfinite(value) or distance == 0 or len(series) - start < LEAST:
        return None, value, np.inf
    strays = [np.quantile(np.abs(part), 0.95) for part in (series[start:] - value, series[:start] - none) if len(part)]
    return (start if max(strays) <= STEADY * distance else None), value, max(strays) / distance


def _regular(ratio: np.ndarray) -> tuple[np.ndarray, int] | None:
    """The places of a series that alone are far from 1, at equal distances of at least two steps; else None."""
    far = np.abs(ratio - 1)
    places = np.flatnonzero(far > max(0.03, 5 * float(np.median(far))))
    each = np.unique(np.diff(places))
    return (places, int(each[0])) if len(places) >= 2 and len(each) == 1 and each[0] > 1 else None
