"""The mixture-of-experts classes of Paddle and PaddleNLP: what they compute, and which of them do not run.

Offered: operators, refusal, error_of; GATES, incubate_layer, logits_layer, on_two_ranks of Paddle; layer_with, nlp_on_two_ranks,
blocks, output_of, routing_of, dense of PaddleNLP; the workarounds cumsum_of_one_type and where_of_columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle import nn

from xpulab.checks.compare import first_line
from xpulab.reference import moe as reference

HIDDEN, EXPERTS = 16, 4
SCALE = 2.5
"""routed_scaling_factor of the DeepSeek block."""

NO_KERNEL = ("do not support", "not supported on cpu", "is not registered")
"""Parts of the messages with which Paddle says that an operator has no kernel for the device."""


def refusal(call: Callable[[], Any]) -> str | None:
    """The message with which Paddle says that it has no kernel for this call; None where it has one."""
    try:
        call()
    except Exception as error:
        if any(words in str(error).lower() for words in NO_KERNEL):
            return first_line(error)
        raise
    return None


def error_of(call: Callable[[], Any]) -> str:
    """ "none", or the error that the call raises: its type and the first line of its message."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {first_line(error)}"
    return "none"


@dataclass(frozen=True)
class Operator:
    """One operator of paddle.distributed.models.moe.utils, or a fused one.

    call: returns the result as an array. expected: the value by its definition. wrong: a near value that is wrong.
    """

    call: Callable[[], np.ndarray]
    expected: np.ndarray
    wrong: np.ndarray


def operators() -> dict[str, Operator]:
    """By name the operators of which paddle.incubate's layer is made, and moe_combine, with small inputs."""
    from paddle.distributed.models.moe import utils
    from paddle.incubate.nn.functional import moe_combine

    def whole(*numbers: int) -> paddle.Tensor:
        return paddle.to_tensor(list(numbers), dtype="int64")

    gates, chosen, chances = whole(1, 3, 3, 3, 3, 2, 1, 1), [[0, 2], [2, 1], [0, 1]], [[0.5, 0.4], [0.9, 0.01], [0.5, 0.5]]
    rows = np.arange(12.0).reshape(6, 2)

    def positions() -> np.ndarray:
        """The choices of each expert; their order within an expert is not defined."""
        order = utils._assign_pos(whole(0, 2, 2, 1, 0, 1), whole(2, 4, 6)).numpy()
        return np.sort(order.reshape(3, 2), axis=1)

    def routed() -> np.ndarray:
        """The second expert is dropped where twice its weight is smaller than a given number."""
        values, numbers = paddle.to_tensor(chances), paddle.to_tensor([0.1, 0.1, 0.2])
        return utils._random_routing(paddle.to_tensor(chosen, dtype="int64"), values, numbers).numpy()

    def combined() -> np.ndarray:
        index = paddle.to_tensor([[0, 3], [1, 4], [2, 5]], dtype="int32")
        return moe_combine(paddle.to_tensor(rows, dtype="float32"), paddle.to_tensor([[0.25, 0.75]] * 3), index).numpy()

    after = 0.25 * rows[:3] + 0.75 * rows[3:]
    spoiled = [[0, 2], [2, 1], [0, -1]]
    return {
        "number_count": Operator(lambda: utils._number_count(gates, 4).numpy(), np.array([0, 3, 1, 4]), np.array([0, 3, 2, 4])),
        "assign_pos": Operator(positions, np.array([[0, 4], [3, 5], [1, 2]]), np.array([[0, 4], [1, 2], [3, 5]])),
        "limit_by_capacity": Operator(
            lambda: utils._limit_by_capacity(whole(1, 2, 2, 8, 3, 6), whole(5, 5, 5), 2).numpy(),
            np.array([1, 2, 2, 4, 3, 3]),
            np.array([1, 2, 2, 5, 3, 3]),
        ),
        "prune_gate_by_capacity": Operator(
            lambda: np.sort(utils._prune_gate_by_capacity(gates, whole(0, 3, 1, 3), 4, 1).numpy()),
            np.array([-1, 1, 1, 1, 2, 3, 3, 3]),
            np.array([1, 1, 1, 2, 3, 3, 3, 3]),
        ),
        "random_routing": Operator(routed, np.array([[0, 2], [2, -1], [0, 1]]), np.array(spoiled)),
        "moe_combine": Operator(combined, after, after[::-1]),
    }


