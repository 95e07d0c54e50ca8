"""How far results may be from the reference: bounds that follow from the bits of the device and the depth of the model.

A layer rounds its output with a relative error of EPSILON, and the error of each of `layers` layers reaches the logits:

    logits and loss: FACTOR * EPSILON * layers * scale

A gradient is a product of one factor from each layer, and each factor has the error of the activations that it is made of:

    gradients: FACTOR * EPSILON * layers ** 2, as a share of the largest number of each gradient

FACTOR is 16. Measured on SmolLM2-135M (30 layers, logits up to 37.6, on a CPU): logits within 1.0e-4, where the bound is
2.2e-3; loss within 1.7e-5 of 4.5, where it is 2.6e-4; gradients within 5.9e-4, where it is 1.7e-3; gradients of one batch and
of four that are added up within 2.8e-3 of each other, where it is 3.4e-3, because both are rounded. No bound is smaller than
the one that the tiny models have.

Where products keep fewer bits of their factors, as in TF32, FACTOR_OF_PRODUCTS * 2 ** -bits takes the place of
FACTOR * EPSILON. Measured with products in TF32 that were emulated on the CPU, for the tiny models of two layers: see
tests/reference/test_rounding.py. Not run on a card.
"""

from __future__ import annotations

ALL_BITS = 23
"""The bits that a product of single precision keeps of its factors; 2**-23 is EPSILON."""

FACTOR = 16
"""How often the rounding of one layer may add up, over the terms of its sums."""

FACTOR_OF_PRODUCTS = 8
"""The same for the rounding of factors to fewer bits, which has random signs."""

LEAST_OF_LOGITS, LEAST_OF_LOSS, LEAST_OF_GRADIENTS = 1e-3, 1e-5, 1e-4
"""The bounds for the tiny models."""


def rounding_of_a_layer(bits: int = ALL_BITS) -> float:
    """The relative error that the output of one layer may have. bits: those that products keep of their factors."""
    return FACTOR * 2.0**-ALL_BITS if bits >= ALL_BITS else FACTOR_OF_PRODUCTS * 2.0**-bits


def bound_of_logits(layers: int, scale: float, bits: int = ALL_BITS) -> float:
    """The absolute difference that logits may have. layers: of the model. scale: the largest logit. bits: of products."""
    return max(LEAST_OF_LOGITS, rounding_of_a_layer(bits) * layers * scale)


def bound_of_loss(layers: int, scale: float, bits: int = ALL_BITS) -> float:
    """The absolute difference that a loss may have. layers: of the model. scale: the loss. bits: of products."""
    return max(LEAST_OF_LOSS, rounding_of_a_layer(bits) * layers * scale)


def bound_of_gradients(layers: int, rounded: int = 1, bits: int = ALL_BITS) -> float:
    """The difference that a gradient may have, as a share of the largest number that it has.

    layers: of the model. rounded: how many of the two results are in single precision, 1 or 2. bits: of products.
    """
    return max(LEAST_OF_GRADIENTS, rounded * rounding_of_a_layer(bits) * layers**2)
