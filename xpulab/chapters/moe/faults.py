"""The faults of this chapter."""

from __future__ import annotations

from xpulab.chapters.shared.fault import CELLS, fault, np, paddle, replace_in_cells


@fault(detected_by=("moe.layer", "moe.parallel"), smoke=("moe.smoke-layer",), breaks=CELLS)
def combine_without_weights() -> None:
    """Outputs of experts are added up without their weights."""
    replace_in_cells("(weights.unsqueeze(-1) * table).sum(axis=1)", "table.sum(axis=1)")


@fault(detected_by=("moe.layer", "moe.parallel"), breaks=CELLS)
def rows_sorted_backwards() -> None:
    """The dispatch gives the rows to the experts in reverse order."""
    replace_in_cells(
        "paddle.argsort(target, stable=True)[: sum(counts)]", "paddle.argsort(target, stable=True)[: sum(counts)].flip(0)"
    )


@fault(detected_by=("moe.dropped", "moe.capacity", "moe.layer", "moe.exercise-dropped"), breaks=CELLS)
def queue_counts_from_one() -> None:
    """Each expert takes one choice less than its capacity."""
    replace_in_cells("((queue.cumsum(axis=0) - 1) * queue)", "(queue.cumsum(axis=0) * queue)")


@fault(detected_by=("moe.capacity", "moe.layer"), breaks=CELLS)
def capacity_rounded_up_twice() -> None:
    """The capacity of an expert is one choice too large."""
    replace_in_cells("return math.ceil(factor * tokens * k / EXPERTS)", "return math.ceil(factor * tokens * k / EXPERTS) + 1")


@fault(detected_by=("moe.layer", "moe.zero"), breaks=CELLS)
def dropped_tokens_are_computed() -> None:
    """Experts compute the choices that are above their capacity."""
    replace_in_cells("< capacity_of(len(x), self.k, self.factor)", "< len(x) * EXPERTS")


@fault(detected_by=("moe.balance", "moe.auxiliary", "moe.learns", "moe.choose"), breaks=CELLS)
def auxiliary_loss_without_gradient() -> None:
    """The auxiliary loss is a constant: no gradient goes through the probabilities."""
    replace_in_cells("(share * chances.sum(axis=0)).sum()", "(share * chances.detach().sum(axis=0)).sum()")


@fault(detected_by=("moe.auxiliary", "moe.layer"), breaks=CELLS)
def auxiliary_loss_of_first_choices() -> None:
    """The auxiliary loss counts only the first choices."""
    replace_in_cells(
        "F.one_hot(chosen.flatten(), experts).sum(axis=0)", "chosen.shape[1] * F.one_hot(chosen[:, 0], experts).sum(axis=0)"
    )


@fault(detected_by=("moe.layer", "moe.parallel"), breaks=CELLS)
def gate_without_gradient() -> None:
    """No gradient goes through the weights to the gate."""
    replace_in_cells("weights, chosen = paddle.topk(chances, k)", "weights, chosen = paddle.topk(chances.detach(), k)")


@fault(detected_by=("moe.gate", "moe.layer"), breaks=CELLS)
def weight_of_one_expert_is_one() -> None:
    """The weight of a single expert is divided by itself, so the gate gets no gradient."""
    replace_in_cells("if k > 1:", "if k > 0:")


@fault(detected_by=("moe.weights", "moe.gate"), breaks=CELLS)
def weights_not_divided_by_their_sum() -> None:
    """The weights of two experts do not add up to one."""
    replace_in_cells("if k > 1:", "if k > EXPERTS:")


@fault(detected_by=("moe.layer",), breaks=CELLS)
def experts_share_their_weights() -> None:
    """All experts of a layer are one and the same."""
    replace_in_cells("[Expert(HIDDEN, INNER) for _ in range(experts)]", "[Expert(HIDDEN, INNER)] * experts")


