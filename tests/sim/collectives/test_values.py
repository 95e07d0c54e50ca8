"""Every collective gives numpy's values: kinds x types x operations x sizes x ranks, to the last bit, on every rank."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.integration

SIZES = (0, 1, 7, 4096, 600_011)
"""The longest needs more than one round, also in bytes and of 8 ranks: a round is at most 0.5 MiB."""
TYPES = (
    *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FLOAT16", "FLOAT32", "FLOAT64", "BFLOAT16", "COMPLEX64", "COMPLEX128"),
)
OPS = ("SUM", "AVG", "MAX", "MIN", "PRODUCT")
REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")
MOVES = ("broadcast", "all_gather", "all_to_all", "send_recv", "ring")
NUMPY = {name: np.dtype(name.lower()) for name in TYPES if name not in ("BOOL", "BFLOAT16")} | {
    "BOOL": np.dtype(bool),
    "BFLOAT16": np.dtype(np.uint16),  # numpy has no bfloat16: its bits
}


@dataclass(frozen=True)
class Case:
    """size: elements a rank; of the largest buffer when it is the longest size, so that 8 ranks stay within memory."""

    kind: str
    type: str
    op: str
    size: int


def has_meaning(type: str, op: str) -> bool:
    return not (type.startswith("COMPLEX") and op in ("MAX", "MIN")) and (type, op) != ("BOOL", "AVG")


def table() -> list[Case]:
    """Everything by everything; of the longest arrays less, since only their number is new there.

    Of the moves, which copy bytes, one type of each size; of the reductions all types with SUM, all operations for two types.
    """
    one_of_each_size = {np.dtype(dtype).itemsize: name for name, dtype in NUMPY.items()}.values()
    cases = [
        Case(kind, type, "", size)
        for kind, type, size in product(MOVES, TYPES, SIZES)
        if size != SIZES[-1] or type in one_of_each_size
    ]
    for kind, type, op, size in product(REDUCTIONS, TYPES, OPS, SIZES):
        long = size == SIZES[-1] and op != "SUM" and (type not in ("FLOAT32", "FLOAT16") or kind != "all_reduce")
        if has_meaning(type, op) and not long:
            cases.append(Case(kind, type, op, size))
    return cases


# ---- numpy's answer ----------------------------------------------------------------------------------------------


def widened(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def brain(values: np.ndarray) -> np.ndarray:
    """The bits of the nearest bfloat16, ties to even."""
    bits = values.view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def combined(arrays: list[np.ndarray], type: str, op: str) -> np.ndarray:
    """What the library documents, computed by numpy from the first rank to the last."""
    with np.errstate(all="ignore"):
        if type == "BOOL":
            step = np.logical_or if op in ("SUM", "MAX") else np.logical_and
            return in_order(step, arrays)
        if type == "BFLOAT16":
            return brain(combined([widened(array) for array in arrays], "FLOAT32", op))
        if type == "FLOAT16":
            return combined([array.astype(np.float32) for array in arrays], "FLOAT32", op).astype(np.float16)
        if op in ("MAX", "MIN"):
            return in_order(np.maximum if op == "MAX" else np.minimum, arrays)
        if op == "PRODUCT":
            return in_order(multiply, arrays)
        if op == "SUM":
            return in_order(np.add, arrays)
        return mean(arrays)


def in_order(step: Any, arrays: list[np.ndarray]) -> np.ndarray:
    result = arrays[0].copy()
    for array in arrays[1:]:
        result = step(result, array)
    return result


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind != "c":
        return a * b
    result = np.empty_like(a)  # written out: numpy's own product of complex numbers may round once less
    result.real = a.real * b.real - a.imag * b.imag
    result.imag = a.real * b.imag + a.imag * b.real
    return result


def mean(arrays: list[np.ndarray]) -> np.ndarray:
    dtype, ranks = arrays[0].dtype, len(arrays)
    if dtype.kind == "f":
        return in_order(np.add, arrays) / dtype.type(ranks)
    if dtype.kind == "c":
        result = in_order(np.add, arrays)
        result.real /= ranks
        result.imag /= ranks
        return result
    wide = np.uint64 if dtype.kind == "u" else np.int64
    total = in_order(np.add, [array.astype(wide) for array in arrays])
    negative = total < 0
    return (np.where(negative, -(-total // wide(ranks)), total // wide(ranks))).astype(dtype)


def differing(result: np.ndarray, expected: np.ndarray, type: str) -> int:
    """How many elements differ in a bit. All NaNs are alike."""
    assert result.shape == expected.shape and result.dtype == expected.dtype
    return int(np.count_nonzero(canonical(result, type) != canonical(expected, type)))


def canonical(array: np.ndarray, type: str) -> np.ndarray:
    if array.dtype.kind == "c":
        return canonical(array.view(array.real.dtype), type)
    if array.dtype.kind == "f":
        bits = array.view(f"u{array.itemsize}").copy()
        bits[np.isnan(array)] = np.iinfo(bits.dtype).max
        return bits
    if type == "BFLOAT16":
        return np.where(array & 0x7FFF > 0x7F80, np.uint16(0xFFFF), array)
    return array


# ---- what goes in ----------------------------------------------------------------------------------------------------


def pool(type: str, length: int) -> np.ndarray:
    """Random elements with NaN, infinities, subnormals and the extremes among them."""
    random, dtype = np.random.default_rng(TYPES.index(type)), NUMPY[type]
    if type == "BOOL":
        return random.random(length) < 0.8
    if type == "BFLOAT16":
        return brain(pool("FLOAT32", length))
    if dtype.kind == "c":
        return pool("FLOAT32" if type == "COMPLEX64" else "FLOAT64", 2 * length).view(dtype)
    if dtype.kind in "iu":
        few = np.iinfo(dtype)
        most = 2**40 if few.bits == 64 else few.max
        return random.integers(max(few.min, -most), most, length, dtype=dtype, endpoint=True)
    values = (random.standard_normal(length) * np.exp2(random.integers(-6, 6, length))).astype(dtype)
    few = np.finfo(dtype)
    for place, special in enumerate((np.nan, np.inf, -np.inf, few.max, few.smallest_subnormal, few.tiny * 0.75)):
        values[place * 37 + 3 :: 1009] = special
    return values


@pytest.fixture(scope="module")
def pools() -> dict[str, np.ndarray]:
    return {type: pool(type, SIZES[-1] + 1000) for type in TYPES}


class Rank:
    """One rank that goes through the table. Checks its slice of what all ranks get, and the whole of what only it gets."""

    def __init__(self, group: Any, pools: dict[str, np.ndarray]) -> None:
        self.group, self.pools = group, pools
        self.ranks, self.rank = group.ranks, group.rank

    def data(self, case: Case, rank: int, count: int) -> np.ndarray:
        return self.pools[case.type][rank * 101 : rank * 101 + count]

    def slice(self, count: int) -> slice:
        return slice(count * self.rank // self.ranks, count * (self.rank + 1) // self.ranks)

    def each(self, case: Case) -> int:
        """Elements a rank of what is gathered or scattered."""
        return case.size // self.ranks if case.size == SIZES[-1] else case.size

    def empty(self, case: Case, count: int) -> np.ndarray:
        """Room for what comes out, with something in it that does not."""
        return np.full(count * NUMPY[case.type].itemsize, 0x5A, np.uint8).view(NUMPY[case.type])

    def all_reduce(self, case: Case) -> tuple[int, int]:
        result = self.empty(case, case.size)
        self.group.all_reduce(self.data(case, self.rank, case.size), result, case.type, case.op)
        mine = self.slice(case.size)
        expected = combined([self.data(case, rank, case.size)[mine] for rank in range(self.ranks)], case.type, case.op)
        return differing(result[mine], expected, case.type), zlib.crc32(result)

    def reduce(self, case: Case) -> tuple[int, int]:
        root = case.size % self.ranks
        result = self.empty(case, case.size)
        untouched = result.copy()
        self.group.reduce(self.data(case, self.rank, case.size), result, case.type, case.op, root)
        if self.rank != root:
            return int(result.tobytes() != untouched.tobytes()), 0
        expected = combined([self.data(case, rank, case.size) for rank in range(self.ranks)], case.type, case.op)
        return differing(result, expected, case.type), 0

    def reduce_scatter(self, case: Case) -> tuple[int, int]:
        count = self.each(case)
        result = self.empty(case, count)
        self.group.reduce_scatter(self.data(case, self.rank, count * self.ranks), result, case.type, case.op)
        mine = slice(count * self.rank, count * (self.rank + 1))
        expected = combined([self.data(case, rank, count * self.ranks)[mine] for rank in range(self.ranks)], case.type, case.op)
        return differing(result, expected, case.type), 0

    def broadcast(self, case: Case) -> tuple[int, int]:
        root = case.size % self.ranks
        sent = self.data(case, root, case.size)
        result = sent.copy() if self.rank == root else self.empty(case, case.size)
        self.group.broadcast(result, case.type, root)
        return differing(result, sent, case.type), zlib.crc32(result)

    def all_gather(self, case: Case) -> tuple[int, int]:
        count = self.each(case)
        result = self.empty(case, count * self.ranks)
        self.group.all_gather(self.data(case, self.rank, count), result, case.type)
        parts = result.reshape(self.ranks, count)
        wrong = sum(differing(parts[rank], self.data(case, rank, count), case.type) for rank in range(self.ranks))
        return wrong, zlib.crc32(result)

    def all_to_all(self, case: Case) -> tuple[int, int]:
        def count(source: int, target: int) -> int:  # none, half, all
            return self.each(case) * ((source + 2 * target) % 3) // 2

        send = [self.data(case, self.rank + 7 * to, count(self.rank, to)) for to in range(self.ranks)]
        receive = [self.empty(case, count(source, self.rank)) for source in range(self.ranks)]
        self.group.all_to_all(send, receive, case.type)
        expected = [self.data(case, source + 7 * self.rank, count(source, self.rank)) for source in range(self.ranks)]
        return sum(differing(got, want, case.type) for got, want in zip(receive, expected, strict=True)), 0

    def send_recv(self, case: Case) -> tuple[int, int]:
        """With all others at once, even ranks in one order and odd ranks in the other."""
        count, others = self.each(case), [rank for rank in range(self.ranks) if rank != self.rank] or [self.rank]
        receive = [(self.empty(case, count), rank) for rank in others]
        send = [(self.data(case, self.rank + 7 * rank, count), rank) for rank in others]
        self.group.exchange(case.type, send[:: -1 if self.rank % 2 else 1], receive)
        return sum(differing(got, self.data(case, rank + 7 * self.rank, count), case.type) for got, rank in receive), 0

    def ring(self, case: Case) -> tuple[int, int]:
        """Everyone sends before it receives, in two calls, as Paddle's batch_isend_irecv does."""
        result, before = self.empty(case, case.size), (self.rank - 1) % self.ranks
        self.group.exchange(case.type, send=[(self.data(case, self.rank, case.size), (self.rank + 1) % self.ranks)])
        self.group.exchange(case.type, receive=[(result, before)])
        return differing(result, self.data(case, before, case.size), case.type), 0

    def through(self, cases: list[Case]) -> tuple[list[str], list[int]]:
        """The cases that were wrong, and a checksum a case of what all ranks must have alike."""
        wrong, sums = [], []
        for case in cases:
            elements, checksum = getattr(self, case.kind)(case)
            sums.append(checksum)
            if elements:
                wrong.append(f"{case}: {elements} elements")
        return wrong, sums


