"""Gradients and trainings of small models that are cut over a mesh, for the comparison with one process."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle import nn

from xpulab import ranks
from xpulab.chapters.auto_parallel.resharding import whole
from xpulab.checks.table import Table
from xpulab.records.refusals import Refusal, format_undeclared
from xpulab.reference.placement import Shape, ranks_of

WIDTH, BATCH, LENGTH = 16, 4, 8
"""Features of the two linear layers; samples of a batch, tokens of a sample."""

LEAST = 4e-3
"""The smallest unit of a gradient, as a share of the largest value of all gradients.

A gradient may be a sum over BATCH x LENGTH = 32 rows that cancel, each rounded by 2**-24 of the largest. Added in another
order it differs by about sqrt(32) * 2**-24 = 3.4e-7 of that value. With this unit that is below 1e-4.
"""

Cut = tuple[str, tuple[str, ...], Shape, str]
"""Interface, names of the mesh's axes, its shape, name of the model."""

Result = tuple[float, Mapping[str, np.ndarray], float]
"""The loss, the gradients by the names of the weights, and which part of the weights a rank holds."""


@dataclass(frozen=True)
class Example:
    """A model that is cut, with what it is tried on.

    new: makes it, with the same weights in every process. loss: of the model, the inputs and the target.
    batch: inputs and target, the samples first.
    """

    new: Callable[[], Any]
    loss: Callable[[Any, Any, Any], Any]
    batch: tuple[np.ndarray, np.ndarray]

    def tensors(self) -> list[Any]:
        """The batch as tensors."""
        return [paddle.to_tensor(each) for each in self.batch]


def squared_error(model: Any, inputs: Any, target: Any) -> Any:
    """The mean squared error."""
    return ((model(inputs) - target) ** 2).mean()


def uncut_gradients(examples: Mapping[str, Example]) -> dict[str, tuple[float, dict[str, np.ndarray]]]:
    """In one process: the loss and the gradients of each model, by its name."""
    found = {}
    for name, example in examples.items():
        model = example.new()
        loss = example.loss(model, *example.tensors())
        loss.backward()
        found[name] = float(loss), {key: weight.grad.numpy() for key, weight in model.named_parameters()}
    return found


def plan(name: str, sequence_parallel: bool) -> dict[str, Any]:
    """The plan of dist.parallelize: which layers are cut by columns and which by rows, by their names."""
    if name == "linears":
        return {"wide": dist.ColWiseParallel(), "narrow": dist.RowWiseParallel()}
    layer = "llama.layers.*."
    found: dict[str, Any] = {f"{layer}self_attn.{key}_proj": dist.ColWiseParallel() for key in "qkv"}
    found |= {f"{layer}mlp.{key}_proj": dist.ColWiseParallel() for key in ("gate", "up")}
    found |= {f"{layer}self_attn.o_proj": dist.RowWiseParallel(), f"{layer}mlp.down_proj": dist.RowWiseParallel()}
    found["lm_head.weight"] = dist.ColWiseParallel()
    if sequence_parallel:  # between the cut matrices the hidden state is cut along the sequence
        found["llama.embed_tokens"] = [dist.ColWiseParallel(), dist.SequenceParallelBegin()]
        found[f"{layer}self_attn"] = dist.SequenceParallelDisable()
        found[f"{layer}mlp"] = dist.SequenceParallelDisable(need_transpose=False)
        return found | {"lm_head": dist.SequenceParallelEnd()}
    return found | {"llama.embed_tokens": dist.ColWiseParallel(gather_output=True)}


