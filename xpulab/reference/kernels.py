"""Formulas of the operators that large language models spend their time in, forward and backward, in double precision.

All arrays are float64. `g` is the gradient of the result. Source: the definitions of the operators; the gradients follow from
the chain rule and are compared with finite differences in tests/reference/test_kernels.py.
"""

from __future__ import annotations

import numpy as np


def linear(x: np.ndarray, weight: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x [rows, in] @ weight [in, out], and its gradients with respect to x and weight. g: [rows, out]."""
    return x @ weight, g @ weight.T, x.T @ g


def attention(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, allowed: np.ndarray, g: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """softmax(query key^T / sqrt(size)) value, and its gradients with respect to query, key and value.

    query, g: [batch, queries, heads, size]. key, value: [batch, keys, key heads, size], where neighbouring heads share a key
    head, each the same number. allowed: [queries, keys], which keys a query sees.
    """
    share, scale = query.shape[2] // key.shape[2], query.shape[3] ** -0.5
    keys, values = (np.repeat(each, share, axis=2) for each in (key, value))
    scores = np.where(allowed, np.einsum("bqhd,bkhd->bhqk", query, keys) * scale, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    result = np.einsum("bhqk,bkhd->bqhd", weights, values)
    of_weights = np.einsum("bqhd,bkhd->bhqk", g, values)
    of_scores = weights * (of_weights - (of_weights * weights).sum(axis=-1, keepdims=True)) * scale

    def of_key_heads(of_heads: np.ndarray) -> np.ndarray:
        return of_heads.reshape(*key.shape[:3], share, key.shape[3]).sum(axis=3)

    of_query = np.einsum("bhqk,bkhd->bqhd", of_scores, keys)
    of_key = of_key_heads(np.einsum("bhqk,bqhd->bkhd", of_scores, query))
    return result, of_query, of_key, of_key_heads(np.einsum("bhqk,bqhd->bkhd", weights, g))


def rms_norm(x: np.ndarray, weight: np.ndarray, epsilon: float, g: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x / sqrt(mean(x^2) + epsilon) * weight over the last axis, and its gradients with respect to x and weight [last axis]."""
    scale = 1 / np.sqrt((x**2).mean(axis=-1, keepdims=True) + epsilon)
    normal = x * scale
    of_normal = g * weight
    of_x = scale * (of_normal - normal * (of_normal * normal).mean(axis=-1, keepdims=True))
    return normal * weight, of_x, (g * normal).reshape(-1, x.shape[-1]).sum(axis=0)


def layer_norm(x: np.ndarray, weight: np.ndarray, epsilon: float, g: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x - mean) / sqrt(variance + epsilon) * weight over the last axis, and its gradients with respect to x and weight."""
    spread = np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)
    normal = (x - x.mean(axis=-1, keepdims=True)) / spread
    of_normal = g * weight
    mean, along = (each.mean(axis=-1, keepdims=True) for each in (of_normal, of_normal * normal))
    return normal * weight, (of_normal - mean - normal * along) / spread, (g * normal).reshape(-1, x.shape[-1]).sum(axis=0)


def swiglu(gate: np.ndarray, up: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """gate * sigmoid(gate) * up, and its gradients with respect to gate and up."""
    chance = 1 / (1 + np.exp(-gate))
    return gate * chance * up, g * up * chance * (1 + gate * (1 - chance)), g * gate * chance


def rotated(heads: np.ndarray, cosine: np.ndarray, sine: np.ndarray) -> np.ndarray:
    """Rotary positions: element i of the first half of a head turns with element i of the second half.

    heads: [batch, positions, heads, size]. cosine, sine: [positions, size], whose halves are equal. The gradient is the
    rotation by the opposite angle: rotated(g, cosine, -sine).
    """
    first, second = np.split(heads, 2, axis=-1)
    turned = np.concatenate([-second, first], axis=-1)
    return heads * cosine[:, None, :] + turned * sine[:, None, :]
