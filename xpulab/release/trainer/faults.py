"""The faults of this notebook."""

from __future__ import annotations

from xpulab.chapters.shared.fault import fault, paddle


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
