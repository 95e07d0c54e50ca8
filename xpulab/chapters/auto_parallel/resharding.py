"""dist.reshard as a grid: how meshes, placements, types and memory go together, beside what numpy says that each rank holds.

    of_placements = resharding.placements(here.name)
    check.grid("reshard.values", of_placements, resharding.on_ranks(here.name), resharding.add_row(here.name), ...)

A case has a source and a target. Each rank declares what it holds of the source, and reshards it to the target. Where parts are
uneven it declares the whole tensor, and reshards it to the source first. Source and target must be what numpy computes, and no
reshard may change its input. Numbers are whole, and so small that each sum is exact in its type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist

from xpulab.chapters.shared import cases_on_ranks
from xpulab.checks.compare import first_line
from xpulab.checks.grid import Case, Grid, Rule
from xpulab.checks.table import Table
from xpulab.records.refusals import format_undeclared, refusal
from xpulab.reference.placement import block, joined, summands

RANKS = 4

MESHES = {"4": (4,), "2": (2,), "2x2": (2, 2), "1x4": (1, 4)}
ORDERS = {"rising": (0, 1, 2, 3), "falling": (3, 2, 1, 0), "crossed": (0, 2, 1, 3)}
"""By label the shape of a mesh, and its ranks row by row; a mesh of two has the first two of them."""

EVEN, UNEVEN = (8, 4, 4), (7, 7, 7)
"""Shapes of the whole tensor. Of seven rows four ranks hold 2, 2, 2 and 1: none is empty, which would end a rank."""

TYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8")
NOTHING = ("R", "R")
Move = tuple[str, str]
"""Of one axis of the mesh the placements before and after."""


def whole(tensor: Any) -> np.ndarray:
    """A tensor gathered on every rank."""
    if not tensor.is_dist():
        return tensor.numpy()
    replicated = [dist.Replicate()] * len(tensor.placements)
    return dist.reshard(tensor, tensor.process_mesh, replicated)._local_value().numpy()


def placements(device: str) -> Grid:
    """Every move of two axes of a mesh together, on meshes of one and two axes in any order.

    size: the shape of the whole tensor. memory: of the tensor that a rank declares.
    """
    moves = {f"{one} > {other}": (one, other) for one, other in product(("R", "S0", "S1", "P"), repeat=2)}
    return Grid(
        {
            "mesh": MESHES,
            "order": ORDERS,
            "first": {"R > S0": moves["R > S0"], **moves},
            "second": moves,
            "size": {"even": EVEN, "uneven": UNEVEN},
            "dtype": TYPES,
            "memory": ("own", "a transposed view", "a piece"),
            "compared": ("values", "gradient"),
        },
        {
            "the mesh has no second axis": lambda mesh, second: len(mesh) < 2 and second != NOTHING,
            "uneven parts along two axes end a rank": _is_cut_twice,
            "gradients are of one move, of single and double precision": lambda second, dtype, compared: (
                compared == "gradient" and (second != NOTHING or dtype not in ("float32", "float64"))
            ),
            **_lacking(device),
        },
        uninformative={"memory": ["a transposed view"]},
    )


def _is_cut_twice(mesh: tuple[int, ...], first: Move, second: Move, size: tuple[int, ...]) -> bool:
    moves = [move for move, length in zip((first, second), mesh, strict=False) if length > 1]
    return size == UNEVEN and any(sum(move[place] == cut for move in moves) > 1 for place in (0, 1) for cut in ("S0", "S1"))


def _lacking(device: str) -> dict[str, Rule]:
    """The rules of data/refusals.yaml."""
    rules: dict[str, Rule] = {}
    if lacks := refusal(device, "reduce_scatter"):
        rules[f"a summand becomes a part: {lacks.format_reason()}"] = lambda first, second: any(
            move[0] == "P" and move[1][0] == "S" for move in (first, second)
        )
    if lacks := refusal(device, "all_to_all"):
        rules[f"another dimension is cut: {lacks.format_reason()}"] = lambda mesh, first: (
            len(mesh) == 1 and first in (("S0", "S1"), ("S1", "S0"))
        )
    if refused := {dtype for dtype in TYPES if refusal(device, "reshard", dtype)}:
        rules["this type is only declared, see data/refusals.yaml"] = lambda first, second, dtype, size: (
            dtype in refused and (first[0] != first[1] or second[0] != second[1] or size == UNEVEN)
        )
    return rules


def mesh_of(case: Case) -> np.ndarray:
    """The ranks of a case in the shape of its mesh."""
    return np.array(case.order)[: np.prod(case.mesh)].reshape(case.mesh)


def kinds_of(case: Case) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of the source and of the target of a case a placement for each axis of the mesh."""
    moves = [case.first, case.second][: len(case.mesh)]
    return tuple(before for before, _ in moves), tuple(after for _, after in moves)


