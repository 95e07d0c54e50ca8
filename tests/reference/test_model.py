"""The numpy decoder and its losses agree with loops over positions, closed forms and finite differences."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import pytest

from xpulab import reference
from xpulab.reference.model import rotary

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


# ---------------------------------------------------------------------------------------------------------------- logits


def logits_by_loops(weights, config, ids, mask):
    """The logits of one sequence, [length, vocabulary], by position and head; meaningless where mask is 0."""
    prefix = config.model_type
    heads, key_heads = config.num_attention_heads, config.num_key_value_heads
    size = config.hidden_size // heads

    def normed(x, name):
        return x / np.sqrt((x**2).mean() + config.rms_norm_eps) * weights[f"{name}.weight"]

    def linear(x, name):
        return x @ weights[f"{name}.weight"] + weights.get(f"{name}.bias", 0.0)

    def rotated(head, position):
        pairs = [complex(head[i], head[i + size // 2]) for i in range(size // 2)]
        turned = [pair * np.exp(1j * position * config.rope_theta ** (-2 * i / size)) for i, pair in enumerate(pairs)]
        return np.array([pair.real for pair in turned] + [pair.imag for pair in turned])

    hidden = [weights[f"{prefix}.embed_tokens.weight"][token] for token in ids]
    for layer in range(config.num_hidden_layers):
        name = f"{prefix}.layers.{layer}"
        inputs = [normed(x, f"{name}.input_layernorm") for x in hidden]
        queries, keys, values = ([linear(x, f"{name}.self_attn.{kind}_proj") for x in inputs] for kind in "qkv")
        for at in np.flatnonzero(mask):
            visible = [other for other in range(at + 1) if mask[other]]
            outputs = []
            for head in range(heads):
                query_part, key_part = (slice(i * size, (i + 1) * size) for i in (head, head * key_heads // heads))
                query = rotated(queries[at][query_part], at)
                scores = [query @ rotated(keys[other][key_part], other) / np.sqrt(size) for other in visible]
                mix = np.exp(scores) / np.exp(scores).sum()
                outputs.append(sum(part * values[other][key_part] for part, other in zip(mix, visible, strict=True)))
            hidden[at] = hidden[at] + linear(np.concatenate(outputs), f"{name}.self_attn.o_proj")
            x = normed(hidden[at], f"{name}.post_attention_layernorm")
            gate = linear(x, f"{name}.mlp.gate_proj")
            up = linear(x, f"{name}.mlp.up_proj")
            hidden[at] = hidden[at] + linear(gate / (1 + np.exp(-gate)) * up, f"{name}.mlp.down_proj")
    head = weights[f"{prefix}.embed_tokens.weight"].T if config.tie_word_embeddings else weights["lm_head.weight"]
    return np.array([normed(x, f"{prefix}.norm") @ head for x in hidden])


def test_logits_are_those_of_loops_over_positions_and_heads(config):
    weights, batch = random_weights(config), a_batch()
    found = reference.logits(weights, config, batch)
    for row, mask in enumerate(batch["attention_mask"]):
        expected = logits_by_loops(weights, config, batch["input_ids"][row], mask)
        assert found[row, mask == 1] == pytest.approx(expected[mask == 1], rel=1e-9), row


def test_rotary_rotates_each_pair_by_an_angle_proportional_to_the_position():
    rotate, _ = rotary(3, 4, theta=100.0)
    rotated = rotate(np.array([1.0, 1.0, 0.0, 0.0]) * np.ones((3, 4)))
    angles = np.outer([0, 1, 2], [1.0, 0.1])
    assert rotated == pytest.approx(np.concatenate([np.cos(angles), np.sin(angles)], axis=1), rel=1e-12, abs=1e-15)


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


def test_the_loss_is_the_mean_negative_log_probability_of_the_labels(config):
    weights, batch = random_weights(config), a_batch()
    loss, _ = reference.loss_and_gradients(weights, config, batch, IGNORED)
    assert loss == pytest.approx(mean_loss(weights, config, batch), rel=1e-12)


def test_log_probabilities_are_summed_for_each_row(config):
    weights, batch = random_weights(config), a_batch()
    sums, _ = reference.log_probabilities(weights, config, batch, IGNORED)
    assert sums == pytest.approx(log_probability_sums(weights, config, batch), rel=1e-12)


def test_gradients_of_log_probabilities_weight_the_rows_and_may_be_asked_for_twice(config):
    weights, batch = random_weights(config), a_batch()
    _, gradients_of = reference.log_probabilities(weights, config, batch, IGNORED)
    for factors in (np.array([2.0, -3.0]), np.array([0.0, 1.0])):

        def weighted_sum(changed, factors=factors):
            return factors @ log_probability_sums(changed, config, batch)

        assert_finite_differences(weighted_sum, weights, gradients_of(factors))


def test_gradients_add_up_in_the_given_dictionary(config):
    weights, batch, total = random_weights(config), a_batch(), defaultdict(float)
    factors, names = np.array([2.0, -3.0]), list(weights)
    _, gradients_of = reference.log_probabilities(weights, config, batch, IGNORED)
    once = gradients_of(factors)
    for _ in range(2):
        reference.log_probabilities(weights, config, batch, IGNORED, total)[1](factors)
    assert [total[name] for name in names] == [pytest.approx(2 * once[name], rel=1e-12) for name in names]


def test_ignored_labels_do_not_change_the_loss():
    config, batch = Config(), a_batch()
    weights = random_weights(config)
    other = {**batch, "labels": np.where(batch["labels"] == IGNORED, -1, batch["labels"])}
    one, two = (reference.loss_and_gradients(weights, config, *given)[0] for given in ((batch, IGNORED), (other, -1)))
    assert one == two


# --------------------------------------------------------------------------------------------------------------- weights


class Tensor:
    """The part of a paddle tensor that weights_of uses."""

    def __init__(self, value):
        self._value = value

    def astype(self, dtype):
        return Tensor(self._value.astype(dtype))

    def numpy(self):
        return self._value


class Network:
    def __init__(self, value):
        self._value = value

    def state_dict(self):
        return {"w": Tensor(self._value)}


def test_weights_are_copied_in_double_precision():
    value = np.array([1.5], np.float32)
    copied = reference.weights_of(Network(value))["w"]
    value[:] = 9
    assert (copied.dtype, copied[0]) == (np.float64, 1.5)
