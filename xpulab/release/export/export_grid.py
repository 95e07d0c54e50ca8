"""A small module with options, exported and loaded, beside its formula in double precision.

    run = one_by_one(partial(measure, here.name))
    check.grid("export.programs", programs(types), run, add_row, level=level, seed=seed, means=...)

A case trains the module for a step, exports it, loads the files, and calls what was loaded with several sizes and signs of its
inputs. All results must be those of numpy with the weights of the module.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from math import erf
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.static import InputSpec

from xpulab.chapters.shared import take_home
from xpulab.chapters.shared.precision import BITS, expected_bits_of_products
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid

WIDTH, WORDS, RATE = 4, 12, 0.5
"""Features, rows of the table of an embedding, the learning rate of a step."""

EPSILON = float(np.float32(1e-5))
"""Of the norms: an attribute of their operators, which is a float32 for all types."""

SHAPES = ((3, 2), (3, 2), (1, 1), (5, 4))
"""Rows and tokens of the calls; the first ones are those of the export, and where a size is fixed, of all calls."""

LOADERS = ("jit.load", "predictor", "saved again")
"""How files are loaded. Of the calls of a predictor, the first half is its own, the others are those of its clone."""

Values = Mapping[str, np.ndarray]
"""Parameters and buffers by name, in double precision."""

RESULTS: dict[str, Callable[..., Any]] = {
    "one": lambda x, hidden, result, weight: result,
    "two alike": lambda x, hidden, result, weight: (result, hidden),
    "nested": lambda x, hidden, result, weight: {"z": result, "a": [hidden, (result + hidden,)]},
    "the same twice": lambda x, hidden, result, weight: (result, hidden, result),
    "argument and weight": lambda x, hidden, result, weight: (x, result, weight),
}
"""By name what the module returns, for tensors and for arrays."""


def _condition(layer: Any, mark: Any, hidden: Any) -> Any:
    if mark > 0:  # noqa: SIM108 - the program must contain a condition
        hidden = hidden * 0.5
    else:
        hidden = hidden - 1.0
    return hidden


def _loop(layer: Any, mark: Any, hidden: Any) -> Any:
    turn, turns = paddle.zeros([], "int64"), (mark > 0).astype("int64") + 1
    while turn < turns:
        hidden = F.tanh(layer(hidden))
        turn = turn + 1
    return hidden


def _turns(apply: Callable[[np.ndarray], np.ndarray], mark: float, hidden: np.ndarray) -> np.ndarray:
    for _ in range(2 if mark > 0 else 1):
        hidden = np.tanh(apply(hidden))
    return hidden


CONTROLS: dict[str, tuple[Callable[..., Any], Callable[..., np.ndarray]]] = {
    "none": (lambda layer, mark, hidden: hidden, lambda apply, mark, hidden: hidden),
    "condition": (_condition, lambda apply, mark, hidden: hidden * 0.5 if mark > 0 else hidden - 1.0),
    "loop": (_loop, _turns),
}
"""By name what depends on the sign of a number, as Paddle's code and as numpy's."""


class Module(nn.Layer):
    """[rows, tokens, WIDTH], or ids [rows, tokens], to results of [rows, tokens, WIDTH]."""

    def __init__(self, case: Case, rng: np.random.Generator) -> None:
        super().__init__()
        self.case = case
        if case.inputs == "ids":
            self.table = nn.Embedding(WORDS, WIDTH)
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        if case.weights != "tied":
            self.head = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.5)
        if case.norm == "batch":
            self.norm: Any = nn.BatchNorm1D(WIDTH)
        if case.norm == "layer":
            self.norm = nn.LayerNorm(WIDTH)
        if case.buffer != "none":
            self.register_buffer("factors", paddle.ones([WIDTH]), persistable=case.buffer == "persistable")
        for name, value in [*self.named_parameters(), *self.named_buffers()]:
            if "norm._" not in name:
                value.set_value(rng.uniform(-1, 1, value.shape).astype("float32"))
        if case.dtype != "float32":
            self.to(dtype=case.dtype)
        self.first.weight.stop_gradient = case.weights == "frozen"

    def forward(self, x: Any, other: Any = None, mask: Any = None, factor: float = 0.5) -> Any:
        """What RESULTS says; factor stays what it is by default."""
        mark = (x.astype("float32") - (WORDS - 1) / 2).sum() if self.case.inputs == "ids" else x.astype("float32").sum()
        hidden = self.table(x) if self.case.inputs == "ids" else x
        if self.case.inputs == "two and a mask":
            hidden = paddle.where(mask, hidden - factor * other, hidden)
        hidden = F.gelu(self.first(hidden))
        if self.case.buffer != "none":
            hidden = hidden * self.factors
        if self.case.norm == "layer":
            hidden = self.norm(hidden)
        if self.case.norm == "batch":
            hidden = self.norm(hidden.transpose([0, 2, 1])).transpose([0, 2, 1])
        hidden = self.case.control[0](self.second, mark, self.dropout(hidden))
        last = F.tanh(self.second(hidden))
        result = paddle.matmul(last, self.first.weight, transpose_y=True) if self.case.weights == "tied" else self.head(last)
        return self.case.results(x, hidden, result, self.first.weight)

    def values(self) -> Values:
        """All parameters and buffers."""
        named = [*self.named_parameters(), *self.named_buffers()]
        return {name: value.astype("float64").numpy() for name, value in named}


def formula(case: Case, values: Values, given: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What the module returns in evaluation, flat. given: x and, where there are, the other input and the mask."""

    def linear(name: str, hidden: np.ndarray) -> np.ndarray:
        return hidden @ values[f"{name}.weight"] + values[f"{name}.bias"]

    x = given[0]
    is_ids = case.inputs == "ids"
    mark = (x - (WORDS - 1) / 2).sum() if is_ids else x.sum()
    hidden = values["table.weight"][x] if is_ids else x
    if case.inputs == "two and a mask":
        hidden = np.where(given[2], hidden - 0.5 * given[1], hidden)
    hidden = linear("first", hidden)
    hidden = hidden * 0.5 * (1 + np.vectorize(erf)(hidden / np.sqrt(2)))
    if case.buffer != "none":
        hidden = hidden * values["factors"]
    if case.norm == "batch":
        hidden = (hidden - values["norm._mean"]) / np.sqrt(values["norm._variance"] + EPSILON)
    if case.norm == "layer":
        centred = hidden - hidden.mean(-1, keepdims=True)
        hidden = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
    if case.norm != "none":
        hidden = hidden * values["norm.weight"] + values["norm.bias"]
    hidden = case.control[1](lambda each: linear("second", each), mark, hidden)
    last = np.tanh(linear("second", hidden))
    result = last @ values["first.weight"].T if case.weights == "tied" else linear("head", last)
    return list(paddle.utils.flatten(case.results(x, hidden, result, values["first.weight"])))


