"""AdamW in numpy, in double precision."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from xpulab.reference.model import Gradients, Weights


@dataclass
class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2), after clipping by the global norm.

    beta1, beta2: the decay rates of the first and second moment.
    epsilon: added to the root of the second moment.
    weight_decay: the fraction of a weight that one step at learning rate 1 removes.
    max_norm: the bound on the norm of all gradients together.
    decayed: the names of the weights that weight decay applies to.
    second_moments: by name the running mean of the squared gradients, from 0.
    """

    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    max_norm: float
    decayed: frozenset[str]
    _steps: int = 0
    _first_moments: Gradients = field(default_factory=dict)
    second_moments: Gradients = field(default_factory=dict)

    def step(self, weights: Weights, gradients: Weights, rate: float) -> dict[str, np.ndarray]:
        """New weights after one step at learning rate `rate`; `weights` stays unchanged.

        A weight without a gradient is returned as it is, without decay, as Paddle's AdamW does: for instance the second name
        that a state dict has for tied embeddings.
        """
        self._steps += 1
        norm = np.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))
        scale = min(1.0, self.max_norm / norm)
        return {
            name: self._updated(name, weight, gradients[name] * scale, rate) if name in gradients else weight
            for name, weight in weights.items()
        }

    def _updated(self, name: str, weight: np.ndarray, gradient: np.ndarray, rate: float) -> np.ndarray:
        first = self.beta1 * self._first_moments.get(name, 0.0) + (1 - self.beta1) * gradient
        second = self.beta2 * self.second_moments.get(name, 0.0) + (1 - self.beta2) * gradient**2
        self._first_moments[name], self.second_moments[name] = first, second
        mean = first / (1 - self.beta1**self._steps)
        root_mean_square = np.sqrt(second / (1 - self.beta2**self._steps))
        decay = self.weight_decay if name in self.decayed else 0.0
        return weight * (1 - rate * decay) - rate * mean / (root_mean_square + self.epsilon)