# ------------------------------------------------------------------------------------------------- paddle.incubate's layer

GATES = ("naive", "gshard", "switch")


def _linear_experts(count: int = EXPERTS) -> nn.LayerList:
    """Linear experts, with the same weights in every process."""
    made = nn.LayerList([nn.Linear(HIDDEN, HIDDEN) for _ in range(count)])
    for number, expert in enumerate(made):
        drawn = np.random.default_rng([number, 43]).standard_normal((HIDDEN, HIDDEN)).astype("float32")
        expert.weight.set_value(paddle.to_tensor(drawn))
    return made


def gate_weight() -> np.ndarray:
    """The weight of every gate of this module, [HIDDEN, EXPERTS]."""
    return np.random.default_rng(47).standard_normal((HIDDEN, EXPERTS)).astype("float32")


def incubate_layer(kind: str) -> nn.Layer:
    """paddle.incubate.distributed.models.moe.MoELayer with this gate of GATES, in evaluation: without random choices."""
    from paddle.incubate.distributed.models.moe import GShardGate, MoELayer, NaiveGate, SwitchGate

    made = {
        "naive": lambda: NaiveGate(HIDDEN, EXPERTS, 1, topk=2),
        "gshard": lambda: GShardGate(HIDDEN, EXPERTS, 1, random_routing=False),
        "switch": lambda: SwitchGate(HIDDEN, EXPERTS, 1),
    }
    layer = MoELayer(HIDDEN, _linear_experts(), gate=made[kind]())
    layer.gate.gate.weight.set_value(paddle.to_tensor(gate_weight()))
    layer.eval()
    return layer


def logits_layer(x: np.ndarray, kind: str) -> np.ndarray:
    """What this layer computes by its source: the outputs of linear experts, weighted by logits, not by probabilities.

    x: [tokens, hidden]. The switch gate has one expert, and weights it by its probability.
    """
    k = 1 if kind == "switch" else 2
    logits = x @ gate_weight().astype("float64")
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    weights = np.take_along_axis(reference.softmax(logits) if k == 1 else logits, chosen, axis=1)
    maps = np.stack([each.weight.numpy() for each in _linear_experts()]).astype("float64")
    return np.einsum("tk,th,tkho->to", weights, x, maps[chosen])


def on_two_ranks(kind: str) -> np.ndarray:
    """On each of two ranks: the output of paddle.incubate's layer with two of the experts on each rank."""
    from paddle.incubate.distributed.models.moe import MoELayer

    dist.init_parallel_env()
    experts = _linear_experts()[2 * dist.get_rank() : 2 * dist.get_rank() + 2]
    layer = MoELayer(HIDDEN, experts, gate={"type": kind, "top_k": 2}, moe_group=dist.new_group([0, 1]))
    layer.gate.gate.weight.set_value(paddle.to_tensor(gate_weight()))
    layer.eval()
    return layer(paddle.ones([1, 3, HIDDEN])).numpy()


# ------------------------------------------------------------------------------------------------------ PaddleNLP's classes


def layer_with(method: str, **options: Any) -> nn.Layer:
    """paddlenlp.transformers.moe_layer.MoELayer with linear experts and a gate of this method of PretrainedMoEGate.

    method: "top1gating", "top2gating" or "topkgating". options: of PretrainedMoEGate.
    """
    from paddlenlp.transformers.moe_gate import PretrainedMoEGate
    from paddlenlp.transformers.moe_layer import MoELayer

    class Gate(PretrainedMoEGate):
        scoring_func = "softmax"

        def forward(self, hidden):
            logits = F.linear(hidden, self.weight)
            if method == "topkgating":
                return self.topkgating(F.softmax(logits, axis=-1))
            return getattr(self, method)(logits.reshape([-1, EXPERTS]))

    gate = Gate(None, EXPERTS, HIDDEN, use_rts=False, top2_2nd_expert_sampling=False, **options)
    gate.weight = gate.create_parameter([HIDDEN, EXPERTS])
    gate.weight.set_value(paddle.to_tensor(gate_weight()))
    made = iter(_linear_experts())
    layer = MoELayer(None, EXPERTS, lambda: next(made), {}, gate)
    for number, expert in enumerate(layer.experts):  # on two ranks those of the other rank are None
        if expert is not None:
            expert.weight.set_value(_linear_experts()[number].weight)
    return layer


