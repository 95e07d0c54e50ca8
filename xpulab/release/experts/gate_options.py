"""Options of PaddleNLP's gates together, in training and in evaluation: values and gradients beside the formula in numpy.

    check.grid("moe.gate-options", GATES, one_by_one(measure), add_row, level=level, seed=seed, means=...)

A case is a paddlenlp.transformers.moe_layer.MoELayer with linear experts. The loss is the sum of its output by random factors,
or one of the two losses that the gate returns. Compared are the loss, the output and all gradients. The gates of the grid have
a workaround for each known defect; rows_of_defects shows in cases of the same grid what PaddleNLP does without each.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.checks.compared import Compared, add_row, with_one_scaled
from xpulab.checks.grid import Case, Grid, one_by_one
from xpulab.checks.table import Table
from xpulab.reference.moe import places
from xpulab.reference.operators import sigmoid, slope_of_softmax, softmax
from xpulab.release.experts.paddlenlp_moe import cumsum_of_one_type, layer_of, topk_in_order

HIDDEN, LEAST_GAP = 6, 0.004
"""The size of a token, and how far its scores are from each other, so that rounding does not change its experts."""

ALL, BY_POSITION = "none", "by position"
"""Which choices the gate drops beyond its capacity."""

CHOICES = ("greedy", "group_limited_greedy", "noaux_tc")
"""How experts are chosen: the best, or the best of the better one of two groups, of the last with a bias that is for the choice
only."""

OUTPUT, AUXILIARY, Z = "output", "auxiliary loss", "z loss"
"""What the loss is."""

EVALUATION, TWICE = "evaluation", "evaluation, twice the factor"

DETACHED, LOGITS, SET, UNDIVIDED, ORDERED = WORKAROUNDS = (
    "the mask of the dispatch is detached",
    "the z loss is that of the logits",
    "the capacity factor is set for evaluation",
    "one expert is not divided by itself",
    "topk is sorted",
)
"""What the gates of the grid do otherwise than PaddleNLP's. Without the first, gradients go through a cast to bool and back."""

_MANY = {"drops": BY_POSITION, "experts": "8", "k": "3", "factor": "0.5"}
DEFECTS: dict[str, tuple[str, dict[str, str]]] = {
    "nothing, with all workarounds": ("", {"drops": BY_POSITION, "factor": "0.5"}),
    "mask not detached, norm_topk_prob=False": (DETACHED, {"norm": "False"}),
    "mask not detached, one expert": (DETACHED, {"k": "1"}),
    "mask not detached, dropped choices": (DETACHED, {"drops": BY_POSITION, "factor": "0.5"}),
    "z loss of top-k": (LOGITS, {"loss": Z}),
    "eval_capacity_factor": (SET, {"drops": BY_POSITION, "mode": TWICE}),
    "top-k with one expert, norm_topk_prob": (UNDIVIDED, {"k": "1"}),
    "order of choices, group_limited_greedy": (ORDERED, {**_MANY, "choice": CHOICES[1]}),
    "order of choices, noaux_tc": (ORDERED, {**_MANY, "choice": CHOICES[2]}),
}
"""By name a defect of PaddleNLP: the workaround without which a case shows it, "" for none, and the case's labels."""

GATES = Grid(
    {
        "experts": (4, 8),
        "k": (2, 1, 3),
        "drops": (ALL, BY_POSITION),
        "factor": (1.0, 0.5, 2.0),
        "mode": ("training", EVALUATION, TWICE),
        "most": (None, 2),
        "norm": (True, False),
        "scale": (1.0, 2.5),
        "scores": ("softmax", "sigmoid"),
        "choice": CHOICES,
        "tokens": ((1, 24), (2, 11)),
        "loss": (OUTPUT, AUXILIARY, Z),
    },
    {
        "a group has two of four experts": lambda experts, k, choice: (experts, k) == (4, 3) and choice != CHOICES[0],
        "in training the scale is ignored: see moe.paddlenlp-models": lambda scale, mode: scale > 1 and mode == "training",
        "without dropping there is no capacity": lambda drops, factor, mode, most: (
            drops == ALL and (factor, mode == TWICE, most) != (1.0, False, None)
        ),
    },
    uninformative={"loss": [AUXILIARY, Z], "most": ["2"], "mode": [TWICE]},
)
"""The grid. most: the largest capacity of an expert."""

Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class _Problem:
    """The arrays of a case, in double precision.

    x, factors: tokens, and the factors of the output in the loss, [tokens, hidden]. gate: [hidden, experts].
    maps: of the experts, [experts, hidden, hidden]. bias: for the choice, [experts].
    """

    x: np.ndarray
    factors: np.ndarray
    gate: np.ndarray
    maps: np.ndarray
    bias: np.ndarray


