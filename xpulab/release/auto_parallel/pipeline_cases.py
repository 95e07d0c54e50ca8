"""Trainings with stages as a grid: schedules, splits, losses and shared weights together, beside one process.

    of_pipelines = pipeline_cases.pipelines(here.name)
    check.grid("pipeline.options", of_pipelines, pipeline_cases.on_ranks(here.name), pipeline_cases.add_row(coarse), ...)

A model of LAYERS layers is split into two stages, or into four on two ranks, and takes UPDATES updates. The weights at the end
and the losses of the last update must be those of one process. Shared weights are two parameters of different stages that must
stay equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle import nn
from paddle.distributed import fleet
from paddle.distributed.auto_parallel.pipelining import schedules
from paddle.distributed.auto_parallel.pipelining.stage import PipelineStage

from xpulab import ranks
from xpulab.chapters.shared.error_of_all import error_of_all
from xpulab.checks.grid import Case, Grid, Rule
from xpulab.checks.table import Table
from xpulab.records.refusals import refusal

RANKS, UPDATES, ROWS, LENGTH, WORDS, WIDTH, RATE = 2, 2, 8, 3, 12, 8, 0.2
LAYERS = ("embedding", "block 1", "block 2", "block 3", "block 4", "head")
IGNORED = -100

SCHEDULES = {"FThenB": schedules.ScheduleFThenB, "1F1B": schedules.Schedule1F1B, "VPP": schedules.ScheduleVPP}
SPLITS = {
    "even": {2: (3, 3), 4: (2, 1, 1, 2)},
    "one layer first": {2: (1, 5), 4: (1, 1, 1, 3)},
    "one layer last": {2: (5, 1), 4: (3, 1, 1, 1)},
}
"""By label and number of stages how many layers each stage has."""

SHARED = {"nothing": (), "embedding and head": ((0, 5),), "two blocks": ((1, 4),), "both": ((0, 5), (1, 4))}
"""By label pairs of layers with the same weight."""

FROZEN = {"nothing": (), "the embedding": (0,), "the first three layers": (0, 1, 2), "the last three layers": (3, 4, 5)}


class Embedding(nn.Layer):
    """Features of words."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([WORDS, WIDTH])

    def forward(self, words: Any) -> Any:
        return F.embedding(words, self.weight)


class Block(nn.Layer):
    """A linear layer that is added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([WIDTH, WIDTH])

    def forward(self, x: Any) -> Any:
        return x + F.gelu(paddle.matmul(x, self.weight))


class Head(nn.Layer):
    """A number for each word, from the transposed weight of an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([WORDS, WIDTH])

    def forward(self, x: Any) -> Any:
        return paddle.matmul(x, self.weight, transpose_y=True)


LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "mean": lambda logits, follow: F.cross_entropy(logits.reshape([-1, WORDS]), follow.reshape([-1])),
    "sum": lambda logits, follow: F.cross_entropy(logits.reshape([-1, WORDS]), follow.reshape([-1]), reduction="sum") / 16,
    "with ignored words": lambda logits, follow: F.cross_entropy(
        logits.reshape([-1, WORDS]), paddle.where(follow < 3, paddle.full_like(follow, IGNORED), follow).reshape([-1])
    ),
    "squared error": lambda logits, follow: ((logits - F.one_hot(follow, WORDS)) ** 2).mean(),
}


def pipelines(device: str) -> Grid:
    """The grid. On the CPU isend of gloo blocks, so that only FThenB works."""
    rules: dict[str, Rule] = {}
    if lacks := refusal(device, "backward", form="second gradient of a placed tensor"):
        rules[lacks.format_reason()] = lambda micro_batches, shared, passes: bool(shared) and micro_batches * passes > 1
    return Grid(
        {
            "schedule": tuple(SCHEDULES),
            "micro_batches": (4, 1, 2, 8),
            "split": SPLITS,
            "shared": SHARED,
            "start": ("equal", "different"),
            "loss": tuple(LOSSES),
            "frozen": FROZEN,
            "passes": (1, 2),
        },
        {
            "isend of gloo blocks: the ranks wait for each other": lambda schedule: device == "cpu" and schedule != "FThenB",
            "VPP needs a multiple of the ranks": lambda schedule, micro_batches: schedule == "VPP"
            and micro_batches % RANKS > 0,
            "only shared weights start different": lambda shared, start: not shared and start == "different",
            "shared weights are on two ranks": lambda schedule, split, shared: any(
                len({_rank_of(schedule, split, layer) for layer in pair}) < RANKS for pair in shared
            ),
            "some layer of the first stage trains: known issue frozen-first-stage": lambda schedule, split, frozen: (
                set(range(split[_stages(schedule)][0])) <= set(frozen)
            ),
            "shared weights train": lambda shared, frozen: any(layer in frozen for pair in shared for layer in pair),
            **rules,
        },
    )


