"""The grids that are searched: those of chapters 17 and 18, with the values of interesting.py besides their own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from xpulab.chapters.numerics import accumulators, cast_grid, layer_grids, operator_grids, order_grid
from xpulab.chapters.shared import interesting, kept_bits, precision
from xpulab.chapters.shared.operator_tester import FLOATS, INTEGERS, LAYOUTS, OF_LAYOUTS, Rules
from xpulab.chapters.tensors import index_grids, moving_grid, writing_grid
from xpulab.checks.grid import Case, Grid
from xpulab.checks.grid_table import AddRow, Run
from xpulab.checks.ledger import ledger
from xpulab.checks.table import Table, shows
from xpulab.records.known_issues import KnownIssue, known_issues_of_grid
from xpulab.records.record import Row
from xpulab.reference.bounds import HALVES
from xpulab.reference.operators import FUNCTIONS

_More = Mapping[str, Mapping[str, Any]]

_LAYOUT: _More = {"layout": interesting.LAYOUTS}
_VALUES: _More = {"values": interesting.VALUES}
_SHAPE: _More = {**_LAYOUT, "shape": interesting.SHAPES}
_ALL: _More = {**_SHAPE, **_VALUES}
_ENDS: _More = {**_SHAPE, "values": {**interesting.VALUES, **interesting.NOT_FINITE}}


@dataclass(frozen=True)
class Searched:
    """A grid that is searched.

    check: its name. own: the grid of the chapter. grid: the same with more values. run, add_row: as check.grid takes them.
    operators: the values of the axis `each` that are asked for.
    """

    check: str
    own: Grid
    grid: Grid
    run: Run
    add_row: AddRow
    operators: tuple[str, ...]

    def row(self, case: Case) -> Row:
        """The case computed now, as a row of the check; one that shows a listed defect is "known"."""
        rows = Table(self.check)
        self.add_row(rows, case, self.run([case])[0])
        (row,) = rows.record("", 0.0).rows or [Row(case.name, "skipped", None, "", "not tried")]
        if row.outcome == "failed" and (issue := next(self._explaining(case, row), None)):
            return replace(row, outcome="known", reason=issue.id)
        return row

    def draw(self, rng: np.random.Generator, seed: int) -> Case | None:
        """A random case of these operators; None when the rules excluded what was drawn."""
        return self.grid.any_case(rng, self.operators, seed)

    def _explaining(self, case: Case, row: Row) -> Iterator[KnownIssue]:
        """The listed defects that may be what the row shows: a value that only the search has is like any that is listed."""
        for issue in known_issues_of_grid(self.check, ledger.device):
            more = {axis: wanted[0] for axis, wanted in issue.when.items() if case.labels[axis] not in self.own.axes[axis]}
            if issue.concerns({**case.labels, **more}) and shows(row, issue):
                yield issue


def searched(device: str, pattern: str) -> list[Searched]:
    """The grids on this device, the one in use, with the operators whose name, or check, the pattern matches."""
    types = precision.supported_types(device)
    found = []
    for check, (own, (run, add_row), values, rules) in _grids(device, types).items():
        names = tuple(name for name in own.axes[own.each] if fnmatchcase(name, pattern) or fnmatchcase(check, pattern))
        if names:
            common = interesting.RULES if {"shape", "layout"} <= {*own.axes, *values} else {}
            found.append(Searched(check, own, own.wider(values, {**common, **rules}), run, add_row, names))
    return found


_OF_NOTHING: Rules = {
    "an axis without elements has a sum, and nothing else": lambda operator, shape, axis: (
        isinstance(axis, int) and bool(shape) and not shape[axis] and operator not in ("sum", "cumsum")
    )
}

_Wider = tuple[Grid, tuple[Run, AddRow], _More, Rules]


def _grids(device: str, types: list[str]) -> dict[str, _Wider]:
    """By check the grid, what runs it, and its further values and rules."""
    kept, parts = kept_bits.bits_of_products(device), accumulators.bits_of_parts(device)
    positive: Rules = {
        "the function is of numbers above 0": lambda function, values: (
            FUNCTIONS[function].is_of_positives and values in interesting.WITH_ZEROS
        )
    }
    of_axes: Rules = {
        "the slope of a product has no zero": lambda operator, values: operator == "prod" and values in interesting.WITH_ZEROS,
        "Paddle 3.3.1 on the CPU takes 25 s for the gradient of the largest of 60,000 numbers": lambda operator, shape: (
            operator in ("max", "min") and math.prod(shape) > 4096
        ),
        "logsumexp takes at most four axes": lambda operator, shape: operator == "logsumexp" and len(shape) > 4,
        "equal terms of a long sum are rounded alike": lambda operator, shape, layout: (
            operator in ("sum", "mean", "cumsum") and layout in interesting.REPEATED and math.prod(shape) > 1025
        ),
        "these numbers are finite": lambda operator, values: (
            values in interesting.NOT_FINITE.values() and operator in ("sum", "mean", "prod", "norm", "cumsum")
        ),
        "exponentials are of numbers that are finite, or masked": lambda operator, values: (
            values in (*interesting.NOT_FINITE.values(),)[:3] and operator in ("logsumexp", "softmax", "log_softmax")
        ),
        "integers are not masked": lambda dtype, values: dtype in INTEGERS and values is interesting.NOT_FINITE["masked"],
        **_OF_NOTHING,
    }
    of_rows: Rules = {"a row without elements has no mean": lambda shape: not shape[-1]}
    of_pairs: Rules = {
        "Paddle slices one memory of at most six axes": lambda shape, memory: (
            len(shape) > 6 and memory is not operator_grids.MEMORIES["one for each"]
        ),
        "these numbers are compared": lambda operator, values: (
            values in interesting.NOT_FINITE.values()
            and operator not in ("maximum", "minimum", "==", "!=", "<", "<=", ">", ">=")
        ),
        "only floating numbers are masked": lambda dtype, values: (
            (values in interesting.NOT_FINITE.values() and dtype == "bool")
            or (dtype in INTEGERS and values is interesting.NOT_FINITE["masked"])
        ),
    }
    added: Rules = {
        "what is set at one place has no order": lambda operator, places: (
            places in interesting.POSITIONS.values()
            and not writing_grid.WRITES[operator].adds
            and places not in (interesting.POSITIONS["descending"], interesting.POSITIONS["every one, shuffled"])
        ),
        "an operator takes a mask or positions.": lambda operator, places: (
            places in interesting.POSITIONS.values() and writing_grid.WRITES[operator].where == "mask"
        ),
        "many positions are of short rows": lambda shape, places: (
            math.prod(shape)
            > {interesting.POSITIONS["70,000"]: 64, interesting.POSITIONS["300 times each"]: 4097}.get(places, math.inf)
        ),
        "sums of many numbers need more bits than types of 16 bits have": lambda dtype, places: (
            dtype in HALVES and places in (interesting.POSITIONS["70,000"], interesting.POSITIONS["300 times each"])
        ),
        "positions from the end are tried": lambda places: places is interesting.POSITIONS["from the end"],
    }
    unwritten: Rules = {
        "nothing is written to elements that share a place": lambda layout: layout in interesting.REPEATED,
    }
    apart: Rules = {
        "Paddle 3.3.1 counts an element that as_strided shows twice once in its gradient": lambda layout, dtype: (
            layout in interesting.REPEATED and dtype in FLOATS
        ),
        "without stride kernels there is no as_strided": lambda layout, strides: layout in interesting.REPEATED and not strides,
    }
    of_argmax: Rules = {
        "argmax and argmin refuse more than six axes": lambda operator, shape: operator in ("argmax", "argmin")
        and len(shape) > 6
    }
    few_rows: Rules = {
        "many positions are of short rows": lambda shape, positions: (
            math.prod(shape)
            > {interesting.POSITIONS["70,000"]: 64, interesting.POSITIONS["300 times each"]: 4097}.get(positions, math.inf)
        ),
        "one_hot of many positions is short": lambda operator, shape: operator == "one_hot" and shape[0] > 1025,
        "embedding and one_hot take no negative position": lambda operator, positions: (
            positions is interesting.POSITIONS["from the end"] and operator.startswith(("embedding", "one_hot", "masked"))
        ),
        "Paddle 3.3.1 writes the gradient of index_select at a negative position beside its memory": lambda operator,
        positions,
        dtype: (positions is interesting.POSITIONS["from the end"] and operator == "index_select" and dtype in FLOATS),
        "Paddle slices masks of at most six axes": lambda operator, shape: operator == "masked_select" and len(shape) > 6,
        "sums of many numbers need more bits than types of 16 bits have": lambda dtype, positions: (
            dtype in HALVES and positions in (interesting.POSITIONS["70,000"], interesting.POSITIONS["300 times each"])
        ),
    }
    few_axes: Rules = {"Paddle slices at most six axes": lambda shape: len(shape) > 6}
    of_moves: Rules = {
        "tile takes at most seven axes, one of them new": lambda operator, shape: operator == "tile" and len(shape) > 6
    }
    few_keys: Rules = {
        "a large batch has few keys": lambda batch, lengths: batch > 2 and lengths[0] * lengths[1] > 81,
        "positions of many columns are few": lambda size, lengths: size * lengths[0] * lengths[1] > interesting.MOST,
    }
    products: _More = {**_LAYOUT, "other": interesting.LAYOUTS, "sizes": interesting.SIZES, **_VALUES}
    return {
        "numerics.functions": (operator_grids.functions(types), operator_grids.RUN_FUNCTIONS, _ALL, positive),
        "numerics.arithmetic": (operator_grids.arithmetic(types), operator_grids.RUN_ARITHMETIC, _ENDS, of_pairs),
        "numerics.reductions": (operator_grids.reductions(types), operator_grids.RUN_ALONG, _ENDS, of_axes),
        "numerics.softmax": (operator_grids.along_an_axis(types), operator_grids.RUN_ALONG, _ENDS, of_axes),
        "numerics.orders": (
            order_grid.orders(types),
            order_grid.RUN,
            _ENDS,
            {
                **_OF_NOTHING,
                **of_argmax,
                "integers are not masked": of_axes["integers are not masked"],
                "zeros of both signs may stand in any order": lambda operator, values: values
                is interesting.VALUES["zeros of both signs"]
                and operator in ("sort", "topk"),
            },
        ),
        "numerics.casts": (
            cast_grid.CASTS,
            cast_grid.RUN,
            {"shape": interesting.SHAPES, "layout": {**LAYOUTS, **interesting.LAYOUTS}},
            OF_LAYOUTS,
        ),
        "numerics.products": (layer_grids.products(types), layer_grids.run_products(kept, parts), products, {}),
        "numerics.norms": (layer_grids.norms(types), layer_grids.RUN_NORMS, _ALL, of_rows),
        "numerics.cross-entropy": (
            layer_grids.losses(types),
            layer_grids.RUN_LOSSES,
            {**_VALUES, "classes": interesting.CLASSES},
            {},
        ),
        "operators.attention": (
            layer_grids.attention(types),
            layer_grids.run_attention(kept),
            {**_LAYOUT, **_VALUES, "lengths": interesting.LENGTHS, "padding": interesting.PADDINGS},
            few_keys,
        ),
        "operators.rotary": (layer_grids.rotary(types), layer_grids.RUN_ROTARY, {**_LAYOUT, **_VALUES}, {}),
        "random.dropout": (layer_grids.dropout(types), layer_grids.RUN_DROPOUT, _SHAPE, {}),
        "indexing.get": (index_grids.reading(), index_grids.RUN, _SHAPE, {**few_axes, **apart}),
        "indexing.set": (index_grids.writing(device), index_grids.RUN, _SHAPE, {**few_axes, **unwritten}),
        "indexing.moves": (
            moving_grid.moves(),
            moving_grid.RUN,
            _SHAPE,
            {**of_moves, **{k: v for k, v in apart.items() if "gradient" in k}},
        ),
        "indexing.selections": (
            moving_grid.selections(),
            moving_grid.RUN,
            {**_SHAPE, "positions": interesting.POSITIONS},
            {**few_rows, **{k: v for k, v in apart.items() if "gradient" in k}},
        ),
        "indexing.writes": (
            writing_grid.writes(device, types),
            writing_grid.RUN,
            {**_SHAPE, "places": interesting.POSITIONS},
            {**few_axes, **unwritten, **added},
        ),
    }
