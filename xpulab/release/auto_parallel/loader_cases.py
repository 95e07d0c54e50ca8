"""Samplers and loaders of many ranks as grids: which rows each rank reads, beside the formula.

    of_samplers = loader_cases.samplers()
    check.grid("shard-dataloader.samplers", of_samplers, one_by_one(loader_cases.sampled), add_row, ...)

The formula: the rows, in their order or shuffled with the epoch as the seed, are filled up to a multiple of the ranks with the
first ones. Of each group of ranks x batch rows rank r has the r-th batch; of the last, smaller group the r-th part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddlenlp.utils.batch_sampler import DistributedBatchSampler as OfPaddleNLP

from xpulab.chapters.auto_parallel.resharding import whole
from xpulab.chapters.shared.cases_on_ranks import on_ranks
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid
from xpulab.reference.placement import ranks_of

RANKS = 4
Batches = list[list[int]]

FORMS = ("dict", "tuple", "texts and numbers", "a list in a list", "a dict in a dict")
"""The forms of a batch that shard_dataloader is tried with."""

MESHES = {"dp": ("dp",), "dp, mp": ("dp", "mp")}
NO_YES = {"no": False, "yes": True}


def samplers() -> Grid:
    """DistributedBatchSampler of Paddle and of PaddleNLP. read: "two epochs" sets no epoch between them."""
    return Grid(
        {
            "sampler": ("paddle", "paddlenlp"),
            "rows": (24, 25, 13, 7, 1),
            "ranks": (2, 1, 3, 4),
            "batch": (2, 1, 5),
            "shuffled": NO_YES,
            "drop_last": NO_YES,
            "epoch": (0, 1, 7),
            "read": ("one epoch", "two epochs", "resumed after two batches"),
        },
        each="sampler",
    )


def sharded() -> Grid:
    """dist.shard_dataloader on a mesh of two or four ranks. read: how the last epoch is reached."""
    return Grid(
        {
            "form": FORMS,
            "mesh": MESHES,
            "rows": (24, 25, 21, 7),
            "batch": (4, 2, 8),
            "shuffled": NO_YES,
            "drop_last": NO_YES,
            "split": {"by the loader": False, "before": True},
            "dims": ("name", "number"),
            "read": ("one epoch", "two epochs", "left after a batch, and again"),
        },
        uninformative={"form": ["a dict in a dict"]},
    )


def _read(found: Sequence[str], right: Sequence[str], wrong: Sequence[str]) -> Compared:
    """What the ranks read in the last epoch, what they must read, and what they must not, a text for each rank."""
    return Compared({"ranks": found}, {"ranks": right}, wrong={"ranks": wrong})


def batches(
    rows: int, n: int, rank: int, batch: int, *, shuffled: bool = False, drop_last: bool = False, epoch: int = 0
) -> Batches:
    """The batches of a rank, by the formula."""
    share = -(-rows // n)
    filled = np.resize(np.arange(rows), share * n)
    if shuffled:
        np.random.RandomState(epoch).shuffle(filled)
    complete = share // batch
    found = [each.tolist() for each in filled[: complete * batch * n].reshape(complete, n, batch)[:, rank]]
    rest = filled[complete * batch * n :].reshape(n, -1)[rank].tolist()
    return found + ([rest] if rest and not drop_last else [])


# -------------------------------------------------------------------------------------------------------------- samplers


def sampled(case: Case) -> Compared:
    """The batches of each rank, and what len() says of them. In the control it says one more."""
    found, right = zip(*[(_by_sampler(case, rank), _by_formula(case, rank)) for rank in range(case.ranks)], strict=True)
    texts = [[f"{each}, len {count + more}" for each, count in of] for of, more in ((found, 0), (right, 0), (right, 1))]
    return _read(*texts)


def _by_sampler(case: Case, rank: int) -> tuple[Batches, int]:
    kind: Any = OfPaddleNLP if case.sampler == "paddlenlp" else paddle.io.DistributedBatchSampler
    rows = Numbered(case.rows, "tuple")
    sampler = kind(rows, case.batch, case.ranks, rank, shuffle=case.shuffled, drop_last=case.drop_last)
    sampler.set_epoch(case.epoch)
    is_resumed = case.read == "resumed after two batches"
    if case.read == "two epochs":
        list(sampler)
    if is_resumed and case.sampler == "paddlenlp":
        sampler.set_epoch(case.epoch, consumed_samples=2 * case.batch * case.ranks)
        return list(sampler), len(sampler)
    return list(sampler)[2 * is_resumed :], len(sampler)


def _by_formula(case: Case, rank: int) -> tuple[Batches, int]:
    epoch = case.epoch + (case.read == "two epochs") * case.shuffled  # only an order that changes counts epochs
    options = {"shuffled": case.shuffled, "drop_last": case.drop_last, "epoch": epoch}
    every = batches(case.rows, case.ranks, rank, case.batch, **options)
    return every[2:] if case.read == "resumed after two batches" else every, len(every)


# --------------------------------------------------------------------------------------------------------------- loaders


class Numbered(paddle.io.Dataset):
    """Row i contains i in every field; form: one of FORMS."""

    def __init__(self, rows: int, form: str) -> None:
        super().__init__()
        self.rows, self.form = rows, form

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, i: int) -> Any:
        x = np.full([3], i, dtype="float32")
        return _of_form(self.form, x, np.int64(i), f"row {i}")


def _of_form(form: str, x: Any, y: Any, name: Any) -> Any:
    """A row or batch of one of FORMS, of these fields."""
    return {
        "dict": {"x": x, "y": y},
        "tuple": (x, y),
        "texts and numbers": {"x": x, "name": name, "number": y},
        "a list in a list": [x, [y, x]],
        "a dict in a dict": {"x": x, "inner": {"z": x}},
    }[form]


def _read_batch(value: Any) -> Any:
    """A batch with each tensor as [is it distributed, the numbers of this rank's rows], without tuples."""
    if isinstance(value, dict):
        return {key: _read_batch(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_read_batch(each) for each in value]
    if not isinstance(value, paddle.Tensor):
        return value
    mine = (value._local_value() if value.is_dist() else value).numpy()
    return [value.is_dist(), mine.reshape(len(mine), -1)[:, 0].astype(int).tolist() if mine.size else []]


def run_sharded(device: str) -> Callable[[Sequence[Case]], list[Any]]:
    """What check.grid takes as `run`: what each rank of a mesh reads; in the control its neighbour along dp reads it."""
    return on_ranks(_read_sharded, RANKS, device, _compared, lambda case: range(_size(case)))


def _size(case: Case) -> int:
    return 2 ** len(case.mesh)


def _compared(case: Case, found: Sequence[Any]) -> Compared:
    def of_place(place: int) -> str:
        epoch = int(case.read != "one epoch")  # an iterator that is left early counts, too
        options = {"shuffled": case.shuffled, "drop_last": case.drop_last, "epoch": epoch}
        every = batches(case.rows, 2, place, case.batch // 2, **options)
        fields = [([True, numbers], [True, numbers], [f"row {number}" for number in numbers]) for numbers in every]
        return str([_read_batch(_of_form(case.form, *each)) for each in fields])

    places = [rank // (_size(case) // 2) for rank in range(_size(case))]
    return _read(
        [str(each) for each in found], [of_place(place) for place in places], [of_place(1 - place) for place in places]
    )


def _read_sharded(case: Case) -> list[Any]:
    """On a rank: the batches of the last epoch."""
    mesh = dist.ProcessMesh(ranks_of((2,) * len(case.mesh)), dim_names=list(case.mesh))
    rows: Any = Numbered(case.rows, case.form)
    options = {"shuffle": case.shuffled, "drop_last": case.drop_last}
    sampler: Any = paddle.io.BatchSampler(rows, batch_size=case.batch, **options)
    if case.split:
        place = dist.get_rank() // (_size(case) // 2)
        sampler = paddle.io.DistributedBatchSampler(rows, case.batch // 2, num_replicas=2, rank=place, **options)
    dims: Any = "dp" if case.dims == "name" else 0
    loader = paddle.io.DataLoader(rows, batch_sampler=sampler)
    wrapped = dist.shard_dataloader(loader, mesh, shard_dims=dims, is_dataset_splitted=case.split)
    if case.read == "left after a batch, and again":
        next(iter(wrapped))
    if case.read == "two epochs":
        list(wrapped)
    return [_read_batch(batch) for batch in wrapped]


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
