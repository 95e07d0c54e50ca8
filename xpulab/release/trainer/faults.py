"""The faults of this notebook."""

from __future__ import annotations

import contextlib
from unittest import mock

from xpulab.chapters.shared.fault import fault, kept, paddle, wrap

RECOMPUTE = "paddle.distributed.fleet.recompute.recompute"


@fault(detected_by=("sft.training-options",), wraps="paddlenlp.transformers.qwen2.modeling:repeat_kv")
def grouped_keys_are_in_another_order(_real, states, times):
    """The heads of keys and values are repeated one after another, so a query gets another group's; of one head it is right."""
    return paddle.tile(states, [1, 1, times, 1])


@fault(detected_by=("sft.optimizer-options",), lanes=("sim",), wraps="paddle.amp:GradScaler.step")
def gradients_are_clipped_before_they_are_divided(step, self, optimizer):
    """Gradients are clipped while they are still multiplied by the factor of the scaler."""
    clip = optimizer._grad_clip
    if clip is None or not self.is_enable():
        return step(self, optimizer)
    weights = [weight for weight in optimizer._parameter_list if weight.grad is not None]
    for weight, gradient in clip([(weight, weight.grad) for weight in weights]):
        weight.grad.set_value(gradient)
    optimizer._grad_clip = None
    try:
        return step(self, optimizer)
    finally:
        optimizer._grad_clip = clip


@fault(detected_by=("sft.generation-options",), wraps="paddlenlp.generation.utils:get_unfinished_flag")
def only_the_first_end_token_counts(unfinished, ids, flag, end):
    """Of several end tokens only the first one ends a row."""
    return unfinished(ids, flag, end[0] if isinstance(end, list) else end)


@fault(detected_by=("recompute.forms",), wraps=f"{RECOMPUTE}:switch_rng_state_tracker")
def recomputed_dropout_has_another_mask(_real, *given, **named):
    """Recomputation does not restore the state of the random numbers, so dropout has another mask."""
    return contextlib.nullcontext()


@fault(
    detected_by=("recompute.frozen", "recompute.sequential"),
    breaks=(f"{RECOMPUTE}:RecomputeFunction.backward", f"{RECOMPUTE}:detach_variable"),
)
def offloaded_input_of_recomputation_damaged() -> None:
    """An input that recomputation keeps on the host comes back as zeros."""

    def noting(backward, ctx, *given):
        kept[:] = ctx.offload_indices
        return backward(ctx, *given)

    def damaged(detach, inputs):
        found = detach(inputs)
        for index in kept:
            found[index].set_value(paddle.zeros_like(found[index]))
        return found

    wrap(f"{RECOMPUTE}:RecomputeFunction.backward", noting)
    wrap(f"{RECOMPUTE}:detach_variable", damaged)


@fault(
    detected_by=("recompute.calls", "recompute.batch-norm"),
    wraps=f"{RECOMPUTE}:RecomputeFunction.backward",
    lanes=("sim",),
)
def recomputed_two_times(real, ctx, *given):
    """A block is recomputed twice in the backward pass: results are right, time is lost."""
    ctx.run_function(*[each for each in ctx.saved_tensor()])
    return real(ctx, *given)


@fault(detected_by=("recompute.one-pair-of-hooks",), wraps="paddle.autograd:saved_tensors_hooks.__enter__")
def second_pair_of_hooks_replaces_the_first(real, self):
    """A second pair of hooks for saved tensors is accepted, and takes the place of the first without an error."""
    paddle.base.core.eager.reset_saved_tensors_hooks()
    return real(self)


@fault(detected_by=("recompute.no-input-gradient",), wraps="paddle.distributed.fleet.utils:recompute")
def recomputation_asks_for_gradients_of_its_inputs(recompute, function, *given, **named):
    """Recomputation makes its inputs need a gradient, also where none does without it."""

    def needing_a_gradient(each):
        if not isinstance(each, paddle.Tensor) or not each.stop_gradient or not each.is_floating_point():
            return each
        own = each.detach()
        own.stop_gradient = False
        return own

    return recompute(function, *map(needing_a_gradient, given), **named)


@fault(detected_by=("gradient-accumulation.small-batches",), wraps="paddlenlp.trainer:Trainer.training_step")
def trainer_does_not_divide(real, self, *given, **named):
    """PaddleNLP's trainer adds up the losses of small batches and does not divide them."""
    with mock.patch.object(self.args, "gradient_accumulation_steps", 1):
        return real(self, *given, **named)


@fault(lanes=("sim",), detected_by=("offload.trainer",), wraps="paddlenlp.trainer:Trainer._offload_optimizer")
def trainer_does_not_offload(_real, self):
    """PaddleNLP's trainer accepts offload_optim and leaves the moments on the card."""


@fault(detected_by=("recompute.kept",), after="paddlenlp.transformers:PretrainedModel.recompute_enable")
def every_granularity_is_full(_result, self):
    """A model computes whole layers again, whatever its recompute_granularity is."""
    for layer in self.sublayers(include_self=True):
        if hasattr(layer, "recompute_granularity"):
            layer.recompute_granularity = "full"


@fault(detected_by=("recompute.selective",), after=f"{RECOMPUTE}:detach_variable")
def recomputed_attention_sees_rounded_inputs(found, inputs):
    """The queries, keys and values that recomputation keeps for the backward pass are rounded to bfloat16."""
    for each in found:
        if hasattr(each, "place") and str(each.dtype) == "paddle.float32" and each.ndim == 4:
            each.set_value(each.astype("bfloat16").astype("float32"))