def nlp_on_two_ranks(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """On each of two ranks: output, and gradients of tokens and own experts, of PaddleNLP's layer with two experts a rank.

    x: [ranks, tokens, hidden]. The loss is the sum of the output.
    """
    from paddle.distributed import fleet

    dist.init_parallel_env()
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 2, "mp_degree": 1, "pp_degree": 1}
    fleet.init(is_collective=True, strategy=strategy)
    layer = layer_with("top2gating", drop_tokens=False)
    tokens = paddle.to_tensor(x[dist.get_rank()][None], stop_gradient=False)
    output = layer(tokens)[0]
    output.sum().backward()
    own = [each.weight.grad.numpy() for each in layer.experts if each is not None]
    return output.numpy()[0], tokens.grad.numpy()[0], own


def blocks() -> dict[str, Callable[[], nn.Layer]]:
    """By name the blocks of PaddleNLP's models: random weights, four experts, two for a token, whose weights add up to 1."""
    from paddlenlp.transformers import DeepseekV2Config, MixtralConfig, Qwen2MoeConfig
    from paddlenlp.transformers.deepseek_v2.modeling import DeepseekV2MoE
    from paddlenlp.transformers.mixtral.modeling import MixtralSparseMoeBlock
    from paddlenlp.transformers.qwen2_moe.modeling import Qwen2MoeSparseMoEBlock

    sizes: dict[str, Any] = {"hidden_size": HIDDEN, "intermediate_size": 8, "num_experts_per_tok": 2}
    sizes_of_experts = {"moe_intermediate_size": 8, "norm_topk_prob": True}
    deepseek: dict[str, Any] = {"n_routed_experts": EXPERTS, "n_shared_experts": 1, "n_group": 1, "topk_group": 1}
    deepseek |= {"topk_method": "greedy", "scoring_func": "softmax", "aux_loss_alpha": 0.0, "routed_scaling_factor": SCALE}
    qwen = {"num_experts": EXPERTS, "shared_expert_intermediate_size": 8, "num_hidden_layers": 1}
    return {
        "Qwen2-MoE": lambda: _filled(Qwen2MoeSparseMoEBlock(Qwen2MoeConfig(**sizes, **sizes_of_experts, **qwen))),
        "DeepSeek": lambda: _filled(DeepseekV2MoE(DeepseekV2Config(**sizes, **sizes_of_experts, **deepseek))),
        "Mixtral": lambda: _filled(MixtralSparseMoeBlock(MixtralConfig(**sizes, num_local_experts=EXPERTS))),
    }


def _filled(block: nn.Layer) -> nn.Layer:
    draw = np.random.default_rng(53)
    for parameter in block.parameters():
        parameter.set_value(paddle.to_tensor(0.5 * draw.standard_normal(parameter.shape).astype("float32")))
    block.gate.weight.set_value(paddle.to_tensor(gate_weight()))
    return block


def output_of(block: nn.Layer, x: np.ndarray) -> np.ndarray:
    """The output of a block or layer for tokens [tokens, hidden], which it gets as one sequence."""
    result = block(paddle.to_tensor(x[None].astype("float32")))
    return (result[0] if isinstance(result, tuple) else result).numpy()[0]


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
    paddle.cumsum = lambda x, axis=None, dtype=None, name=None: real(x, axis, dtype or x.dtype, name)
    try:
        yield
    finally:
        paddle.cumsum = real


@contextmanager
def where_of_columns() -> Iterator[None]:
    """paddle.where of a condition alone gives columns [found, 1], as PaddleNLP's Mixtral expects."""
    real = paddle.where

    def columns(condition, x=None, y=None, name=None):
        found = real(condition, x, y, name)
        return tuple(each.reshape([-1, 1]) for each in found) if x is None and y is None else found

    paddle.where = columns
    try:
        yield
    finally:
        paddle.where = real
