"""Calls of collectives as grids, and what numpy says that each rank holds afterwards.

    of_reductions = collective_cases.reductions(n, here.name)
    (call,) = collective_cases.calls_of(of_reductions.case(op="MAX", group="ranks 0 2"), n)
    collective_cases.held(call, 2, here.name)            # what rank 2 must hold

Reductions add whole numbers, small enough that each sum and product is exact in its type, beside numpy in float64 and int64.
What is only moved has random bits in it, and must arrive with the same ones.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np

from xpulab.checks.grid import Case, Grid, Rule
from xpulab.checks.table import Table
from xpulab.records.refusals import format_undeclared, refusal

TYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8")
MOVED = (*TYPES, "bool")
FLOATS = TYPES[:4]
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
MOVING = ("broadcast", "all_gather", "gather", "scatter")
ROOTED = ("reduce", "broadcast", "gather", "scatter")
OPS = ("SUM", "MAX", "MIN", "PROD", "AVG")
SHAPES: dict[str, tuple[int, ...]] = {"7": (7,), "no axis": (), "3 x 5": (3, 5), "nothing": (0,), "1025": (1025,)}
SHAPES |= {"65537": (65537,)}
"""By label the shape of what each rank gives, or that each gets."""

FORMS = ("call", "stream", "async", "calc stream", "not awaited")
"""dist.reduce, with a list of tensors where it takes one; the same of dist.stream, with one tensor in place of a list; a call
that returns at once, whose result an operator reads after wait; the second one in the stream of the operators; and the third
without wait: an operator reads the result when all work of the device has ended."""

STREAMS = ("stream", "calc stream")
CALLS = {"one": 1, "three": 3}
"""By label how many calls, with other values each, are made before the first result is read."""

STRIDED = "every second element"

FULL, NONFINITE = "all bits", ("nan", "infinity")
EXACT = {"float64": 2**53, "float32": 2**24, "float16": 2**11, "bfloat16": 2**8, "int64": 2**63 - 1, "int32": 2**31 - 1}
EXACT |= {"int8": 127, "uint8": 255}
"""Whole numbers up to this one are exact in the type. Sums of all bits come near to it."""

DROPS_NAN = ("gpu",)
"""Devices whose library defines the maximum of NaN and a number as the number: NCCL, src/device/reduce_kernel.h, fmaxf."""


@dataclass(frozen=True)
class Call:
    """One call of a collective.

    kind: of REDUCING or MOVING, or "all_to_all". form: of FORMS; or "single" of all_to_all. dtype: of TYPES.
    members: the ranks of the group, in rising order. op: of OPS; "" where nothing is reduced.
    shape: of SHAPES, of what each rank gives, or of each part.
    values: of a reduction "mixed", FULL or of NONFINITE; what is only moved has any bits.
    root: a member; -1 where the collective has none. memory: "own"; "piece", of a longer tensor; STRIDED, which Paddle refuses.
    parts: of all_to_all "equal" or "uneven". seed: of the values.
    """

    kind: str
    form: str
    dtype: str
    members: tuple[int, ...]
    op: str = ""
    shape: tuple[int, ...] = (7,)
    values: str = "mixed"
    root: int = -1
    memory: str = "own"
    parts: str = "equal"
    seed: int = 0

    @property
    def size(self) -> int:
        """How many elements the shape has."""
        return math.prod(self.shape)


# ------------------------------------------------------------------------------------------------------------- the grids


def reductions(n: int, device: str, level: str = "quick") -> Grid:
    """all_reduce, reduce and reduce_scatter of n ranks on a device; what data/refusals.yaml declares is a rule.

    Nothing else is covered by averages, which not all devices have, by float16 on the CPU, which gloo adds wrongly, and by a
    group of one rank.
    """
    return Grid(
        {
            "kind": REDUCING,
            "op": OPS,
            "dtype": TYPES,
            "shape": SHAPES,
            "values": ("mixed", *NONFINITE, FULL),
            "form": FORMS,
            "group": groups(n, device, level),
            "root": tuple(range(n)),
            "memory": ("own", "piece", STRIDED),
            "calls": CALLS,
        },
        {
            "only reduce has a root": lambda kind, root: kind not in ROOTED and root > 0,
            "a group has no such rank": lambda group, root: root >= len(group or range(n)),
            "integers have no NaN": lambda dtype, values: dtype not in FLOATS and values in NONFINITE,
            "sums only have all bits": lambda op, values: op != "SUM" and values == FULL,
            "averages are those of all_reduce": lambda kind, op: op == "AVG" and kind != "all_reduce",
            "the average is exact where it is a whole number": lambda op, dtype, values, group: (
                op == "AVG" and (dtype not in FLOATS or values in NONFINITE or len(group or range(n)) not in (1, 2, 4, 8, 16))
            ),
            **_of_memory(device),
            **_lacking(device, REDUCING, OPS),
        },
        uninformative={
            "op": ["AVG"],
            "group": [ALONE],
            "memory": [STRIDED],
            "shape": ["nothing"],
            **({"dtype": ["float16"]} if device == "cpu" else {}),
        },
        each="kind",
    )


def moves(n: int, device: str, level: str = "quick") -> Grid:
    """broadcast, all_gather, gather and scatter of n ranks on a device; what data/refusals.yaml declares is a rule."""
    return Grid(
        {
            "kind": MOVING,
            "dtype": MOVED,
            "shape": SHAPES,
            "form": FORMS,
            "group": groups(n, device, level),
            "root": tuple(range(n)),
            "memory": ("own", "piece", STRIDED),
            "calls": CALLS,
        },
        {
            "all_gather has no root": lambda kind, root: kind not in ROOTED and root > 0,
            "a group has no such rank": lambda group, root: root >= len(group or range(n)),
            "a list has memory of its own": lambda kind, form, memory: (
                memory == "piece" and (kind == "gather" or (kind == "all_gather" and form not in STREAMS))
            ),
            **_of_memory(device),
            **_lacking(device, MOVING, ("",)),
        },
        uninformative={"group": [ALONE], "memory": [STRIDED], "shape": ["nothing"]},
        each="kind",
    )


def exchanges(n: int, device: str, level: str = "quick") -> Grid:
    """all_to_all of n ranks; where the device has none of it, nothing is left out: there the grid is shown, and not run."""
    return Grid(
        {
            "form": ("call", "single", *FORMS[1:]),
            "parts": ("equal", "uneven"),
            "dtype": MOVED,
            "shape": {label: shape for label, shape in SHAPES.items() if math.prod(shape) > 1},
            "group": groups(n, device, level),
            "memory": ("own", "piece"),
            "calls": CALLS,
        },
        {
            "lists have parts of one size": lambda form, parts: form == "call" and parts != "equal",
            "a list has memory of its own": lambda form, memory: form == "call" and memory != "own",
            "a group of one rank has equal parts": lambda parts, group: parts != "equal" and group == (1,),
            **({} if refusal(device, "all_to_all") else _lacking(device, ("all_to_all",), ("",))),
        },
        uninformative={"group": [ALONE]},
    )


ALONE = "rank 1"
"""The label of a group of one rank."""


def groups(n: int, device: str, level: str = "quick") -> dict[str, tuple[int, ...] | None]:
    """By label the members as they are given, which need not rise; None for the job's own group of all ranks.

    Of four ranks halves, and pairs across them; of more halves, too, every second rank, and all but the first. On the CPU pairs
    only, but at level standard: gloo takes long for each group, and longer for one of more ranks.
    """
    half = n // 2
    some: list[tuple[int, ...]] = [(0, 1)]  # of two ranks a second communicator of both
    if n > 2:
        some = [(half, n - 1), (0, half), (n - 1, 1)]
    if n > 2 and (device != "cpu" or level == "standard"):
        some += [tuple(range(1, n))]
    if n > 4:
        some += [tuple(range(half)), tuple(range(half, n)), tuple(range(0, n, 2))]
    made = {f"ranks {' '.join(map(str, each))}": each for each in some if len(set(each)) > 1}
    return {"all": None, **made, ALONE: (1,)}


def calls_of(case: Case, n: int) -> list[Call]:
    """The calls that a case of one of the grids stands for, on n ranks, with other values each."""
    members = tuple(sorted(case.group or range(n)))
    kind = case.by_axis.get("kind", "all_to_all")
    root = members[case.root] if kind in ROOTED else -1
    of_case = {axis: value for axis, value in case.by_axis.items() if axis not in ("kind", "group", "root", "calls")}
    one = Call(kind=kind, members=members, root=root, seed=case.seed, **of_case)
    return [replace(one, seed=case.seed + 100 * number) for number in range(case.calls)]


def _of_memory(device: str) -> dict[str, Rule]:
    """What cannot go together with memory that is not a tensor's own, or without an element."""
    return {
        "data/refusals.yaml declares it without elements": lambda kind, shape: (
            shape == (0,) and refusal(device, kind, form="no elements") is not None
        ),
        "without an element it is no piece": lambda shape, memory: shape in ((), (0,)) and memory != "own",
        "what Paddle refuses is tried once, of all ranks": lambda memory, group, calls: (
            memory == STRIDED and (group is not None or calls > 1)
        ),
    }


