"""Faults of one process: what is kept, recomputation, accumulation, offload and fused dropout."""

from __future__ import annotations

import contextlib
import importlib
from types import SimpleNamespace

from xpulab.chapters.shared.fault import CELLS, fault, paddle, replace_in_cells

# ---------------------------------------------------------------------------------------------------------- what is kept


@fault(detected_by=("memory.first-step", "memory.formula"), smoke=("memory.first-step",), wraps="paddle.nn.functional:softmax")
def softmax_kept_twice(real, *given, **named):
    """Softmax keeps a second copy of its result for the backward pass."""
    return real(*given, **named) * paddle.ones([1])


@fault(detected_by=("memory.end-of-step",), wraps="paddle.optimizer:Optimizer.clear_grad")
def cleared_gradients_keep_their_memory(real, self, set_to_zero=True):
    """The optimizer fills gradients with zeros and does not free them."""
    return real(self, True)


@fault(
    detected_by=("recompute.kept", "memory.formula", "memory.saved"),
    wraps="paddlenlp.transformers:PretrainedModel.recompute_enable",
)
def recomputation_switched_off_silently(_real, self):
    """A model accepts recompute_enable() and keeps all activations."""


@fault(detected_by=("memory.master-weights",), wraps="paddle.optimizer:AdamW.__init__")
def master_weights_left_out(real, self, *given, **named):
    """AdamW accepts multi_precision=True and keeps its state in the type of the weights."""
    return real(self, *given, **{**named, "multi_precision": False})


@fault(device="sim", detected_by=("memory.allocated",), replaces="paddlenlp.transformers.llama.modeling:swiglu")
def activations_kept_on_the_card_twice(real):
    """A card keeps a second copy of the result of each swiglu as long as the model exists."""

    kept = []

    def keeping(*given):
        result = real(*given)
        kept.append(result.detach().clone())
        return result

    return keeping


# --------------------------------------------------------------------------------------------------------- recomputation


@fault(detected_by=("recompute.forms",), wraps="paddle.distributed.fleet.recompute.recompute:switch_rng_state_tracker")
def recomputed_dropout_has_another_mask(_real, *given, **named):
    """Recomputation does not restore the state of the random numbers, so dropout has another mask."""
    return contextlib.nullcontext()


@fault(detected_by=("recompute.forms",), breaks="paddle.distributed.fleet.recompute.recompute:random")
def random_numbers_of_python_not_restored() -> None:
    """Recomputation restores the random numbers of Paddle, but not those of Python."""
    module = importlib.import_module("paddle.distributed.fleet.recompute.recompute")
    module.random = SimpleNamespace(getstate=module.random.getstate, setstate=lambda state: None)


@fault(detected_by=("recompute.frozen",), replaces="paddle.distributed.fleet.utils:recompute")
def frozen_parameter_gets_a_gradient(_real):
    """Under recomputation a frozen parameter gets a gradient."""
    real = importlib.import_module("paddle.distributed.fleet.recompute.recompute").recompute

    def for_all(function, *given, **named):
        for each in function.parameters() if isinstance(function, paddle.nn.Layer) else []:
            each.stop_gradient = False
        return real(function, *given, **named)

    return for_all


@fault(
    detected_by=("recompute.gradients", "recompute.selective"),
    after="paddle.distributed.fleet.recompute.recompute:detach_variable",
)
def recomputed_layer_sees_a_rounded_input(found, inputs):
    """The input that recomputation keeps for the backward pass is rounded to bfloat16."""
    for each in found:
        if hasattr(each, "place") and str(each.dtype) == "paddle.float32" and each.ndim == 3:
            each.set_value(each.astype("bfloat16").astype("float32"))


@fault(
    detected_by=("recompute.frozen", "recompute.sequential"),
    breaks=(
        "paddle.distributed.fleet.recompute.recompute:RecomputeFunction.backward",
        "paddle.distributed.fleet.recompute.recompute:detach_variable",
    ),
)
def offloaded_input_of_recomputation_damaged() -> None:
    """An input that recomputation keeps on the host comes back as zeros."""
    module = importlib.import_module("paddle.distributed.fleet.recompute.recompute")
    backward, detach, offloaded = module.RecomputeFunction.backward, module.detach_variable, []

    def noting(ctx, *given):
        offloaded[:] = ctx.offload_indices
        return backward(ctx, *given)

    def damaged(inputs):
        found = detach(inputs)
        for index in offloaded:
            found[index].set_value(paddle.zeros_like(found[index]))
        return found

    module.RecomputeFunction.backward = staticmethod(noting)
    module.detach_variable = damaged


@fault(
    detected_by=("recompute.calls", "recompute.batch-norm"),
    also_on=("sim",),
    wraps="paddle.distributed.fleet.recompute.recompute:RecomputeFunction.backward",
)
def recomputed_two_times(real, ctx, *given):
    """A block is recomputed twice in the backward pass: results are right, time is lost."""
    ctx.run_function(*[each for each in ctx.saved_tensor()])
    return real(ctx, *given)


