"""A grid: a proof's cases, made from axes with values so that every pair of values is in some case.

    grid = Grid(
        {"dtype": ("float32", "float64"), "shape": ((3, 4), (), (1,)), "axis": (0, -1, None)},
        {"a 0-d tensor has no axis": lambda shape, axis: shape == () and axis is not None},
    )
    for case in grid.cases("quick", seed):          # case.dtype, case.shape, case.axis, case.rng()

The first value of each axis is its default, the plainest one. A rule is a reason, and a function whose parameters are the axes
that it reads: it says which values cannot go together. Another seed gives another cover.

A grid may have further values, too many for a cover: `grid.further_cases(seed)` has each of them once with each operator.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np

STRENGTH = {"smoke": 1, "quick": 2, "standard": 3}
"""By level of how many axes every combination of values is in some case."""

MOST_ERRORS = 5
"""When so many cases of one operator raise, and none before, the others are not computed any more."""

_TRIED = 100
"""Cases of which the best one is taken; more of them make covers hardly smaller."""

Rule = Callable[..., bool]


@dataclass(frozen=True)
class Case:
    """One combination of values.

    by_axis, labels: by axis its value, and the text that stands for it. seed: of the grid.
    changed: the axes whose values are not the default, in the order of the grid.
    """

    by_axis: Mapping[str, Any] = field(hash=False)
    labels: Mapping[str, str] = field(hash=False)
    changed: tuple[str, ...]
    seed: int

    def __getattr__(self, axis: str) -> Any:
        try:
            return self.__dict__["by_axis"][axis]
        except KeyError:
            raise AttributeError(f"no axis {axis!r}") from None

    @property
    def name(self) -> str:
        """What differs from the default: "dtype bfloat16, axis None"."""
        return ", ".join(f"{axis} {self.labels[axis]}" for axis in self.changed) or "default"

    def code(self) -> str:
        """The call that makes this case again, to paste below the cell of a grid that is called `grid`."""
        given = [f"{axis}={self.labels[axis]!r}" for axis in self.changed]
        return f"grid.case({', '.join([*given, f'seed={self.seed}'])})"

    def rng(self) -> np.random.Generator:
        """A generator whose numbers follow from the seed and the case's name alone."""
        return np.random.default_rng([self.seed, zlib.crc32(self.name.encode())])


