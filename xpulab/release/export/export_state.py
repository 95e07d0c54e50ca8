"""A program that trains, and the state that it holds: parameters and optimizer state by name, read, set, saved and loaded.

Source: paddle.static.Program.state_dict and set_state_dict, paddle.static.save and load, of Paddle 3.3.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle

FEATURES, OUTPUTS = 8, 4
RATE = 0.1
STEPS = 3
HALF = 0.5
UNKNOWN = "no_such_name"


@dataclass(frozen=True)
class Trainable:
    """A linear layer with Adam as a program, and its executor; both are valid inside static_mode only.

    program: takes "x", float32 [rows, 8]. inputs, result: values of the program; result is [rows, 4]. executor: runs it.
    """

    program: Any
    inputs: Any
    result: Any
    executor: Any

    def run(self, x: np.ndarray) -> np.ndarray:
        """One step of training; the result before it."""
        return self.executor.run(self.program, feed={"x": x}, fetch_list=[self.result])[0]

    def state(self, mode: str = "all") -> dict[str, np.ndarray]:
        """Copies of the state by name; mode: "all", "param" for the parameters, "opt" for the state of the optimizer."""
        return {name: np.array(value) for name, value in self.program.state_dict(mode).items()}

    def set(self, state: Mapping[str, np.ndarray]) -> None:
        """Set these parts of the state. Paddle takes its own tensors, and the scope, not arrays as its documentation says."""
        tensors = {name: self._tensor(value) for name, value in state.items()}
        self.program.set_state_dict(tensors, paddle.static.global_scope())

    def refuses(self, state: Mapping[str, np.ndarray]) -> bool:
        """Whether set raises an error for this state. When it does not, the program is damaged."""
        try:
            self.set(state)
        except (RuntimeError, ValueError):
            return True
        return False

    def save(self, path: Path) -> None:
        """Write <path>.pdparams, <path>.pdopt and the program."""
        paddle.static.save(self.program, str(path))

    def load(self, path: Path) -> None:
        """Read what save wrote."""
        paddle.static.load(self.program, str(path), self.executor)

    def export(self, path: Path) -> None:
        """Write the program without training for paddle.inference and paddle.jit.load."""
        paddle.static.save_inference_model(str(path), [self.inputs], [self.result], self.executor, program=self.program)

    def _tensor(self, value: np.ndarray) -> Any:
        core: Any = paddle.base.core
        tensor = core.DenseTensor()
        tensor.set(value, core.CPUPlace())
        return tensor


@dataclass(frozen=True)
class Observed:
    """What a program that trains gives and holds, by name where it is a state.

    first, moved: the parameters before and after three steps. optimizer: its state after them. result: with `moved`.
    taken: the parameters after they were set to 0.5, and result_of_taken the result with them.
    saved, reloaded: all of the state when it was saved, and after it was loaded. served: the path of the export.
    refused: for a state of an unknown name, and for each parameter in another shape, whether it was refused.
    """

    first: dict[str, np.ndarray]
    moved: dict[str, np.ndarray]
    optimizer: dict[str, np.ndarray]
    result: np.ndarray
    taken: dict[str, np.ndarray]
    result_of_taken: np.ndarray
    saved: dict[str, np.ndarray]
    reloaded: dict[str, np.ndarray]
    served: Path
    refused: dict[str, bool]


def observe(x: np.ndarray, path: Path) -> Observed:
    """Train, set, save, load and export a program. x: [rows, 8]. path: where its files go."""
    with static_mode():
        trained = trainable()
        first = trained.state("param")
        for _ in range(STEPS):
            trained.run(x)
        moved, optimizer = trained.state("param"), trained.state("opt")
        result = trained.run(x)
        trained.set({name: np.full_like(value, HALF) for name, value in moved.items()})
        taken = trained.state("param")
        result_of_taken, saved = trained.run(x), trained.state()
        trained.save(path)
        trained.set({name: np.zeros_like(value) for name, value in moved.items()})
        trained.load(path)
        reloaded, served = trained.state(), path.with_name("served")
        trained.export(served)
        refused = {name: trained.refuses({name: np.ones([3, 3], "float32")}) for name in (UNKNOWN, *moved)}
    return Observed(first, moved, optimizer, result, taken, result_of_taken, saved, reloaded, served, refused)


def execute(path: Path, x: np.ndarray) -> np.ndarray:
    """The first result of an exported program in an executor of static mode. path: without an ending. x: the only input."""
    with static_mode():
        executor = paddle.static.Executor()
        program, inputs, results = paddle.static.load_inference_model(str(path), executor)
        return executor.run(program, feed={inputs[0]: x}, fetch_list=results)[0]


def eager_steps(state: Mapping[str, np.ndarray], x: np.ndarray) -> dict[str, np.ndarray]:
    """The parameters after STEPS steps of the same training in eager mode, by the same names.

    state: the parameters before, a matrix and a vector.
    """
    weight, bias = sorted(state, key=lambda name: -state[name].ndim)
    layer = paddle.nn.Linear(FEATURES, OUTPUTS)
    layer.weight.set_value(state[weight])
    layer.bias.set_value(state[bias])
    adam = paddle.optimizer.Adam(RATE, parameters=layer.parameters())
    for _ in range(STEPS):
        result = layer(paddle.to_tensor(x))
        (result * result).mean().backward()
        adam.step()
        adam.clear_grad()
    return {weight: layer.weight.numpy(), bias: layer.bias.numpy()}


@contextmanager
def static_mode() -> Iterator[None]:
    """Inside the block layers make programs; afterwards tensors are computed at once, on the same device as before."""
    device = paddle.get_device()
    paddle.enable_static()
    try:
        paddle.set_device(device)
        with paddle.static.scope_guard(paddle.static.Scope()), paddle.utils.unique_name.guard():
            yield
    finally:
        paddle.disable_static()
        paddle.set_device(device)


def trainable() -> Trainable:
    """A new one with random parameters."""
    program, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(program, startup):
        inputs = paddle.static.data("x", [None, FEATURES], "float32")
        result = paddle.nn.Linear(FEATURES, OUTPUTS)(inputs)
        paddle.optimizer.Adam(RATE).minimize((result * result).mean())
    executor = paddle.static.Executor()
    executor.run(startup)
    return Trainable(program, inputs, result, executor)