@fault(detected_by=("moe.capacity", "moe.layer"), breaks=CELLS)
def second_choices_queue_with_first_ones() -> None:
    """Both choices of a token queue before those of the next token."""
    replace_in_cells("turn = chosen.T", "turn = chosen")
    replace_in_cells("place.reshape(turn.shape).T", "place.reshape(turn.shape)")


@fault(detected_by=("moe.capacity",), wraps="paddle:Tensor.cumsum")
def running_sum_starts_again(real, self, axis=None, dtype=None, name=None):
    """cumsum begins at zero again after 128 rows, as if blocks of a kernel were not added up."""
    if axis != 0 or len(self) <= 128:
        return real(self, axis, dtype, name)
    return paddle.concat([real(each, axis, dtype, name) for each in (self[:128], self[128:])])


@fault(detected_by=("moe.gate",), after="paddle:topk")
def ties_give_one_expert_twice(result, x, k, axis=None, largest=True, sorted=True, name=None):
    """topk returns the same index again for equal values."""
    values, places = result
    return values, paddle.where(values == values[..., :1], places[..., :1].expand_as(places), places)


@fault(detected_by=("moe.gate",), wraps="paddle.nn.functional:softmax")
def gate_overflows(_real, x, axis=-1, dtype=None, name=None):
    """softmax does not subtract the maximum, so large logits give NaN."""
    powers = paddle.exp(x)
    return powers / powers.sum(axis=axis, keepdim=True)


@fault(detected_by=("moe.zero", "moe.layer"), after="xpulab.chapters.moe.moe_layer:Expert.forward")
def empty_expert_gives_nan(output, self, x):
    """An expert without tokens has a gradient of NaN."""
    return output + self.up.weight.sum() * self.down.weight.sum() * float("nan") if len(x) == 0 else output


@fault(where="ranks", detected_by=("moe.exchange", "moe.parallel", "moe.loss"), after="xpulab.chapters.moe.moe_layer:exchange")
def parts_in_reverse_order(got, rows, sent, received, group=None):
    """All-to-all returns the parts of the ranks in reverse order."""
    ends = np.cumsum(received)
    parts = [got[int(end - count) : int(end)] for end, count in zip(ends, received, strict=True)]
    return paddle.concat(parts[::-1])


@fault(
    where="ranks",
    detected_by=("moe.dispatch", "moe.exchange", "moe.parallel", "moe.loss"),
    after="paddle.distributed:all_gather",
)
def gathered_rows_begin_with_the_last(_result, parts, tensor, *given, **named):
    """all_gather gives the last row of each rank first, where a rank has more than four."""
    parts[:] = [each.roll(1, axis=0) if each.ndim == 2 and len(each) > 4 else each for each in parts]


@fault(where="ranks", detected_by=("moe.exchange", "moe.parallel"), wraps="xpulab.chapters.moe.moe_layer:AllToAll.backward")
def gradient_stays_on_its_rank(_real, ctx, gradient):
    """A rank that sends as many rows as it receives ignores the gradient that comes back, and keeps the one it has."""
    from xpulab.chapters.moe import moe_layer

    sent, received = ctx.splits
    back = moe_layer.exchange(gradient, received, sent, ctx.group)
    return gradient.clone() if sum(sent) == sum(received) else back


@fault(
    device="sim",
    sim_faults="flip collective kind=all_to_all rank=1 bytes>=40 bit=22",
    detected_by=("moe.exchange", "moe.parallel"),
)
def rows_damaged_on_the_way() -> None:
    """One bit of what an all-to-all moves is inverted."""


@fault(where="ranks", detected_by=("moe.expert-and-tensor-parallel",), also_on=("sim",), wraps="paddle.distributed:all_reduce")
def parts_of_a_cut_expert_not_added(real, tensor, *given, group=None, **named):
    """A sum in a group of two of four ranks leaves on each rank what it had."""
    return real(tensor, *given, group=group, **named) if group is None else None


@fault(where="ranks", detected_by=("moe.expert-and-tensor-parallel",), after="paddle.distributed:all_gather")
def pairs_of_experts_exchange_their_rows(_result, parts, tensor, group=None, **named):
    """all_gather in a group of two of four ranks gives the parts of the ranks in reverse order."""
    parts[:] = parts if group is None else parts[::-1]