def cut_gradients(cuts: Sequence[Cut], place: Callable[..., None], examples: Mapping[str, Example]) -> dict[Cut, Result | str]:
    """On a rank: by cut what Result says, or Paddle's error message.

    place: the function for dist.shard_layer, which the interface "shard_layer" uses; the others use dist.parallelize.
    """
    dist.init_parallel_env()
    found: dict[Cut, Result | str] = {}
    for cut in cuts:
        interface, axes, shape, name = cut
        ranks.step(str(cut))
        mesh = dist.ProcessMesh(ranks_of(shape), dim_names=list(axes))
        dist.auto_parallel.set_mesh(mesh)
        model = examples[name].new()
        size = sum(weight.size for weight in model.parameters())
        if interface == "shard_layer":
            model = dist.shard_layer(model, mesh, place)
        else:
            config: Any = {"mp_config": {"parallelize_plan": plan(name, interface == "sequence parallel")}}
            model = dist.parallelize(model, mesh=mesh, config=config)[0]
        by_samples = [dist.Shard(0) if axis == "dp" else dist.Replicate() for axis in axes]
        try:
            batch = [dist.shard_tensor(each, mesh, by_samples) for each in examples[name].tensors()]
            loss = examples[name].loss(model, *batch)
            loss.backward()
        except NotImplementedError as error:
            found[cut] = str(error).split(" (at")[0]
            continue
        gradients = {key: whole(weight.grad) for key, weight in model.named_parameters()}
        held = sum((each._local_value() if each.is_dist() else each).size for each in model.parameters())
        found[cut] = float(whole(loss)), gradients, held / size
    return found


STAGES = {0: None, 1: dist.ShardingStage1, 2: dist.ShardingStage2, 3: dist.ShardingStage3}
"""Stages of the sharded optimizer to the class that dist.shard_optimizer takes."""


def train_linears(
    model: Any, optimizer: Any, mesh: Any = None, *, steps: int, seed: int = 0, by_samples: bool = False
) -> tuple[dict[str, np.ndarray], int]:
    """Train; returns the whole weights and moments by name, and the bytes of moments that this process holds.

    mesh: of the model, None without one. by_samples: each rank reads its own rows.
    """
    rng = np.random.default_rng(seed + 2)
    for _ in range(steps):
        rows: Any = paddle.to_tensor(rng.normal(0, 1, [BATCH, LENGTH, WIDTH]).astype("float32"))
        if mesh is not None:
            rows = dist.shard_tensor(rows, mesh, [dist.Shard(0) if by_samples else dist.Replicate()])
        squared_error(model, rows, rows).backward()
        optimizer.step()
        optimizer.clear_grad()
    names = {weight.name: key for key, weight in model.named_parameters()}
    accumulators = getattr(optimizer, "_inner_opt", optimizer)._accumulators
    found, held = {key: whole(weight) for key, weight in model.named_parameters()}, 0
    for moment in ("moment1", "moment2"):
        for name, state in accumulators[moment].items():
            held += (state._local_value() if state.is_dist() else state).size * 4
            found[f"{names[name]} {moment}"] = whole(state)
    return found, held


def train_at_stages(
    variants: Sequence[tuple[int, bool]], new: Callable[[], Any], place: Callable[..., None], **given: Any
) -> list[Any]:
    """On a rank: for each variant what train_linears returns, or Paddle's error message.

    variants: the stage of the sharded optimizer, and by_samples of train_linears. new: makes the model.
    place: the function for dist.shard_layer. given: arguments of train_linears for all variants.
    """
    dist.init_parallel_env()
    found: list[Any] = []
    for number, by_samples in variants:
        mesh = dist.ProcessMesh(list(range(dist.get_world_size())), dim_names=["dp"])
        dist.auto_parallel.set_mesh(mesh)
        model, stage = dist.shard_layer(new(), mesh, place), STAGES[number]
        optimizer = paddle.optimizer.AdamW(0.01, parameters=model.parameters())
        try:
            sharded = dist.shard_optimizer(optimizer, stage and stage("dp", mesh))
            found.append(train_linears(model, sharded, mesh, by_samples=by_samples, **given))
        except (NotImplementedError, OSError, SystemError) as error:
            message = re.search(r"\((?:Unimplemented|Fatal)\) (.*?)(?: \(at|$)", str(error), re.MULTILINE)
            found.append(message[1] if message else str(error))
    return found


def train_in_one_process(new: Callable[[], Any], **how: Any) -> tuple[dict[str, np.ndarray], int]:
    """What train_linears returns without a mesh."""
    model = new()
    return train_linears(model, paddle.optimizer.AdamW(0.01, parameters=model.parameters()), **how)


