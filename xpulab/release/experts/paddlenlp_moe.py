"""The mixture-of-experts classes of PaddleNLP: gates, layer and the blocks of its models, compared with numpy; workarounds.

Offered: rows_of_gates, rows_of_top_1, row_of_sequence_loss, rows_of_exchange_alone, rows_of_parallel_layer, blocks,
rows_of_block, row_of_groups; the workarounds cumsum_of_one_type, where_of_columns and topk_in_order. Bounds are shares of the
largest value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle import nn

from xpulab import ranks
from xpulab.chapters.moe import moe_layer
from xpulab.chapters.moe.paddle_operators import error_of
from xpulab.checks.table import Table
from xpulab.records.refusals import format_undeclared, refusal
from xpulab.reference import moe as reference
from xpulab.reference.operators import sigmoid
from xpulab.release.experts.paddle_moe import EXPERTS, HIDDEN, gate_weight, maps, output_of

SCALE = 2.5
"""routed_scaling_factor of the DeepSeek block."""


def rows_of_gates(rows: Table, x: np.ndarray, bound: float) -> None:
    """Rows: a layer whose two experts drop tokens, and gates that do not run, for tokens [tokens, hidden]; see gate_options."""
    factor = 1.0
    limited = routing_of(x, capacity=int(len(x) // EXPERTS * factor))  # PaddleNLP rounds down, and before it multiplies
    kept = limited.weights * limited.kept
    kept /= np.maximum(kept.sum(axis=1, keepdims=True), 1e-9)
    dropping = layer_with("top2gating", capacity_factor=factor)
    _close(rows, "top-2, dropped", lambda: output_of(dropping, x), layer_value(x, kept), bound)
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
    output_sum(layer, x).backward()
    rows.above("top-1, gradient of the gate", np.abs(_gradient(layer.gate.weight)).max(), 1e-3, control=0.0)


def row_of_sequence_loss(rows: Table) -> None:
    """A row: the auxiliary loss of a sequence of four tokens, of which three choose expert 0 and one chooses expert 1."""
    gate = layer_with("topkgating", top_k=1).gate
    chances, chosen = np.full((1, 4, EXPERTS), [0.4, 0.3, 0.2, 0.1], "float32"), np.array([[0], [0], [0], [1]])
    loss = gate._cal_seq_aux_loss(paddle.to_tensor(chances), 1, paddle.to_tensor(chosen))
    expected = EXPERTS * (0.75 * 0.4 + 0.25 * 0.3)
    rows.close("auxiliary loss of a sequence", loss, expected, atol=1e-5, control=EXPERTS * (0.5 * 0.4 + 0.5 * 0.3))


def rows_of_exchange_alone(rows: Table) -> None:
    """Rows: PaddleNLP's all-to-all in a process alone: what arrives, its gradient, and that it calls no collective."""
    from paddlenlp.transformers import moe_layer as of_paddlenlp

    sent = np.arange(9, dtype="float32").reshape(3, 3)
    tokens = paddle.to_tensor(sent, stop_gradient=False)
    with patch.object(of_paddlenlp.stream, "alltoall_single") as collective:
        arrived = of_paddlenlp._AllToAll.apply(1.0 * tokens, None)  # not a leaf: it returns what it is given
        (arrived * paddle.to_tensor(2 * sent)).sum().backward()
    rows.bitwise("PaddleNLP, one rank", arrived.numpy(), sent, control=np.roll(sent, 1, axis=0))
    rows.bitwise("PaddleNLP, one rank, gradient", _gradient(tokens), 2 * sent, control=sent)
    rows.equal("PaddleNLP, one rank, collectives", collective.call_count, 0, control=1)


def rows_of_parallel_layer(rows: Table, device: str, x: np.ndarray, bound: float) -> None:
    """Rows: output and gradients of the layer with its experts on two ranks, each with half of the tokens [tokens, hidden]."""
    cases = ("output", "gradient of tokens", "gradient of experts")
    if lacking := refusal(device, "all_to_all"):
        for case in cases:
            rows.skip(f"two ranks, {case}", lacking.format_reason())
        return
    halves = x.reshape(2, -1, HIDDEN)
    try:
        answers = ranks.run(nlp_on_two_ranks, 2, halves, device=device)
    except ranks.RanksFailed as error:
        reasons = ", ".join(sorted({report.reason for report in error.reports}))
        rows.equal("two ranks", format_undeclared(reasons, device, "all_to_all"), "values", control="another error")
        return
    outputs, of_tokens, of_experts = zip(*answers, strict=True)
    single = [stepped(half) for half in halves]
    found = np.concatenate(outputs), np.concatenate(of_tokens), np.concatenate(of_experts)
    wanted = np.concatenate([each[0] for each in single]), np.concatenate([each[1] for each in single])
    for case, got, want in zip(cases, found, (*wanted, single[0][2] + single[1][2]), strict=True):
        _close(rows, f"two ranks, {case}", partial(np.asarray, got), want, bound)