# ------------------------------------------------------------------------------------------------------- what numpy says


def declared(case: Case) -> list[np.ndarray]:
    """By rank of the mesh, rising, the whole tensor or the summand that it declares, in float64."""
    places = summands(_counted(mesh_of(case)), kinds_of(case)[0])
    drawn = {place: _numbers(case, place) for place in set(places)}
    return [drawn[place] for place in places]


_LARGEST = {"float32": 2**24 - 1, "float64": 2**53 - 1, "int64": 2**53 - 1, "int32": 2**31 - 1}
"""By type what some elements are where a move only copies: as many bits as the type, or as float64, can hold."""


def _numbers(case: Case, place: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng([case.seed, *place, 5])
    drawn = rng.integers(1, 8, case.size)
    numbers = (drawn if case.dtype == "uint8" else drawn * (1 - 2 * rng.integers(0, 2, case.size))).astype("float64")
    if case.compared == "values" and not any(kind[0] == "P" for kinds in kinds_of(case) for kind in kinds):  # nothing is added
        numbers.flat[:: numbers.size // 5] = _LARGEST.get(case.dtype, numbers.flat[0])
    return numbers


def expected(case: Case) -> np.ndarray:
    """What `held` returns when each rank holds what numpy computes."""
    mesh, (source, target) = _counted(mesh_of(case)), kinds_of(case)
    total = joined(declared(case), mesh, ["R" if kind[0] == "S" else kind for kind in source], 0)
    kinds = ["R" if kind[0] == "P" else kind for kind in source], target
    if case.compared == "gradient":
        return _flat([block(weights(case), mesh, kinds[0], rank) for rank in range(mesh.size)])
    return _flat([block(total, mesh, each, rank) for each in kinds for rank in range(mesh.size)])


def _counted(mesh: np.ndarray) -> np.ndarray:
    """The mesh with its ranks counted from 0 in rising order."""
    return np.unique(mesh, return_inverse=True)[1].reshape(mesh.shape)


def weights(case: Case) -> np.ndarray:
    """What each element counts in the sum whose gradient is compared: whole numbers."""
    return np.random.default_rng([case.seed, 6]).integers(1, 8, case.size).astype("float64")


def held(case: Case, of_ranks: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """All blocks, one after the other, with summands joined: those of the source, then those of the target."""
    mesh = _counted(mesh_of(case))
    if case.compared == "gradient":
        return _flat([each["gradient"] for each in of_ranks])
    found = [
        joined([each[stage] for each in of_ranks], mesh, kinds, rank)
        for stage, kinds in zip(("source", "target"), kinds_of(case), strict=True)
        for rank in range(mesh.size)
    ]
    return _flat(found)


def _flat(blocks: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([each.reshape(-1) for each in blocks]) + 0.0  # one form of zero


# -------------------------------------------------------------------------------------------------------------- on ranks


def on_ranks(device: str) -> Callable[[Sequence[Case]], list[Any]]:
    """What check.grid takes as `run`: of each case what each rank of its mesh holds, or Paddle's error message."""
    return cases_on_ranks.on_ranks(_resharded, RANKS, device, lambda _, held: held, lambda case: mesh_of(case).ravel())


def placement_of(kind: str) -> Any:
    """Paddle's placement."""
    if kind[0] == "P":
        return dist.Partial()
    return dist.Shard(int(kind[1:])) if kind[0] == "S" else dist.Replicate()


def _resharded(case: Case) -> dict[str, np.ndarray] | str:
    ranks, rank, (kinds, kinds_after) = mesh_of(case), dist.get_rank(), kinds_of(case)
    mesh = dist.ProcessMesh(ranks, dim_names=["x", "y"][: ranks.ndim])
    dtype, has_gradient = getattr(paddle, case.dtype), case.compared == "gradient"
    source, target = ([placement_of(kind) for kind in each] for each in (kinds, kinds_after))
    if case.size == UNEVEN:  # only even parts can be declared
        kinds = tuple("R" if kind[0] == "S" else kind for kind in kinds)
    own = block(declared(case)[sorted(ranks.flat).index(rank)], ranks, kinds, rank)
    first = dist.auto_parallel.api.dtensor_from_local(_tensor(own, case), mesh, [placement_of(kind) for kind in kinds])
    first.stop_gradient = not has_gradient
    before = first if kinds == kinds_of(case)[0] else dist.reshard(first, mesh, source)
    if has_gradient:
        before.retain_grads()
    after = dist.reshard(before, mesh, target)
    if has_gradient:
        factors = dist.shard_tensor(paddle.to_tensor(weights(case)).astype(dtype), mesh, [dist.Replicate()] * ranks.ndim)
        (after * factors).sum().backward()
        return {"gradient": _read(before.grad)}
    held_before = _read(before)
    problems = [
        *(f"of type {each.dtype}" for each in (before, after) if each.dtype != dtype),
        *(f"of shape {each.shape}" for each in (before, after) if tuple(each.shape) != case.size),
        *([f"as {after.placements}"] if [_kind(each) for each in after.placements or []] != list(kinds_after) else []),
        *(["its input changed"] if not np.array_equal(_read(first), own) else []),
    ]
    return "; ".join(problems) or {"source": held_before, "target": _read(after)}


def _kind(placement: Any) -> str:
    """The kind of one of Paddle's placements."""
    if placement.is_partial():
        return "P" if placement == dist.Partial() else str(placement)
    if placement.is_shard():  # a dimension that is cut along two axes has an order, and its class no get_dim
        return next(f"S{dim}" for dim in range(3) if placement.is_shard(dim))
    return "R"


def _tensor(numbers: np.ndarray, case: Case) -> Any:
    """The numbers on the device, in the memory of the case."""
    tensor = paddle.to_tensor(numbers).astype(getattr(paddle, case.dtype))
    if case.memory == "a transposed view":
        order = list(range(len(case.size)))[::-1]
        return tensor.transpose(order).contiguous().transpose(order)
    if case.memory == "a piece":
        return paddle.concat([tensor[:1], tensor, tensor[:1]])[1:-1]
    return tensor


def _read(tensor: Any) -> np.ndarray:
    """What this rank holds, in float64."""
    return np.asarray(tensor._local_value().astype("float64").numpy())


def add_row(device: str) -> Callable[[Table, Case, Any], None]:
    """What check.grid takes as `add_row`: a row with all blocks; the control is numbers that are one larger."""

    def add(rows: Table, case: Case, of_ranks: list[Any] | str) -> None:
        if isinstance(of_ranks, str):
            shown = format_undeclared(of_ranks, device, "reshard", case.dtype, form=case.name)
            rows.equal(case.name, shown, "no error", control=of_ranks)
            return
        right = expected(case)
        try:
            found = held(case, of_ranks)
        except ValueError as error:  # parts of different sizes cannot be joined
            rows.equal(case.name, first_line(error), "no error", control="another error")
            return
        rows.bitwise(case.name, found, right, control=right + 1)

    return add