def _stages(schedule: str) -> int:
    return 4 if schedule == "VPP" else 2


def _rank_of(schedule: str, split: Any, layer: int) -> int:
    """The rank that has this layer."""
    ends = np.cumsum(split[_stages(schedule)])
    return int(np.searchsorted(ends, layer, side="right")) % RANKS


def _new_layers(case: Case) -> list[Any]:
    """All layers with their weights. The second of two that are shared may start with other numbers."""
    layers = [Embedding(), *(Block() for _ in LAYERS[1:-1]), Head()]
    rng = case.rng()
    values = [rng.normal(0, 0.5, layer.weight.shape).astype("float32") for layer in layers]
    for first, second in case.shared:
        values[second] = values[first] + (case.start == "different")
    for layer, value in zip(layers, values, strict=True):
        layer.weight.set_value(value)
    for layer in case.frozen:
        layers[layer].weight.stop_gradient = True
    return layers


def _batch(case: Case, number: int) -> tuple[Any, Any]:
    words = np.random.default_rng([case.seed, number, 3]).integers(0, WORDS, [ROWS, LENGTH + 1])
    return paddle.to_tensor(words[:, :-1]), paddle.to_tensor(words[:, 1:])


def _loss(case: Case) -> Callable[[Any, Any], Any]:
    """The loss of a micro-batch, divided so that all together are of one size."""
    return lambda logits, follow: LOSSES[case.loss](logits, follow) / (case.micro_batches * case.passes)


def one_process(case: Case) -> dict[str, np.ndarray]:
    """Weights at the end by the name of the layer, those of the start, and the losses of the last update."""
    layers = _new_layers(case)
    for first, second in case.shared:
        layers[second].weight = layers[first].weight
    start = {f"start {name}": layer.weight.numpy() for name, layer in zip(LAYERS, layers, strict=True)}
    model = nn.Sequential(*layers)
    optimizer = paddle.optimizer.SGD(RATE, parameters=[weight for weight in model.parameters() if not weight.stop_gradient])
    losses: list[float] = []
    for update in range(UPDATES):
        losses = []
        for number in range(case.passes):
            words, follow = _batch(case, update * case.passes + number)
            for rows in np.split(np.arange(ROWS), case.micro_batches):
                loss = _loss(case)(model(words[rows[0] : rows[-1] + 1]), follow[rows[0] : rows[-1] + 1])
                loss.backward()
                losses.append(float(loss))
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)
    weights = {name: layer.weight.numpy() for name, layer in zip(LAYERS, layers, strict=True)}
    return {**start, **weights, "losses": np.array(losses)}


def on_ranks(device: str) -> Callable[[Sequence[Case]], list[Any]]:
    """What check.grid takes as `run`: of each case what one_process returns, without the start, or an error message."""

    def run(cases: Sequence[Case]) -> list[Any]:
        of_ranks = ranks.run(_run, RANKS, list(cases), device=device, time_limit=300.0)
        return [
            next((each[number] for each in of_ranks if isinstance(each[number], str)), None)
            or {name: value for each in of_ranks for name, value in each[number].items()}
            for number in range(len(cases))
        ]

    return run


def _run(cases: Sequence[Case]) -> list[Any]:
    dist.init_parallel_env()
    schedules.logger.setLevel("WARNING")
    found: list[Any] = []
    group = dist.new_group(list(range(RANKS)))
    for case in cases:
        ranks.step(case.name)
        try:
            found.append(_trained(case, group))
        except Exception as error:
            found.append(error_of_all(error, case.name, RANKS))
    return found