def rows_of_block(rows: Table, name: str, block: nn.Layer, x: np.ndarray, bound: float) -> None:
    """Rows: whether a block of `blocks` runs, and what it computes with a workaround, in training and in evaluation."""
    rows.equal(f"{name} runs", error_of(lambda: output_of(block, x)), "none", control="TypeError: another one")
    routing = routing_of(x)
    scale = SCALE if name == "DeepSeek" else 1.0
    want = dense(block, x, routing, scale * routing.weights)
    with cumsum_of_one_type(), where_of_columns():
        for mode in ("training", "evaluation"):
            block.train() if mode == "training" else block.eval()
            _close(rows, f"{name}, {mode}, with a workaround", lambda: output_of(block, x), want, bound)


def _gradient(tensor: paddle.Tensor) -> np.ndarray:
    assert tensor.grad is not None
    return tensor.grad.numpy()


LEAST_GAP = 0.01
"""How far scores are from each other in row_of_groups."""

NEGATIVE = np.array([-1.3, -1.8, -1.1, -1.2], "float32")
"""A bias that is added to the scores for the choice only, as DeepSeek-V3 does, and makes all of them negative."""


def row_of_groups(rows: Table, bound: float) -> None:
    """A row: a block of DeepSeek with two groups of experts, of which each token uses one, by scores that are negative."""
    pool = 0.2 * moe_layer.clear_tokens(60, gate_weight(), 0)
    block = _filled(_deepseek(n_group=2, topk_method="noaux_tc", scoring_func="sigmoid", routed_scaling_factor=1.0))
    block.gate.scoring_func = "sigmoid"
    block.gate.e_score_correction_bias.set_value(paddle.to_tensor(NEGATIVE))
    x = pool[grouped_routing(pool, NEGATIVE)[1]][:12]
    routing, _ = grouped_routing(x, NEGATIVE)
    want = dense(block, x, routing, routing.weights)
    with cumsum_of_one_type():
        case = "DeepSeek, noaux_tc, negative scores, with a workaround"
        _close(rows, case, partial(output_of, block, x), want, bound)