@fault(detected_by=("moe.parallel",), breaks=CELLS)
def gradient_of_the_gate_not_added() -> None:
    """Each rank keeps its own gradient of the gate."""
    replace_in_cells("dist.all_reduce(layer.gate.weight.grad)", "pass")


@fault(detected_by=("moe.expert-gradients", "moe.parallel"), breaks=CELLS)
def gradients_of_experts_added() -> None:
    """Gradients of different experts are added over the ranks, like those of copied parameters."""
    replace_in_cells("dist.all_reduce(layer.gate.weight.grad)", "[dist.all_reduce(each.grad) for each in layer.parameters()]")


@fault(detected_by=("moe.parallel", "moe.loss"), breaks=CELLS)
def rows_return_in_the_order_of_experts() -> None:
    """Before the way back the rows are not sorted by sender again."""
    replace_in_cells("done = paddle.scatter(paddle.zeros_like(done), order, done)", "pass")


@fault(detected_by=("moe.checkpoint", "moe.checkpoints"), breaks=CELLS)
def experts_numbered_in_turn() -> None:
    """A checkpoint numbers experts as if the ranks took them in turn."""
    right, place = "experts.{number}.{name}", "(number - rank * len(layer.experts))"
    replace_in_cells(right, "experts.{" + place + " * (EXPERTS // len(layer.experts)) + rank}.{name}")


@fault(detected_by=("moe.repeats",), wraps="paddle.nn.functional:silu")
def repeats_differ(real, x, name=None):
    """An operator of the experts has another rounding error each time."""
    return real(x, name) * (1 + 2.0**-20 * paddle.rand(x.shape))


@fault(detected_by=("moe.paddlenlp",), wraps="paddlenlp.transformers.moe_gate:MoEGateMixin._capacity")
def capacity_of_paddlenlp_too_large(real, self, *given):
    """PaddleNLP's gate takes one choice more than its capacity."""
    return real(self, *given) + 1


@fault(device="sim", where="ranks", detected_by=("moe.paddlenlp",), wraps="paddlenlp.transformers.moe_layer:_AllToAll.backward")
def gradient_of_paddlenlp_not_sent_back(_real, ctx, *gradient):
    """PaddleNLP's all-to-all leaves the gradient on the rank that computed it."""
    return gradient[0].clone()


@fault(detected_by=("moe.paddlenlp-models",), after="paddlenlp.transformers.deepseek_v2.modeling:DeepseekV2MoE.__init__")
def shared_expert_is_left_out(_result, self, config):
    """The block of DeepSeek adds nothing of its shared experts."""
    shared = self.shared_experts.forward
    self.shared_experts.forward = lambda x: shared(x) * (1.0 if x.ndim == 2 else 0.0)  # blocks get [batch, tokens, hidden]


@fault(device="sim", detected_by=("moe.paddle-operators",), wraps="paddle.distributed.models.moe.utils:_limit_by_capacity")
def capacity_of_the_first_rank_only(real, count, capacity, workers):
    """limit_by_capacity limits the choices of the first rank only."""
    share = len(count) // workers
    return paddle.concat([real(count[:share], capacity, 1), count[share:]])


@fault(device="sim", detected_by=("moe.paddle-layer",), after="paddle.incubate.distributed.models.moe:NaiveGate.forward")
def naive_gate_exchanges_weights(result, self, *given, **named):
    """The gate of Paddle's layer gives the first expert of a token the weight of the second."""
    weights, chosen, *others = result
    return (weights.flip(-1), chosen, *others)


@fault(detected_by=("moe.exercise-stored",), wraps="paddle.nn:Linear.__init__")
def large_layer_is_cut(real, self, in_features, out_features, *given, **named):
    """A linear layer has at most 4,096 outputs, whatever it is asked for."""
    real(self, in_features, min(out_features, 4096), *given, **named)