def _trained(case: Case, group: Any) -> dict[str, np.ndarray]:
    rank, n = dist.get_rank(), _stages(case.schedule)
    fleet.auto.set_mesh(dist.ProcessMesh(list(range(RANKS)), dim_names=["pp"]))
    layers = _new_layers(case)
    meshes = [dist.ProcessMesh([each], dim_names=["x"]) for each in range(RANKS)]
    for number, layer in enumerate(layers if case.shared else ()):  # shared weights say on which ranks they are
        mesh = meshes[_rank_of(case.schedule, case.split, number)]
        layer.weight = dist.shard_tensor(layer.weight, mesh, [dist.Replicate()], stop_gradient=layer.weight.stop_gradient)
    ends = np.cumsum(case.split[n])
    parts = [nn.Sequential(*layers[end - size : end]) for end, size in zip(ends, case.split[n], strict=True)]
    shared = [{"params": [layers[first].weight, layers[second].weight]} for first, second in case.shared] or None
    stages = [PipelineStage(parts[i], i, n, group=group, shared_parameters=shared) for i in range(rank, n, RANKS)]
    schedule = SCHEDULES[case.schedule](
        stages if n > RANKS else stages[0], n_microbatches=case.micro_batches, loss_fn=_loss(case)
    )
    mine = [number for number in range(len(LAYERS)) if _rank_of(case.schedule, case.split, number) == rank]
    learning = [layers[number].weight for number in mine if not layers[number].weight.stop_gradient]
    optimizer = paddle.optimizer.SGD(RATE, parameters=learning) if learning else None
    losses: list[float] = []
    for update in range(UPDATES):
        losses = []
        for number in range(case.passes):
            words, follow = _batch(case, update * case.passes + number)
            if case.shared:
                words, follow = (dist.shard_tensor(each, meshes[rank], [dist.Replicate()]) for each in (words, follow))
            of_pass: list[Any] = []
            schedule.step(words, target=follow, losses=of_pass)
            losses += [float(_held(loss)) for loss in of_pass]
        if optimizer:
            optimizer.step()
            optimizer.clear_grad(set_to_zero=False)
    weights = {LAYERS[number]: _held(layers[number].weight) for number in mine}
    return weights | ({"losses": np.array(losses)} if losses else {})


def _held(weight: Any) -> np.ndarray:
    return np.asarray((weight._local_value() if weight.is_dist() else weight).numpy())


def add_row(coarse: float) -> Callable[[Table, Case, Any], None]:
    """What check.grid takes as `add_row`: the way of each weight, in units of its longest, and the losses.

    The control is nine tenths of each. coarse: what products round on this device, 0 where they keep all bits.
    """

    def add(rows: Table, case: Case, found: Any) -> None:
        if isinstance(found, str):
            rows.equal(case.name, found, "no error", control="another error")
            return
        exact = one_process(case)
        right, got = (
            np.concatenate([*(_way(each, exact, name) for name in LAYERS), each["losses"]]) for each in (exact, found)
        )
        # a way is at most 1; a loss of squared errors may be thousands, and float32 rounds it by 6e-8 of itself in each sum
        rows.close(case.name, got, right, atol=1e-4 + 8 * coarse, rtol=1e-6, control=0.9 * right)

    return add


def _way(values: Any, exact: Any, name: str) -> np.ndarray:
    start = exact[f"start {name}"]
    longest = np.abs(exact[name] - start).max() or 1.0
    return ((values[name] - start) / longest).ravel()


# ------------------------------------------------------------------------------------------- a first stage that is frozen


def _frozen_layers() -> tuple[list[Any], Any, Any]:
    rng = np.random.default_rng(0)
    layers = [Block() for _ in range(4)]
    for layer in layers:
        layer.weight.set_value(rng.normal(0, 0.5, [WIDTH, WIDTH]).astype("float32"))
    x, target = (paddle.to_tensor(rng.normal(0, 1, [ROWS, WIDTH]).astype("float32")) for _ in range(2))
    return layers, x, target


def _square(output: Any, target: Any) -> Any:
    return ((output - target) ** 2).mean()


def frozen_alone() -> np.ndarray:
    """In one process: the gradients of the last two of four blocks, whose first two are frozen."""
    layers, x, target = _frozen_layers()
    _square(nn.Sequential(*layers)(x), target).backward()
    return np.stack([layer.weight.grad.numpy() for layer in layers[2:]])


def _frozen_stage(freeze: bool) -> np.ndarray:
    """On a rank: the same from two stages. freeze: whether the weights of the first stage have no gradients at all."""
    dist.init_parallel_env()
    schedules.logger.setLevel("WARNING")
    rank, group = dist.get_rank(), dist.new_group(list(range(RANKS)))
    fleet.auto.set_mesh(dist.ProcessMesh(list(range(RANKS)), dim_names=["pp"]))
    layers, x, target = _frozen_layers()
    for layer in layers[:2] if freeze else ():
        layer.weight.stop_gradient = True
    stage = PipelineStage(nn.Sequential(*layers[2 * rank : 2 * rank + 2]), rank, RANKS, group=group)
    schedules.ScheduleFThenB(stage, n_microbatches=2, loss_fn=_square).step(x, target=target, losses=[])
    return np.stack([layer.weight.grad.numpy() / 2 for layer in layers[2:]]) if rank else np.zeros(0)


def frozen_or_zeros(device: str, freeze: bool) -> np.ndarray:
    """What the second rank has of _frozen_stage, or zeros when a rank raised an error."""
    try:
        return np.asarray(ranks.run(_frozen_stage, RANKS, freeze, device=device, time_limit=60)[1])
    except ranks.RanksFailed:
        return np.zeros([2, WIDTH, WIDTH], "float32")
