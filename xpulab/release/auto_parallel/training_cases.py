"""Trainings on ranks as a grid: interfaces, meshes, placements and options of a step together, beside one process.

    of_trainings = training_cases.trainings(here.name)
    check.grid("auto-parallel-config.options", of_trainings, training_cases.run(here.name, coarse), add_row, ...)

A case takes STEPS steps with a small model: an embedding, two linear layers and a head, which may be the embedding again, and a
buffer that scales what they compute. The weights at the end must be those of one process, on every rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle import nn

from xpulab.chapters.auto_parallel.resharding import whole
from xpulab.chapters.shared.cases_on_ranks import on_ranks
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid
from xpulab.records.refusals import refusal
from xpulab.reference.placement import ranks_of

RANKS, STEPS, ROWS, LENGTH, WORDS, WIDTH = 4, 3, 8, 3, 12, 8
"""Ranks, steps, samples of a step, tokens of a sample, words, features of a token."""

CLIP = 0.5
"""The largest global norm, where it is reached."""

MESHES = {"dp 2": {"dp": 2}, "mp 2": {"mp": 2}, "dp 2, mp 2": {"dp": 2, "mp": 2}, "mp 2, dp 2": {"mp": 2, "dp": 2}}
MESHES |= {"dp 4": {"dp": 4}}
CUTS = {
    "nothing": {},
    "columns, rows": {"embedding": 0, "wide": 1, "narrow": 0, "head": 1},
    "rows, columns": {"embedding": 1, "wide": 0, "narrow": 1, "head": 0},
}
"""By label the dimension of each layer's weight that is cut along mp. Biases stay whole."""

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "SGD": lambda **given: paddle.optimizer.SGD(0.5, **given),
    "AdamW": lambda **given: paddle.optimizer.AdamW(0.05, epsilon=1e-3, weight_decay=0.1, **given),
}
FROZEN = {
    "nothing": (),
    "the first layer": ("embedding",),
    "all but the head": ("embedding", "wide", "narrow"),
}
DIFFERENT = {"nothing": False, "weights and buffers": True}
"""Whether ranks begin with other numbers than the first one."""

START = "start "
"""What the name of a weight begins with where its value is that before the first step."""

LOSSES = "losses"


class Model(nn.Layer):
    """The words that follow, from the words before; tied: the head is the embedding."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.wide = nn.Linear(WIDTH, 2 * WIDTH)
        self.narrow = nn.Linear(2 * WIDTH, WIDTH)
        self.head = None if tied else nn.Linear(WIDTH, WORDS)
        self.register_buffer("scale", paddle.ones([1]))

    def forward(self, words: Any) -> Any:
        x = self.embedding(words)
        x = (x + self.narrow(F.gelu(self.wide(x)))) * self.scale
        return paddle.matmul(x, self.embedding.weight, transpose_y=True) if self.head is None else self.head(x)


def trainings(device: str) -> Grid:
    """The grid; what data/refusals.yaml declares is a rule."""
    rules: dict[str, Callable[..., bool]] = {}
    if lacks := refusal(device, "backward", form="second gradient of a placed tensor"):
        rules[lacks.format_reason()] = lambda interface, micro_batches, tied: (
            interface != "DataParallel" and (micro_batches > 1 or tied == "tied")
        )
    return Grid(
        {
            "interface": ("shard_layer", "parallelize", "DataParallel"),
            "mesh": MESHES,
            "cut": CUTS,
            "optimizer": tuple(OPTIMIZERS),
            "clip": ("none", "reached", "not reached"),
            "micro_batches": (1, 2),
            "frozen": FROZEN,
            "tied": ("apart", "tied"),
            "different": DIFFERENT,
        },
        {
            "only along mp weights are cut": lambda mesh, cut: "mp" not in mesh and bool(cut),
            "DataParallel is for the ranks of the job": lambda interface, mesh: (
                interface == "DataParallel" and mesh is not MESHES["dp 4"]
            ),
            "a plan cuts whole pairs of layers": lambda interface, mesh, cut: (
                interface == "parallelize" and (cut is CUTS["rows, columns"] or ("mp" in mesh and not cut))
            ),
            "only DataParallel takes the tensors of the first rank": lambda interface, different: (
                interface != "DataParallel" and different
            ),
            "some layer trains": lambda frozen, tied: tied == "tied" and frozen is FROZEN["all but the head"],
            **rules,
        },
    )


def one_process(case: Case) -> dict[str, np.ndarray]:
    """The weights at the end by name, as rank 0 alone trains them, and with START those before the first step."""
    model = _new(case, rank=0)
    start = {START + name: weight.numpy() for name, weight in model.named_parameters()}
    _train(model, _optimizer(case, model), case, lambda tensor: tensor)
    return start | {name: weight.numpy() for name, weight in model.named_parameters()}


def run(device: str, coarse: float) -> Callable[[Sequence[Case]], list[Any]]:
    """What check.grid takes as `run`: the weights on the ranks of a case's mesh, beside those of one process, or an error."""

    def compared(case: Case, of_ranks: Sequence[Any]) -> Compared:
        exact = one_process(case)
        found = {name: np.stack([of_rank[name] for of_rank in of_ranks]) for name in of_ranks[0]}
        every = {name: np.stack([value] * len(of_ranks)) for name, value in exact.items()}
        return as_one_process(found, every, coarse)

    return on_ranks(_on_rank, RANKS, device, compared, lambda case: range(math.prod(case.mesh.values())))