def _lacking(device: str, kinds: Sequence[str], ops: Sequence[str]) -> dict[str, Rule]:
    """A rule for each reason that data/refusals.yaml has for these calls."""

    def reason_of(*call: str) -> str:
        entry = refusal(device, *call)
        return entry.format_reason() if entry else ""

    def rule(reason: str) -> Rule:
        if len(kinds) == 1:
            return lambda dtype, form: reason_of(kinds[0], dtype, "", form) == reason
        if ops == ("",):
            return lambda kind, dtype, form: reason_of(kind, dtype, "", form) == reason
        return lambda kind, dtype, op, form: reason_of(kind, dtype, op, form) == reason

    return {
        reason: rule(reason)
        for reason in dict.fromkeys(reason_of(*call) for call in product(kinds, MOVED, ops, FORMS))
        if reason
    }


# ------------------------------------------------------------------------------------------------------- what numpy says


def given(call: Call, rank: int) -> np.ndarray:
    """What a rank gives, as its memory holds it: in the call's shape, or one part after the other; bfloat16 as uint16."""
    has_parts = call.kind in ("scatter", "reduce_scatter", "all_to_all")
    count = call.size * (len(call.members) if has_parts else 1)
    flat = _numbers(call.op, call.values, call.dtype, rank, call.members, count, call.seed)
    return flat if has_parts else flat.reshape(call.shape)