@pytest.mark.parametrize("number", [1, 2, 3, 4, 8])
def test_every_collective_gives_the_values_of_numpy(ranks: Any, pools: dict[str, np.ndarray], number: int) -> None:
    cases = table()
    results = ranks.values(number, lambda group: Rank(group, pools).through(cases), seconds=200)
    for rank, (wrong, sums) in enumerate(results):
        assert wrong == [], f"rank {rank}"
        assert sums == results[0][1], f"rank {rank} got other bits than rank 0"
        assert len(sums) == len(cases)


@pytest.mark.parametrize("kind", [*REDUCTIONS, *MOVES])
def test_a_wrong_bit_is_seen(ranks: Any, pools: dict[str, np.ndarray], kind: str) -> None:
    """The control of the table: rank 1's data differ from what rank 0 knows of them in one bit of one element."""
    case = Case(kind, "INT32", "SUM" if kind in REDUCTIONS else "", 4096)
    spoilt = pools["INT32"].copy()
    spoilt[2000] ^= 1  # within what rank 1 sends to anyone

    def differences(group: Any) -> list[str]:
        return Rank(group, pools | {"INT32": spoilt} if group.rank == 1 else pools).through([case])[0]

    wrong = ranks.values(2, differences)
    assert wrong[0] + wrong[1] != []
