"""The gradients of the numpy decoder are finite differences of its losses; chapters compare its values with Paddle's."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from xpulab import reference

IGNORED = -100


@dataclass(frozen=True)
class Config:
    """The fields of a model's configuration that the reference reads."""

    model_type: str = "qwen2"
    vocab_size: int = 11
    hidden_size: int = 8
    intermediate_size: int = 6
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    rms_norm_eps: float = 1e-6
    rope_theta: float = 100.0
    tie_word_embeddings: bool = False


CONFIGS = {
    "qwen2, biases and grouped queries": Config(),
    "qwen2, tied embeddings": Config(tie_word_embeddings=True),
    "llama, one key for each query": Config(model_type="llama", num_key_value_heads=4),
    "llama, one key for all queries": Config(model_type="llama", num_key_value_heads=1, tie_word_embeddings=True),
}


def random_weights(config):
    rng = np.random.default_rng(0)
    width, inner = config.hidden_size, config.intermediate_size
    narrow = width // config.num_attention_heads * config.num_key_value_heads
    shapes = {"embed_tokens.weight": (config.vocab_size, width), "norm.weight": (width,)}
    for layer in range(config.num_hidden_layers):
        for name, shape in {
            "input_layernorm": (width,),
            "post_attention_layernorm": (width,),
            "self_attn.q_proj": (width, width),
            "self_attn.k_proj": (width, narrow),
            "self_attn.v_proj": (width, narrow),
            "self_attn.o_proj": (width, width),
            "mlp.gate_proj": (width, inner),
            "mlp.up_proj": (width, inner),
            "mlp.down_proj": (inner, width),
        }.items():
            shapes[f"layers.{layer}.{name}.weight"] = shape
            if config.model_type == "qwen2" and name.endswith(("q_proj", "k_proj", "v_proj")):
                shapes[f"layers.{layer}.{name}.bias"] = shape[1:]
    weights = {f"{config.model_type}.{name}": 0.5 * rng.standard_normal(shape) for name, shape in shapes.items()}
    if not config.tie_word_embeddings:
        weights["lm_head.weight"] = 0.5 * rng.standard_normal((width, config.vocab_size))
    return weights


def a_batch():
    """Two sequences of five tokens; the second has two tokens of padding on the left. Some labels are ignored."""
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 11, (2, 5))
    labels = rng.integers(0, 11, (2, 5))
    mask = np.array([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
    labels[0, :2] = labels[1, :3] = IGNORED
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


@pytest.fixture(params=CONFIGS.values(), ids=CONFIGS.keys())
def config(request):
    return request.param


def test_an_unknown_model_type_is_refused():
    config = replace(Config(), model_type="gpt2")
    with pytest.raises(ValueError, match="'gpt2' is not one of qwen2, llama"):
        reference.logits({}, config, a_batch())


# ------------------------------------------------------------------------------------------------ losses and gradients


def log_probability_sums(weights, config, batch):
    """The sum of ln softmax at the labels that count, for each row, from the logits alone."""
    scores = reference.logits(weights, config, batch)
    sums = np.zeros(len(scores))
    for (row, column), label in np.ndenumerate(batch["labels"]):
        if label != IGNORED:
            sums[row] += scores[row, column, label] - np.log(np.exp(scores[row, column]).sum())
    return sums


def mean_loss(weights, config, batch):
    """The mean of -ln softmax over the labels that count."""
    return -log_probability_sums(weights, config, batch).sum() / (batch["labels"] != IGNORED).sum()


def assert_finite_differences(function, weights, gradients):
    """In a random direction for each weight, the change of `function` is what the gradient predicts."""
    assert gradients.keys() == weights.keys()
    rng, step = np.random.default_rng(2), 1e-5
    for name, weight in weights.items():
        direction = rng.standard_normal(weight.shape)
        plus, minus = (function({**weights, name: weight + sign * step * direction}) for sign in (1, -1))
        predicted = (gradients[name] * direction).sum()
        assert (plus - minus) / (2 * step) == pytest.approx(predicted, rel=1e-5, abs=1e-8), name


def test_the_gradient_of_the_loss_is_its_finite_difference(config):
    weights, batch = random_weights(config), a_batch()
    _, gradients = reference.loss_and_gradients(weights, config, batch, IGNORED)
    assert_finite_differences(lambda changed: mean_loss(changed, config, batch), weights, gradients)


def test_gradients_of_log_probabilities_weight_the_rows_and_may_be_asked_for_twice(config):
    weights, batch = random_weights(config), a_batch()
    _, gradients_of = reference.log_probabilities(weights, config, batch, IGNORED)
    for factors in (np.array([2.0, -3.0]), np.array([0.0, 1.0])):

        def weighted_sum(changed, factors=factors):
            return factors @ log_probability_sums(changed, config, batch)

        assert_finite_differences(weighted_sum, weights, gradients_of(factors))
