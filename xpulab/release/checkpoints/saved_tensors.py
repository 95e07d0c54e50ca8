"""States that n ranks save and m ranks load: how they are cut, as what, in which type, format and memory, name by name.

    check.grid("distributed-checkpoint.layouts", layouts(counts), on_ranks(folder, device), add_row, ...)
    check.grid("distributed-checkpoint.contents", contents(device), on_ranks(folder, device), add_row, ...)

A case saves a state of one or many layers, each with a matrix, a vector or a number, with random bits in all of them. The
ranks that load fill tensors that hold other bits. Compared is what each rank then holds of each name, and that saving changed
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist

from xpulab.checks.grid import Case, Grid
from xpulab.checks.table import Table
from xpulab.release.checkpoints.on_ranks import FORMATS, Held, on_counts, text_of

Place = tuple[slice, ...]
State = dict[str, np.ndarray]

SHARDED, PLACED, PLAIN = "ShardedWeight", "shard_tensor", "tensor"
KINDS = (SHARDED, PLACED, PLAIN)
"""What stands for a tensor in a state: a dist.ShardedWeight, a tensor of dist.shard_tensor, or one that each rank has whole."""

FLAT, LAYERS = "flat", "layer by layer"
WAYS = ("rows", "columns", "whole", "blocks", "unequal rows", LAYERS, FLAT)
"""How a tensor is cut over the ranks: along its first or last axis in parts of one size but the last, not at all, along both,
along the first one in parts of other sizes, whole with layer i on rank i modulo n only, or in stretches of its elements in one
line."""

SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "even": {"matrix": (8, 4), "vector": (8,)},
    "uneven": {"matrix": (7, 10), "vector": (11,)},
    "of three axes": {"matrix": (8, 3, 7), "vector": (10,)},
    "with a number": {"matrix": (10, 7), "vector": (7,), "number": ()},
}
"""By name the shapes in a layer. Of four ranks each has a part of every axis that is cut."""

TYPES = ("float32", "bfloat16", "float64", "float16", "int64", "int32", "uint8", "bool")

MEMORY = ("own", "piece", "transposed")
"""The memory of a tensor: its own, a piece of a longer one, or that of its transpose."""

BEFORE = ("nothing", "another state", "the same state", "an error")
"""What was loaded into the tensors before: nothing; another state, cut in another way; the same one, before they changed again;
or that other state, which failed because it lacks a name."""

_OTHER = (BEFORE[1], BEFORE[3])

FILLED = ("on the device", "on the host")
"""Where the tensors are that a checkpoint fills; they must be there afterwards, too."""

NAMES = ("in one dict", "saved in dicts", "loaded in dicts")
"""Whether states are {"layers.0.matrix": ...}, or {"layers": {"0": {"matrix": ...}}} when they are saved or loaded."""


def layouts(counts: Sequence[int]) -> Grid:
    """How n ranks cut a state that m ranks load. counts: numbers of ranks that save, and that load, the default first."""
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
            "format": FORMATS,
            "offload": (False, True),
            "replicas": (False, True),
        },
        {
            "not every kind can be cut in each way, saved": lambda saved_as, was: not _can(saved_as, was),
            "not every kind can be cut in each way, loaded": lambda loaded_as, now: not _can(loaded_as, now),
            "one rank has all, saved": lambda saved_on, was: saved_on == 1 and was != "rows",
            "one rank has all, loaded": lambda loaded_on, now: loaded_on == 1 and now != "rows",
        },
    )


def _can(kind: str, way: str) -> bool:
    return {SHARDED: True, PLACED: way in WAYS[:4], PLAIN: way == "whole"}[kind]


def contents(device: str) -> Grid:
    """What two ranks save by rows, and one or two load by columns. device: the name of the device in use."""
    return Grid(
        {
            "dtype": TYPES,
            "shapes": SHAPES,
            "loaded_on": (2, 1),
            "memory_was": MEMORY,
            "memory_now": MEMORY,
            "format": FORMATS,
            "offload": (False, True),
            "before": BEFORE,
            "names": NAMES,
            "filled": FILLED,
        },
        {
            "safetensors refuse a transpose": lambda memory_was, format: (memory_was, format) == ("transposed", "safetensors"),
            "of several ranks some would wait: a known issue": lambda loaded_on, format, before: (
                (loaded_on, format, before) == (2, FORMATS[1], BEFORE[3])
            ),
            "a CPU has one memory": lambda filled: device == "cpu" and filled != FILLED[0],
            "a name beside dicts is none": lambda names, before: (names, before) == (NAMES[2], BEFORE[3]),
        },
        hollow={"names": [NAMES[2]]},
    )


@dataclass(frozen=True)
class Plan:
    """A case of either grid: the axes of both, with what the other grid does not change. name: of the case."""

    name: str
    seed: int
    saved_on: int = 2
    loaded_on: int = 2
    was: str = "rows"
    now: str = "columns"
    saved_as: str = SHARDED
    loaded_as: str = SHARDED
    dtype: str = "float32"
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: SHAPES["even"])
    layers: int = 1
    format: str = FORMATS[0]
    offload: bool = False
    replicas: bool = False
    memory_was: str = MEMORY[0]
    memory_now: str = MEMORY[0]
    before: str = BEFORE[0]
    names: str = NAMES[0]
    filled: str = FILLED[0]


def plan_of(case: Case) -> Plan:
    """The plan of a case."""
    return Plan(case.name, case.seed, **case.by_axis)


STATES = ("saved", "other", "before")
"""Three states of a case with other bits each: the one that is compared, one that was loaded before, one that is in no file."""


def state_of(plan: Plan, which: str) -> State:
    """By name the whole tensors of one of STATES, bfloat16 as uint16."""
    rng = np.random.default_rng([plan.seed, STATES.index(which)])
    return {
        f"layers.{layer}.{name}": _bits(rng, shape, plan.dtype)
        for layer in range(plan.layers)
        for name, shape in plan.shapes.items()
    }


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
    if way == "unequal rows":
        ends = [0, *(min(1 + 2 * part, shape[0]) for part in range(n - 1)), shape[0]]
        place[0] = slice(ends[rank], ends[rank + 1])
    elif way == "blocks" and n > 2 and len(shape) > 1:
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


def held_parts(state: State, way: str, rank: int, n: int) -> State:
    """The parts of a rank by name, without those that it does not hold."""
    found = {name: place_of(name, whole.shape, way, rank, n) for name, whole in state.items()}
    return {name: part_of(state[name], place) for name, place in found.items() if place is not None}


def add_row(rows: Table, case: Case, found: Sequence[Held]) -> None:
    """Add a row: what saving changed, and what each rank holds of each name; in the control one bit is another."""
    plan = plan_of(case)
    whole = state_of(plan, "saved")
    *_, last = whole
    wrong = {**whole, last: whole[last].copy()}
    wrong[last].reshape(-1).view(np.uint8)[-1] ^= 1
    right, control = (
        [{}, *(text_of(held_parts(state, plan.now, rank, plan.loaded_on)) for rank in range(plan.loaded_on))]
        for state in (whole, wrong)
    )
    rows.equal(case.name, _lines(found), _lines(right), control=_lines(control))


def _lines(held: Sequence[Held]) -> list[str]:
    """A line for each name on each rank, and first for each that saving changed."""
    told = ["saving changed", *(f"rank {rank} has" for rank in range(len(held) - 1))]
    return [f"{what} {name}: {text}" for what, of_rank in zip(told, held, strict=True) for name, text in of_rank.items()]


# ----------------------------------------------------------------------------------------------------------------- on ranks


def on_ranks(folder: Path, device: str) -> Callable[[Sequence[Case]], list[list[Held]]]:
    """What check.grid takes as `run`: for each case what saving changed, and what each rank holds after loading.

    folder: an empty one for the checkpoints.
    """

    def run(cases: Sequence[Case]) -> list[list[Held]]:
        plans = {folder / f"case-{number}": plan_of(case) for number, case in enumerate(cases)}
        changed = on_counts(_save, plans, lambda plan: plan.saved_on, device)
        found = on_counts(_load, plans, lambda plan: plan.loaded_on, device)
        return [[{name: text for held in changed[path] for name, text in held.items()}, *found[path]] for path in plans]

    return run


def _save(path: Path, plan: Plan) -> Held:
    """On a rank: save the case, and the other state where it is loaded before. By name what saving changed."""
    changed = {}
    for which, way in {"saved": plan.was, "other": plan.now}.items() if plan.before in _OTHER else [("saved", plan.was)]:
        made = _state(state_of(plan, which), way, plan.saved_as, plan.memory_was, plan.dtype)
        given = _in_dicts(made.given) if plan.names == NAMES[1] else made.given
        before = text_of(made.tensors)
        options: dict[str, Any] = {"safetensors": plan.format == FORMATS[1], "save_replicas": plan.replicas}
        dist.save_state_dict(given, str(path / which), **options)
        changed.update({name: text for name, text in text_of(made.tensors).items() if text != before[name]})
    return changed


def _load(path: Path, plan: Plan) -> Held:
    """On a rank: by name what it holds after loading, and what else changed."""
    with _default_place(plan.filled):
        made = _state(state_of(plan, "before"), plan.now, plan.loaded_as, plan.memory_now, plan.dtype)
    places = {name: tensor.place for name, tensor in made.tensors.items()}
    given = _in_dicts(made.given) if plan.names == NAMES[2] else made.given
    options: dict[str, Any] = {"safetensors": plan.format == FORMATS[1], "offload": plan.offload}
    around = text_of(made.around)
    if plan.before == BEFORE[1]:
        dist.load_state_dict(given, str(path / "other"), **options)
    if plan.before == BEFORE[2]:
        dist.load_state_dict(given, str(path / "saved"), **options)
        with _default_place(plan.filled):
            other = _state(state_of(plan, "other"), plan.now, PLAIN, MEMORY[0], plan.dtype).tensors
        for name, tensor in other.items():
            made.tensors[name].set_value(tensor)
    if plan.before == BEFORE[3]:
        lacks = {**given, "layers.-1.matrix": next(iter(given.values()))}
        with suppress(Exception):
            dist.load_state_dict(lacks, str(path / "other"), **options)
    dist.load_state_dict(given, str(path / "saved"), **options)
    changed = {f"around {name}": text for name, text in text_of(made.around).items() if text != around[name]}
    changed.update(
        {
            f"place of {name}": str(made.tensors[name].place)
            for name, before in places.items()
            if made.tensors[name].place != before
        }
    )
    return {**text_of(made.tensors), **changed}


@contextmanager
def _default_place(filled: str) -> Iterator[None]:
    """New tensors are where this value of FILLED says."""
    before = paddle.get_device()
    paddle.set_device("cpu" if filled == FILLED[1] else before)
    yield
    paddle.set_device(before)


@dataclass(frozen=True)
class _Made:
    """By name what Paddle is given, the tensors of this rank that it stands for, and the memory before and after pieces."""

    given: dict[str, Any]
    tensors: dict[str, Any]
    around: dict[str, Any]


def _state(whole: State, way: str, kind: str, memory: str, dtype: str) -> _Made:
    """The state of this rank."""
    rank, n = dist.get_rank(), dist.get_world_size()
    made = _Made({}, {}, {})
    for name, value in whole.items():
        place = place_of(name, value.shape, way, rank, n)
        if place is None:
            continue
        if kind == PLACED:
            made.given[name] = _placed(value, way, dtype, n)
            made.tensors[name] = made.given[name]._local_value()
            continue
        tensor, around = _in_memory(part_of(value, place), memory, dtype)
        made.tensors[name] = made.given[name] = tensor
        made.around.update({f"{name} {number}": each for number, each in enumerate(around)})
        if kind == SHARDED:
            made.given[name] = _sharded(name, tensor, value.shape, place)
    return made


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


def _in_memory(stored: np.ndarray, memory: str, dtype: Any) -> tuple[Any, list[Any]]:
    """A tensor of these values, and of a piece what is before and after it."""
    if memory == "transposed" and stored.ndim > 1:
        return paddle.to_tensor(np.ascontiguousarray(stored.T), dtype=dtype).transpose([*range(stored.ndim)][::-1]), []
    tensor = paddle.to_tensor(stored, dtype=dtype)
    if memory == "piece" and stored.ndim:
        rows, around = len(stored), paddle.ones_like(tensor)
        longer = paddle.concat([around, tensor, around])
        return longer[rows : 2 * rows], [longer[:rows], longer[2 * rows :]]
    return tensor, []


def _in_dicts(state: Mapping[str, Any]) -> dict[str, Any]:
    """{"layers.0.matrix": ...} as {"layers": {"0": {"matrix": ...}}}."""
    found: dict[str, Any] = {}
    for name, value in state.items():
        *outer, last = name.split(".")
        inner = found
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return found