def programs(types: Sequence[str]) -> Grid:
    """The grid. types: the floating types in which the device computes."""
    return Grid(
        {
            "loader": LOADERS,
            "results": RESULTS,
            "inputs": ("floats", "ids", "two and a mask"),
            "dtype": types,
            "sizes": {"fixed": SHAPES[0], "rows vary": (None, SHAPES[0][1]), "both vary": (None, None)},
            "mode": ("eval", "train"),
            "norm": ("none", "layer", "batch"),
            "control": CONTROLS,
            "buffer": ("none", "persistable", "not persistable"),
            "weights": ("own", "tied", "frozen"),
        },
        {
            "batch norm has float32 weights": lambda norm, dtype: norm == "batch" and dtype in ("float16", "bfloat16"),
        },
        uninformative={"results": ["the same twice"]},
    )


def measure(device: str, case: Case) -> Compared:
    """Train, export, load and call a module on a device. The control is the module before its last step."""
    rng = case.rng()
    module = Module(case, rng)
    calls = [_inputs(case, rng, number) for number in range(len(SHAPES))]
    with tempfile.TemporaryDirectory(prefix="xpulab-") as folder:
        path = Path(folder) / "program"
        before = module.values()
        _train(module, calls[0])
        values = module.values()
        _export(module, path)
        loaded = _loaded(case, path, device)
        found = _named([loaded(call) for call in calls])
    exact = [[_exact(each) for each in call] for call in calls]
    right, stale = (_named([formula(case, given, call) for call in exact]) for given in (values, before))
    bits = min(BITS[case.dtype], expected_bits_of_products(device).get(case.dtype, BITS["float64"]))
    bound = {name: 2.0 ** (5 - bits) * max(1.0, float(np.abs(want).max())) for name, want in right.items()}
    return Compared(found, right, bound, stale)


