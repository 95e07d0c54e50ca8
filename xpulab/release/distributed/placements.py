"""Arguments of shard_tensor, shard_layer, shard_dataloader, shard_optimizer, local_map and plans, on two ranks, beside numpy.

found = ranks.run(placements.on_rank, placements.RANKS, device=here.name)
placements.right(rank)                       # by the same names what this rank must have
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn

from xpulab import ranks
from xpulab.checks.compare import format_error

RANKS, RATE = 2, 0.1
X = np.arange(24, dtype="float32").reshape([4, 6]) / 8
WEIGHT = np.cos(np.arange(24, dtype="float32")).reshape([6, 4])
OUT = np.sin(np.arange(24, dtype="float32")).reshape([4, 6])
BATCH = np.arange(24, dtype="float32").reshape([2, 2, 6]) / 8
"""A batch [2, 2, 6], for plans of sequences."""


def on_rank() -> dict[str, Any]:
    """By name what this rank has; the text of an error where one is raised."""
    dist.init_parallel_env()
    found: dict[str, Any] = {}
    for name, compute in CASES.items():
        ranks.step(name)
        try:
            found[name] = compute()
        except Exception as error:  # what it means is for the comparison to say
            found[name] = format_error(error)
    return found


def right(rank: int) -> dict[str, Any]:
    """By name what a rank must have."""
    rows, product = X[2 * rank :][:2], X @ WEIGHT
    return {
        "shard_tensor, dtype of a list": rows.astype("float64"),
        "shard_tensor, dtype of a tensor": (8 * rows).astype("int32"),
        "shard_tensor, place": rows,
        "shard_layer, input_fn": product[2 * rank :][:2],
        "shard_layer, input_fn that returns a list": product[2 * rank :][:2],
        "shard_layer, output_fn": 2 * product,
        "shard_optimizer, gradient_accumulation_steps": WEIGHT - RATE * X.T @ np.ones([4, 4], "float32"),
        "shard_dataloader, input_keys": rows,
        "shard_dataloader, dense_tensor_idx": np.float32(1),
        "local_map, in_placements": rows.sum(0),
        "local_map, reshard_inputs": rows.sum(0),
        "local_map, process_mesh": X.sum(0) * (rank + 1),
        "RowWiseParallel, is_input_parallel": BATCH @ WEIGHT,
        "PrepareLayerInput, fn": 2 * BATCH @ WEIGHT,
        "PrepareLayerOutput, fn": 3 * BATCH @ WEIGHT,
        "SequenceParallelBegin and End, need_transpose": 2 * BATCH,
        "PrepareContextParallel, backend": 2 * X[:, 3 * rank :][:, :3],
        "ContextParallel, backend": 2 * BATCH[:, rank:][:, :1],
    }


def _mesh() -> Any:
    return dist.ProcessMesh([0, 1], dim_names=["x"])


def _cut(**given: Any) -> Any:
    return dist.shard_tensor(X, _mesh(), [dist.Shard(0)], **given)


def _own(tensor: Any) -> Any:
    return tensor._local_value().numpy()


def _linear() -> Any:
    layer = nn.Linear(6, 4, bias_attr=False)
    layer.weight.set_value(WEIGHT)
    return layer


def _whole_tensor(x: Any) -> Any:
    return dist.shard_tensor(paddle.to_tensor(x), _mesh(), [dist.Replicate()])


def _on_the_host() -> Any:
    tensor = _cut(place="cpu")
    assert tensor._local_value().place.is_cpu_place()
    return _own(tensor)


def _layer(kind: Callable[..., Any]) -> Any:
    def cut_rows(given: Any, mesh: Any) -> Any:
        return kind([dist.reshard(given[0], mesh, [dist.Shard(0)])])

    return _own(dist.shard_layer(_linear(), _mesh(), input_fn=cut_rows)(_whole_tensor(X)))


def _layer_output() -> Any:
    def doubled(given: Any, mesh: Any) -> Any:
        return dist.reshard(2 * given, mesh, [dist.Replicate()])

    return _own(dist.shard_layer(_linear(), _mesh(), output_fn=doubled)(_cut()))


def _accumulated() -> Any:
    """A step with gradients that are not divided: the steps count only where tensors are fused."""
    layer = dist.shard_layer(_linear(), _mesh())
    optimizer = dist.shard_optimizer(paddle.optimizer.SGD(RATE, parameters=layer.parameters()), gradient_accumulation_steps=2)
    layer(_cut()).sum().backward()
    optimizer.step()
    return _own(layer.weight)


class _Rows(paddle.io.Dataset):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> Any:
        return {"kept": X[index], "left": -X[index]}


class _Pairs(_Rows):
    def __getitem__(self, index: int) -> Any:
        return X[index], -X[index]


def _keys() -> Any:
    loader = dist.shard_dataloader(paddle.io.DataLoader(_Rows(), batch_size=4), [_mesh()], shard_dims="x", input_keys=["kept"])
    (batch,) = loader
    assert [*batch] == ["kept"]
    return _own(batch["kept"])


def _dense() -> Any:
    """1 where the first tensor is placed and the second one is not."""
    loader = dist.shard_dataloader(
        paddle.io.DataLoader(_Pairs(), batch_size=4), [_mesh()], shard_dims="x", dense_tensor_idx=[[], [0]]
    )
    ((placed, dense),) = loader
    return np.float32(placed.is_dist() and not dense.is_dist() and np.array_equal(dense.numpy(), -_own(placed)))


def _mapped(x: Any, **given: Any) -> Any:
    mapped = dist.local_map(lambda own: own.sum(0), [[dist.Partial()]], **given)
    return _own(mapped(x))


def _planned(plan: Any, **others: Any) -> Any:
    """The output of a linear layer, or of an identity, with a plan."""
    mesh = dist.ProcessMesh([[0, 1]], dim_names=["dp", "mp"])
    model: Any = nn.Sequential(nn.Identity(), _linear(), nn.Identity())
    config: Any = {"mp_config": {"parallelize_plan": {"1": plan, **others}}}
    model, _ = dist.parallelize(model, None, mesh=mesh, config=config)
    return model(dist.shard_tensor(paddle.to_tensor(BATCH), mesh, [dist.Replicate()] * 2)), mesh


def _gathered(planned: Any) -> Any:
    tensor, mesh = planned
    return _own(dist.reshard(tensor, mesh, [dist.Replicate()] * 2))


def _sequence() -> Any:
    mesh = dist.ProcessMesh([[0, 1]], dim_names=["dp", "mp"])

    class Doubled(nn.Layer):
        def forward(self, x: Any) -> Any:
            assert x._local_value().shape == [1, 2, 6], x._local_value().shape  # the sequence is first, and cut
            return 2 * x

    model: Any = nn.Sequential(nn.Identity(), Doubled(), nn.Identity())
    plan: Any = {"0": dist.SequenceParallelBegin(need_transpose=False), "2": dist.SequenceParallelEnd(need_transpose=False)}
    config: Any = {"mp_config": {"parallelize_plan": plan}}
    model, _ = dist.parallelize(model, None, mesh=mesh, config=config)
    placed = dist.shard_tensor(paddle.to_tensor(BATCH), mesh, [dist.Shard(1), dist.Replicate()])
    return _gathered((model(placed), mesh))


def _context(plan: Any, x: Any, placement: Any) -> Any:
    """What a layer that doubles its input gives to this rank, with a plan for ranks that share a sequence."""
    mesh = dist.ProcessMesh([[[0, 1]]], dim_names=["dp", "mp", "sep"])

    class Doubled(nn.Layer):
        def forward(self, x: Any) -> Any:
            return 2 * x

    config: Any = {"cp_config": {"parallelize_plan": {"0": plan}}}
    model, _ = dist.parallelize(nn.Sequential(Doubled()), None, mesh=mesh, config=config)
    return _own(model(dist.shard_tensor(paddle.to_tensor(x), mesh, [dist.Replicate(), dist.Replicate(), placement])))


def _times(factor: int) -> Any:
    return lambda process_mesh: lambda layer, *given: (
        factor * given[-1] if len(given) > 1 else tuple(factor * each for each in given[0])
    )


CASES: dict[str, Callable[[], Any]] = {
    "shard_tensor, dtype of a list": lambda: _own(dist.shard_tensor(X.tolist(), _mesh(), [dist.Shard(0)], dtype="float64")),
    "shard_tensor, dtype of a tensor": lambda: _own(
        dist.shard_tensor(paddle.to_tensor(8 * X), _mesh(), [dist.Shard(0)], dtype="int32")
    ),
    "shard_tensor, place": _on_the_host,
    "shard_layer, input_fn": lambda: _layer(tuple),
    "shard_layer, input_fn that returns a list": lambda: _layer(list),
    "shard_layer, output_fn": _layer_output,
    "shard_optimizer, gradient_accumulation_steps": _accumulated,
    "shard_dataloader, input_keys": _keys,
    "shard_dataloader, dense_tensor_idx": _dense,
    "local_map, in_placements": lambda: _mapped(_cut(), in_placements=[[dist.Shard(0)]]),
    "local_map, reshard_inputs": lambda: _mapped(_whole_tensor(X), in_placements=[[dist.Shard(0)]], reshard_inputs=True),
    "local_map, process_mesh": lambda: _mapped(paddle.to_tensor(X) * (dist.get_rank() + 1), process_mesh=_mesh()),
    "RowWiseParallel, is_input_parallel": lambda: _gathered(_planned(dist.RowWiseParallel(is_input_parallel=False))),
    "PrepareLayerInput, fn": lambda: _gathered(_planned(dist.PrepareLayerInput(fn=_times(2)))),
    "PrepareLayerOutput, fn": lambda: _gathered(_planned(dist.PrepareLayerOutput(fn=_times(3)))),
    "SequenceParallelBegin and End, need_transpose": _sequence,
    "PrepareContextParallel, backend": lambda: _context(dist.PrepareContextParallel(backend="all2all"), X, dist.Replicate()),
    "ContextParallel, backend": lambda: _context(dist.ContextParallel(backend="all2all"), BATCH, dist.Shard(1)),
}
"""By name what a rank computes."""
