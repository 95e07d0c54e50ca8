"""What chapter 10 does with single tensors on each rank: reshard every pair, cut unevenly, cut along two axes, read batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F

from xpulab import ranks
from xpulab.records.refusals import Refusal, refusal
from xpulab.reference.placement import Kinds, Pair, Shape, ranks_of, summand

KINDS = {"R": dist.Replicate, "S0": lambda: dist.Shard(0), "S1": lambda: dist.Shard(1), "P": dist.Partial}
"""The placements of xpulab.reference.placement."""

FORMS = ("dict", "tuple", "texts and numbers", "a list in a list", "a dict in a dict")
"""The forms of a batch that shard_dataloader is tried with."""


def placements_of(kinds: Kinds) -> list[Any]:
    """Paddle's placements for these kinds."""
    return [KINDS[kind]() for kind in kinds]


def new_mesh(shape: Shape) -> Any:
    """A mesh with the axes x and y, or x alone."""
    return dist.ProcessMesh(ranks_of(shape), dim_names=["x", "y"][: len(shape)])


def whole(tensor: Any) -> np.ndarray:
    """A tensor gathered on every rank."""
    if not tensor.is_dist():
        return tensor.numpy()
    replicated = [dist.Replicate()] * len(tensor.placements)
    return dist.reshard(tensor, tensor.process_mesh, replicated)._local_value().numpy()


def resharded(pairs: Iterable[Pair], x: np.ndarray) -> dict[Pair, Any]:
    """On a rank: what it holds after each reshard of x, or the last line of Paddle's error message."""
    dist.init_parallel_env()
    found = {}
    for shape, source, target in pairs:
        ranks.step(f"{shape}: {source} to {target}")
        mesh, mine = new_mesh(shape), paddle.to_tensor(summand(x, shape, source, dist.get_rank()))
        before = dist.auto_parallel.api.dtensor_from_local(mine, mesh, placements_of(source))
        try:
            after = dist.reshard(before, mesh, placements_of(target))
            found[shape, source, target] = after._local_value().numpy()
        except Exception as error:  # only what data/refusals.yaml declares is skipped, all other errors are red
            found[shape, source, target] = [line for line in str(error).splitlines() if line.strip()][-1]
    return found


def to_the_next_mesh(x: np.ndarray) -> np.ndarray | None:
    """On one of two ranks: what it holds of x after a reshard from a mesh of rank 0 to a mesh of rank 1; None on rank 0."""
    dist.init_parallel_env()
    first, second = (dist.ProcessMesh([rank], dim_names=["x"]) for rank in (0, 1))
    sent = dist.reshard(dist.shard_tensor(paddle.to_tensor(x), first, [dist.Replicate()]), second, [dist.Replicate()])
    return sent._local_value().numpy() if dist.get_rank() == 1 else None


def lacking(pair: Pair, device: str) -> Refusal | None:
    """The entry of data/refusals.yaml for the collective that a reshard of this pair needs and the device lacks, or None.

    A summand becomes a part by reduce_scatter, a part one of another dimension by all_to_all.
    """
    shape, source, target = pair
    moves = [(one, other) for one, other in zip(source, target, strict=True) if other[0] == "S" and one != other]
    needed = ["reduce_scatter"] if any(one == "P" for one, _ in moves) else []
    needed += ["all_to_all"] if len(shape) == 1 and any(one[0] == "S" for one, _ in moves) else []
    return next((found for call in needed if (found := refusal(device, call))), None)


def counted_rows(count: int) -> np.ndarray:
    """This many rows of five numbers, all different."""
    return np.arange(1, 1 + 5 * count, dtype="float32").reshape(count, 5)