@lru_cache(maxsize=512)
def _numbers(op: str, values: str, dtype: str, rank: int, members: tuple[int, ...], count: int, seed: int) -> np.ndarray:
    rng, place = np.random.default_rng([seed, rank, 11]), members.index(rank)
    storage = np.dtype("uint16" if dtype == "bfloat16" else dtype)
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(storage)
    if not op:
        return rng.integers(0, 256, count * storage.itemsize, dtype="uint8").view(storage)
    drawn = rng.integers(1, 16, count)
    if values == FULL:
        drawn = EXACT[dtype] // len(members) - drawn % 4
    elif op == "PROD":  # at most 2 to the power of 6
        drawn = 1 + drawn % 2 if place < 6 else np.ones(count, int)
    drawn = drawn * (len(members) if op == "AVG" else 1)
    if values != FULL and dtype != "uint8":
        drawn = drawn * (1 - 2 * rng.integers(0, 2, count))
    if dtype not in FLOATS:
        return drawn.astype(storage)
    numbers = drawn.astype("float64")
    if values in NONFINITE:
        numbers[place :: len(members) + 1] = np.nan if values == "nan" else np.inf if place % 2 else -np.inf
    return (numbers.astype("float32").view("uint32") >> 16).astype("uint16") if dtype == "bfloat16" else numbers.astype(dtype)


