"""A training as a static program, dist.to_static, beside the same training in dynamic graphs, on ranks that cut the samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle import nn

from xpulab import ranks
from xpulab.chapters.auto_parallel.resharding import whole

ROWS, BATCH, WIDTH = 8, 2, 8


@dataclass(frozen=True)
class Trained:
    """losses: of the steps. weights: whole, flat, in the order of their sizes; start: those before the first step."""

    losses: np.ndarray
    weights: np.ndarray
    start: np.ndarray


class _Rows(paddle.io.Dataset):
    """Row i has random features and a random target."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        features, target = np.random.default_rng(i).normal(0, 1, [2, WIDTH]).astype("float32")
        return features, target


def _new_model() -> Any:
    model = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH, bias_attr=False))
    rng = np.random.default_rng(0)
    for weight in model.parameters():
        weight.set_value(rng.normal(0, 0.5, weight.shape).astype("float32"))
    return model


def _replicated(name: str, layer: Any, mesh: Any) -> None:
    for key, weight in layer._parameters.items():
        if weight is not None:
            layer._parameters[key] = dist.shard_tensor(weight, mesh, [dist.Replicate()])


def _flat(weights: Any) -> np.ndarray:
    """To_static names and sorts the weights otherwise; each one has a size of its own, but the two matrices."""
    return np.concatenate(sorted((np.asarray(each).ravel() for each in weights), key=lambda flat: (flat.size, flat[0])))


def train(static: bool) -> Trained:
    """On a rank: an epoch of AdamW, as a static program or in dynamic graphs."""
    dist.init_parallel_env()
    mesh = dist.ProcessMesh(list(range(dist.get_world_size())), dim_names=["dp"])
    dist.auto_parallel.set_mesh(mesh)
    model = dist.shard_layer(_new_model(), mesh, _replicated)
    start = _flat(whole(weight) for weight in model.parameters())
    optimizer = dist.shard_optimizer(paddle.optimizer.AdamW(0.1, parameters=model.parameters()))
    loader = dist.shard_dataloader(paddle.io.DataLoader(_Rows(), batch_size=BATCH), mesh, shard_dims="dp")
    losses = []
    if static:
        program = dist.to_static(model, loader, F.mse_loss, optimizer)
        program.train()
        losses = [float(np.asarray(program(features, target))) for features, target in loader()]
        return Trained(np.array(losses), _flat(program.state_dict("param").values()), start)
    for features, target in loader:
        loss = F.mse_loss(model(features), target)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(whole(loss)))
    return Trained(np.array(losses), _flat(whole(weight) for weight in model.parameters()), start)


def losses_or_zeros(n: int, device: str) -> np.ndarray:
    """The losses of the static program on each of n ranks; zeros when a rank raised an error."""
    try:
        return np.stack([each.losses for each in ranks.run(train, n, True, device=device, time_limit=60)])
    except ranks.RanksFailed:
        return np.zeros([n, ROWS // BATCH])
