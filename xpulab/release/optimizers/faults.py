"""The faults of this notebook."""

from __future__ import annotations

from xpulab.chapters.shared.fault import fault


@fault("sft.optimizer-options", lanes=("sim",), wraps="paddle.amp:GradScaler.step")
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
