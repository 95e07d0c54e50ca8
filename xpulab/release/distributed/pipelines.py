"""PipelineLayer and PipelineParallel of fleet as a grid, beside one process.

    of_pipelines = pipelines.grid()
    check.grid("pipeline.fleet-options", of_pipelines, pipelines.run(here.name, coarse), add_row, ...)

A model of LAYERS layers on two ranks takes UPDATES updates; weights, losses and the losses of an evaluation must be those of
one process.
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

from xpulab.chapters.shared.cases_on_ranks import on_ranks
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid

RANKS, LAYERS, WIDTH, ROWS, MICRO, UPDATES, RATE = 2, 4, 6, 8, 4, 2, 0.3
LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "square": lambda found, right: ((found - right) ** 2).mean(),
    "absolute": lambda found, right: (3 * (found - right)).abs().mean(),
}


class Layer(nn.Layer):
    """One weight [WIDTH, WIDTH]. values: what it starts with."""

    def __init__(self, values: Any) -> None:
        super().__init__()
        self.kernel = self.create_parameter([WIDTH, WIDTH], attr=paddle.ParamAttr(initializer=nn.initializer.Assign(values)))

    def forward(self, x: Any) -> Any:
        return F.tanh(paddle.matmul(x, self.kernel))


def transposed(layer: Any, x: Any) -> Any:
    """What the last layer computes with the weight that it shares with the first."""
    return F.tanh(paddle.matmul(x, layer.kernel, transpose_y=True))


def grid() -> Grid:
    """The grid."""
    return Grid(
        {
            "stages": ("num_stages", "topology"),
            "shared": ("nothing", "first and last"),
            "recomputed": (0, 1, 2),
            "losses": {"one": ("square",), "two": ("square", "absolute")},
            "loss": {"the first": 0, "the second": 1},
            "of": {"the batch": False, "each micro-batch": True},
            "schedule": ("none", "halved"),
            "scaler": {"none": 0.0, "scale 8": 8.0},
        },
        {"there is a second loss": lambda losses, loss: loss >= len(losses)},
    )


def run(device: str, coarse: float) -> Callable[[Sequence[Case]], list[Any]]:
    """What check.grid takes as `run`: weights and losses of the ranks. coarse: what products round on this device."""

    def compared(case: Case, of_ranks: list[Any]) -> Compared:
        right = _alone(case)
        found = {name: next(of[name] for of in of_ranks if name in of) for name in right if name.startswith("weight")}
        names = [name for name in right if not name.startswith("weight")]
        found |= {name: np.stack([np.ravel(of_rank[name]) for of_rank in of_ranks]) for name in names}
        right |= {name: np.stack([np.ravel(right[name])] * RANKS) for name in names}
        return Compared(found, right, {name: 1e-5 + 20 * coarse for name in right})

    return on_ranks(_on_rank, RANKS, device, compared, lambda _: range(RANKS), _start)


def _start(_cases: Sequence[Case]) -> None:
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": 1, "pp_degree": RANKS}
    strategy.pipeline_configs = {"accumulate_steps": MICRO, "micro_batch_size": ROWS // MICRO}
    fleet.init(is_collective=True, strategy=strategy)


def _arrays(case: Case) -> tuple[list[Any], Any, Any]:
    """The weights of the layers, the batch and what it must give."""
    rng = case.rng()
    weights = [0.5 * rng.standard_normal([WIDTH, WIDTH]).astype("float32") for _ in range(LAYERS)]
    x, y = rng.standard_normal([2, ROWS, WIDTH]).astype("float32")
    return weights, x, y


def _rate(case: Case) -> Any:
    return paddle.optimizer.lr.StepDecay(RATE, 1, 0.5) if case.schedule == "halved" else RATE


def _alone(case: Case) -> dict[str, Any]:
    """By name the weights, the losses of each update, and those of an evaluation."""
    weights, x, y = _arrays(case)
    layers = [Layer(values) for values in weights]
    parts: list[Any] = [*layers[:-1], (lambda x: transposed(layers[0], x)) if case.shared != "nothing" else layers[-1]]
    rate = _rate(case)
    used = layers[: LAYERS - (case.shared != "nothing")]
    optimizer = paddle.optimizer.SGD(rate, parameters=[layer.kernel for layer in used])
    found: dict[str, Any] = {}
    for update in range(UPDATES + 1):
        every = []
        for rows in np.split(np.arange(ROWS), MICRO):
            out = paddle.to_tensor(x[rows])
            for part in parts:
                out = part(out)
            losses = [LOSSES[name](out, paddle.to_tensor(y[rows])) for name in case.losses]
            (losses[case.loss] / MICRO).backward()
            every.append([float(loss) for loss in losses])
        of_each = np.array(every).T / MICRO
        found[f"losses {update}"] = of_each if case.of and update < UPDATES else of_each.sum(1)
        if update < UPDATES:
            optimizer.step()
            optimizer.clear_grad()
            if case.schedule == "halved":
                rate.step()
    return found | {f"weight {number}": layer.kernel.numpy() for number, layer in enumerate(used)}


def _on_rank(case: Case) -> dict[str, Any]:
    from paddle.distributed.fleet.meta_parallel import LayerDesc, PipelineLayer, SharedLayerDesc

    (weights, x, y), groups = _arrays(case), fleet.get_hybrid_communicate_group()
    described: list[Any] = [LayerDesc(Layer, values) for values in weights]
    if case.shared != "nothing":
        described[0] = SharedLayerDesc("first", Layer, None, "kernel", weights[0])
        described[-1] = SharedLayerDesc("first", Layer, transposed, ["kernel"], weights[0])
    given: dict[str, Any] = {"num_stages": RANKS} if case.stages == "num_stages" else {"topology": groups.topology()}
    if case.recomputed:
        given |= {"recompute_interval": case.recomputed, "recompute_ctx": {"mp_group": groups.get_model_parallel_group()}}
    model = PipelineLayer(described, loss_fn=[LOSSES[name] for name in case.losses], **given)
    parallel, rate = fleet.distributed_model(model), _rate(case)
    optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(rate, parameters=model.parameters()))
    options: dict[str, Any] = {"loss_fn_idx": case.loss, "return_micro_batch_loss": case.of}
    if case.schedule == "halved":
        options["lr_scheduler"] = rate
    if case.scaler:
        options["scaler"] = fleet.distributed_scaler(paddle.amp.GradScaler(init_loss_scaling=case.scaler))
    found: dict[str, Any] = {}
    data = [paddle.to_tensor(x), paddle.to_tensor(y)]
    for update in range(UPDATES):
        found[f"losses {update}"] = _numbers(parallel.train_batch(data, optimizer, **options))
    found[f"losses {UPDATES}"] = _numbers(parallel.eval_batch(data, compute_loss=True, loss_fn_idx=case.loss))
    first = LAYERS // RANKS * dist.get_rank()
    for name, value in model.named_parameters():
        number = 0 if "shared" in name or "first" in name else int(name.split(".")[0])
        assert "kernel" in name and (number or not first or case.shared != "nothing"), name
        found[f"weight {number}"] = value.numpy()
    return found


def _numbers(losses: Any) -> Any:
    """The losses, [losses] or [losses, micro-batches]."""
    return np.stack([np.ravel(loss.numpy()) for loss in (losses if isinstance(losses, list) else [losses])])


CHUNKS: dict[str, dict[str, Any]] = {
    "virtual stages": {"num_virtual_pipeline_stages": 2},
    "dualpipev": {"use_dualpipev": True},
}


def chunks_on_rank(x: Any) -> dict[str, Any]:
    """On a rank: by form what each of its two chunks of layers computes from x, [2, rows, WIDTH]."""
    from paddle.distributed.fleet.meta_parallel import LayerDesc, PipelineLayer

    _start([])
    found = {}
    for form, given in CHUNKS.items():
        described = [LayerDesc(Layer, np.full([WIDTH, WIDTH], 0.1 * (number + 1), "float32")) for number in range(LAYERS)]
        model = PipelineLayer(described, num_stages=RANKS, seg_method="layer:Layer", loss_fn=LOSSES["square"], **given)
        found[form] = np.stack([model(paddle.to_tensor(x), chunk_id=chunk).numpy() for chunk in range(2)])
    return found


def chunks_right(x: Any, form: str, rank: int) -> Any:
    """The same in double precision: the second chunk is that of two stages later, or that of the way back."""
    numbers = (rank, rank + RANKS) if form == "virtual stages" else (rank, LAYERS - 1 - rank)
    return np.stack([np.tanh(x @ np.full([WIDTH, WIDTH], 0.1 * (number + 1))) for number in numbers])