def shard_and_gather(cases: Sequence[tuple[Shape, Kinds, int, bool]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """On a rank: for each case its part of the rows, and the rows after all parts are gathered again.

    cases: shape of the mesh, placements, number of rows, whether rows of zeros are appended up to a multiple of the ranks.
    """
    dist.init_parallel_env()
    found = []
    for shape, kinds, count, padded in cases:
        ranks.step(f"{count} rows, {kinds}")
        missing = -count % dist.get_world_size() if padded else 0
        x = paddle.to_tensor(np.pad(counted_rows(count), ((0, missing), (0, 0))))
        mesh = new_mesh(shape)
        part = dist.shard_tensor(x, mesh, placements_of(kinds))
        back = dist.reshard(part, mesh, [dist.Replicate()] * len(shape))
        found.append((part._local_value().numpy(), back._local_value().numpy()[:count]))
    return found


UNEVEN = (
    ((4,), ("S0",), 10, False),
    ((4,), ("S0",), 7, False),
    ((2, 2), ("S0", "R"), 7, False),
    ((2, 2), ("R", "S1"), 4, False),
    ((2, 2), ("S1", "S0"), 7, False),
)
PADDED = (((4,), ("S0",), 9, True), ((2, 2), ("S0", "S0"), 7, True))
CRASHING = (((4,), ("S0",), 9, False), ((2, 2), ("S0", "S0"), 7, False))
"""Cases of shard_and_gather that work, that work only since rows are appended, and that end a rank."""


def gathered_or_zeros(case: tuple[Shape, Kinds, int, bool], device: str) -> np.ndarray:
    """The gathered rows on rank 0, or zeros when a rank crashed."""
    try:
        return ranks.run(shard_and_gather, 4, [case], device=device, time_limit=30)[0][0][1]
    except ranks.RanksFailed:
        return np.zeros_like(counted_rows(case[2]))


def received_or_zeros(x: np.ndarray, device: str) -> np.ndarray:
    """What rank 1 holds after a reshard from a mesh of rank 0 to one of rank 1, or zeros when a rank crashed."""
    try:
        return ranks.run(to_the_next_mesh, 2, x, device=device, time_limit=30)[1]
    except ranks.RanksFailed:
        return np.zeros_like(x)


def over_two_axes(shapes: Iterable[Shape], x: np.ndarray) -> dict[tuple[Shape, str], tuple[list[str], np.ndarray]]:
    """On a rank: (mesh, operator) to the placements of the result and what the rank holds of it; rows cut along both axes."""
    dist.init_parallel_env()
    found = {}
    for shape in shapes:
        y = dist.shard_tensor(paddle.to_tensor(x), new_mesh(shape), placements_of(["S0", "S0"]))
        results = {"layer_norm": F.layer_norm(y, [x.shape[1]]), "cumsum": paddle.cumsum(y, axis=1), "relu": F.relu(y)}
        for name, result in results.items():
            kinds = ["S0" if each.is_shard(0) else "R" for each in result.placements or []]
            found[shape, name] = kinds, result._local_value().numpy()
    return found


class Numbered(paddle.io.Dataset):
    """Row i contains i in every field; form: one of FORMS."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def __len__(self) -> int:
        return 16

    def __getitem__(self, i: int) -> Any:
        x, y = np.full([3], i, dtype="float32"), np.int64(i)
        return {
            "dict": {"x": x, "y": y},
            "tuple": (x, y),
            "texts and numbers": {"x": x, "name": f"row {i}", "number": i},
            "a list in a list": [x, [y, x]],
            "a dict in a dict": {"x": x, "inner": {"z": x}},
        }[self.form]


def expected_batch(form: str, numbers: list[int]) -> Any:
    """What `read` gives for a batch with these rows."""
    tensor = (True, numbers)
    return {
        "dict": {"x": tensor, "y": tensor},
        "tuple": [tensor, tensor],
        "texts and numbers": {"x": tensor, "name": [f"row {i}" for i in numbers], "number": tensor},
        "a list in a list": [tensor, [tensor, tensor]],
        "a dict in a dict": {"x": tensor, "inner": {"z": tensor}},
    }[form]


def read(value: Any) -> Any:
    """A batch with each tensor as (is it distributed, the numbers of this rank's rows)."""
    if isinstance(value, dict):
        return {key: read(each) for key, each in value.items()}
    if isinstance(value, list | tuple) and not all(isinstance(each, str) for each in value):
        return [read(each) for each in value]
    if not isinstance(value, paddle.Tensor):
        return list(value)
    mine = (value._local_value() if value.is_dist() else value).numpy()
    return value.is_dist(), mine.reshape(len(mine), -1)[:, 0].astype(int).tolist()


def read_epochs(forms: Sequence[str]) -> dict[tuple[str, bool], list[Any]]:
    """On one of four ranks: (form, split before) to what it reads in the 1st epoch, the 2nd, and one after a 3rd left early."""
    dist.init_parallel_env()
    mesh = dist.ProcessMesh(ranks_of((2, 2)), dim_names=["dp", "mp"])
    found: dict[tuple[str, bool], list[Any]] = {}
    for form, split_before in itertools.product(forms, (False, True)):
        rows = Numbered(form)
        sampler = paddle.io.BatchSampler(rows, batch_size=4)
        if split_before:  # along dp the loader of each rank reads only its own rows
            sampler = paddle.io.DistributedBatchSampler(rows, 2, num_replicas=2, rank=dist.get_rank() // 2)
        plain_loader = paddle.io.DataLoader(rows, batch_sampler=sampler)
        loader = dist.shard_dataloader(plain_loader, mesh, shard_dims="dp", is_dataset_splitted=split_before)
        try:
            epochs = [[read(batch) for batch in loader] for _ in range(2)]
            next(iter(loader))
            found[form, split_before] = [*epochs, [read(batch) for batch in loader]]
        except Exception as error:  # an error of one form must not stop the others
            found[form, split_before] = [f"{type(error).__name__}: {error}"[:200]] * 3
    return found


def gather_first_batch() -> dict[str, np.ndarray]:
    """On one of four ranks: axes of the mesh to the first batch that shard_dataloader gives it along dp, gathered.

    "mp x dp, declared again" is the batch of the mesh whose first axis is mp, under the placements that say how it is cut.
    """
    dist.init_parallel_env()
    found = {}
    for axes in (["dp", "mp"], ["mp", "dp"]):
        mesh = dist.ProcessMesh(ranks_of((2, 2)), dim_names=axes)
        loader = paddle.io.DataLoader(Numbered("dict"), batch_size=4)
        x = next(iter(dist.shard_dataloader(loader, mesh, shard_dims="dp")))["x"]
        found[" x ".join(axes)] = whole(x)
    along_dp = [dist.Replicate(), dist.Shard(0)]
    found["mp x dp, declared again"] = whole(dist.auto_parallel.api.dtensor_from_local(x._local_value(), mesh, along_dp))
    return found