def measure(case: Case, used: Container[str] = WORKAROUNDS) -> Compared:
    """Run the layer forward and backward, and the formula. used: of WORKAROUNDS.

    Rounding in float32: 24 bits, some hundred operations for a value, and a sum in another order.
    """
    problem = _problem(case)
    with cumsum_of_one_type(), topk_in_order() if ORDERED in used else nullcontext():
        found = _by_paddlenlp(case, problem, used)
    right = _by_formula(case, problem)
    sizes = {kind: max(float(np.abs(value).max()), 1e-3) for kind, value in right.items()}
    sizes["loss"] = max(sizes["loss"], sizes["output"])  # parts of a sum may cancel
    bound = {kind: 1e-4 * size for kind, size in sizes.items()}
    return Compared(found, right, bound, with_one_scaled(right, 0.9))


def rows_of_defects(rows: Table, seed: int) -> None:
    """Add a row for each of DEFECTS."""
    for name, (workaround, labels) in DEFECTS.items():
        others = [each for each in WORKAROUNDS if each != workaround]
        (found,) = one_by_one(partial(measure, used=others))([GATES.case(seed, **labels)])
        add_row(rows, name, found)


def _problem(case: Case) -> _Problem:
    rng = case.rng()
    gate = rng.standard_normal((HIDDEN, case.experts))
    bias = rng.uniform(0.2, 0.6, case.experts) if case.choice == "noaux_tc" else np.zeros(case.experts)
    chosen: list[np.ndarray] = []
    while len(chosen) < int(np.prod(case.tokens)):
        token = rng.standard_normal(HIDDEN).astype("float32").astype("float64")
        if _is_clear(case, _scores(case, token[None] @ gate.astype("float32").astype("float64"))[0] + bias):
            chosen.append(token)
    x = np.stack(chosen)
    maps = rng.standard_normal((case.experts, HIDDEN, HIDDEN))
    arrays = (x, rng.standard_normal(x.shape), gate, maps, bias)
    return _Problem(*(array.astype("float32").astype("float64") for array in arrays))


def _is_clear(case: Case, scores: np.ndarray) -> bool:
    """Whether no two experts and no two groups have nearly the same score."""
    gap = np.diff(np.sort(scores)).min()
    return bool(min(gap, abs(np.diff(_of_groups(case, scores[None])[0])[0])) > LEAST_GAP)


def _scores(case: Case, logits: np.ndarray) -> np.ndarray:
    return softmax(logits) if case.scores == "softmax" else sigmoid(logits)


def _of_groups(case: Case, scores: np.ndarray) -> np.ndarray:
    """The score of each of two groups, [tokens, 2]: the sum of its two best (arXiv 2412.19437), or the best (2405.04434)."""
    ordered = np.sort(scores.reshape(len(scores), 2, -1), axis=2)
    return ordered[..., -2:].sum(axis=2) if case.choice == "noaux_tc" else ordered[..., -1]


# ----------------------------------------------------------------------------------------------------------------- PaddleNLP


def _by_paddlenlp(case: Case, problem: _Problem, used: Container[str]) -> Values:
    layer = _layer(case, problem, used)
    x = paddle.to_tensor(problem.x.reshape(*case.tokens, HIDDEN), dtype="float32", stop_gradient=False)
    output, auxiliary, z = layer(x)
    factors = paddle.to_tensor(problem.factors.reshape(*case.tokens, HIDDEN), dtype="float32")
    loss = {AUXILIARY: auxiliary, Z: z}.get(case.loss, (output * factors).sum())
    loss.backward()
    found = {"loss": loss, "output": output, "tokens": x.grad, "gate": layer.gate.weight.grad}
    if case.loss == OUTPUT:
        weights = [expert.weight for expert in layer.experts]
        found["experts"] = paddle.stack([paddle.zeros_like(each) if each.grad is None else each.grad for each in weights])
    return {name: value.astype("float64").numpy() for name, value in found.items()}


def _layer(case: Case, problem: _Problem, used: Container[str]) -> Any:
    from paddlenlp.transformers.moe_gate import PretrainedMoEGate

    class Gate(PretrainedMoEGate):
        scoring_func = case.scores

        def forward(self, hidden: paddle.Tensor) -> Any:
            logits = F.linear(hidden, self.weight)
            capacity, combined, mask, counts, auxiliary, z = self.topkgating(self.gate_score_func(logits))
            z = self._cal_z_loss(logits.reshape([-1, case.experts])) if LOGITS in used else z
            return capacity, combined, mask.detach() if DETACHED in used else mask, counts, auxiliary, z

    layer = layer_of(Gate, problem.gate, problem.maps, **_options(case, used))
    layer.gate.e_score_correction_bias = paddle.to_tensor(problem.bias, dtype="float32")
    layer.train() if case.mode == "training" else layer.eval()
    if case.mode == TWICE and SET in used:
        layer.gate.capacity_factor = 2 * case.factor
    return layer


