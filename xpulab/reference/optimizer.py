"""Optimizers in numpy, in double precision: the formulas of Paddle's, and AdamW on all weights of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xpulab.reference.model import Gradients, Weights

State = dict[str, Any]
"""What an optimizer keeps of a weight, by Paddle's names; a formula begins with an empty one and changes it."""

Update = Callable[..., np.ndarray]
"""From State, weight, gradient, learning rate and Paddle's options by name to the new weight."""


def _mean(state: State, name: str, value: np.ndarray, share: float) -> Any:
    """A running mean, from 0, that keeps this share of itself."""
    state[name] = share * state.get(name, 0.0) + (1 - share) * value
    return state[name]


def _power(state: State, name: str, base: float, like: np.ndarray | None = None) -> float:
    """base**t in step t. Paddle keeps it for each element of a weight (like), or, one power ahead, as one number."""
    before = state.get(name, np.array([base]) if like is None else np.ones_like(like))
    state[name] = before * base
    return float(np.ravel(before if like is None else state[name])[0])


def sgd(state: State, weight: np.ndarray, gradient: np.ndarray, rate: float) -> np.ndarray:
    return weight - rate * gradient


def momentum(state: State, weight: np.ndarray, gradient: np.ndarray, rate: float, **of: Any) -> np.ndarray:
    velocity = state["velocity"] = of["momentum"] * state.get("velocity", 0.0) + gradient
    return weight - rate * (gradient + of["momentum"] * velocity if of.get("use_nesterov") else velocity)


def adam(state: State, weight: np.ndarray, gradient: np.ndarray, rate: float, **of: Any) -> np.ndarray:
    """weight_decay: decoupled, as AdamW's (Loshchilov and Hutter 2019, algorithm 2)."""
    mean, square = _mean(state, "moment1", gradient, of["beta1"]), _mean(state, "moment2", gradient**2, of["beta2"])
    powers = [_power(state, f"{beta}_pow_acc", of[beta]) for beta in ("beta1", "beta2")]
    if of.get("amsgrad"):
        square = state["moment2_max"] = np.maximum(state.get("moment2_max", 0.0), square)
    way = mean / (1 - powers[0]) / (np.sqrt(square / (1 - powers[1])) + of["epsilon"])
    return np.asarray(weight * (1 - rate * of.get("weight_decay", 0.0)) - rate * way)


def adamax(state: State, weight: np.ndarray, gradient: np.ndarray, rate: float, **of: Any) -> np.ndarray:
    mean, power = _mean(state, "moment", gradient, of["beta1"]), _power(state, "beta1_pow_acc", of["beta1"])
    norm = state["inf_norm"] = np.maximum(np.abs(gradient), of["beta2"] * state.get("inf_norm", 0.0) + of["epsilon"])
    return np.asarray(weight - rate * mean / (1 - power) / norm)


def adagrad(state: State, weight: np.ndarray, gradient: np.ndarray, rate: float, **of: Any) -> np.ndarray:
    total = state["moment"] = state.get("moment", of.get("initial_accumulator_value", 0.0)) + gradient**2
    return np.asarray(weight - rate * gradient / (np.sqrt(total) + of["epsilon"]))


def rmsprop(state: State, weight: np.ndarray, gradient: np.ndarray, rate: float, **of: Any) -> np.ndarray:
    square = _mean(state, "mean_square", gradient**2, of["rho"])
    mean = _mean(state, "mean_grad", gradient * bool(of.get("centered")), of["rho"])
    way = rate * gradient / np.sqrt(square - mean**2 + of["epsilon"])
    state["momentum"] = of.get("momentum", 0.0) * state.get("momentum", 0.0) + way
    return np.asarray(weight - state["momentum"])


def adadelta(state: State, weight: np.ndarray, gradient: np.ndarray, rate: float, **of: Any) -> np.ndarray:
    square = _mean(state, "_avg_squared_grad", gradient**2, of["rho"])
    way = gradient * np.sqrt((state.get("_avg_squared_update", 0.0) + of["epsilon"]) / (square + of["epsilon"]))
    _mean(state, "_avg_squared_update", way**2, of["rho"])
    return np.asarray(weight - rate * way)


def lamb(state: State, weight: np.ndarray, gradient: np.ndarray, rate: float, **of: Any) -> np.ndarray:
    decay = of.get("lamb_weight_decay", 0.01)
    way = adam(state, np.zeros_like(weight), gradient, -1.0, **{**of, "weight_decay": 0.0}) + decay * weight
    norms = [np.linalg.norm(np.ravel(each)) for each in (weight, way)]
    ratio = norms[0] / norms[1] if all(norms) and (decay or of.get("always_adapt")) else 1.0
    return weight - rate * ratio * way


