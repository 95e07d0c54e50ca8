"""Trainings with stages as a grid: schedules, splits, losses and shared weights together, beside one process.

    of_pipelines = pipeline_cases.pipelines(here.name)
    check.grid("pipeline.options", of_pipelines, pipeline_cases.run(here.name, coarse), add_row, ...)

A model of LAYERS layers is split into two stages, or into four on two ranks, and takes UPDATES updates. The weights at the end,
the losses of the last update, and its output where it is asked for, must be those of one process. Shared weights are two
parameters of different stages that must stay equal.
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
from paddle.distributed.fleet.utils import recompute

from xpulab.chapters.shared.cases_on_ranks import on_ranks
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid, Rule
from xpulab.records.refusals import refusal
from xpulab.release.auto_parallel.training_cases import LOSSES, START, as_one_process

RANKS, UPDATES, ROWS, LENGTH, WORDS, WIDTH, RATE = 2, 2, 8, 3, 12, 8, 0.2
LAYERS = ("embedding", "block 1", "block 2", "block 3", "block 4", "head")
IGNORED, OUTPUT = -100, "the last output"

SCHEDULES = {"FThenB": schedules.ScheduleFThenB, "1F1B": schedules.Schedule1F1B, "VPP": schedules.ScheduleVPP}
SPLITS = {
    "even": {2: (3, 3), 4: (2, 1, 1, 2)},
    "one layer first": {2: (1, 5), 4: (1, 1, 1, 3)},
}
"""By label and number of stages how many layers each stage has."""

SHARED = {"nothing": (), "embedding and head": ((0, 5),), "both": ((0, 5), (1, 4))}
"""By label pairs of layers with the same weight."""

FROZEN = {"nothing": (), "the embedding": (0,), "the first three layers": (0, 1, 2), "the last three layers": (3, 4, 5)}


class Weighted(nn.Layer):
    """A layer of one weight [rows, WIDTH]. compute: from its input and the weight to its output."""

    def __init__(self, rows: int, compute: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.weight, self.compute, self.is_recomputed = self.create_parameter([rows, WIDTH]), compute, False

    def forward(self, x: Any) -> Any:
        return recompute(self.compute, x, self.weight) if self.is_recomputed else self.compute(x, self.weight)


KINDS_OF_LOSS: dict[str, Callable[[Any, Any], Any]] = {
    "mean": lambda logits, follow: F.cross_entropy(logits.reshape([-1, WORDS]), follow.reshape([-1])),
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
            "loss": tuple(KINDS_OF_LOSS),
            "frozen": FROZEN,
            "passes": (1, 2),
            "output": {"losses": False, "losses and output": True},
            "recomputed": {"nothing": False, "blocks": True},
        },
        {
            "isend of gloo blocks: the ranks wait for each other": lambda schedule: device == "cpu" and schedule != "FThenB",
            "VPP needs a multiple of the ranks": lambda schedule, micro_batches: schedule == "VPP"
            and micro_batches % RANKS > 0,
            "only shared weights start different": lambda shared, start: not shared and start == "different",
            "shared weights are on two ranks": lambda schedule, split, shared: any(
                len({_rank_of(schedule, split, layer) for layer in pair}) < RANKS for pair in shared
            ),
            "a first stage without a weight that trains raises an error, and the others wait": lambda schedule, split, frozen: (
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
    layers = [
        Weighted(WORDS, F.embedding),
        *(Weighted(WIDTH, lambda x, weight: x + F.gelu(paddle.matmul(x, weight))) for _ in LAYERS[1:-1]),
        Weighted(WORDS, lambda x, weight: paddle.matmul(x, weight, transpose_y=True)),
    ]
    rng = case.rng()
    values = [rng.normal(0, 0.5, layer.weight.shape).astype("float32") for layer in layers]
    for first, second in case.shared:
        values[second] = values[first] + (case.start == "different")
    for layer, value in zip(layers, values, strict=True):
        layer.weight.set_value(value)
    for layer in layers[1:-1] if case.recomputed else ():
        layer.is_recomputed = True
    for layer in case.frozen:
        layers[layer].weight.stop_gradient = True
    return layers


def _batch(case: Case, number: int) -> tuple[Any, Any]:
    words = np.random.default_rng([case.seed, number, 3]).integers(0, WORDS, [ROWS, LENGTH + 1])
    return paddle.to_tensor(words[:, :-1]), paddle.to_tensor(words[:, 1:])


def _loss(case: Case) -> Callable[[Any, Any], Any]:
    """The loss of a micro-batch, divided so that all together are of one size."""
    return lambda logits, follow: KINDS_OF_LOSS[case.loss](logits, follow) / (case.micro_batches * case.passes)


def one_process(case: Case) -> dict[str, np.ndarray]:
    """Weights at the end by the name of the layer, those of the start, losses and output of the last update."""
    layers = _new_layers(case)
    for first, second in case.shared:
        layers[second].weight = layers[first].weight
    start = {START + name: layer.weight.numpy() for name, layer in zip(LAYERS, layers, strict=True)}
    model = nn.Sequential(*layers)
    optimizer = paddle.optimizer.SGD(RATE, parameters=[weight for weight in model.parameters() if not weight.stop_gradient])
    losses: list[float] = []
    logits: list[Any] = []
    for update in range(UPDATES):
        losses = []
        for number in range(case.passes):
            words, follow = _batch(case, update * case.passes + number)
            logits = []
            for rows in np.split(np.arange(ROWS), case.micro_batches):
                logits.append(model(words[rows[0] : rows[-1] + 1]))
                loss = _loss(case)(logits[-1], follow[rows[0] : rows[-1] + 1])
                loss.backward()
                losses.append(float(loss))
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)
    weights = {name: layer.weight.numpy() for name, layer in zip(LAYERS, layers, strict=True)}
    outputs = {OUTPUT: paddle.concat(logits).numpy()} if case.output else {}
    return {**start, **weights, **outputs, LOSSES: np.array(losses)}


def run(device: str, coarse: float) -> Callable[[Sequence[Case]], list[Any]]:
    """What check.grid takes as `run`: weights and losses of the stages beside those of one process, or an error."""

    def compared(case: Case, of_ranks: Sequence[Any]) -> Compared:
        return as_one_process({name: value for each in of_ranks for name, value in each.items()}, one_process(case), coarse)

    return on_ranks(_trained, RANKS, device, compared, lambda case: range(RANKS))


def _trained(case: Case) -> dict[str, np.ndarray]:
    """On a rank: the weights of its stages at the end, on the last stage also losses and output of the last update."""
    schedules.logger.setLevel("WARNING")
    rank, n, group = dist.get_rank(), _stages(case.schedule), dist.new_group(list(range(RANKS)))
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
    joined: Any = None
    for update in range(UPDATES):
        losses = []
        for number in range(case.passes):
            words, follow = _batch(case, update * case.passes + number)
            if case.shared:
                words, follow = (dist.shard_tensor(each, meshes[rank], [dist.Replicate()]) for each in (words, follow))
            of_pass: list[Any] = []
            joined = schedule.step(words, target=follow, losses=of_pass, return_output=case.output)
            losses += [float(_held(loss)) for loss in of_pass]
        if optimizer:
            optimizer.step()
            optimizer.clear_grad(set_to_zero=False)
    weights = {LAYERS[number]: _held(layers[number].weight) for number in mine}
    outputs = {OUTPUT: _held(joined)} if losses and case.output else {}
    return weights | outputs | ({LOSSES: np.array(losses)} if losses else {})


def _held(weight: Any) -> np.ndarray:
    return np.asarray((weight._local_value() if weight.is_dist() else weight).numpy())