@fault(detected_by=("recompute.one-pair-of-hooks",), wraps="paddle.autograd:saved_tensors_hooks.__enter__")
def second_pair_of_hooks_replaces_the_first(real, self):
    """A second pair of hooks for saved tensors is accepted, and takes the place of the first without an error."""
    from paddle.base import core

    core.eager.reset_saved_tensors_hooks()
    return real(self)


@fault(detected_by=("recompute.no-input-gradient",), replaces="paddle.distributed.fleet.utils:recompute")
def recomputation_asks_for_gradients_of_its_inputs(_real):
    """Recomputation makes its inputs need a gradient, also where none does without it."""
    real = importlib.import_module("paddle.distributed.fleet.recompute.recompute").recompute

    def with_gradients(function, *given, **named):
        return real(function, *[_needing_a_gradient(each) for each in given], **named)

    def _needing_a_gradient(each):
        if not isinstance(each, paddle.Tensor) or not each.stop_gradient or not each.is_floating_point():
            return each
        own = each.detach()
        own.stop_gradient = False
        return own

    return with_gradients


# ---------------------------------------------------------------------------------------------------------- accumulation


@fault(detected_by=("gradient-accumulation.gradients", "gradient-accumulation.loss"), breaks=CELLS)
def parts_not_divided() -> None:
    """The losses of the parts of a batch are not divided by their number."""
    replace_in_cells("labels=rows)[0] / parts", "labels=rows)[0]")


@fault(detected_by=("gradient-accumulation.small-batches",), wraps="paddlenlp.trainer:Trainer.training_step")
def trainer_does_not_divide(real, self, *given, **named):
    """PaddleNLP's trainer adds up the losses of small batches and does not divide them."""
    parts, self.args.gradient_accumulation_steps = self.args.gradient_accumulation_steps, 1
    try:
        return real(self, *given, **named)
    finally:
        self.args.gradient_accumulation_steps = parts


@fault(detected_by=("gradient-accumulation.gradients",), also_on=("sim",), breaks=CELLS)
def last_part_lost() -> None:
    """The gradient of the last part of a batch is not added."""
    replace_in_cells(
        "        loss.backward()\n        total += float(loss)",
        "        total or loss.backward()\n        total += float(loss)",
    )


@fault(detected_by=("gradient-accumulation.steps",), breaks=CELLS)
def clipped_in_each_part() -> None:
    """Gradients are clipped by their norm after each part, and not after the last one."""
    replace_in_cells(
        "        total += float(loss)",
        "        total += float(loss)\n"
        "        norm = sum(float(w.grad.square().sum()) for w in network.parameters()) ** 0.5\n"
        "        [w.grad.set_value(w.grad * min(1.0, 0.1 / norm)) for w in network.parameters()]",
    )


# --------------------------------------------------------------------------------------------------------------- offload


@fault(
    detected_by=("offload.training", "offload.activations", "offload.types", "offload.optimizers"),
    wraps="xpulab.chapters.memory.offloading:Offloader.to_device",
)
def offloaded_tensor_lost(real, self, copy):
    """What comes back from the host is zero."""
    return paddle.zeros_like(real(self, copy))


@fault(
    detected_by=("offload.training", "offload.written-after"),
    breaks=("xpulab.chapters.memory.offloading:Offloader.to_host", "xpulab.chapters.memory.offloading:Offloader.to_device"),
)
def stale_copy_of_an_address() -> None:
    """Copies are kept by address, and a write in place does not make them invalid: old values come back."""
    from xpulab.chapters.memory.offloading import Offloader

    to_host, to_device, copies = Offloader.to_host, Offloader.to_device, {}

    def key(tensor):
        return tensor.data_ptr(), tuple(tensor.shape), str(tensor.dtype)

    def known_or_new(self, tensor):
        return copies.setdefault(key(tensor), to_host(self, tensor))

    def noting(self, copy):
        back = to_device(self, copy)
        copies[key(back)] = copy
        return back

    Offloader.to_host, Offloader.to_device = known_or_new, noting


@fault(detected_by=("offload.training", "offload.optimizers"), wraps="xpulab.chapters.memory.offloading:Offloader.to_device")
def offloaded_moment_rounded(real, self, copy):
    """Moments are kept in bfloat16 on the host."""
    return (back := real(self, copy)).astype("bfloat16").astype(back.dtype)