def widened(stored: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers that a memory holds, in float64 or int64, flat."""
    stored = stored.reshape(-1)
    if dtype == "bfloat16":
        return (stored.astype("uint32") << 16).view("float32").astype("float64")
    return stored.astype("float64" if dtype in FLOATS else "int64")


def split_sizes(call: Call) -> np.ndarray:
    """For all_to_all: how many elements each member sends to each, [senders, receivers], by their places in the group."""
    n = len(call.members)
    if call.parts == "uneven":  # every third part is empty
        return np.array([[call.size * ((sender + 2 * receiver) % 3) // 2 for receiver in range(n)] for sender in range(n)])
    return np.full((n, n), call.size)


def held(call: Call, rank: int, device: str) -> np.ndarray | None:
    """What numpy says that a member holds afterwards, flat; None where that is not defined.

    Of a reduction the numbers in float64 or int64, else what its memory holds.
    """
    if call.kind in ("reduce", "gather") and rank != call.root:
        return None
    place, every = call.members.index(rank), [given(call, member).reshape(-1) for member in call.members]
    part = slice(place * call.size, (place + 1) * call.size)
    if call.kind in REDUCING:
        numbers = [widened(each, call.dtype) for each in every]
        result = _one_form(reduced(call.op, numbers, device in DROPS_NAN))
        return result[part] if call.kind == "reduce_scatter" else result
    if call.kind == "broadcast":
        return every[call.members.index(call.root)]
    if call.kind == "scatter":
        return every[call.members.index(call.root)][part]
    if call.kind == "all_to_all":
        sent = split_sizes(call)
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
    """The first numbers and a checksum of all."""
    first = " ".join(f"{value:g}" for value in values.reshape(-1)[:3])
    return f"{values.size} elements: {first} (checksum {zlib.crc32(_bits(values).tobytes()):08x})"


def _bits(values: np.ndarray) -> np.ndarray:
    """The memory of an array as unsigned numbers, flat."""
    return np.ascontiguousarray(values).reshape(-1).view(f"uint{8 * values.dtype.itemsize}")


def comparable(stored: np.ndarray, call: Call) -> np.ndarray:
    """From what a memory holds what `held` says of it: a reduction may give NaN and zero in each of their forms."""
    if call.kind not in REDUCING:
        return stored.reshape(-1)
    return _one_form(widened(stored, call.dtype))


def _one_form(numbers: np.ndarray) -> np.ndarray:
    if numbers.dtype.kind != "f":
        return numbers
    return np.where(np.isnan(numbers), np.nan, numbers + 0.0)


UNDEFINED = "undefined here"
"""What a member holds where that is not defined."""


NOT_CONTIGUOUS = "refused: the tensor is not contiguous"


def _digests(calls: Sequence[Call], device: str, change: Callable[[np.ndarray], np.ndarray]) -> list[str]:
    """By member what it must hold after all calls."""
    if calls[0].memory == STRIDED:
        return [NOT_CONTIGUOUS] * len(calls[0].members)
    values = [[held(call, rank, device) for call in calls] for rank in calls[0].members]
    return ["; ".join(UNDEFINED if each is None else digest(change(each)) for each in of_rank) for of_rank in values]


def off_by_a_place(values: np.ndarray) -> np.ndarray:
    """A control: each element is that of the next place, and the last is the first with another last bit."""
    bits = _bits(values)
    return np.append(bits[1:], bits[:1] ^ 1).view(values.dtype)


def add_row(n: int, device: str) -> Callable[[Table, Case, Sequence[str] | str], None]:
    """What check.grid takes as `add_row`, of n ranks: a row with what each member must hold, and what it held."""

    def add(rows: Table, case: Case, answers: Sequence[str] | str) -> None:
        calls, found = calls_of(case, n), answers
        if isinstance(answers, str):  # the error that every member raised
            call, is_refused = calls[0], case.memory == STRIDED and "must be contiguous" in answers
            error = format_undeclared(f"refused: {answers}", device, call.kind, call.dtype, call.op, call.form)
            found = [NOT_CONTIGUOUS if is_refused else error] * len(call.members)
        right, wrong = (_digests(calls, device, change) for change in (lambda values: values, off_by_a_place))
        control = [digest(np.zeros(1))] * len(right) if case.memory == STRIDED or case.shape == (0,) else wrong
        rows.equal(case.name, found, right, control=control)

    return add
