"""Samplers and loaders of many ranks as grids: which rows each rank reads, beside the formula.

    of_samplers = loader_cases.samplers()
    check.grid("shard-dataloader.samplers", of_samplers, loader_cases.read_by_samplers, loader_cases.add_row, ...)

The formula: the rows, in their order or shuffled with the epoch as the seed, are filled up to a multiple of the ranks with the
first ones. Of each group of ranks x batch rows rank r has the r-th batch; of the last, smaller group the r-th part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddlenlp.utils.batch_sampler import DistributedBatchSampler as OfPaddleNLP

from xpulab import ranks
from xpulab.chapters.auto_parallel.resharding import whole
from xpulab.chapters.shared.error_of_all import error_of_all
from xpulab.checks.compare import first_line
from xpulab.checks.grid import Case, Grid
from xpulab.checks.table import Table
from xpulab.reference.placement import ranks_of

Batches = list[list[int]]

READS = ("one epoch", "two epochs", "left after a batch, and again", "resumed after two batches")
"""How the last epoch is reached. "two epochs" sets no epoch between them; the others set it."""

FORMS = ("dict", "tuple", "texts and numbers", "a list in a list", "a dict in a dict")
"""The forms of a batch that shard_dataloader is tried with."""

MESHES = {"dp": ("dp",), "dp, mp": ("dp", "mp")}


def samplers() -> Grid:
    """DistributedBatchSampler of Paddle and of PaddleNLP, alone and in a loader."""
    return Grid(
        {
            "sampler": ("paddle", "paddlenlp"),
            "rows": (24, 25, 13, 7, 1),
            "ranks": (2, 1, 3, 4),
            "batch": (2, 1, 5),
            "shuffled": {"no": False, "yes": True},
            "drop_last": {"no": False, "yes": True},
            "epoch": (0, 1, 7),
            "read": READS,
            "loader": ("none", "DataLoader", "DataLoader with a worker"),
        },
        {
            "a worker starts a process for each rank and epoch": lambda ranks, read, loader: (
                loader == "DataLoader with a worker" and (ranks > 2 or read != "one epoch")
            ),
        },
        each="sampler",
    )


def sharded() -> Grid:
    """dist.shard_dataloader on a mesh of two or four ranks."""
    return Grid(
        {
            "form": FORMS,
            "mesh": MESHES,
            "rows": (24, 25, 21, 7),
            "batch": (4, 2, 8),
            "shuffled": {"no": False, "yes": True},
            "drop_last": {"no": False, "yes": True},
            "split": {"by the loader": False, "before": True},
            "dims": ("name", "number"),
            "read": ("one epoch", "two epochs", "left after a batch, and again"),
            "workers": (0, 1),
        },
        {"a worker starts a process for each rank and epoch": lambda read, workers: workers > 0 and read != "one epoch"},
        hollow={"form": ["a dict in a dict"]},
    )


# -------------------------------------------------------------------------------------------------------------- formula


def batches(
    rows: int, n: int, rank: int, batch: int, *, shuffled: bool = False, drop_last: bool = False, epoch: int = 0
) -> Batches:
    """The batches of a rank, by the formula."""
    share = -(-rows // n)
    filled = np.resize(np.arange(rows), share * n)
    if shuffled:
        np.random.RandomState(epoch).shuffle(filled)
    whole = share // batch
    found = [each.tolist() for each in filled[: whole * batch * n].reshape(whole, n, batch)[:, rank]]
    rest = filled[whole * batch * n :].reshape(n, -1)[rank].tolist()
    return found + ([rest] if rest and not drop_last else [])


def _expected(case: Case, n: int, rank: int, batch: int) -> Batches:
    """What a case reads in its last epoch."""
    first = case.by_axis.get("epoch", 0)
    epoch = first + (case.read == "two epochs") * case.shuffled  # only an order that changes counts epochs
    if "epoch" not in case.by_axis:  # shard_dataloader is given no epoch: an iterator that is left early counts, too
        epoch = 0 if case.read == "one epoch" else 1
    every = batches(case.rows, n, rank, batch, shuffled=case.shuffled, drop_last=case.drop_last, epoch=epoch)
    return every[2:] if case.read == "resumed after two batches" else every


# ------------------------------------------------------------------------------------------------------------- what reads


class Numbered(paddle.io.Dataset):
    """Row i contains i in every field; form: one of FORMS."""

    def __init__(self, rows: int, form: str) -> None:
        super().__init__()
        self.rows, self.form = rows, form

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, i: int) -> Any:
        x, y = np.full([3], i, dtype="float32"), np.int64(i)
        return {
            "dict": {"x": x, "y": y},
            "tuple": (x, y),
            "texts and numbers": {"x": x, "name": f"row {i}", "number": i},
            "a list in a list": [x, [y, x]],
            "a dict in a dict": {"x": x, "inner": {"z": x}},
        }[self.form]


def _of_form(form: str, numbers: list[int]) -> Any:
    """What `_read_batch` gives for a batch with these rows."""
    tensor = (True, numbers)
    return {
        "dict": {"x": tensor, "y": tensor},
        "tuple": [tensor, tensor],
        "texts and numbers": {"x": tensor, "name": [f"row {i}" for i in numbers], "number": tensor},
        "a list in a list": [tensor, [tensor, tensor]],
        "a dict in a dict": {"x": tensor, "inner": {"z": tensor}},
    }[form]


def _read_batch(value: Any) -> Any:
    """A batch with each tensor as (is it distributed, the numbers of this rank's rows)."""
    if isinstance(value, dict):
        return {key: _read_batch(each) for key, each in value.items()}
    if isinstance(value, list | tuple) and not all(isinstance(each, str) for each in value):
        return [_read_batch(each) for each in value]
    if not isinstance(value, paddle.Tensor):
        return list(value) if isinstance(value, list | tuple) else value
    mine = (value._local_value() if value.is_dist() else value).numpy()
    return value.is_dist(), mine.reshape(len(mine), -1)[:, 0].astype(int).tolist() if mine.size else []


def read_by_samplers(cases: Sequence[Case]) -> list[Any]:
    """What check.grid takes as `run`, in one process: of each case the batches of each rank, and what len() says of them."""

    def of_one(case: Case) -> Any:
        try:
            return [_read(case, rank) for rank in range(case.ranks)]
        except Exception as error:  # an error of one case must not stop the others
            return f"{type(error).__name__}: {first_line(error)}"

    return _workers_first(cases, lambda case: case.loader == "DataLoader with a worker", of_one)


def _workers_first(cases: Sequence[Case], has_worker: Callable[[Case], bool], measure: Callable[[Case], Any]) -> list[Any]:
    """What `measure` gives for each case. Those with a worker are measured before the others.

    A loader without workers reads in a thread. An iterator that is left leaves its thread at work, and a worker that is forked
    while that thread allocates memory may wait for ever for a lock that nobody has: docs/upstream.md has the proof.
    """
    found = {id(case): measure(case) for case in sorted(cases, key=lambda case: not has_worker(case))}
    return [found[id(case)] for case in cases]


def _read(case: Case, rank: int) -> tuple[Batches, int]:
    kind: Any = OfPaddleNLP if case.sampler == "paddlenlp" else paddle.io.DistributedBatchSampler
    rows = Numbered(case.rows, "tuple")
    sampler = kind(rows, case.batch, case.ranks, rank, shuffle=case.shuffled, drop_last=case.drop_last)
    loader: Any = sampler
    if case.loader != "none":
        workers = int(case.loader == "DataLoader with a worker")
        loader = paddle.io.DataLoader(rows, batch_sampler=sampler, num_workers=workers)
    sampler.set_epoch(case.epoch)
    if case.read == "left after a batch, and again":
        next(iter(loader), None)
        sampler.set_epoch(case.epoch)
    if case.read == "two epochs":
        list(loader)
    if case.read == "resumed after two batches" and case.sampler == "paddlenlp":
        sampler.set_epoch(case.epoch, consumed_samples=2 * case.batch * case.ranks)
        return _numbers(loader), len(sampler)
    every = _numbers(loader)
    return (every[2:] if case.read == "resumed after two batches" else every), len(sampler)


def _numbers(loader: Any) -> Batches:
    """The rows of each batch, of a sampler or a loader."""
    return [batch if isinstance(batch, list) and isinstance(batch[0], int) else _read_batch(batch)[0][1] for batch in loader]


def add_row(rows: Table, case: Case, found: Any) -> None:
    """Add a row: the batches of every rank and their count; the control has one batch more."""
    every = [_expected(case, case.ranks, rank, case.batch) for rank in range(case.ranks)]
    counts = [len(batches(case.rows, case.ranks, rank, case.batch, drop_last=case.drop_last)) for rank in range(case.ranks)]
    expected = list(zip(every, counts, strict=True))
    if isinstance(found, str):
        rows.equal(case.name, found, "no error", control="another error")
    else:
        shown, other = (
            [f"{each}, len {count + more}" for each, count in expected] for more in (0, 1)
        )  # no batch is right, too
        rows.equal(case.name, [f"{each}, len {count}" for each, count in found], shown, control=other)


def on_ranks(device: str) -> Callable[[Sequence[Case]], list[list[Any]]]:
    """What check.grid takes as `run`: cases of `sharded` in one start of four ranks."""

    def run(cases: Sequence[Case]) -> list[list[Any]]:
        of_ranks = ranks.run(_run, 4, list(cases), device=device, time_limit=300.0)
        return [[each[number] for each in of_ranks[: 2 ** len(case.mesh)]] for number, case in enumerate(cases)]

    return run


def _run(cases: Sequence[Case]) -> list[Any]:
    dist.init_parallel_env()
    rank = dist.get_rank()

    def of_one(case: Case) -> Any:
        size = 2 ** len(case.mesh)
        if rank >= size:
            return None
        ranks.step(case.name)
        try:
            return _read_sharded(case, rank)
        except Exception as error:
            return error_of_all(error, case.name, size)

    return _workers_first(cases, lambda case: case.workers > 0, of_one)


def _read_sharded(case: Case, rank: int) -> list[Any]:
    size = 2 ** len(case.mesh)
    mesh = dist.ProcessMesh(ranks_of((2,) * len(case.mesh)), dim_names=list(case.mesh))
    rows: Any = Numbered(case.rows, case.form)
    options = {"shuffle": case.shuffled, "drop_last": case.drop_last}
    sampler: Any = paddle.io.BatchSampler(rows, batch_size=case.batch, **options)
    if case.split:
        place = rank // (size // 2)
        sampler = paddle.io.DistributedBatchSampler(rows, case.batch // 2, num_replicas=2, rank=place, **options)
    loader = paddle.io.DataLoader(rows, batch_sampler=sampler, num_workers=case.workers)
    dims: Any = "dp" if case.dims == "name" else 0
    wrapped = dist.shard_dataloader(loader, mesh, shard_dims=dims, is_dataset_splitted=case.split)
    if case.read == "left after a batch, and again":
        next(iter(wrapped))
    if case.read == "two epochs":
        list(wrapped)
    return [_read_batch(batch) for batch in wrapped]


def add_sharded_row(rows: Table, case: Case, of_ranks: Sequence[Any]) -> None:
    """Add a row: the batches of every rank of the mesh; the control is those of the other rank along dp."""
    size = 2 ** len(case.mesh)
    places = [rank // (size // 2) for rank in range(size)]
    expected, other = (
        [[_of_form(case.form, batch) for batch in _expected(case, 2, abs(place - shift), case.batch // 2)] for place in places]
        for shift in (0, 1)
    )
    if errors := [each for each in of_ranks if isinstance(each, str)]:
        rows.equal(case.name, errors[0], "no error", control="another error")
    else:
        rows.equal(
            case.name, [str(each) for each in of_ranks], [str(each) for each in expected], control=[str(each) for each in other]
        )


# --------------------------------------------------------------------------------- fields of other kinds, and several meshes


@dataclass(frozen=True)
class Fields:
    """A form of batch.

    make: from a field with this rank's rows, and the shapes of three images, to the batch. expected: the batch as `_read_batch`
    shows it, from what a rank has of the rows on the first and on the second mesh. meshes: 1 or 2.
    """

    make: Callable[[Any, Any], Any]
    expected: Callable[[Any, Any], Any]
    options: dict[str, Any] = field(default_factory=dict)
    meshes: int = 1


SHAPES = (False, [14, 15, 16])
"""How `_read_batch` shows the shapes of three images that stayed a plain tensor: by their heights."""

FIELDS = {
    "None in a dict": Fields(lambda x, _: {"x": x, "none": None}, lambda x, _: {"x": x, "none": None}),
    "a number in a dict": Fields(lambda x, _: {"x": x, "number": 7}, lambda x, _: {"x": x, "number": 7}),
    "both in a list in a tuple": Fields(lambda x, _: (x, [x, None, 7]), lambda x, _: [x, [x, None, 7]]),
    "None in a tuple": Fields(lambda x, _: (x, None), lambda x, _: [x, None]),
    "a number in a tuple": Fields(lambda x, _: (x, 7), lambda x, _: [x, 7]),
    "shapes of images": Fields(
        lambda x, shapes: {"x": x, "shapes": shapes},
        lambda x, _: {"x": x, "shapes": SHAPES},
        {"dense_tensor_idx": [[], [0]]},
    ),
    "shapes of images, in a list": Fields(
        lambda x, shapes: {"x": x, "images": [x, shapes]},
        lambda x, _: {"x": x, "images": [x, SHAPES]},
        {"dense_tensor_idx": [[], [1]]},
    ),
    "two meshes, keys": Fields(
        lambda x, _: {"x": x, "y": x, "z": x},
        lambda first, second: {"z": first, "x": second},
        {"input_keys": ["z", "x"]},
        meshes=2,
    ),
    "two meshes, one by rows": Fields(
        lambda x, _: (x, x),
        lambda first, second: [first, (True, [0, 1, 2, 3]) if second[1] else second],
        {"shard_dims": ["dp", None]},
        meshes=2,
    ),
}


def _meshes() -> list[Any]:
    return [dist.ProcessMesh([2 * number, 2 * number + 1], dim_names=["dp"]) for number in range(2)]


def _batch_of(make: Callable[[Any, Any], Any], shapes: Any, rows: Sequence[Any]) -> Any:
    """What a loader makes of these rows of `Numbered`, a tuple each."""
    return make(paddle.to_tensor([float(number) for _, number in rows]), shapes)


def read_fields() -> dict[str, Any]:
    """On one of four ranks: of each of FIELDS the first batch, as `_read_batch` shows it, or an error message."""
    dist.init_parallel_env()
    meshes, mine = _meshes(), dist.get_rank() // 2
    shapes = paddle.to_tensor([[14, 28], [15, 28], [16, 28]])
    found: dict[str, Any] = {}
    for title, fields in FIELDS.items():
        make_batch: Any = partial(_batch_of, fields.make, shapes)
        loader = paddle.io.DataLoader(Numbered(8, "tuple"), batch_size=4, collate_fn=make_batch)
        options = {"shard_dims": "dp", **fields.options}
        try:
            sharded_loader = dist.shard_dataloader(loader, meshes[mine] if fields.meshes == 1 else meshes, **options)
            found[title] = _read_batch(next(iter(sharded_loader)))
        except Exception as error:  # raised on every rank, before anything is sent
            found[title] = f"{type(error).__name__}: {first_line(error)}"
    return found


def expected_fields(title: str, rank: int) -> Any:
    """What `read_fields` gives on a rank. On two meshes a rank has no rows of what is on the other one."""
    rows: Any = (True, [[0, 1], [2, 3]][rank % 2])
    none: Any = (True, [])
    if FIELDS[title].meshes == 1:
        return FIELDS[title].expected(rows, rows)
    return FIELDS[title].expected(*((rows, none) if rank < 2 else (none, rows)))


def gather_first_batch() -> dict[str, np.ndarray]:
    """On one of four ranks: axes of the mesh to the first batch that shard_dataloader gives it along dp, gathered.

    "mp x dp, declared again" is the batch of the mesh whose first axis is mp, under the placements that say how it is cut.
    """
    dist.init_parallel_env()
    found = {}
    for axes in (["dp", "mp"], ["mp", "dp"]):
        mesh = dist.ProcessMesh(ranks_of((2, 2)), dim_names=axes)
        loader = paddle.io.DataLoader(Numbered(16, "dict"), batch_size=4)
        x = next(iter(dist.shard_dataloader(loader, mesh, shard_dims="dp")))["x"]
        found[" x ".join(axes)] = whole(x)
    along_dp = [dist.Replicate(), dist.Shard(0)]
    found["mp x dp, declared again"] = whole(dist.auto_parallel.api.dtensor_from_local(x._local_value(), mesh, along_dp))
    return found