def nadam(state: State, weight: np.ndarray, gradient: np.ndarray, rate: float, **of: Any) -> np.ndarray:
    power = _power(state, "momentum_decay_pow", 0.96, weight)
    now, then = (of["beta1"] * (1 - 0.5 * each ** of["momentum_decay"]) for each in (power, 0.96 * power))
    product = _power(state, "mu_product", now, weight)
    mean, square = _mean(state, "moment1", gradient, of["beta1"]), _mean(state, "moment2", gradient**2, of["beta2"])
    way = then * mean / (1 - product * then) + (1 - now) * gradient / (1 - product)
    root = np.sqrt(square / (1 - _power(state, "beta2_pow", of["beta2"], weight)))
    return np.asarray(weight - rate * way / (root + of["epsilon"]))


def radam(state: State, weight: np.ndarray, gradient: np.ndarray, rate: float, **of: Any) -> np.ndarray:
    mean, square = _mean(state, "moment1", gradient, of["beta1"]), _mean(state, "moment2", gradient**2, of["beta2"])
    power1, power2 = (_power(state, f"{beta}_pow", of[beta], weight) for beta in ("beta1", "beta2"))
    gone = round(np.log(power2) / np.log(of["beta2"])) * power2 / (1 - power2)
    state["rho"] = np.full_like(weight, gone)
    limit, way = 2 / (1 - of["beta2"]) - 1, mean / (1 - power1)
    if (rho := limit - 2 * gone) > 5:
        way = way * np.sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho))
        way = way * np.sqrt(1 - power2) / (np.sqrt(square) + of["epsilon"])
    return np.asarray(weight - rate * way)


def rprop(state: State, weight: np.ndarray, gradient: np.ndarray, rate: float, **of: Any) -> np.ndarray:
    sign = np.sign(gradient * state.get("prevs", 0.0))
    factors = np.where(sign > 0, of["etas"][1], np.where(sign < 0, of["etas"][0], 1.0))
    rates = state["learning_rates"] = np.clip(state.get("learning_rates", rate) * factors, *of["learning_rate_range"])
    state["prevs"] = np.where(sign < 0, 0.0, gradient)
    return np.asarray(weight - np.sign(state["prevs"]) * rates)


def asgd(state: State, weight: np.ndarray, gradient: np.ndarray, rate: float, **of: Any) -> np.ndarray:
    last = state.setdefault("y", np.zeros([of["batch_num"], *weight.shape]))
    count = state["m"] = state.get("m", np.zeros(1, int)) + 1
    place = int(count[0] - 1) % len(last)
    state["d"] = state.get("d", 0.0) - last[place] + gradient
    last[place] = gradient
    return np.asarray(weight - rate * state["d"] / min(count[0], len(last)))


OPTIMIZERS: dict[str, Update] = {
    "SGD": sgd,
    "AdamW": adam,
    "Adam": adam,
    "Momentum": momentum,
    "Adamax": adamax,
    "Adagrad": adagrad,
    "RMSProp": rmsprop,
    "Adadelta": adadelta,
    "Lamb": lamb,
    "NAdam": nadam,
    "RAdam": radam,
    "Rprop": rprop,
    "ASGD": asgd,
}
"""By the name of Paddle's class; the coefficient of a decay that is part of the gradient is in the gradient already."""


@dataclass
class AdamW:
    """AdamW on all weights of a model, after clipping by the global norm.

    beta1, beta2: the decay rates of the first and second moment.
    epsilon: added to the root of the second moment.
    weight_decay: the fraction of a weight that one step at learning rate 1 removes.
    max_norm: the bound on the norm of all gradients together.
    decayed: the names of the weights that weight decay applies to.
    """

    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    max_norm: float
    decayed: frozenset[str]
    _states: dict[str, State] = field(default_factory=dict)

    @property
    def second_moments(self) -> Gradients:
        """By name the running mean of the squared gradients, from 0."""
        return {name: state["moment2"] for name, state in self._states.items()}

    def step(self, weights: Weights, gradients: Weights, rate: float) -> dict[str, np.ndarray]:
        """New weights after one step at learning rate `rate`; `weights` stays unchanged.

        A weight without a gradient is returned as it is, without decay, as Paddle's AdamW does: for instance the second name
        that a state dict has for tied embeddings.
        """
        norm = np.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))
        scale = min(1.0, self.max_norm / norm)
        of = {"beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon}
        new = dict(weights)
        for name in gradients.keys() & weights.keys():
            decay, state = self.weight_decay if name in self.decayed else 0.0, self._states.setdefault(name, {})
            new[name] = adam(state, weights[name], gradients[name] * scale, rate, weight_decay=decay, **of)
        return new
