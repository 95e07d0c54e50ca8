"""Paddle's operators for mixtures of experts: what they compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from xpulab.checks.compare import format_error
from xpulab.checks.table import Table
from xpulab.records.refusals import format_undeclared, refusal


def error_of(call: Callable[[], Any]) -> str:
    """ "none", or the error that the call raises: its type and the first line of its message."""
    try:
        call()
    except Exception as error:
        return format_error(error)
    return "none"


@dataclass(frozen=True)
class Operator:
    """One operator of paddle.distributed.models.moe.utils.

    call: returns the result as an array. expected: the value by its definition. wrong: a near value that is wrong.
    """

    call: Callable[[], np.ndarray]
    expected: np.ndarray
    wrong: np.ndarray


def operators() -> dict[str, Operator]:
    """By name the operators of which paddle.incubate's layer is made, with small inputs."""
    from paddle.distributed.models.moe import utils

    def whole(*numbers: int) -> paddle.Tensor:
        return paddle.to_tensor(list(numbers), dtype="int64")

    gates, chosen, chances = whole(1, 3, 3, 3, 3, 2, 1, 1), [[0, 2], [2, 1], [0, 1]], [[0.5, 0.4], [0.9, 0.01], [0.5, 0.5]]

    def positions() -> np.ndarray:
        """The choices of each expert; their order within an expert is not defined."""
        order = utils._assign_pos(whole(0, 2, 2, 1, 0, 1), whole(2, 4, 6)).numpy()
        return np.sort(order.reshape(3, 2), axis=1)

    def routed() -> np.ndarray:
        """The second expert is dropped where twice its weight is smaller than a given number."""
        values, numbers = paddle.to_tensor(chances), paddle.to_tensor([0.1, 0.1, 0.2])
        return utils._random_routing(paddle.to_tensor(chosen, dtype="int64"), values, numbers).numpy()

    spoiled = [[0, 2], [2, 1], [0, -1]]
    return {
        "number_count": Operator(lambda: utils._number_count(gates, 4).numpy(), np.array([0, 3, 1, 4]), np.array([0, 3, 2, 4])),
        "assign_pos": Operator(positions, np.array([[0, 4], [3, 5], [1, 2]]), np.array([[0, 4], [1, 2], [3, 5]])),
        "limit_by_capacity": Operator(
            lambda: utils._limit_by_capacity(whole(1, 2, 2, 8, 3, 6), whole(5, 5, 5), 2).numpy(),
            np.array([1, 2, 2, 4, 3, 3]),
            np.array([1, 2, 2, 5, 3, 3]),
        ),
        "prune_gate_by_capacity": Operator(
            lambda: np.sort(utils._prune_gate_by_capacity(gates, whole(0, 3, 1, 3), 4, 1).numpy()),
            np.array([-1, 1, 1, 1, 2, 3, 3, 3]),
            np.array([1, 1, 1, 2, 3, 3, 3, 3]),
        ),
        "random_routing": Operator(routed, np.array([[0, 2], [2, -1], [0, 1]]), np.array(spoiled)),
    }


def row_of_operator(rows: Table, name: str, operator: Operator, device: str) -> None:
    """A row: skipped where the device lacks the operator, red for an undeclared error."""
    if lacking := refusal(device, name):
        rows.skip(name, lacking.format_reason())
        return
    try:
        found = operator.call()
    except Exception as error:  # of any kind: the row is red
        rows.equal(name, format_undeclared(format_error(error), device, name), "values", control="another error")
    else:
        rows.equal(name, found, operator.expected, control=operator.wrong)