def grouped_routing(x: np.ndarray, bias: np.ndarray) -> tuple[reference.Routing, np.ndarray]:
    """Where tokens [tokens, hidden] go when only experts of the best of two groups may be chosen, two of them.

    Also whether scores are so far from each other that rounding does not change the choice, [tokens]. The score of a group is
    the sum of its two best ones (arXiv 2412.19437).
    """
    scores = sigmoid(x.astype("float64") @ gate_weight().astype("float64"))
    biased = scores + bias
    of_groups = biased.reshape(-1, 2, EXPERTS // 2).sum(axis=2)
    allowed = np.repeat(of_groups == of_groups.max(axis=1, keepdims=True), EXPERTS // 2, axis=1)
    chosen = np.argsort(np.where(allowed, -biased, np.inf), axis=1)[:, :2]
    weights = np.take_along_axis(scores, chosen, axis=1)
    weights = weights / weights.sum(axis=1, keepdims=True)
    gaps = np.abs(np.diff(of_groups, axis=1)), np.diff(np.sort(biased, axis=1), axis=1)
    clear = np.concatenate(gaps, axis=1).min(axis=1) > LEAST_GAP
    return reference.Routing(scores, chosen, weights, np.ones(chosen.shape, bool)), clear


def _close(rows: Table, case: str, got: Callable[[], np.ndarray], want: np.ndarray, bound: float) -> None:
    """A row whose control has the values of the next token or expert."""
    scale = np.abs(want).max()
    rows.close(case, lambda: got() / scale, want / scale, atol=bound, control=np.roll(want, 1, axis=0) / scale)


def output_sum(layer: nn.Layer, x: np.ndarray) -> paddle.Tensor:
    """The sum of the output of a layer for tokens [tokens, hidden]."""
    return layer(paddle.to_tensor(x[None].astype("float32")))[0].sum()


def layer_value(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """What a layer of layer_with computes with these weights [tokens, 2] of the two likeliest experts."""
    return np.einsum("tk,th,tkho->to", weights, x.astype("float64"), maps().astype("float64")[routing_of(x).chosen])


def stepped(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Output, and gradients of tokens and of the experts that are here, for tokens [tokens, hidden].

    The loss is the sum of the output.
    """
    layer = layer_with("top2gating", drop_tokens=False)
    tokens = paddle.to_tensor(x[None], stop_gradient=False)
    output = layer(tokens)[0]
    output.sum().backward()
    own = [_gradient(each.weight) for each in layer.experts if each is not None]
    return output.numpy()[0], _gradient(tokens)[0], np.stack(own)


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

    return layer_of(Gate, gate_weight(), maps(), "float32", **options)


def layer_of(kind: Any, gate_weight: np.ndarray, maps: np.ndarray, dtype: Any, **options: Any) -> Any:
    """paddlenlp.transformers.moe_layer.MoELayer with linear experts.

    kind: of its gate, a class of PretrainedMoEGate, whose options these are. gate_weight: [hidden, experts].
    maps: of the experts, [experts, hidden, hidden].
    """
    from paddlenlp.transformers.moe_layer import MoELayer

    hidden, experts = gate_weight.shape
    gate = kind(None, experts, hidden, use_rts=False, top2_2nd_expert_sampling=False, **options)
    gate.weight = gate.create_parameter([hidden, experts], dtype=dtype)
    gate.weight.set_value(paddle.to_tensor(gate_weight, dtype=dtype))
    layer = MoELayer(None, experts, lambda: nn.Linear(hidden, hidden, bias_attr=False).to(dtype=dtype), {}, gate)
    for expert, weight in zip(layer.experts, maps, strict=True):
        if expert is not None:  # on two ranks those of the other rank are
            expert.weight.set_value(paddle.to_tensor(weight, dtype=dtype))
    return layer


def nlp_on_two_ranks(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """On each of two ranks: what `stepped` gives for its tokens of x [ranks, tokens, hidden], with two experts a rank."""
    from paddle.distributed import fleet

    dist.init_parallel_env()
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 2, "mp_degree": 1, "pp_degree": 1}
    fleet.init(is_collective=True, strategy=strategy)
    return stepped(x[dist.get_rank()])


def blocks() -> dict[str, Callable[[], nn.Layer]]:
    """By name the blocks of PaddleNLP's models: random weights, four experts, two for a token, whose weights add up to 1."""
    from paddlenlp.transformers import MixtralConfig, Qwen2MoeConfig
    from paddlenlp.transformers.mixtral.modeling import MixtralSparseMoeBlock
    from paddlenlp.transformers.qwen2_moe.modeling import Qwen2MoeSparseMoEBlock

    qwen = {"num_experts": EXPERTS, "shared_expert_intermediate_size": 8, "num_hidden_layers": 1}
    return {
        "Qwen2-MoE": lambda: _filled(Qwen2MoeSparseMoEBlock(Qwen2MoeConfig(**SIZES, **SIZES_OF_EXPERTS, **qwen))),
        "DeepSeek": lambda: _filled(_deepseek()),
        "Mixtral": lambda: _filled(MixtralSparseMoeBlock(MixtralConfig(**SIZES, num_local_experts=EXPERTS))),
    }


SIZES: dict[str, Any] = {"hidden_size": HIDDEN, "intermediate_size": 8, "num_experts_per_tok": 2}
SIZES_OF_EXPERTS: dict[str, Any] = {"moe_intermediate_size": 8, "norm_topk_prob": True}


def _deepseek(**options: Any) -> nn.Layer:
    """A block of DeepSeek. options: of DeepseekV2Config, instead of one group and SCALE."""
    from paddlenlp.transformers import DeepseekV2Config
    from paddlenlp.transformers.deepseek_v2.modeling import DeepseekV2MoE

    usual: dict[str, Any] = {"n_routed_experts": EXPERTS, "n_shared_experts": 1, "n_group": 1, "topk_group": 1}
    usual |= {"topk_method": "greedy", "scoring_func": "softmax", "aux_loss_alpha": 0.0, "routed_scaling_factor": SCALE}
    return DeepseekV2MoE(DeepseekV2Config(**SIZES, **SIZES_OF_EXPERTS, **{**usual, **options}))


def _filled(block: nn.Layer) -> nn.Layer:
    draw = np.random.default_rng(53)
    block.gate.scoring_func = "softmax"  # the gate of Qwen2-MoE has none, and then says that it uses this one
    for parameter in block.parameters():
        parameter.set_value(paddle.to_tensor(0.5 * draw.standard_normal(parameter.shape).astype("float32")))
    block.gate.weight.set_value(paddle.to_tensor(gate_weight()))
    return block


def routing_of(x: np.ndarray, k: int = 2, capacity: int | None = None) -> reference.Routing:
    """Where the gates of this module send tokens [tokens, hidden]. capacity: None for as many choices as there are."""
    return reference.route(x.astype("float64"), gate_weight().astype("float64"), k, len(x) if capacity is None else capacity)


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


@contextmanager
def cumsum_of_one_type() -> Iterator[None]:
    """paddle.cumsum of int32 gives int32, as PaddleNLP's gates expect."""
    real = paddle.cumsum

    def of_one_type(x: paddle.Tensor, axis: Any = None, dtype: Any = None, name: Any = None) -> paddle.Tensor:
        return real(x, axis, dtype or x.dtype, name)

    with patch.object(paddle, "cumsum", of_one_type):
        yield


@contextmanager
def where_of_columns() -> Iterator[None]:
    """paddle.where of a condition alone gives columns [found, 1], as PaddleNLP's Mixtral expects."""
    real = paddle.where

    def columns(condition: paddle.Tensor, x: Any = None, y: Any = None, name: Any = None) -> Any:
        found = real(condition, x, y, name)
        return tuple(each.reshape([-1, 1]) for each in found) if x is None and y is None else found

    with patch.object(paddle, "where", columns):
        yield


@contextmanager
def topk_in_order() -> Iterator[None]:
    """paddle.topk gives values in their order, also where PaddleNLP's gates do not ask for it."""
    real = paddle.topk

    def in_order(
        x: paddle.Tensor, k: int, axis: Any = None, largest: bool = True, sorted: bool = True, name: Any = None
    ) -> Any:
        return real(x, k, axis, largest, True, name)

    with patch.object(paddle, "topk", in_order):
        yield
