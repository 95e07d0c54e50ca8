"""States that n ranks save and m ranks load: how they are cut, as what, in which type and format, name by name.

    check.grid("distributed-checkpoint.layouts", layouts(counts), on_ranks(folder, device), add_row, ...)

A case saves a state of one or many layers, each with a matrix, a vector or a number, with random bits in all of them. The
ranks that load fill tensors that hold other bits. Compared is what each rank then holds of each name, and that saving changed
nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist

from xpulab.checks.compared import add_error
from xpulab.checks.grid import Case, Grid
from xpulab.checks.table import Table
from xpulab.release.checkpoints.on_ranks import FORMATS, Held, on_counts, text_of

Place = tuple[slice, ...]
State = dict[str, np.ndarray]

SHARDED, PLACED, PLAIN = "ShardedWeight", "shard_tensor", "tensor"
KINDS = (SHARDED, PLACED, PLAIN)
"""What stands for a tensor in a state: a dist.ShardedWeight, a tensor of dist.shard_tensor, or one that each rank has whole."""

FLAT, LAYERS = "flat", "layer by layer"
WAYS = ("rows", "columns", "whole", "blocks", LAYERS, FLAT)
"""How a tensor is cut over the ranks: along its first or last axis in parts of one size but the last, not at all, along both,
whole with layer i on rank i modulo n only, or in stretches of its elements in one line."""

SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "even": {"matrix": (8, 4), "vector": (8,)},
    "uneven": {"matrix": (7, 10), "vector": (11,)},
    "of three axes": {"matrix": (8, 3, 7), "vector": (10,)},
    "with a number": {"matrix": (10, 7), "vector": (7,), "number": ()},
}
"""By name the shapes in a layer. Of four ranks each has a part of every axis that is cut."""

TYPES = ("float32", "bfloat16", "float64", "float16", "int64", "int32", "uint8", "bool")


def layouts(counts: Sequence[int], device: str) -> Grid:
    """How n ranks cut a state that m ranks load.

    counts: numbers of ranks that save, and that load, the default first. device: the name of the device in use.
    """
    return Grid(
        {
            "saved_on": counts,
            "loaded_on": counts,
            "was": WAYS,
            "now": WAYS,
            "saved_as": KINDS,
            "loaded_as": KINDS,
            "shapes": SHAPES,
            "layers": (1, 11),
            "dtype": TYPES,
            "format": FORMATS,
            "offload": (False, True),
        },
        {
            "not every kind can be cut in each way, saved": lambda saved_as, was: not _can(saved_as, was),
            "not every kind can be cut in each way, loaded": lambda loaded_as, now: not _can(loaded_as, now),
            "one rank has all, saved": lambda saved_on, was: saved_on == 1 and was != "rows",
            "one rank has all, loaded": lambda loaded_on, now: loaded_on == 1 and now != "rows",
            "the CPU's kernels do not cut placed tensors of 16 bits": lambda saved_as, loaded_as, dtype: (
                device in ("cpu", "sim") and dtype in ("float16", "bfloat16") and PLACED in (saved_as, loaded_as)
            ),
        },
    )


def _can(kind: str, way: str) -> bool:
    return {SHARDED: True, PLACED: way in WAYS[:4], PLAIN: way == "whole"}[kind]


def state_of(case: Case, which: str) -> State:
    """By name the whole tensors of a case with random bits, bfloat16 as uint16. which: "saved", or "before" it was loaded."""
    rng = np.random.default_rng([case.seed, which == "before"])
    shapes = {f"layers.{layer}.{name}": shape for layer in range(case.layers) for name, shape in case.shapes.items()}
    return {name: _bits(rng, shape, case.dtype) for name, shape in shapes.items()}


def _bits(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array of random bits."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    stored = np.dtype("uint16" if dtype == "bfloat16" else dtype)
    drawn = rng.integers(0, 256, (*shape, stored.itemsize), dtype=np.uint8)
    return drawn.view(stored).reshape(shape)


def place_of(name: str, shape: tuple[int, ...], way: str, rank: int, n: int) -> Place | None:
    """The slices of a rank, one for each axis; of FLAT one, of the elements in one line; None where the rank holds nothing."""
    if way == LAYERS and int(name.split(".")[1]) % n != rank:
        return None
    place = [slice(0, size) for size in shape]
    if not shape or way in ("whole", LAYERS):
        return tuple(place)
    if way == FLAT:
        return (_share(int(np.prod(shape)), rank, n),)
    if way == "blocks" and n > 2 and len(shape) > 1:
        place[0], place[-1] = _share(shape[0], rank // 2, n // 2), _share(shape[-1], rank % 2, 2)
    else:
        axis = -1 if way == "columns" else 0
        place[axis] = _share(shape[axis], rank, n)
    return tuple(place)


def _share(size: int, part: int, parts: int) -> slice:
    step = -(-size // parts)
    return slice(min(part * step, size), min((part + 1) * step, size))


def part_of(whole: np.ndarray, place: Place) -> np.ndarray:
    """What a place of `place_of` holds of a whole tensor."""
    return whole[place] if len(place) == whole.ndim else whole.reshape(-1)[place]


def add_row(rows: Table, case: Case, found: Sequence[Held]) -> None:
    """Add a row: what saving changed, and what each rank holds of each name; in the control one bit is another."""
    if errors := [of_rank["error"] for of_rank in found if "error" in of_rank]:
        add_error(rows, case.name, errors[0])
        return
    whole = state_of(case, "saved")
    *_, last = whole
    wrong = {**whole, last: whole[last].copy()}
    wrong[last].reshape(-1).view(np.uint8)[-1] ^= 1
    right, control = ([{}, *(_held(case, state, rank) for rank in range(case.loaded_on))] for state in (whole, wrong))
    rows.equal(case.name, _lines(found), _lines(right), control=_lines(control))


def _held(case: Case, state: State, rank: int) -> Held:
    """What a rank holds of a whole state."""
    places = {name: place_of(name, whole.shape, case.now, rank, case.loaded_on) for name, whole in state.items()}
    return text_of({name: part_of(state[name], place) for name, place in places.items() if place is not None})


def _lines(held: Sequence[Held]) -> list[str]:
    """A line for each name on each rank, and first for each that saving changed."""
    told = ["saving changed", *(f"rank {rank} has" for rank in range(len(held) - 1))]
    return [f"{what} {name}: {text}" for what, of_rank in zip(told, held, strict=True) for name, text in of_rank.items()]


# ----------------------------------------------------------------------------------------------------------------- on ranks


def on_ranks(folder: Path, device: str) -> Callable[[Sequence[Case]], list[list[Held]]]:
    """What check.grid takes as `run`: for each case what saving changed, and what each rank holds after loading.

    folder: for the checkpoints.
    """

    def run(cases: Sequence[Case]) -> list[list[Held]]:
        own = Path(tempfile.mkdtemp(dir=folder))  # Paddle must not save twice in a folder
        by_path = {own / f"case-{number}": case for number, case in enumerate(cases)}
        changed = on_counts(_save, by_path, lambda case: case.saved_on, device)
        found = on_counts(_load, by_path, lambda case: case.loaded_on, device)
        return [[{name: text for held in changed[path] for name, text in held.items()}, *found[path]] for path in by_path]

    return run


def _save(path: Path, case: Case) -> Held:
    """On a rank: save the case. By name what saving changed."""
    given, tensors = _state(state_of(case, "saved"), case.was, case.saved_as, case.dtype)
    before = text_of(tensors)
    dist.save_state_dict(given, str(path), safetensors=case.format == FORMATS[1])
    return {name: text for name, text in text_of(tensors).items() if text != before[name]}


def _load(path: Path, case: Case) -> Held:
    """On a rank: by name what it holds after loading."""
    given, tensors = _state(state_of(case, "before"), case.now, case.loaded_as, case.dtype)
    dist.load_state_dict(given, str(path), safetensors=case.format == FORMATS[1], offload=case.offload)
    return text_of(tensors)


def _state(whole: State, way: str, kind: str, dtype: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state of this rank: by name what Paddle is given, and the tensors that it stands for."""
    rank, n = dist.get_rank(), dist.get_world_size()
    given: dict[str, Any] = {}
    tensors: dict[str, Any] = {}
    for name, value in whole.items():
        place = place_of(name, value.shape, way, rank, n)
        if place is None:
            continue
        if kind == PLACED:
            given[name] = _placed(value, way, dtype, n)
            tensors[name] = given[name]._local_value()
            continue
        tensor = paddle.to_tensor(part_of(value, place), dtype=dtype)
        tensors[name] = given[name] = tensor
        if kind == SHARDED:
            given[name] = _sharded(name, tensor, value.shape, place)
    return given, tensors


def _sharded(name: str, tensor: Any, shape: tuple[int, ...], place: Place) -> Any:
    if len(place) != len(shape):
        return dist.ShardedWeight(name, tensor, shape, shape, (0,) * len(shape), True, place[0])
    return dist.ShardedWeight(name, tensor, tuple(tensor.shape), shape, tuple(each.start for each in place))


def _placed(value: np.ndarray, way: str, dtype: Any, n: int) -> Any:
    """A tensor of dist.shard_tensor on all ranks, which form two rows for blocks of a matrix."""
    tensor, ranks_of_mesh = paddle.to_tensor(value, dtype=dtype), np.arange(n)
    if way == "blocks" and n > 2 and value.ndim > 1:
        mesh = dist.ProcessMesh(ranks_of_mesh.reshape(n // 2, 2).tolist(), dim_names=["x", "y"])
        return dist.shard_tensor(tensor, mesh, [dist.Shard(0), dist.Shard(value.ndim - 1)])
    how: Any = dist.Shard(value.ndim - 1 if way == "columns" else 0)
    if not value.ndim or way == "whole":
        how = dist.Replicate()
    return dist.shard_tensor(tensor, dist.ProcessMesh(ranks_of_mesh.tolist(), dim_names=["x"]), [how])