def _options(case: Case, used: Container[str]) -> dict[str, Any]:
    options: dict[str, Any] = {"drop_tokens": case.drops != ALL, "drop_policy": "position", "capacity_factor": case.factor}
    options["eval_capacity_factor"] = 2 * case.factor if case.mode == TWICE else case.factor
    options |= {"min_capacity": 1, **({"max_capacity": case.most} if case.most else {})}
    norm = case.norm and not (case.k == 1 and UNDIVIDED in used)
    options |= {"top_k": case.k, "norm_topk_prob": norm, "routed_scaling_factor": case.scale}
    return options | {"topk_method": case.choice, "n_group": 2, "topk_group": 1}


# --------------------------------------------------------------------------------------------------------------- the formula


def _capacity(case: Case, tokens: int) -> int:
    """How many choices an expert takes: whole shares of the tokens, as PaddleNLP defines it, between the limits."""
    if case.drops == ALL:
        return tokens * case.k
    share = int(tokens // case.experts * case.factor * (2 if case.mode == TWICE else 1) * case.k)
    return min(max(share, 1), case.most or share + tokens)


def _by_formula(case: Case, problem: _Problem) -> Values:
    logits = problem.x @ problem.gate
    scores, tokens = _scores(case, logits), len(problem.x)
    chosen = _chosen(case, scores + problem.bias)
    is_chosen, kept = np.zeros(scores.shape), np.zeros(scores.shape)
    np.put_along_axis(is_chosen, chosen, 1.0, axis=1)
    np.put_along_axis(kept, chosen, (places(chosen, case.experts) < _capacity(case, tokens)).astype(float), axis=1)
    is_divided = case.k > 1 and case.norm
    total = np.maximum((scores * is_chosen).sum(axis=1, keepdims=True), 1e-7) if is_divided else np.ones((tokens, 1))
    weights = case.scale * scores * kept / total
    of_experts = np.einsum("th,eho->teo", problem.x, problem.maps)
    output = np.einsum("te,teo->to", weights, of_experts)
    share = is_chosen.mean(axis=0)
    log_sum = np.log(np.exp(logits).sum(axis=1))
    of_scores, of_logits = np.zeros(scores.shape), np.zeros(scores.shape)
    of_x, of_maps = np.zeros(problem.x.shape), np.zeros(problem.maps.shape)
    if case.loss == OUTPUT:
        loss = (output * problem.factors).sum()
        of_weights = np.einsum("to,teo->te", problem.factors, of_experts)
        of_scores = case.scale * kept * of_weights / total
        if is_divided:
            of_scores -= is_chosen * (weights * of_weights).sum(axis=1, keepdims=True) / total
        of_x = np.einsum("te,to,eho->th", weights, problem.factors, problem.maps)
        of_maps = np.einsum("te,th,to->eho", weights, problem.x, problem.factors)
    elif case.loss == AUXILIARY:
        loss = case.experts * share @ scores.mean(axis=0)
        of_scores = np.broadcast_to(case.experts * share / tokens, scores.shape)
    else:
        loss = (log_sum**2).mean()
        of_logits = 2 * log_sum[:, None] * softmax(logits) / tokens
    of_logits += of_scores * scores * (1 - scores) if case.scores == "sigmoid" else slope_of_softmax(scores, of_scores)
    found: Mapping[str, Any] = {"loss": loss, "output": output.reshape(*case.tokens, HIDDEN)}
    gradients = {"tokens": (of_x + of_logits @ problem.gate.T).reshape(*case.tokens, HIDDEN), "gate": problem.x.T @ of_logits}
    own = {"experts": of_maps} if case.loss == OUTPUT else {}
    return {name: np.asarray(value, dtype="float64") for name, value in {**found, **gradients, **own}.items()}


def _chosen(case: Case, scores: np.ndarray) -> np.ndarray:
    """The experts of each token, the best first, [tokens, k]."""
    if case.choice != CHOICES[0]:
        of_groups = _of_groups(case, scores)
        is_best = np.repeat(of_groups == of_groups.max(axis=1, keepdims=True), case.experts // 2, axis=1)
        scores = np.where(is_best, scores, -np.inf)
    return np.argsort(-scores, axis=1)[:, : case.k]
