"""The mixture-of-experts classes of PaddleNLP: gates, layer and the blocks of its models, compared with numpy; workarounds.

Bounds are shares of the largest value.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

from xpulab.chapters.moe.paddle_operators import error_of
from xpulab.checks.table import Table
from xpulab.reference import moe as reference

HIDDEN, EXPERTS = 16, 4

SCALE = 2.5
"""routed_scaling_factor of the DeepSeek block."""


def gate_weight() -> np.ndarray:
    """The weight of every gate of this module, [HIDDEN, EXPERTS]."""
    return np.random.default_rng(47).standard_normal((HIDDEN, EXPERTS)).astype("float32")


def output_of(block: nn.Layer, x: np.ndarray) -> np.ndarray:
    """The output of a block or layer for tokens [tokens, hidden], which it gets as one sequence."""
    result = block(paddle.to_tensor(x[None].astype("float32")))
    return (result[0] if isinstance(result, tuple) else result).numpy()[0]


def rows_of_gates(rows: Table, x: np.ndarray) -> None:
    """Rows: gates that do not run, for tokens [tokens, hidden]; for what the others compute see gate_options."""
    top_k = layer_with("topkgating", drop_tokens=False, norm_topk_prob=True, top_k=2)
    rows.equal("top-k runs", error_of(lambda: output_of(top_k, x)), "none", control="TypeError: another one")
    by_probability = layer_with("topkgating", drop_policy="probs", capacity_factor=0.5, top_k=2)
    with cumsum_of_one_type():
        error = error_of(partial(output_of, by_probability, x))
        rows.equal("top-k, drops by probs, runs", error, "none", control="ValueError: another one")


def rows_of_top_1(rows: Table, x: np.ndarray) -> None:
    """Rows: with one expert for a token its weight is its probability, and the gate gets a gradient."""
    layer, routing = layer_with("top1gating", drop_tokens=False), routing_of(x, k=1)
    weights = layer.gate(paddle.to_tensor(x[None]))[1].sum(axis=[1, 2])
    rows.close("top-1, weights", weights, routing.weights[:, 0], atol=1e-4, control=0.5 * routing.weights[:, 0])
    layer(paddle.to_tensor(x[None].astype("float32")))[0].sum().backward()
    rows.above("top-1, gradient of the gate", float(layer.gate.weight.grad.abs().max()), 1e-3, control=0.0)


def row_of_sequence_loss(rows: Table) -> None:
    """A row: the auxiliary loss of a sequence of four tokens, of which three choose expert 0 and one chooses expert 1."""
    gate = layer_with("topkgating", top_k=1).gate
    chances, chosen = np.full((1, 4, EXPERTS), [0.4, 0.3, 0.2, 0.1], "float32"), np.array([[0], [0], [0], [1]])
    loss = gate._cal_seq_aux_loss(paddle.to_tensor(chances), 1, paddle.to_tensor(chosen))
    expected = EXPERTS * (0.75 * 0.4 + 0.25 * 0.3)
    rows.close("auxiliary loss of a sequence", loss, expected, atol=1e-5, control=EXPERTS * (0.5 * 0.4 + 0.5 * 0.3))


def rows_of_block(rows: Table, name: str, block: nn.Layer, x: np.ndarray, bound: float) -> None:
    """Rows: whether a block of `blocks` runs, and what it computes with a workaround, in training and in evaluation."""
    rows.equal(f"{name} runs", error_of(lambda: output_of(block, x)), "none", control="TypeError: another one")
    routing = routing_of(x)
    want = dense(block, x, routing, (SCALE if name == "DeepSeek" else 1.0) * routing.weights)
    scale = np.abs(want).max()
    with cumsum_of_one_type(), where_of_columns():
        for mode in ("training", "evaluation"):
            block.train() if mode == "training" else block.eval()
            next_token = np.roll(want, 1, axis=0)
            case = f"{name}, {mode}, with a workaround"
            rows.close(case, lambda: output_of(block, x) / scale, want / scale, atol=bound, control=next_token / scale)


def layer_with(method: str, **options: Any) -> nn.Layer:
    """paddlenlp.transformers.moe_layer.MoELayer with linear experts and a gate of this method of PretrainedMoEGate.

    method: "top1gating", "top2gating" or "topkgating". options: of PretrainedMoEGate.
    """
    from paddlenlp.transformers.moe_gate import PretrainedMoEGate

    class Gate(PretrainedMoEGate):
        scoring_func = "softmax"

        def forward(self, hidden: paddle.Tensor) -> Any:
            logits = F.linear(hidden, self.weight)
            if method == "topkgating":
                return self.topkgating(F.softmax(logits, axis=-1))
            return getattr(self, method)(logits.reshape([-1, EXPERTS]))

    maps = np.random.default_rng(43).standard_normal((EXPERTS, HIDDEN, HIDDEN)).astype("float32")
    return layer_of(Gate, gate_weight(), maps, **options)


def layer_of(kind: Any, gate_weight: np.ndarray, maps: np.ndarray, **options: Any) -> Any:
    """paddlenlp.transformers.moe_layer.MoELayer with linear experts.

    kind: of its gate, a class of PretrainedMoEGate, whose options these are. gate_weight: [hidden, experts].
    maps: of the experts, [experts, hidden, hidden].
    """
    from paddlenlp.transformers.moe_layer import MoELayer

    hidden, experts = gate_weight.shape
    gate = kind(None, experts, hidden, use_rts=False, top2_2nd_expert_sampling=False, **options)
    gate.weight = gate.create_parameter([hidden, experts], dtype="float32")
    gate.weight.set_value(paddle.to_tensor(gate_weight, dtype="float32"))
    layer = MoELayer(None, experts, lambda: nn.Linear(hidden, hidden, bias_attr=False), {}, gate)
    for expert, weight in zip(layer.experts, maps, strict=True):
        expert.weight.set_value(paddle.to_tensor(weight, dtype="float32"))
    return layer


def blocks() -> dict[str, Callable[[], nn.Layer]]:
    """By name the blocks of PaddleNLP's models: random weights, four experts, two for a token, whose weights add up to 1."""
    from paddlenlp.transformers import DeepseekV2Config, MixtralConfig, Qwen2MoeConfig
    from paddlenlp.transformers.deepseek_v2.modeling import DeepseekV2MoE
    from paddlenlp.transformers.mixtral.modeling import MixtralSparseMoeBlock
    from paddlenlp.transformers.qwen2_moe.modeling import Qwen2MoeSparseMoEBlock

    sizes: dict[str, Any] = {"hidden_size": HIDDEN, "intermediate_size": 8, "num_experts_per_tok": 2}
    of_experts: dict[str, Any] = {"moe_intermediate_size": 8, "norm_topk_prob": True}
    qwen = {"num_experts": EXPERTS, "shared_expert_intermediate_size": 8, "num_hidden_layers": 1}
    deepseek: dict[str, Any] = {"n_routed_experts": EXPERTS, "n_shared_experts": 1, "n_group": 1, "topk_group": 1}
    deepseek |= {"topk_method": "greedy", "scoring_func": "softmax", "aux_loss_alpha": 0.0, "routed_scaling_factor": SCALE}
    return {
        "Qwen2-MoE": lambda: _filled(Qwen2MoeSparseMoEBlock(Qwen2MoeConfig(**sizes, **of_experts, **qwen))),
        "DeepSeek": lambda: _filled(DeepseekV2MoE(DeepseekV2Config(**sizes, **of_experts, **deepseek))),
        "Mixtral": lambda: _filled(MixtralSparseMoeBlock(MixtralConfig(**sizes, num_local_experts=EXPERTS))),
    }


