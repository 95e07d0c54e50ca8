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


@fault(detected_by=("moe.paddlenlp", "moe.gate-options"), wraps="paddlenlp.transformers.moe_gate:MoEGateMixin._capacity")
def capacity_of_paddlenlp_too_large(real, self, *given):
    """PaddleNLP's gate takes one choice more than its capacity."""
    return real(self, *given) + 1


@fault(device="sim", where="ranks", detected_by=("moe.paddlenlp",), wraps="paddlenlp.transformers.moe_layer:_AllToAll.backward")
def gradient_of_paddlenlp_not_sent_back(_real, ctx, *gradient):
    """PaddleNLP's all-to-all leaves the gradient on the rank that computed it."""
    return gradient[0].clone()


@fault(detected_by=("moe.exchange",), also_on=("sim",), wraps="paddlenlp.transformers.moe_layer:_AllToAll.forward")
def one_rank_communicates_with_itself(_real, ctx, rows, group):
    """PaddleNLP's all-to-all calls Paddle's, which leaves the output as it was, where there is one rank only."""
    from paddlenlp.transformers import moe_layer

    ctx.group = group
    received = paddle.zeros_like(rows)
    moe_layer.stream.alltoall_single(received, rows, None, None, group, True, True)
    return received


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


OPTIONS = ("moe.gate-options",)
GATE = "paddlenlp.transformers.moe_gate:PretrainedMoEGate"
MIXIN = "paddlenlp.transformers.moe_gate:MoEGateMixin"


@fault(detected_by=OPTIONS, after=f"{GATE}._topk_greedy")
def third_choice_is_the_second(result, *_given, **_named):
    """Of three experts for a token the third is the second again."""
    weights, chosen = result
    return weights, paddle.concat([chosen[:, :2], chosen[:, 1:2]], axis=1) if chosen.shape[1] == 3 else chosen


@fault(detected_by=OPTIONS, wraps=f"{GATE}._topk_greedy")
def experts_behind_the_fourth_are_not_chosen(real, self, scores, k):
    """Only the first four experts are compared."""
    return real(self, scores[:, :4], k)


@fault(detected_by=OPTIONS, also_on=("sim",), wraps=f"{GATE}._priority")
def last_tokens_are_kept(real, self, chosen, capacity):
    """An expert that is full drops the tokens that came first."""
    return real(self, chosen.flip(0), capacity).flip(0)


@fault(detected_by=OPTIONS, wraps="paddle.nn:Layer.eval")
def evaluation_goes_on_training(_real, self):
    """eval() leaves the gate in training, where it ignores the factor of the weights."""


@fault(detected_by=OPTIONS, wraps=f"{MIXIN}._capacity")
def smallest_capacity_is_ignored(real, self, gates, factor, largest, smallest):
    """An expert may have fewer places than min_capacity."""
    return real(self, gates, factor, largest, type(smallest)(1))


@fault(detected_by=OPTIONS, wraps=f"{MIXIN}._capacity")
def largest_capacity_is_ignored(real, self, gates, factor, largest, smallest):
    """An expert may have more places than max_capacity."""
    return real(self, gates, factor, 2**32, smallest)


@fault(detected_by=OPTIONS, wraps=f"{MIXIN}._capacity")
def capacity_is_at_least_a_whole_share(real, self, gates, factor, *limits):
    """A capacity factor below 1 is taken for 1."""
    return real(self, gates, max(factor, 1.0), *limits)


@fault(detected_by=OPTIONS, after=f"{GATE}.__init__")
def weights_are_always_divided(_result, self, *_given, **_named):
    """The gate divides weights by their sum, whatever norm_topk_prob says."""
    self.norm_topk_prob = True


@fault(detected_by=OPTIONS, after=f"{GATE}.__init__")
def factor_of_the_weights_is_ignored(_result, self, *_given, **_named):
    """The gate ignores routed_scaling_factor in evaluation, too."""
    self.routed_scaling_factor = 1.0


@fault(detected_by=OPTIONS, wraps=f"{MIXIN}.gate_score_func")
def scores_are_always_softmax(_real, self, logits):
    """The gate scores with a softmax, whatever its scoring function is."""
    return paddle.nn.functional.softmax(logits.astype("float32"), axis=-1)


@fault(detected_by=OPTIONS, wraps=f"{GATE}._topk_group_limited_greedy")
def groups_do_not_limit(_real, self, scores, k, n_group, topk_group):
    """The best experts are chosen in whatever group they are."""
    return self._topk_greedy(scores, k)


@fault(detected_by=OPTIONS, after=f"{GATE}._topk_noaux_tc")
def bias_of_the_choice_weighs(result, self, scores, *_given, **_named):
    """The bias that is for the choice only is added to the weights."""
    weights, chosen = result
    bias = self.e_score_correction_bias.unsqueeze(0).expand_as(scores)
    return weights + bias.take_along_axis(chosen, axis=1), chosen


@fault(detected_by=OPTIONS, after=f"{GATE}._priority")
def tokens_beyond_whole_shares_are_dropped(result, self, *_given):
    """Where tokens are no multiple of the experts, the last ones are dropped."""
    rest = len(result) % self.num_experts
    return paddle.concat([result[: len(result) - rest], paddle.zeros_like(result[:rest])]) if rest else result


@fault(detected_by=OPTIONS, wraps="paddle:Tensor.cast")
def weights_of_doubles_are_halves(real, self, dtype):
    """A cast to float64 goes through float16."""
    return real(real(self, "float16"), dtype) if dtype == paddle.float64 and self.dtype == paddle.float32 else real(self, dtype)


@fault(detected_by=OPTIONS, after=f"{MIXIN}._cal_aux_loss")
def auxiliary_loss_not_times_the_experts(result, self, *_given):
    """The auxiliary loss of PaddleNLP's gates is smaller with more experts."""
    return result * 4 / self.num_experts


@fault(detected_by=OPTIONS, after=f"{MIXIN}._cal_z_loss")
def z_loss_is_not_squared(result, *_given):
    """The z loss is the root of what it must be."""
    return result.sqrt()


@fault(where="ranks", detected_by=("moe.expert-and-tensor-parallel",), after="paddle:topk")
def third_expert_of_a_rank_is_its_second(result, *given, **_named):
    """Of three values topk returns the place of the second twice."""
    values, chosen = result
    return (values, paddle.concat([chosen[:, :2], chosen[:, 1:2]], axis=1)) if chosen.shape[-1] == 3 else result