class Grid:
    """Axes with their values, and rules for what cannot go together.

    axes: by name the values; of a mapping the keys are the labels, else the texts of the values.
    rules: by reason the function that excludes.
    uninformative: by axis the labels of values with which a case says nothing about the other axes, as a shape without
        elements: only combinations with that value itself count as covered by it.
    each: an axis of which every value has a cover of its own, as an operator: what is covered are combinations of the others.
    Raises ValueError for an axis without a second value, for labels that occur twice, and when the default is excluded.
    """

    def __init__(
        self,
        axes: Mapping[str, Sequence[Any] | Mapping[str, Any]],
        rules: Mapping[str, Rule] | None = None,
        uninformative: Mapping[str, Collection[str]] | None = None,
        each: str = "",
    ) -> None:
        self.axes = {axis: _labelled(axis, values) for axis, values in axes.items()}
        self.rules = dict(rules or {})
        self.each = each or next(iter(self.axes))
        self.wide = self
        self._is_of_each = bool(each)
        self._made: dict[tuple[str, int], list[Case]] = {}
        self._tables: dict[tuple[tuple[int, ...], tuple[int, ...]], np.ndarray] = {}
        self._uninformative = {axis: set(labels) for axis, labels in (uninformative or {}).items()}
        self._reads = {reason: tuple(inspect.signature(rule).parameters) for reason, rule in self.rules.items()}
        if reason := self._excluded({axis: next(iter(values)) for axis, values in self.axes.items()}):
            raise ValueError(f"the first values cannot go together: {reason}; order the values so that they can")

    def case(self, seed: int = 0, **labels: str) -> Case:
        """The case with these labels, and defaults for all other axes. Raises ValueError for one that a rule excludes."""
        for axis, label in labels.items():
            if label in self.wide.axes.get(axis, {}) and label not in self.axes.get(axis, {}):
                return self.wide.case(seed, **labels)
            if label not in self.axes.get(axis, {}):
                raise ValueError(f"no {axis} {label!r}; the axes are {list(self.axes)}, their values {self.axes.get(axis)}")
        whole = self._whole(labels)
        if reason := self._excluded(whole):
            raise ValueError(f"{whole} cannot be: {reason}")
        return self._case(whole, seed)

    def first_case(self, wanted: Mapping[str, Sequence[str]], seed: int) -> Case | None:
        """The first case with one of these labels by axis, and defaults for all other axes, that no rule excludes; or None.

        Labels that an axis lacks are left out, as those of types that the device does not have.
        """
        of_axes = [[label for label in labels if label in self.axes[axis]] for axis, labels in wanted.items()]
        every = (dict(zip(wanted, labels, strict=True)) for labels in product(*of_axes))
        return next((self.case(seed, **labels) for labels in every if not self._excluded(self._whole(labels))), None)

    def with_further(self, values: Mapping[str, Mapping[str, Any]], rules: Mapping[str, Rule]) -> Grid:
        """This grid, and in `wide` the same with more values, by axis and label, also of axes that it lacks, and more rules."""
        axes = {axis: {**self.axes.get(axis, {}), **values.get(axis, {})} for axis in {**self.axes, **values}}
        self.wide = Grid(axes, {**self.rules, **rules}, self._uninformative, self.each if self._is_of_each else "")
        return self

    def most_further(self) -> int:
        """So many further cases there are at most."""
        return len(self.axes[self.each]) * max(map(len, self._further().values()), default=0)

    def further_cases(self, seed: int) -> Iterator[Case]:
        """Each further value once with each value of the axis `each`, and with others at random, in an order of the seed.

        The first cases have every value of `each` once, and so on: a part of them is a fair sample. A value that no other one
        can go with is left out.
        """
        rng, further = np.random.default_rng(seed), self._further()
        names = [str(name) for name in rng.permutation(list(self.axes[self.each]))]
        orders = {name: {axis: rng.permutation(labels) for axis, labels in further.items()} for name in names}
        longest, seen = max(further, key=lambda axis: len(further[axis]), default=""), set[str]()
        for number in range(len(further.get(longest, ()))):
            for name in names:
                wanted = {axis: str(labels[number % len(labels)]) for axis, labels in orders[name].items()}
                for kept in (wanted, {longest: wanted[longest]}):
                    case = self.wide.any_case(rng, [name], seed, kept)
                    if case and case.name not in seen:
                        seen.add(case.name)
                        yield case
                        break

    def _further(self) -> dict[str, list[str]]:
        """By axis the labels that this grid lacks."""
        labels = {axis: [label for label in of if label not in self.axes.get(axis, ())] for axis, of in self.wide.axes.items()}
        return {axis: lacking for axis, lacking in labels.items() if lacking}

    def any_case(
        self, rng: np.random.Generator, names: Sequence[str], seed: int, wanted: Mapping[str, str] | None = None
    ) -> Case | None:
        """A random case whose value of the axis `each` is one of these; None when the rules excluded each that was drawn.

        Half of the axes have their default, so that a case has few particular values at once. wanted: labels that it must have.
        """
        fixed = {**(wanted or {})}
        for _ in range(_TRIED):
            fixed[self.each] = names[rng.integers(len(names))]
            if self._excluded(fixed):
                continue
            drawn = {axis: labels[rng.integers(len(labels))] for axis, labels in self._labels.items() if rng.random() < 0.5}
            whole = self._whole(drawn | fixed)
            if not self._excluded(whole):
                return self._case(whole, seed)
        return None

    def _whole(self, labels: Mapping[str, str]) -> dict[str, str]:
        return {axis: labels.get(axis, next(iter(values))) for axis, values in self.axes.items()}

    def cases(self, level: str, seed: int) -> list[Case]:
        """The default and a cover: each value at smoke, each pair that can go together at quick, each three at standard."""
        if (level, seed) not in self._made:  # a grid that is shown needs them twice
            strength = min(STRENGTH[level], len(self.axes) - self._is_of_each)
            covered = (self._case(dict(zip(self.axes, labels, strict=True)), seed) for labels in self._cover(strength, seed))
            self._made[level, seed] = list({case.name: case for case in (self.case(seed), *covered)}.values())
        return list(self._made[level, seed])

    def reduce(self, case: Case, is_red: Callable[[Case], bool]) -> Case:
        """A red case in which no single value can be replaced by the default: tries at most axes x axes cases."""
        reduced = case
        for _ in case.changed:
            for axis in reduced.changed:
                labels = {name: reduced.labels[name] for name in reduced.changed if name != axis}
                smaller = self._whole(labels)
                if not self._excluded(smaller) and is_red(candidate := self._case(smaller, case.seed)):
                    reduced = candidate
                    break
            else:
                break
        return reduced

    def show(self, check: str) -> None:
        """Display the axes of a check as a table, the rules, and how many cases two levels have with seed 0."""
        from IPython.display import display

        axes = {axis: _listed(list(values)) for axis, values in self.axes.items()}
        counts = ", ".join(f"{len(self.cases(level, 0))} at {level}" for level in ("smoke", "quick"))  # the third takes seconds
        rows = "".join(f"<tr><td>{axis}</td><td>{values}</td></tr>" for axis, values in axes.items())
        rules = "".join(f"<tr><td>not together</td><td>{rule}</td></tr>" for rule in self.rules)
        head = "<tr><th>axis</th><th>values, the default first</th></tr>"
        text = "\n".join([check, *(f"  {axis}: {values}" for axis, values in axes.items()), f"  cases: {counts}"])
        html = f"<b>{check}</b><table><thead>{head}</thead><tbody>{rows}{rules}</tbody></table><p>Cases: {counts}</p>"
        display({"text/plain": text, "text/html": html}, raw=True)

    def _cover(self, strength: int, seed: int) -> Iterator[list[str]]:
        """Labels of cases such that every combination of so many axes that the rules allow is in one of them.

        Greedy: of some cases with a combination that is still open, the one with most open combinations. Of the libraries that
        were tried, allpairspy 2.5.1 leaves out 41 % of the triples, and covertable 3.2.0 takes two minutes under rules.
        """
        rng, names = np.random.default_rng([seed, strength]), [list(values) for values in self.axes.values()]
        axes, names_of = range(len(names)), list(self.axes)
        parts = list(combinations(axes, strength))
        if self._is_of_each:
            own = names_of.index(self.each)
            parts = [tuple(sorted((own, *part))) for part in combinations([axis for axis in axes if axis != own], strength)]
        may_be_uninformative = {part: tuple(axis for axis in part if names_of[axis] in self._uninformative) for part in parts}
        covering = {
            uninformative: self._covering(uninformative, tuple(axes)) for uninformative in set(may_be_uninformative.values())
        }
        is_open = {part: self._covering(may_be_uninformative[part], part).copy() for part in parts}
        for part in parts:
            while is_open[part].any():
                wanted = rng.choice(np.argwhere(is_open[part]))
                chosen = tuple(wanted[part.index(axis)] if axis in part else slice(None) for axis in axes)
                found = covering[may_be_uninformative[part]][chosen]
                rest = rng.permutation(np.flatnonzero(found))[:_TRIED]
                cases = np.empty((len(rest), len(names)), int)
                cases[:, part] = wanted
                if others := [axis for axis in axes if axis not in part]:
                    cases[:, others] = np.transpose(np.unravel_index(rest, found.shape))
                columns = tuple(cases.T)
                covers = {uninformative: table[columns] for uninformative, table in covering.items()}
                gains = np.zeros(len(cases), int)
                for each in parts:
                    gains += is_open[each][tuple(columns[axis] for axis in each)] & covers[may_be_uninformative[each]]
                best = gains.argmax()
                for each in parts:
                    if covers[may_be_uninformative[each]][best]:
                        is_open[each][tuple(cases[best, each])] = False
                yield [labels[index] for labels, index in zip(names, cases[best], strict=True)]

    def _covering(self, may_be_uninformative: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
        """For each combination of these axes whether a case has it that is allowed and covers it.

        A case covers nothing but its uninformative value itself: those of axes that may not be uninformative here make it
        useless. The table of some axes follows from that of one more: combinations share most of these steps, and each is
        smaller than before.
        """
        if (may_be_uninformative, axes) not in self._tables:
            if missing := [axis for axis in range(len(self.axes)) if axis not in axes]:
                more = tuple(sorted((*axes, missing[0])))
                table = self._covering(may_be_uninformative, more).any(axis=more.index(missing[0]))
            else:
                table = self._allowed & ~self._has_uninformative(set(axes) - set(may_be_uninformative))
            self._tables[may_be_uninformative, axes] = table
        return self._tables[may_be_uninformative, axes]

    def _has_uninformative(self, of_axes: set[int]) -> np.ndarray:
        """For each combination of all axes whether it has an uninformative value of one of these."""
        is_uninformative = np.zeros([1] * len(self.axes), bool)
        for place, (axis, values) in enumerate(self.axes.items()):
            if place in of_axes:
                of_axis = np.array([label in self._uninformative.get(axis, ()) for label in values])
                is_uninformative = is_uninformative | of_axis.reshape(
                    [-1 if each == place else 1 for each in range(len(self.axes))]
                )
        return is_uninformative

    @cached_property
    def _allowed(self) -> np.ndarray:
        """For each combination of all axes whether the rules allow it; one axis of the array for each of the grid."""
        allowed = np.ones([len(values) for values in self.axes.values()], bool)
        for reason, read in self._reads.items():
            excluded = [
                self._holds(reason, dict(zip(read, labels, strict=True)))
                for labels in product(*(self.axes[axis] for axis in read))
            ]
            shape = [len(values) if axis in read else 1 for axis, values in self.axes.items()]
            in_order = sorted(range(len(read)), key=lambda place: list(self.axes).index(read[place]))
            table = np.array(excluded).reshape([len(self.axes[axis]) for axis in read]).transpose(in_order)
            allowed &= ~table.reshape(shape)
        return allowed

    def _case(self, labels: Mapping[str, str], seed: int) -> Case:
        ordered = {axis: labels[axis] for axis in self.axes}
        changed = tuple(axis for axis, label in ordered.items() if label != next(iter(self.axes[axis])))
        return Case({axis: self.axes[axis][label] for axis, label in ordered.items()}, ordered, changed, seed)

    @cached_property
    def _labels(self) -> dict[str, list[str]]:
        return {axis: list(values) for axis, values in self.axes.items()}

    def _excluded(self, labels: Mapping[str, str]) -> str:
        """The reason why these labels, of all axes or of some, cannot go together, or ""."""
        held = (reason for reason, read in self._reads.items() if labels.keys() >= {*read} and self._holds(reason, labels))
        return next(held, "")

    def _holds(self, reason: str, labels: Mapping[str, str]) -> bool:
        return bool(self.rules[reason](**{axis: self.axes[axis][labels[axis]] for axis in self._reads[reason]}))


def one_by_one(measure: Callable[[Case], Any]) -> Callable[[Sequence[Case]], list[Any]]:
    """What check.grid takes as `run`, of a function that measures one case: an exception is the value of its case.

    When the first MOST_ERRORS cases of one value of the first axis in one dtype raise, as those of an operator that the device
    lacks, the last error stands for its other cases in this dtype, too: Paddle's take 0.2 s each.
    """

    def run(cases: Sequence[Case]) -> list[Any]:
        errors: dict[tuple[str, str], list[Exception]] = {}
        works: set[tuple[str, str]] = set()
        values: list[Any] = []
        for case in cases:
            name = next(iter(case.labels.values())), case.labels.get("dtype", "")
            raised = errors.setdefault(name, [])
            if name not in works and len(raised) >= MOST_ERRORS:
                values.append(raised[-1])
                continue
            try:
                values.append(measure(case))
                works.add(name)
            except Exception as error:  # what it means is for the comparison to say
                raised.append(error)
                values.append(error)
        return values

    return run


def _labelled(axis: str, values: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """The values by label."""
    labelled = dict(values) if isinstance(values, Mapping) else {str(value): value for value in values}
    if len(labelled) < max(2, len(values)):
        raise ValueError(f"axis {axis!r} needs two or more values whose labels differ, not {list(values)}")
    return labelled


def _listed(labels: Sequence[str]) -> str:
    """The values of an axis in one line, with semicolons where a value itself has a comma."""
    return ("; " if any("," in label for label in labels) else ", ").join(labels)
