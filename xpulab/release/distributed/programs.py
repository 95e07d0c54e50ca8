"""Programs of dist.to_static and DistModel as a grid: losses and weights of a training, beside the same without a program.

    of_programs = programs.grid()
    check.grid("auto-parallel-config.programs", of_programs, programs.run(here.name), add_row, ...)

There is one rank: of several ranks a CPU has no program, see data/refusals.yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle import nn

from xpulab.chapters.shared.cases_on_ranks import on_ranks
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid

ROWS, BATCH, IN, WIDTH, OUT, RATE, MERGED = 8, 4, 3, 5, 2, 0.1, 2
MADE = ("to_static", "DistModel")
STRATEGIES: dict[str, Any] = {
    "none": None,
    "mean of two": {"gradient_merge": {"enable": True, "k_steps": MERGED, "avg": True}},
    "sum of two": {"gradient_merge": {"enable": True, "k_steps": MERGED, "avg": False}},
}
"""By label the strategy: the gradients of so many parts of a batch are averaged or added."""


class Model(nn.Layer):
    """Two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(IN, WIDTH), nn.Linear(WIDTH, OUT)

    def forward(self, x: Any) -> Any:
        return self.down(F.tanh(self.up(x)))


class _Rows(paddle.io.Dataset):
    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index], self.y[index]


def squared(found: Any, wanted: Any) -> Any:
    """The mean squared error times 3."""
    return 3 * ((found - wanted) ** 2).mean()


LOSSES: dict[str, Callable[..., Any]] = {"a layer": nn.MSELoss(), "a function": squared}
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "SGD": lambda parameters: paddle.optimizer.SGD(RATE, parameters=parameters),
    "AdamW": lambda parameters: paddle.optimizer.AdamW(RATE, parameters=parameters, epsilon=1e-3),
}


def grid() -> Grid:
    """The grid."""
    return Grid(
        {
            "made": MADE,
            "loss": LOSSES,
            "optimizer": OPTIMIZERS,
            "strategy": STRATEGIES,
            "loader": ("sharded", "plain"),
            "inputs": ("of the loader", "given"),
            "state": ("all", "param"),
            "fused": {"split": True, "as it is": False},
            "evaluation": ("after it", "none"),
        }
    )


def run(device: str) -> Callable[[Sequence[Case]], list[Any]]:
    """What check.grid takes as `run`: losses, weights and the programs' modes, beside those without a program."""

    def compared(case: Case, of_ranks: list[Any]) -> Compared:
        right = _alone(case)
        return Compared(of_ranks[0], right, {name: 2e-6 * (1 + np.abs(value)) for name, value in right.items()})

    return on_ranks(_held, 1, device, compared, lambda _: range(1))


def _new(case: Case) -> tuple[Any, Any, Any]:
    """The model, inputs and what they must give."""
    rng, model = case.rng(), Model()
    for weight in model.parameters():
        weight.set_value(rng.standard_normal(weight.shape).astype("float32"))
    return model, rng.standard_normal([ROWS, IN]).astype("float32"), rng.standard_normal([ROWS, OUT]).astype("float32")


def _alone(case: Case) -> dict[str, Any]:
    model, x, y = _new(case)
    optimizer = case.optimizer(model.parameters())
    batches = [(paddle.to_tensor(x[row:][:BATCH]), paddle.to_tensor(y[row:][:BATCH])) for row in range(0, ROWS, BATCH)]
    losses = []
    for read, wanted in batches:
        loss = case.loss(model(read), wanted)
        (loss * (MERGED if case.labels["strategy"] == "sum of two" else 1)).backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    held = {name: weight.numpy() for name, weight in model.named_parameters()}
    held |= {"losses": np.array(losses), "modes": np.ones(4)}
    if case.evaluation != "none":
        held["evaluated"] = np.array([float(case.loss(model(read), wanted)) for read, wanted in batches])
    return held


def _held(case: Case) -> dict[str, Any]:
    paddle.disable_static()  # an error in a program leaves it on
    model, x, y = _new(case)
    mesh = dist.ProcessMesh([0], dim_names=["x"])
    dist.auto_parallel.set_mesh(mesh)
    model = dist.shard_layer(model, mesh)
    optimizer = dist.shard_optimizer(case.optimizer(model.parameters()))
    loader: Any = paddle.io.DataLoader(_Rows(x, y), batch_size=BATCH)
    batches = list(loader)
    given: dict[str, Any] = {"loss": case.loss, "optimizer": optimizer}
    if case.strategy:
        given["strategy"] = dist.Strategy(case.strategy)
    if case.inputs == "given":
        given["input_spec"] = [
            [paddle.static.InputSpec([BATCH, IN], "float32", "read")],
            [paddle.static.InputSpec([BATCH, OUT], "float32", "wanted")],
        ]
    loader = dist.shard_dataloader(loader, [mesh]) if case.loader == "sharded" else loader
    made: Any = (dist.to_static if case.made == "to_static" else dist.DistModel)(model, loader, **given)
    made.train()
    losses = [np.mean(made(*batch)) for batch in batches]
    held = {"losses": np.array(losses)}
    if case.evaluation != "none":
        made.eval()
        held["evaluated"] = np.array([np.mean(made(*batch)) for batch in batches])
    programs = (made.dist_main_program, made.dist_startup_program, made.serial_main_program, made.serial_startup_program)
    modes = [len(program(mode="train").global_block().ops) > 0 for program in programs]
    made.train()
    state = made.state_dict(mode=case.state, split_fusion=case.fused)
    held |= {name: state[name]._local_value().numpy() for name in model.state_dict()}
    return held | {"modes": np.array(modes, "float64")}