def as_one_process(found: Mapping[str, np.ndarray], exact: Mapping[str, np.ndarray], coarse: float) -> Compared:
    """A training on ranks beside that of one process: the way of each weight, in units of its longest, and the losses.

    found: the weights at the end, and LOSSES where they are compared. exact: the same, and with START those before training.
    coarse: what products round on this device, 0 where they keep all bits. The control is nine tenths of each.
    """
    got, right, bound = {}, {}, {}
    for name in exact:
        if name.startswith(START):
            continue
        start, unit = exact.get(START + name, np.zeros(1)), 1.0
        if name != LOSSES:
            unit = float(np.abs(exact[name] - start).max()) or 1.0
        got[name], right[name] = ((each[name] - start) / unit for each in (found, exact))
        # a way is at most 1; a loss of squared errors may be thousands, and float32 rounds it by 6e-8 of itself in each sum
        bound[name] = 1e-4 + 8 * coarse + (1e-6 * np.abs(right[name]) if name == LOSSES else 0.0)
    return Compared(got, right, bound, {name: 0.9 * value for name, value in right.items()})


def _on_rank(case: Case) -> dict[str, np.ndarray]:
    rank = dist.get_rank()
    model: Any = _new(case, rank)
    if case.interface == "DataParallel":
        wrapped = paddle.DataParallel(model)
        _train(wrapped, _optimizer(case, model), case, lambda tensor: tensor[rank * ROWS // RANKS :][: ROWS // RANKS])
        return {name: weight.numpy() for name, weight in model.named_parameters()}
    mesh = dist.ProcessMesh(ranks_of(tuple(case.mesh.values())), dim_names=list(case.mesh))
    dist.auto_parallel.set_mesh(mesh)
    if case.interface == "shard_layer":
        model = dist.shard_layer(model, mesh, lambda name, layer, mesh: _place(case, name, layer, mesh))
        optimizer = dist.shard_optimizer(_optimizer(case, model))
    else:
        plan: dict[str, Any] = {"narrow": dist.RowWiseParallel()}
        if case.cut is CUTS["columns, rows"]:
            plan |= {"wide": dist.ColWiseParallel()}
        config: Any = {"mp_config": {"parallelize_plan": plan}} if "mp" in case.mesh else {}
        config |= {"dp_config": {"sharding_level": 0}} if "dp" in case.mesh else {}
        model, optimizer = dist.parallelize(model, _optimizer(case, model), mesh=mesh, config=config)
    by_rows = [dist.Shard(0) if axis == "dp" else dist.Replicate() for axis in case.mesh]
    _train(model, optimizer, case, lambda tensor: dist.shard_tensor(tensor, mesh, by_rows))
    return {name: whole(weight) for name, weight in model.named_parameters()}


def _place(case: Case, name: str, layer: Any, mesh: Any) -> None:
    """For dist.shard_layer: the placements of the case."""
    for key, weight in layer._parameters.items():
        if weight is None:
            continue
        placements: list[Any] = [dist.Replicate()] * len(case.mesh)
        if "mp" in case.mesh and key == "weight" and name in case.cut:
            placements[list(case.mesh).index("mp")] = dist.Shard(case.cut[name])
        layer._parameters[key] = dist.shard_tensor(weight, mesh, placements)
    for key, buffer in layer._buffers.items():
        layer._buffers[key] = dist.shard_tensor(buffer, mesh, [dist.Replicate()] * len(case.mesh))


def _new(case: Case, rank: int) -> Model:
    """The model; ranks but the first have other numbers where the case says so."""
    model, rng = Model(case.tied == "tied"), case.rng()
    for name, weight in model.named_parameters():
        weight.set_value(rng.normal(0, 0.7, weight.shape).astype("float32") + rank * case.different)
        if any(part in name for part in case.frozen):
            weight.stop_gradient = True
    model.scale.set_value(paddle.full([1], 0.8 + rank * case.different))
    return model


def _optimizer(case: Case, model: Any) -> Any:
    norm = {"none": None, "not reached": 1e4}.get(case.clip, CLIP)
    clip = {} if norm is None else {"grad_clip": nn.ClipGradByGlobalNorm(norm)}
    return OPTIMIZERS[case.optimizer](parameters=model.parameters(), **clip)


def _train(model: Any, optimizer: Any, case: Case, mine: Callable[[Any], Any]) -> None:
    """mine: of a batch the rows of this rank."""
    rng = np.random.default_rng([case.seed, 7])
    for _ in range(STEPS):
        words = rng.integers(0, WORDS, [case.micro_batches, ROWS, LENGTH + 1])
        for batch in words:
            read, follow = mine(paddle.to_tensor(batch[:, :-1])), mine(paddle.to_tensor(batch[:, 1:]))
            logits = model(read)
            loss = F.cross_entropy(logits.reshape([-1, WORDS]), follow.reshape([-1]))
            (loss / case.micro_batches).backward()
        optimizer.step()
        optimizer.clear_grad()
