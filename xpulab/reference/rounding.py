"""How far results in single precision may be from the reference: bounds that follow from the type and the depth of the model.

A layer rounds its output with a relative error of EPSILON, and the error of each of `layers` layers reaches the logits:

    logits and loss: FACTOR * EPSILON * layers * scale

A gradient is a product of one factor from each layer, and each factor has the error of the activations that it is made of:

    gradients: FACTOR * EPSILON * layers ** 2, as a share of the largest number of each gradient

FACTOR is 16. Measured on SmolLM2-135M (30 layers, logits up to 37.6, on a CPU): logits within 1.0e-4, where the bound is
2.2e-3; loss within 1.7e-5 of 4.5, where it is 2.6e-4; gradients within 5.9e-4, where it is 1.7e-3; gradients of one batch and
of four that are added up within 2.8e-3 of each other, where it is 3.4e-3, because both are rounded. No bound is smaller than
the one that the tiny models have.
"""

from __future__ import annotations

EPSILON = 2.0**-23
"""The distance from 1 to the next number in single precision."""

FACTOR = 16
"""How often the rounding of one layer may add up, over the terms of its sums."""

LEAST_OF_LOGITS, LEAST_OF_LOSS, LEAST_OF_GRADIENTS = 1e-3, 1e-5, 1e-4
"""The bounds for the tiny models."""


def bound_of_logits(layers: int, scale: float) -> float:
    """The absolute difference that logits may have. layers: of the model. scale: the largest absolute logit."""
    return max(LEAST_OF_LOGITS, FACTOR * EPSILON * layers * scale)


def bound_of_loss(layers: int, scale: float) -> float:
    """The absolute difference that a loss may have. layers: of the model. scale: the loss."""
    return max(LEAST_OF_LOSS, FACTOR * EPSILON * layers * scale)


def bound_of_gradients(layers: int, rounded: int = 1) -> float:
    """The difference that a gradient may have, as a share of the largest number that it has.

    layers: of the model. rounded: how many of the two results are in single precision, 1 or 2.
    """
    return max(LEAST_OF_GRADIENTS, rounded * FACTOR * EPSILON * layers**2)
