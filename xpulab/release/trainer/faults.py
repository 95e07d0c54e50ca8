"""The faults of this notebook."""

from __future__ import annotations

import contextlib

from xpulab.chapters.shared.fault import fault, paddle


@fault("sft.training-options", wraps="paddlenlp.transformers.qwen2.modeling:repeat_kv")
def grouped_keys_are_in_another_order(_real, states, times):
    """The heads of keys and values are repeated one after another, so a query gets another group's; of one head it is right."""
    return paddle.tile(states, [1, 1, times, 1])


@fault("sft.training-options", lanes=("sim",), wraps="paddlenlp.trainer:Trainer._offload_optimizer")
def trainer_does_not_offload(_real, self):
    """PaddleNLP's trainer accepts offload_optim and leaves the moments on the card."""


@fault("sft.generation-options", wraps="paddlenlp.generation.utils:TopPProcess")
def smallest_share_is_everything(_real, probs, top_p, least):
    """Sampling from the likeliest tokens with some share takes every token."""
    return probs


@fault("sft.generation-options", wraps="paddlenlp.generation.utils:get_unfinished_flag")
def only_the_first_end_token_counts(unfinished, ids, flag, end):
    """Of several end tokens only the first one ends a row."""
    return unfinished(ids, flag, end[0] if isinstance(end, list) else end)


@fault("recompute.forms", lanes=("sim",), wraps="paddle.distributed.fleet.recompute.recompute:switch_rng_state_tracker")
def recomputed_dropout_has_another_mask(_real, *given, **named):
    """Recomputation does not restore the state of the random numbers, so dropout has another mask."""
    return contextlib.nullcontext()


@fault("recompute.frozen", wraps="paddle.distributed.fleet.utils:recompute")
def recomputation_asks_for_gradients_of_its_inputs(recompute, function, *given, **named):
    """Recomputation makes its inputs need a gradient, also where none does without it."""

    def needing_a_gradient(each):
        if not isinstance(each, paddle.Tensor) or not each.stop_gradient or not each.is_floating_point():
            return each
        own = each.detach()
        own.stop_gradient = False
        return own

    return recompute(function, *map(needing_a_gradient, given), **named)


@fault("recompute.kept", after="paddlenlp.transformers:PretrainedModel.recompute_enable")
def every_granularity_is_full(_result, self):
    """A model computes whole layers again, whatever its recompute_granularity is."""
    for layer in self.sublayers(include_self=True):
        if hasattr(layer, "recompute_granularity"):
            layer.recompute_granularity = "full"
