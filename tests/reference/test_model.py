"""The numpy reference holds against finite differences and steps worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from xpulab.reference import model as reference

IGNORED = -100


@dataclass(frozen=True)
class Config:
    """What the reference reads of a model's configuration."""

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
    "llama, a key a query": Config(model_type="llama", num_key_value_heads=4),
    "llama, one key for all": Config(model_type="llama", num_key_value_heads=1, tie_word_embeddings=True),
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
    """Two sequences of five; the second is padded on the left by two. Some labels are left out."""
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 11, (2, 5))
    labels = rng.integers(0, 11, (2, 5))
    mask = np.array([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
    labels[0, :2] = labels[1, :3] = IGNORED
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def loss_of(weights, config, batch):
    """The mean of -ln softmax over the labels that count, from the logits alone."""
    scores = reference.logits(weights, config, batch)
    losses = [
        np.log(np.exp(scores[row, column]).sum()) - scores[row, column, label]
        for (row, column), label in np.ndenumerate(batch["labels"])
        if label != IGNORED
    ]
    return np.mean(losses)


@pytest.fixture(params=CONFIGS.values(), ids=CONFIGS.keys())
def config(request):
    return request.param


def test_every_gradient_is_the_finite_difference_of_the_loss(config):
    weights, batch = random_weights(config), a_batch()
    _, slopes = reference.loss_and_gradients(weights, config, batch, IGNORED)
    assert slopes.keys() == weights.keys()
    rng, step = np.random.default_rng(2), 1e-5
    for name, weight in weights.items():
        direction = rng.standard_normal(weight.shape)
        ahead, behind = (loss_of({**weights, name: weight + way * step * direction}, config, batch) for way in (1, -1))
        assert (ahead - behind) / (2 * step) == pytest.approx((slopes[name] * direction).sum(), rel=1e-5, abs=1e-8), name


def test_no_gradient_is_zero_throughout_so_the_differences_prove_something(config):
    _, slopes = reference.loss_and_gradients(random_weights(config), config, a_batch(), IGNORED)
    small = [name for name, slope in slopes.items() if np.abs(slope).max() < 1e-6 and not name.endswith("k_proj.bias")]
    assert small == []


def test_the_loss_is_the_mean_negative_log_probability_of_the_labels(config):
    weights, batch = random_weights(config), a_batch()
    loss, _ = reference.loss_and_gradients(weights, config, batch, IGNORED)
    assert loss == pytest.approx(loss_of(weights, config, batch), rel=1e-12)


def test_log_probabilities_are_summed_by_row_and_their_gradient_weighs_the_rows(config):
    weights, batch = random_weights(config), a_batch()
    sums, gradients = reference.log_probabilities(weights, config, batch, IGNORED)
    alone = [{key: value[row : row + 1] for key, value in batch.items()} for row in (0, 1)]
    losses, slopes = zip(*(reference.loss_and_gradients(weights, config, one, IGNORED) for one in alone), strict=True)
    counts = (batch["labels"] != IGNORED).sum(axis=1)
    assert sums == pytest.approx(-np.array(losses) * counts, rel=1e-12)
    for factors in (np.array([2.0, -3.0]), np.array([0.0, 1.0])):
        weighed = gradients(factors)
        for name in weights:
            expected = sum(-factor * count * slope[name] for factor, count, slope in zip(factors, counts, slopes, strict=True))
            assert weighed[name] == pytest.approx(expected, rel=1e-9, abs=1e-12), name


def test_labels_that_are_left_out_do_not_touch_the_loss():
    config, batch = Config(), a_batch()
    weights = random_weights(config)
    other = {**batch, "labels": np.where(batch["labels"] == IGNORED, -1, batch["labels"])}
    one, two = (reference.loss_and_gradients(weights, config, *given)[0] for given in ((batch, IGNORED), (other, -1)))
    assert one == two


def test_the_gradient_leaves_the_weights_alone(config):
    weights = random_weights(config)
    before = {name: weight.copy() for name, weight in weights.items()}
    reference.loss_and_gradients(weights, config, a_batch(), IGNORED)
    assert all(np.array_equal(weights[name], before[name]) for name in weights)


def test_what_is_padding_does_not_touch_what_is_not(config):
    weights, batch = random_weights(config), a_batch()
    real = batch["attention_mask"] == 1
    other = {**batch, "input_ids": np.where(real, batch["input_ids"], 10 - batch["input_ids"])}
    assert (reference.logits(weights, config, other)[real] == reference.logits(weights, config, batch)[real]).all()


def test_without_the_mask_the_padding_would_show(config):
    weights, batch = random_weights(config), a_batch()
    real = batch["attention_mask"] == 1
    bare = {**batch, "attention_mask": np.ones_like(batch["attention_mask"])}
    assert np.abs(reference.logits(weights, config, bare) - reference.logits(weights, config, batch))[real].max() > 1e-3


def test_no_position_sees_what_comes_after_it(config):
    weights, batch = random_weights(config), a_batch()
    ids = batch["input_ids"].copy()
    ids[:, -1] = (ids[:, -1] + 1) % 11
    later = reference.logits(weights, config, {**batch, "input_ids": ids})
    earlier = (batch["attention_mask"] == 1) & (np.arange(5) < 4)
    assert (later[earlier] == reference.logits(weights, config, batch)[earlier]).all()


def test_a_position_sees_what_comes_before_it(config):
    weights, batch = random_weights(config), a_batch()
    ids = batch["input_ids"].copy()
    ids[0, 0] = (ids[0, 0] + 1) % 11
    later = reference.logits(weights, config, {**batch, "input_ids": ids})
    assert np.abs(later[0, -1] - reference.logits(weights, config, batch)[0, -1]).max() > 1e-6


def test_the_order_of_what_came_before_matters():
    config = Config(num_hidden_layers=1)
    weights, mask = random_weights(config), np.ones((1, 3))
    one, other = (
        reference.logits(weights, config, {"input_ids": np.array([ids]), "attention_mask": mask})[0, -1]
        for ids in ([1, 2, 3], [2, 1, 3])
    )
    assert np.abs(one - other).max() > 1e-6


def test_one_token_alone_goes_through_the_decoder_as_its_formulas_say():
    """A position that sees only itself attends to itself alone, and is not turned, so few formulas are left."""
    config = Config(num_hidden_layers=1, num_key_value_heads=4)
    weights = random_weights(config)
    w = {name.removeprefix("qwen2.").removeprefix("layers.0."): weight for name, weight in weights.items()}

    def normed(x, name):
        return x / np.sqrt((x**2).mean() + 1e-6) * w[f"{name}.weight"]

    x = w["embed_tokens.weight"][3]
    value = normed(x, "input_layernorm") @ w["self_attn.v_proj.weight"] + w["self_attn.v_proj.bias"]
    x = x + value @ w["self_attn.o_proj.weight"]
    y = normed(x, "post_attention_layernorm")
    gate = y @ w["mlp.gate_proj.weight"]
    x = x + gate / (1 + np.exp(-gate)) * (y @ w["mlp.up_proj.weight"]) @ w["mlp.down_proj.weight"]
    batch = {"input_ids": np.array([[3]]), "attention_mask": np.array([[1]])}
    assert reference.logits(weights, config, batch)[0, 0] == pytest.approx(normed(x, "norm") @ w["lm_head.weight"], rel=1e-12)


def test_positions_turn_each_pair_by_an_angle_that_grows_with_the_position():
    turn, _ = reference._rotary(3, 4, theta=100.0)
    turned = turn(np.array([1.0, 1.0, 0.0, 0.0]) * np.ones((3, 4)))
    angles = np.outer([0, 1, 2], [1.0, 0.1])
    assert turned == pytest.approx(np.concatenate([np.cos(angles), np.sin(angles)], axis=1), rel=1e-12, abs=1e-15)


def test_a_family_that_is_not_known_is_refused():
    config = replace(Config(), model_type="gpt2")
    with pytest.raises(ValueError, match="'gpt2' is not one of qwen2, llama"):
        reference.logits({}, config, a_batch())


# --------------------------------------------------------------------------------------------------------------- AdamW


def an_optimizer(**changed):
    settings = {
        "beta1": 0.9,
        "beta2": 0.99,
        "epsilon": 1e-8,
        "weight_decay": 0.0,
        "max_norm": 1e9,
        "decayed": frozenset(),
    }
    return reference.AdamW(**{**settings, **changed})


def after(optimizer, *slopes, weight=1.0, rate=0.1):
    """The weight "w" after a step for each slope."""
    weights = {"w": np.array([weight])}
    for slope in slopes:
        weights = optimizer.step(weights, {"w": np.array([slope])}, rate)
    return weights["w"][0]


@pytest.mark.parametrize(("slope", "weight"), [(2.0, 0.9), (0.001, 0.9), (-3.0, 1.1)])
def test_the_first_step_is_the_rate_against_the_sign_of_the_slope(slope, weight):
    assert after(an_optimizer(), slope) == pytest.approx(weight, abs=1e-5)


def test_the_second_step_follows_the_moments():
    # first = 0.9 * 0.2 + 0.1 * 1 = 0.28, / (1 - 0.81); second = 0.99 * 0.04 + 0.01 * 1 = 0.0496, / (1 - 0.9801)
    second = 0.1 * (0.28 / 0.19) / (np.sqrt(0.0496 / 0.0199) + 1e-8)
    assert after(an_optimizer(), 2.0, 1.0) == pytest.approx(0.9 - second, rel=1e-7)


def test_epsilon_bounds_the_step_of_a_tiny_slope():
    assert after(an_optimizer(epsilon=1.0), 1.0) == pytest.approx(1 - 0.1 * 1 / (1 + 1))


def test_decay_shrinks_the_weight_itself_and_not_through_the_moments():
    optimizer = an_optimizer(weight_decay=0.5, decayed=frozenset({"w"}))
    assert after(optimizer, 2.0, weight=4.0) == pytest.approx(4.0 * (1 - 0.1 * 0.5) - 0.1, rel=1e-7)


def test_decay_leaves_the_names_alone_that_it_is_not_for():
    assert after(an_optimizer(weight_decay=0.5, decayed=frozenset({"other"})), 2.0, weight=4.0) == pytest.approx(3.9, rel=1e-7)


@pytest.mark.parametrize(("max_norm", "scale"), [(1.0, 0.2), (5.0, 1.0), (10.0, 1.0)])
def test_slopes_are_scaled_down_to_the_norm_of_all_and_never_up(max_norm, scale):
    optimizer = an_optimizer(max_norm=max_norm, epsilon=1.0)
    weights = {"a": np.zeros(1), "b": np.zeros(1)}
    moved = optimizer.step(weights, {"a": np.array([3.0]), "b": np.array([4.0])}, rate=1.0)
    scaled = scale * np.array([3.0, 4.0])
    assert np.array([moved["a"][0], moved["b"][0]]) == pytest.approx(-scaled / (scaled + 1.0))


def test_each_weight_has_moments_of_its_own():
    optimizer = an_optimizer()
    moved = optimizer.step({"a": np.zeros(1), "b": np.zeros(1)}, {"a": np.array([5.0]), "b": np.array([-1.0])}, rate=0.1)
    assert (moved["a"][0], moved["b"][0]) == pytest.approx((-0.1, 0.1))


def test_two_optimizers_share_nothing():
    after(an_optimizer(), 5.0, 5.0)
    assert after(an_optimizer(), 2.0) == pytest.approx(0.9, abs=1e-5)


def test_a_step_returns_new_weights_and_leaves_the_old_alone():
    weights = {"w": np.array([1.0])}
    an_optimizer().step(weights, {"w": np.array([2.0])}, rate=0.1)
    assert weights["w"][0] == 1.0


class Tensor:
    """As much of a paddle tensor as weights_of asks for."""

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