def _named(calls: Sequence[Sequence[np.ndarray]]) -> dict[str, np.ndarray]:
    """All results of all calls by name."""
    return {f"call {number}, result {place}": result for number, call in enumerate(calls) for place, result in enumerate(call)}


def _inputs(case: Case, rng: np.random.Generator, number: int) -> list[Any]:
    """The tensors of a call; of even calls the numbers are positive, or the ids large."""
    shape = [size or tried for size, tried in zip(case.sizes, SHAPES[number], strict=True)]
    sign = 1 if number % 2 == 0 else -1
    if case.inputs == "ids":
        return [paddle.to_tensor(rng.integers(WORDS // 2, WORDS, shape) - (0 if sign > 0 else WORDS // 2))]
    given = [paddle.to_tensor(sign * rng.uniform(0.2, 1.0, [*shape, WIDTH])).astype(case.dtype)]
    if case.inputs == "two and a mask":
        given.append(paddle.to_tensor(rng.uniform(-1.0, 1.0, [*shape, WIDTH])).astype(case.dtype))
        given.append(paddle.to_tensor(rng.uniform(size=[*shape, 1]) > 0.5))
    return given


def _train(module: Module, given: Sequence[Any]) -> None:
    """One step of gradient descent in training mode; afterwards the module is in the mode of its export."""
    module.train()
    loss: Any = sum(
        (each.astype("float32") ** 2).mean() for each in paddle.utils.flatten(module(*given)) if not each.stop_gradient
    )
    loss.backward()
    optimizer = paddle.optimizer.SGD(RATE, parameters=module.parameters())
    optimizer.step()
    optimizer.clear_grad(set_to_zero=False)
    if module.case.mode == "eval":
        module.eval()


def _export(module: Module, path: Path) -> None:
    """Write the program; afterwards the module computes operator by operator again."""
    translated: Any = paddle.jit.to_static(module, full_graph=True)
    paddle.jit.save(translated, str(path), input_spec=_specs(module.case))
    translated.forward.rollback()


def _specs(case: Case) -> list[InputSpec]:
    """What the program takes. The names of several arguments are not in alphabetical order."""
    sizes = list(case.sizes)
    if case.inputs == "ids":
        return [InputSpec(sizes, "int64", name="x")]
    floats = [InputSpec([*sizes, WIDTH], case.dtype, name=name) for name in ("x", "other")]
    return floats[:1] if case.inputs == "floats" else [*floats, InputSpec([*sizes, 1], "bool", name="mask")]


def _arrays(results: Any) -> list[np.ndarray]:
    """Tensors in any structure, flat and in double precision."""
    return [np.asarray(each.astype("float64").numpy()) for each in paddle.utils.flatten(results)]


def _exact(given: Any) -> np.ndarray:
    """The values of an argument; of numbers in double precision."""
    values: np.ndarray = given.numpy() if given.dtype in (paddle.int64, paddle.bool) else given.astype("float64").numpy()
    return values


def _loaded(case: Case, path: Path, device: str) -> Callable[[list[Any]], list[np.ndarray]]:
    """A function from the tensors of a call to its results."""
    if case.loader == "predictor":
        predictor = take_home.load_script("export").new_predictor(path, device)
        both = [predictor, predictor, predictor.clone(), predictor.clone()]
        return lambda call: _arrays(both.pop(0).run(call))
    program: Any = paddle.jit.load(str(path))
    if case.loader == "saved again":
        again = f"{path}-again"
        paddle.jit.save(program, again, input_spec=_specs(case))
        program = paddle.jit.load(again)
    return lambda call: _arrays(program(*call))
