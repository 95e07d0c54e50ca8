"""Cases of collectives: each with each reduction, type, size, kind of values, root and group, and what numpy says of them.

    cases = make(4, "cpu", "quick", seed)                # covers each pair of choices; at level standard their whole product
    answers = collective_calls.on_ranks(4, cases, ...)   # what the ranks hold
    compare(rows, cases, answers)                        # one row of a table for each group of cases, case.row

Values are whole numbers, small enough that each sum and product over eight ranks is exact in its type. Each element of
each rank is another number drawn from a fixed sequence, so values from another rank or place are other values.
Reference implementation: numpy in float64 and int64.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product
from typing import Any

import numpy as np

from xpulab.checks.table import Table
from xpulab.records.refusals import Refusal, format_undeclared, refusal

TYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8")
FLOATS = TYPES[:4]
SIZES = (1, 7, 1023, 1024, 1025, 65537)
"""Elements that each rank gives, or that each gets: one, odd, around a power of two, and many. None at all: see zero_size."""

FEW_TYPES, FEW_SIZES = ("float32", "bfloat16", "int64"), (1, 7, 1025)
"""What is tried in each group below level standard; other types and sizes are tried with all ranks."""

SIGNS = ("positive", "negative", "mixed")
NONFINITE = ("nan", "infinity")
FULL = "all bits"
"""Sums of numbers that need nearly all bits of their type."""

OPS = ("SUM", "MAX", "MIN", "PROD")
ROOTED = ("reduce", "broadcast", "gather", "scatter")
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
FORMS = {
    "all_reduce": ("call", "stream", "async"),
    "reduce": ("call", "stream"),
    "broadcast": ("call", "stream", "object"),
    "all_gather": ("list", "tensor", "object"),
    "gather": ("list",),
    "scatter": ("list", "tensor", "object"),
    "reduce_scatter": ("list", "tensor"),
    "all_to_all": ("list", "tensor", "uneven", "to one rank"),
}
"""The forms of each collective: a call that changes its argument, the same of dist.stream or not awaited; a list of tensors,
one tensor, or Python objects; all_to_all with parts of different sizes, also empty ones, and with all parts for one rank."""

LARGE = {"float64": 2**49, "float32": 2**20, "float16": 2**7, "bfloat16": 2**4, "int64": 2**58, "int32": 2**27, "int8": 8}
LARGE["uint8"] = 16
"""A sum of eight numbers that are a little larger than this is exact in the type."""

GLOO_HALF = ("cpu", "float16")
"""gloo reduces this type wrongly, a known issue of the table of types; no other table repeats it."""

DROPS_NAN = ("gpu",)
"""Devices whose library defines the maximum of NaN and a number as the number: NCCL, src/device/reduce_kernel.h, fmaxf."""


@dataclass(frozen=True)
class Case:
    """One call of a collective.

    kind: a key of FORMS. form: one of its forms. op: one of OPS, "AVG", or "" where nothing is reduced.
    dtype: one of TYPES. size: elements of each rank, or of each part. values: of SIGNS or NONFINITE, or FULL.
    members: the ranks of the group, in rising order. root: a member; -1 where the collective has none.
    memory: "own"; "view", a piece of a longer tensor; "shared", the input is a piece of the output.
    everyone: whether the group is the job's own of all ranks.
    """

    kind: str
    form: str
    op: str
    dtype: str
    size: int
    values: str
    members: tuple[int, ...]
    root: int
    memory: str
    everyone: bool

    @property
    def name(self) -> str:
        """Unique: "reduce MAX float32[7] negative, group of ranks 1 3, root 3, call, own memory"."""
        root = f", root {self.root}" if self.root >= 0 else ""
        what = " ".join(each for each in (self.kind, self.op, f"{self.dtype}[{self.size}]", self.values) if each)
        ranks = f"{'all' if self.everyone else 'group of'} ranks {' '.join(map(str, self.members))}"
        return f"{what}, {ranks}{root}, {self.form}, {self.memory} memory"

    @property
    def table(self) -> str:
        """The table that has this case: "all-to-all", "groups", "nonfinite", "values" or "types"."""
        if self.kind == "all_to_all":
            return "all-to-all"
        if not self.everyone:
            return "groups"
        if self.values in NONFINITE:
            return "nonfinite"
        return "values" if self.dtype == "float32" and self.values != FULL else "types"

    @property
    def row(self) -> str:
        """The row of its table."""
        if self.table == "groups":
            return f"ranks {', '.join(map(str, self.members))}"
        if self.table == "types":
            return f"{self.dtype}, {self.kind}"
        if self.table == "nonfinite":
            return f"{self.kind} {self.op}, {self.values}"
        return " ".join(each for each in (self.kind, self.op, self.form) if each)


# ------------------------------------------------------------------------------------------------------------- the cases


def make(n: int, device: str, level: str, seed: int) -> list[Case]:
    """The cases for n ranks, in an order that is the same on every rank.

    At level standard the whole product of the choices, with forms and memory in turn; below it a part that has every pair
    of choices of a collective, drawn with the seed.
    """
    rng = np.random.default_rng([seed, 7])

    def chosen(found: Iterable[Case]) -> list[Case]:
        tried = [case for case in found if declared(case, device) is None and (case.op != "AVG" or _may_average(case, device))]
        return _in_turn(tried) if level == "standard" else _covering(tried, rng)

    everyone = [tuple(range(n))]
    kinds = [kind for kind in FORMS if refusal(device, kind) is None]
    cases: list[Case] = []
    for alike in [[kind] for kind in kinds if kind in REDUCING] + [[kind for kind in kinds if kind not in REDUCING]]:
        cases += chosen(_product(alike, ("float32",), SIGNS, everyone, True))
    cases += chosen(_product(kinds, TYPES[1:], SIGNS, everyone, True))
    reducing = [kind for kind in kinds if kind in REDUCING]
    sums = _product(reducing, TYPES, (FULL,), everyone, True)
    cases += _in_turn(case for case in sums if case.size == SIZES[1] and declared(case, device) is None)
    without_half = [dtype for dtype in TYPES if (device, dtype) != GLOO_HALF]
    for kind, dtype in product(reducing, [each for each in FLOATS if each in without_half]):  # each reduction of each type
        cases += chosen(_product([kind], [dtype], NONFINITE, everyone, True))
    in_groups = [kind for kind in kinds if kind != "all_to_all"]
    types, sizes = (without_half, SIZES) if level == "standard" else (FEW_TYPES, FEW_SIZES)
    return cases + chosen(_product(in_groups, types, SIGNS, groups(n, device, level), False, sizes))


def declared(case: Case, device: str) -> Refusal | None:
    """The entry of data/refusals.yaml that says that the device lacks this call, as it is or in a group; None without one."""
    forms = (case.form,) if case.everyone else (case.form, f"{case.form} in a group")
    return next((found for form in forms if (found := refusal(device, case.kind, case.dtype, case.op, form))), None)


def _may_average(case: Case, device: str) -> bool:
    """Where Paddle has no average, the table of values shows it, and no other."""
    return case.table == "values" or refusal(device, case.kind, case.dtype, "AVG", "stream") is None


def groups(n: int, device: str, level: str) -> list[tuple[int, ...]]:
    """Groups beside that of all ranks: pairs of four ranks, or halves, quads, every second rank, and crossing ones.

    On the CPU pairs only: gloo takes long for each group, and longer for one of more ranks.
    """
    if n <= 2:
        return [tuple(range(n))]  # a second communicator of all ranks
    if n == 4 and device == "cpu" and level != "standard":
        return [(2, 3), (0, 2), (1, 3)]
    if n <= 4:
        pairs: list[tuple[int, ...]] = list(combinations(range(n), 2))
        return pairs if device == "cpu" or n == 3 else [*pairs, (1, 2, 3), (0, 2, 3)]
    half = n // 2
    quads = [tuple(range(half)), tuple(range(half, n)), (0, 1, half, half + 1), tuple(range(0, n, 2)), tuple(range(1, n, 2))]
    return [*dict.fromkeys(quads), tuple(range(1, n)), (1, half), (half - 1, n - 1)]


def _product(
    kinds: Sequence[str],
    dtypes: Sequence[str],
    values: Sequence[str],
    members: Sequence[tuple[int, ...]],
    everyone: bool,
    sizes: Sequence[int] = SIZES,
) -> Iterator[Case]:
    """All cases of these collectives that make sense."""
    for kind, group, dtype, size, value in product(kinds, members, dtypes, sizes, values):
        ops = ((*OPS, "AVG") if kind == "all_reduce" else OPS) if kind in REDUCING else ("",)
        for op, form, root in product(ops, FORMS[kind], group if kind in ROOTED else (-1,)):
            for memory in _memories(kind, form):
                case = Case(kind, form, op, dtype, size, value, group, root, memory, everyone)
                if _makes_sense(case):
                    yield case


def _memories(kind: str, form: str) -> tuple[str, ...]:
    if form == "object":
        return ("own",)
    return ("own", "view", "shared") if kind in ("all_gather", "reduce_scatter") and form == "tensor" else ("own", "view")


def _makes_sense(case: Case) -> bool:
    if case.values == FULL and case.op != "SUM":
        return False
    if case.values in NONFINITE and (case.dtype not in FLOATS or case.op in ("", "AVG") or case.size == 1):
        return False
    if case.form == "object" and (case.dtype, case.values) != ("float32", "positive"):
        return False
    if case.op == "AVG" and (case.dtype not in FLOATS or case.form == "async" or len(case.members) & (len(case.members) - 1)):
        return False  # the mean of three numbers is rounded
    return case.dtype != "uint8" or case.values in ("positive", FULL)


def _choices(case: Case) -> tuple:
    """What is combined in pairs. In the tables of types and of NaN the form is drawn, to save time."""
    form = "" if case.table in ("types", "nonfinite") else f"{case.kind} {case.form}"
    members = " ".join(map(str, case.members))
    return (case.kind, form, case.op, case.dtype, case.size, case.values, members, case.root, case.memory)


def _in_turn(cases: Iterable[Case]) -> list[Case]:
    """Of cases that differ in form and memory only, one: the next of them each time."""
    alike: dict[tuple, list[Case]] = {}
    for case in cases:
        alike.setdefault((case.kind, case.op, case.dtype, case.size, case.values, case.members, case.root), []).append(case)
    return [same[turn % len(same)] for turn, same in enumerate(alike.values())]


def _covering(cases: list[Case], rng: np.random.Generator, candidates: int = 400) -> list[Case]:
    """Some of the cases, with every pair of choices that any of them has: each time that with most new pairs of some drawn."""
    choices = np.stack([np.unique(column, return_inverse=True)[1] for column in zip(*map(_choices, cases), strict=True)])
    wide = choices.max() + 1
    first, second = np.triu_indices(len(choices), 1)
    pairs = choices[first] * wide + choices[second] + (np.arange(len(first)) * wide * wide)[:, None]  # [pairs, cases]
    missing = np.zeros(len(first) * wide * wide, bool)
    missing[pairs] = True
    waiting = rng.permutation(len(cases))
    chosen: list[int] = []
    while missing.any():
        at_hand = waiting[:candidates]
        new = missing[pairs[:, at_hand]].sum(axis=0)
        chosen.append(int(at_hand[new.argmax()]))
        missing[pairs[:, chosen[-1]]] = False
        waiting = np.concatenate([waiting[candidates:], at_hand[missing[pairs[:, at_hand]].any(axis=0)]])
    return [cases[index] for index in chosen]


# ------------------------------------------------------------------------------------------------------- what numpy says


def given(case: Case, rank: int) -> np.ndarray:
    """What a rank gives: [size], or [members * size] where it gives a part to each; float64 or int64."""
    parts = len(case.members) if case.kind in ("scatter", "reduce_scatter", "all_to_all") else 1
    wide = "float64" if case.dtype in FLOATS else "int64"
    return _numbers(case.op, case.values, wide, LARGE[case.dtype], rank, tuple(case.members), parts * case.size)


@lru_cache(maxsize=512)
def _numbers(op: str, values: str, wide: str, large: int, rank: int, members: tuple[int, ...], count: int) -> np.ndarray:
    drawn = np.random.default_rng([rank, 11]).integers(1, 16, count)
    if values == FULL:
        return (large + rank + 1 + drawn % 2).astype(wide)
    if op == "PROD":  # at most 2 to the power of 6
        drawn = 1 + drawn % 2 if members.index(rank) < 6 else np.ones(count, int)
    sign: Any = {"negative": -1, "mixed": 1 - 2 * (np.random.default_rng([rank, 13]).integers(0, 2, count))}.get(values, 1)
    numbers = (drawn * sign * (len(members) if op == "AVG" else 1)).astype(wide)
    if values in NONFINITE:
        position = members.index(rank)
        numbers[position :: len(members) + 1] = np.nan if values == "nan" else np.inf if position % 2 else -np.inf
    return numbers


def split_sizes(case: Case) -> np.ndarray:
    """For all_to_all: how many elements each member sends to each, [senders, receivers], by their places in the group."""
    n = len(case.members)
    if case.form == "uneven":  # every third part is empty
        return np.array([[case.size * ((sender + 2 * receiver) % 3) // 2 for receiver in range(n)] for sender in range(n)])
    if case.form == "to one rank":
        return np.array([[n * case.size] + [0] * (n - 1)] * n)
    return np.full((n, n), case.size)


def held(case: Case, rank: int, device: str) -> np.ndarray | None:
    """What numpy says that a member holds afterwards; None where that is not defined."""
    if case.kind in ("reduce", "gather") and rank != case.root:
        return None
    place, every = case.members.index(rank), [given(case, member) for member in case.members]
    part = slice(place * case.size, (place + 1) * case.size)
    if case.kind in REDUCING:
        return reduced(case.op, every, device in DROPS_NAN)[part if case.kind == "reduce_scatter" else slice(None)]
    if case.kind == "broadcast":
        return given(case, case.root)
    if case.kind == "scatter":
        return given(case, case.root)[part]
    if case.kind == "all_to_all":
        sent = split_sizes(case)
        starts = np.concatenate([np.zeros((len(sent), 1), int), sent.cumsum(axis=1)], axis=1)
        return np.concatenate([each[a : a + k] for each, a, k in zip(every, starts[:, place], sent[:, place], strict=True)])
    return np.concatenate(every)


def reduced(op: str, every: Sequence[np.ndarray], drop_nan: bool = False) -> np.ndarray:
    """The reduction of arrays of one shape, element by element. In a maximum NaN stays NaN, unless it is dropped."""
    if drop_nan and op in ("MAX", "MIN"):
        return (np.fmax if op == "MAX" else np.fmin).reduce(np.stack(every))
    together: dict[str, Callable] = {"SUM": np.sum, "AVG": np.mean, "MAX": np.max, "MIN": np.min, "PROD": np.prod}
    with np.errstate(invalid="ignore"):
        return together[op](np.stack(every), axis=0)


def digest(values: np.ndarray) -> str:
    """The first numbers and a checksum of all. NaN and zero have one form each."""
    values = np.asarray(values)
    values = values.astype("int64") if values.dtype.kind in "iu" else values.astype("float64") + 0.0
    if values.dtype.kind == "f":
        values[np.isnan(values)] = np.nan
    first = " ".join(f"{value:g}" for value in values.reshape(-1)[:3])
    return f"{values.size} elements: {first} (checksum {zlib.crc32(values.tobytes()):08x})"


UNDEFINED = "undefined here"


def expected(case: Case, device: str) -> list[str]:
    """For each member what it must hold afterwards, as text."""
    values = [held(case, rank, device) for rank in case.members]
    return [UNDEFINED if each is None else digest(each) for each in values]


def wrong(case: Case, device: str) -> list[str]:
    """The control: each element is that of the next place, and the last is one more than the first."""
    values = [held(case, rank, device) for rank in case.members]
    return [UNDEFINED if each is None else digest(np.append(each[1:], each[:1] + 1)) for each in values]


# ------------------------------------------------------------------------------------------------------------ comparison

Answers = dict[str, list[str]]
"""By the name of a case what each member held, as `digest` or an error message."""


def compare(rows: Table, table: str, device: str, cases: Sequence[Case], answers: Answers) -> None:
    """The rows of one table: each has the cases of one `row`, and names the case that is wrong.

    What data/refusals.yaml declares is skipped, with its source. Any other error is red, and the row ends with the entry that
    would declare it.
    """
    of_row: dict[str, list[Case]] = {}
    for case in cases:
        if case.table == table:
            of_row.setdefault(case.row, []).append(case)
    for row, its in of_row.items():
        got = {case.name: [undeclared(each, case, device) for each in answers[case.name]] for case in its}
        want = {case.name: expected(case, device) for case in its}
        control = max(its, key=lambda case: case.size)
        rows.equal(row, got, want, control={**want, control.name: wrong(control, device)})
    for row, reason in _lacking(table, device).items():
        rows.skip(row, reason)


REFUSAL = "refused: "


def undeclared(answer: str, case: Case, device: str) -> str:
    """What a row shows of an answer: an error that nothing declares ends with the entry that would declare it."""
    if not answer.startswith(REFUSAL):
        return answer
    return format_undeclared(answer, device, case.kind, case.dtype, case.op, case.form)


def _lacking(table: str, device: str) -> dict[str, str]:
    """One row for each entry of data/refusals.yaml that is about the cases of this table: what is skipped, and why."""
    found = {}
    for kind, everyone in product(FORMS, (True, False)):
        for case in _product([kind], TYPES, SIGNS[:1], [(0, 1)], everyone, SIZES[1:2]):
            if entry := declared(case, device):
                where = "all-to-all" if kind == "all_to_all" else "types" if entry.types else "values" if everyone else "groups"
                title = " ".join((kind, *entry.reductions, *([entry.form] if entry.form else []), *entry.types))
                if where == table and (everyone or entry.form.endswith("in a group")):
                    found[title] = entry.format_reason()
    return found