def averaged_gradient(x: np.ndarray, weight: np.ndarray) -> Any:
    """On a rank: the gradient of the mean square of a linear layer, averaged over the ranks, each of which has its rows."""
    dist.init_parallel_env()
    layer: Any = nn.Linear(weight.shape[0], weight.shape[1], bias_attr=False)
    layer.weight.set_value(weight)
    rows = np.split(x, dist.get_world_size())[dist.get_rank()]
    parallel = paddle.DataParallel(layer)  # it averages the gradients as long as it exists
    (parallel(paddle.to_tensor(rows)) ** 2).mean().backward()
    return layer.weight.grad.numpy()


def cut_vocabulary(logits: np.ndarray, of_labels: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray, int]]:
    """On a rank, by name of the labels: the losses of logits that are cut by columns, their gradient, the columns here."""
    dist.init_parallel_env()
    mesh, found = dist.ProcessMesh([0, 1], dim_names=["mp"]), {}
    for name, labels in of_labels.items():
        on_every_rank = paddle.to_tensor(logits, stop_gradient=False)
        by_column: Any = dist.shard_tensor(on_every_rank, mesh, [dist.Shard(1)], stop_gradient=False)
        tokens = dist.shard_tensor(paddle.to_tensor(labels), mesh, [dist.Replicate()])
        losses = F.cross_entropy(by_column, tokens, reduction="none")
        losses.sum().backward()
        found[name] = whole(losses), whole(by_column.grad), by_column.grad._local_value().shape[1]
    return found


def cut_embedding(labels: np.ndarray, table: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """On a rank: the embedding of the labels and the gradient of its square, with the table cut by rows and by columns."""
    dist.init_parallel_env()
    mesh, found = dist.ProcessMesh([0, 1], dim_names=["mp"]), {}
    for cut_by, cut in (("rows", dist.Shard(0)), ("columns", dist.Shard(1))):
        weight = dist.shard_tensor(paddle.to_tensor(table, stop_gradient=False), mesh, [cut], stop_gradient=False)
        embedded = F.embedding(dist.shard_tensor(paddle.to_tensor(labels), mesh, [dist.Replicate()]), weight)
        (dist.reshard(embedded, mesh, [dist.Replicate()]) ** 2).sum().backward()
        found[cut_by] = whole(embedded), whole(weight.grad)
    return found


def in_units_of(gradients: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], least: float = LEAST) -> np.ndarray:
    """All gradients in one array, each divided by the largest value that is expected of it.

    least: the smallest divisor, as a share of the largest value of all.
    """
    largest = {key: np.abs(value).max() for key, value in expected.items()}
    smallest = least * max(largest.values())
    return np.concatenate([(gradients[key] / max(size, smallest)).ravel() for key, size in largest.items()])


def add_cut(
    rows: Table,
    cut: Cut,
    of_ranks: Sequence[Result | str] | str,
    right: tuple[float, dict[str, np.ndarray]],
    device: str,
    coarse: float,
    lacks: Refusal | None = None,
) -> None:
    """Add rows: loss and gradients on every rank, and the share of the weights that a rank holds.

    of_ranks: of cut_gradients, or why they did not run. right: of uncut_gradients. coarse: how coarse products are, relative.
    lacks: a refusal of this device.
    """
    interface, axes, _, name = cut
    title = f"{interface}, {' x '.join(axes)}, {name}"
    if isinstance(of_ranks, str):
        rows.skip(title, of_ranks)
    elif isinstance(of_ranks[0], str) and lacks:
        rows.skip(title, lacks.format_reason())
    elif isinstance(of_ranks[0], str):  # Paddle's message
        rows.equal(title, format_undeclared(of_ranks[0], device, "backward", form=title), "no error", control=of_ranks[0])
    else:
        (loss, exact), least = right, LEAST + 4 * coarse
        losses, gradients, held_shares = zip(*of_ranks, strict=True)
        expected = np.stack([in_units_of(exact, exact, least)] * len(of_ranks))
        found = np.stack([in_units_of(each, exact, least) for each in gradients])
        within = 1e-4 + coarse * np.abs(expected).max()
        rows.close(f"{title}, loss", losses, [loss] * len(losses), rtol=1e-5 + coarse, control=[2 * loss] * len(losses))
        rows.close(f"{title}, gradients", found, expected, atol=within, control=2 * expected)
        rows.below(f"{title}, weights of a rank", held_shares, 0.75, control=[1.0])