@fault(
    detected_by=("offload.training", "offload.activations", "offload.types", "offload.written-after"),
    after="xpulab.chapters.memory.offloading:Offloader.to_device",
)
def reloaded_before_the_copy_was_complete(back, self, copy):
    """A tensor is read back before its copy to the host is complete: its second half is not there yet."""
    whole = back.reshape([-1])
    kept = whole.numpy().copy()
    kept[(len(kept) + 1) // 2 :] = 0
    whole.set_value(kept)
    return whole.reshape(back.shape)


@fault(detected_by=("offload.activations", "offload.saved-tensors"), wraps="xpulab.chapters.memory.offloading:axes_of_memory")
def offload_forgets_the_layout(_real, tensor):
    """A transposed tensor comes back from the host in another order of memory."""
    return list(range(tensor.ndim))


@fault(
    detected_by=("offload.training", "offload.activations", "offload.types", "offload.saved-tensors", "offload.optimizers"),
    after="paddle:Tensor.to",
)
def copies_without_their_last_element(copied, self, *given, **named):
    """A copy to another place for which the program waits ends one element too early: the last one is zero."""
    if not named.get("blocking"):
        return copied
    whole = copied.flatten()
    return paddle.concat([whole[:-1], paddle.zeros_like(whole[-1:])]).reshape(copied.shape)


@fault(device="sim", sim_faults="flip copy kind=d2h bytes>=200000 bit=7", detected_by=("offload.written-after",))
def copy_to_the_host_damaged() -> None:
    """One bit of a large copy from the card to the host is inverted."""


@fault(
    device="sim",
    detected_by=("offload.types", "memory.saved", "memory.allocated"),
    wraps="xpulab.chapters.memory.offloading:Offloader.to_host",
)
def offload_dropped_silently(_real, self, tensor):
    """A device without asynchronous copies leaves out the offload: tensors stay on the card."""
    return tensor


@fault(device="sim", detected_by=("offload.paddle",), wraps="paddle.incubate.tensor.manipulation:async_offload")
def async_offload_copies_nothing(real, tensor, loader):
    """Paddle's async_offload returns the tensor on the card where it cannot copy asynchronously."""
    return (tensor, real(tensor, loader)[1])


@fault(device="sim", detected_by=("offload.trainer",), wraps="paddlenlp.trainer:Trainer._offload_optimizer")
def trainer_does_not_offload(_real, self):
    """PaddleNLP's trainer accepts offload_optim and leaves the moments on the card."""


@fault(detected_by=("pinned-memory.refused",), also_on=("sim",), wraps="paddle:Tensor.pin_memory")
def ordinary_memory_called_page_locked(_real, self, *given):
    """Without page-locked memory pin_memory() returns ordinary memory and no error."""
    return self.cpu()


ON_CARDS = "it compares on real cards only"


@fault(detected_by=("pinned-memory.copies",), wraps="paddle:Tensor.pin_memory", not_run=ON_CARDS)
def page_locked_copy_without_its_last_element(real, self, *given):
    """A copy to page-locked memory ends one element too early."""
    whole = self.flatten()
    return real(paddle.concat([whole[:-1], paddle.zeros_like(whole[-1:])]).reshape(self.shape), *given)


@fault(detected_by=("pinned-memory.faster",), wraps="paddle:Tensor.pin_memory", not_run=ON_CARDS)
def page_locked_memory_through_ordinary_memory(real, self, *given):
    """A tensor of a card is copied to ordinary memory first, and from there to page-locked memory."""
    return real(self.cpu(), *given)


# --------------------------------------------------------------------------------------------------------- fused dropout


DROPOUT_ADD = "paddle.incubate.nn.functional.fused_dropout_add:paddle_dropout_add"


def _replace_dropout_add(compute) -> None:
    """Let fused_dropout_add fall back to compute(real, x, y, p, **options)."""
    module = importlib.import_module("paddle.incubate.nn.functional.fused_dropout_add")
    real = module.paddle_dropout_add
    module.paddle_dropout_add = lambda x, y, p=0.5, **options: compute(real, x, y, p, **options)


@fault(detected_by=("fused-ops.dropout-add", "fused-ops.fallback"), also_on=("sim",), breaks=DROPOUT_ADD)
def fused_dropout_without_its_scale() -> None:
    """The operator fused_dropout_add does not scale what it keeps at p = 0.5."""

    def unscaled(real, x, y, p, **options):
        return (real(x, y, p, **options) - y) * (0.5 if p == 0.5 else 1.0) + y

    _replace_dropout_add(unscaled)


@fault(detected_by=("fused-ops.dropout-add",), breaks=DROPOUT_ADD)
def fused_dropout_of_everything_is_nan() -> None:
    """The operator fused_dropout_add computes 0 / 0 at p = 1."""
    _replace_dropout_add(lambda real, x, y, p, **options: real(x, y, p, **options) + (float("nan") if p == 1 else 0.0))


@fault(detected_by=("fused-ops.dropout-add",), breaks=DROPOUT_ADD)
def fused_dropout_gradient_without_its_mask() -> None:
    """The gradient of fused_dropout_add does not use the mask of the forward pass."""
    _replace_dropout_add(lambda real, x, y, p, **options: (real(x, y, p, **options) - x - y).detach() + x + y)


@fault(detected_by=("fused-ops.fallback",), wraps="warnings:warn")
def fused_dropout_falls_back_silently(real, message, *given, **named):
    """The operator fused_dropout_add falls back without a warning."""
    return None if "fused_dropout_add" in str(message) else real(message, *given, **named)


@fault(detected_by=("fused-ops.dropout-add-kernel",), wraps="paddle._C_ops:fused_dropout_add", not_run=ON_CARDS)
def fused_dropout_kernel_adds_before_it_drops(real, x, y, *given):
    """The kernel of fused_dropout_add drops elements of the sum, and not of the first tensor."""
    return real(x + y, paddle.zeros_like(y), *given)