def _filled(block: nn.Layer) -> nn.Layer:
    draw = np.random.default_rng(53)
    block.gate.scoring_func = "softmax"  # the gate of Qwen2-MoE has none, and then says that it uses this one
    for parameter in block.parameters():
        parameter.set_value(paddle.to_tensor(0.5 * draw.standard_normal(parameter.shape).astype("float32")))
    block.gate.weight.set_value(paddle.to_tensor(gate_weight()))
    return block


def routing_of(x: np.ndarray, k: int = 2) -> reference.Routing:
    """Where the gates of this module send tokens [tokens, hidden], none of which is dropped."""
    return reference.route(x.astype("float64"), gate_weight().astype("float64"), k, len(x))


def dense(block: nn.Layer, x: np.ndarray, routing: reference.Routing, weights: np.ndarray) -> np.ndarray:
    """What a block must compute: every token through its experts, one at a time, and through shared experts.

    x: tokens [tokens, hidden]. weights: of the experts in routing.chosen, [tokens, k]; 0 where a choice is dropped.
    """
    rows, result = paddle.to_tensor(x.astype("float32")), np.zeros(x.shape)
    for token, choice in np.ndindex(routing.chosen.shape):
        expert = block.experts[int(routing.chosen[token, choice])]
        result[token] += weights[token, choice] * expert(rows[token : token + 1]).numpy()[0]
    if hasattr(block, "shared_expert"):
        result += (F.sigmoid(block.shared_expert_gate(rows)) * block.shared_expert(rows)).numpy()
    if hasattr(block, "shared_experts"):
        result += block.shared_experts(rows).numpy()
    return result


# -------------------------------------------------------------------------------------------------------------- workarounds


def cumsum_of_one_type() -> AbstractContextManager[Any]:
    """paddle.cumsum of int32 gives int32, as PaddleNLP's gates expect."""
    real = paddle.cumsum

    def of_one_type(x: paddle.Tensor, axis: Any = None, dtype: Any = None, name: Any = None) -> paddle.Tensor:
        return real(x, axis, dtype or x.dtype, name)

    return patch.object(paddle, "cumsum", of_one_type)


def where_of_columns() -> AbstractContextManager[Any]:
    """paddle.where of a condition alone gives columns [found, 1], as PaddleNLP's Mixtral expects."""
    real = paddle.where

    def columns(condition: paddle.Tensor, x: Any = None, y: Any = None, name: Any = None) -> Any:
        found = real(condition, x, y, name)
        return tuple(each.reshape([-1, 1]) for each in found) if x is None and y is None else found

    return patch.object(paddle, "where", columns)


def topk_in_order() -> AbstractContextManager[Any]:
    """paddle.topk gives values in their order, also where PaddleNLP's gates do not ask for it."""
    real = paddle.topk

    def in_order(
        x: paddle.Tensor, k: int, axis: Any = None, largest: bool = True, sorted: bool = True, name: Any = None
    ) -> Any:
        return real(x, k, axis, largest, True, name)

    return patch.object(paddle, "topk", in_order)
