"""Faults that 12_memory must detect."""

from __future__ import annotations

from xpulab.faults.fault import fault, replace_in_cells

# ---------------------------------------------------------------------------------------------------------- what is kept


@fault("12_memory", detected_by=("memory.first-step", "memory.formula"), smoke=("memory.first-step",))
def softmax_kept_twice() -> None:
    """Softmax keeps a second copy of its result for the backward pass."""
    import paddle
    import paddle.nn.functional as F

    real = F.softmax
    F.softmax = lambda *given, **named: real(*given, **named) * paddle.ones([1])


@fault("12_memory", detected_by=("memory.end-of-step",))
def cleared_gradients_keep_their_memory() -> None:
    """The optimizer fills gradients with zeros and does not free them."""
    import paddle

    real = paddle.optimizer.Optimizer.clear_grad
    paddle.optimizer.Optimizer.clear_grad = lambda self, set_to_zero=True: real(self, True)


@fault("12_memory", detected_by=("recompute.kept", "memory.formula"))
def recomputation_switched_off_silently() -> None:
    """A model accepts recompute_enable() and keeps all activations."""
    from paddlenlp.transformers import PretrainedModel

    PretrainedModel.recompute_enable = lambda self: None


@fault("12_memory", detected_by=("memory.master-weights",))
def master_weights_left_out() -> None:
    """AdamW accepts multi_precision=True and keeps its state in the type of the weights."""
    import paddle

    real = paddle.optimizer.AdamW.__init__
    paddle.optimizer.AdamW.__init__ = lambda self, *given, **named: real(self, *given, **{**named, "multi_precision": False})


@fault("12_memory", device="sim", detected_by=("memory.allocated",))
def activations_kept_on_the_card_twice() -> None:
    """A card keeps a second copy of the result of each swiglu as long as the model exists."""
    from paddlenlp.transformers.llama import modeling

    real, kept = modeling.swiglu, []

    def keeping(*given):
        result = real(*given)
        kept.append(result.detach().clone())
        return result

    modeling.swiglu = keeping


# --------------------------------------------------------------------------------------------------------- recomputation


@fault("12_memory", detected_by=("recompute.forms",))
def recomputed_dropout_has_another_mask() -> None:
    """Recomputation does not restore the state of the random numbers, so dropout has another mask."""
    import contextlib
    import importlib

    module = importlib.import_module("paddle.distributed.fleet.recompute.recompute")
    module.switch_rng_state_tracker = lambda *given, **named: contextlib.nullcontext()


@fault("12_memory", detected_by=("recompute.forms",))
def random_numbers_of_python_not_restored() -> None:
    """Recomputation restores the random numbers of Paddle, but not those of Python."""
    import importlib
    from types import SimpleNamespace

    module = importlib.import_module("paddle.distributed.fleet.recompute.recompute")
    module.random = SimpleNamespace(getstate=module.random.getstate, setstate=lambda state: None)


@fault("12_memory", detected_by=("recompute.frozen",))
def frozen_parameter_gets_a_gradient() -> None:
    """Under recomputation a frozen parameter gets a gradient."""
    import importlib

    import paddle
    from paddle.distributed.fleet import utils

    real = importlib.import_module("paddle.distributed.fleet.recompute.recompute").recompute

    def for_all(function, *given, **named):
        for each in function.parameters() if isinstance(function, paddle.nn.Layer) else []:
            each.stop_gradient = False
        return real(function, *given, **named)

    utils.recompute = for_all


@fault("12_memory", detected_by=("recompute.gradients", "recompute.selective"))
def recomputed_layer_sees_a_rounded_input() -> None:
    """The input that recomputation keeps for the backward pass is rounded to bfloat16."""
    import importlib

    module = importlib.import_module("paddle.distributed.fleet.recompute.recompute")
    real = module.detach_variable

    def rounded(inputs):
        found = real(inputs)
        for each in found:
            if hasattr(each, "place") and str(each.dtype) == "paddle.float32" and each.ndim == 3:
                each.set_value(each.astype("bfloat16").astype("float32"))
        return found

    module.detach_variable = rounded


@fault("12_memory", detected_by=("recompute.frozen", "recompute.sequential"))
def offloaded_input_of_recomputation_damaged() -> None:
    """An input that recomputation keeps on the host comes back as zeros."""
    import importlib

    import paddle

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


@fault("12_memory", detected_by=("recompute.calls",), also_on=("sim",))
def recomputed_two_times() -> None:
    """A block is recomputed twice in the backward pass: results are right, time is lost."""
    from paddle.distributed.fleet.recompute.recompute import RecomputeFunction

    real = RecomputeFunction.backward

    def twice(ctx, *given):
        ctx.run_function(*[each for each in ctx.saved_tensor()])
        return real(ctx, *given)

    RecomputeFunction.backward = staticmethod(twice)


# ---------------------------------------------------------------------------------------------------------- accumulation


@fault("12_memory", detected_by=("gradient-accumulation.gradients", "gradient-accumulation.loss"))
def parts_not_divided() -> None:
    """The losses of the parts of a batch are not divided by their number."""
    replace_in_cells("labels=rows)[0] / parts", "labels=rows)[0]")


@fault("12_memory", detected_by=("gradient-accumulation.small-batches",))
def trainer_does_not_divide() -> None:
    """PaddleNLP's trainer adds up the losses of small batches and does not divide them."""
    from paddlenlp.trainer import Trainer

    real = Trainer.training_step

    def undivided(self, *given, **named):
        parts, self.args.gradient_accumulation_steps = self.args.gradient_accumulation_steps, 1
        try:
            return real(self, *given, **named)
        finally:
            self.args.gradient_accumulation_steps = parts

    Trainer.training_step = undivided


@fault("12_memory", detected_by=("gradient-accumulation.gradients",), also_on=("sim",))
def last_part_lost() -> None:
    """The gradient of the last part of a batch is not added."""
    replace_in_cells(
        "        loss.backward()\n        total += float(loss)",
        "        total or loss.backward()\n        total += float(loss)",
    )


@fault("12_memory", detected_by=("gradient-accumulation.steps",))
def clipped_in_each_part() -> None:
    """Gradients are clipped by their norm after each part, and not after the last one."""
    replace_in_cells(
        "        total += float(loss)",
        "        total += float(loss)\n"
        "        norm = sum(float(w.grad.square().sum()) for w in network.parameters()) ** 0.5\n"
        "        [w.grad.set_value(w.grad * min(1.0, 0.1 / norm)) for w in network.parameters()]",
    )


# --------------------------------------------------------------------------------------------------------------- offload


@fault("12_memory", detected_by=("offload.training", "offload.activations", "offload.types", "offload.optimizers"))
def offloaded_tensor_lost() -> None:
    """What comes back from the host is zero."""
    import paddle

    from xpulab.notebook.offloading import Offloader

    real = Offloader.to_device
    Offloader.to_device = lambda self, copy: paddle.zeros_like(real(self, copy))


@fault("12_memory", detected_by=("offload.training", "offload.written-after"))
def stale_copy_of_an_address() -> None:
    """Copies are kept by address, and a write in place does not make them invalid: old values come back."""
    from xpulab.notebook.offloading import Offloader

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


@fault("12_memory", detected_by=("offload.training", "offload.optimizers"))
def offloaded_moment_rounded() -> None:
    """Moments are kept in bfloat16 on the host."""
    from xpulab.notebook.offloading import Offloader

    real = Offloader.to_device
    Offloader.to_device = lambda self, copy: (back := real(self, copy)).astype("bfloat16").astype(back.dtype)


@fault("12_memory", detected_by=("offload.training", "offload.activations", "offload.types", "offload.written-after"))
def reloaded_before_the_copy_was_complete() -> None:
    """A tensor is read back before its copy to the host is complete: its second half is not there yet."""
    from xpulab.notebook.offloading import Offloader

    real = Offloader.to_device

    def half(self, copy):
        back = real(self, copy)
        whole = back.reshape([-1])
        kept = whole.numpy().copy()
        kept[(len(kept) + 1) // 2 :] = 0
        whole.set_value(kept)
        return whole.reshape(back.shape)

    Offloader.to_device = half


@fault("12_memory", detected_by=("offload.activations", "offload.saved-tensors"))
def offload_forgets_the_layout() -> None:
    """A transposed tensor comes back from the host in another order of memory."""
    from xpulab.notebook import offloading

    offloading.axes_of_memory = lambda tensor: list(range(tensor.ndim))


@fault("12_memory", device="sim", sim_faults="flip copy kind=d2h bytes>=200000 bit=7", detected_by=("offload.written-after",))
def copy_to_the_host_damaged() -> None:
    """One bit of a large copy from the card to the host is inverted."""


@fault("12_memory", device="sim", detected_by=("offload.types", "memory.saved", "memory.allocated"))
def offload_dropped_silently() -> None:
    """A device without asynchronous copies leaves out the offload: tensors stay on the card."""
    from xpulab.notebook.offloading import Offloader

    Offloader.to_host = lambda self, tensor: tensor


@fault("12_memory", device="sim", detected_by=("offload.paddle",))
def async_offload_copies_nothing() -> None:
    """Paddle's async_offload returns the tensor on the card where it cannot copy asynchronously."""
    from paddle.incubate.tensor import manipulation

    real = manipulation.async_offload
    manipulation.async_offload = lambda tensor, loader: (tensor, real(tensor, loader)[1])


@fault("12_memory", device="sim", detected_by=("offload.trainer",))
def trainer_does_not_offload() -> None:
    """PaddleNLP's trainer accepts offload_optim and leaves the moments on the card."""
    from paddlenlp.trainer import Trainer

    Trainer._offload_optimizer = lambda self: None


@fault("12_memory", detected_by=("offload.fallback",))
def waiting_copies_called_asynchronous() -> None:
    """A device on which the program waits for each copy says that its copies are asynchronous."""
    from xpulab.notebook import offloading

    real = offloading._loader_of_the_device
    offloading._loader_of_the_device = lambda: (real()[0], offloading.ASYNCHRONOUS)


@fault("12_memory", detected_by=("pinned-memory.refused",), also_on=("sim",))
def ordinary_memory_called_page_locked() -> None:
    """Without page-locked memory pin_memory() returns ordinary memory and no error."""
    import paddle

    paddle.Tensor.pin_memory = lambda self, *given: self.cpu()


# --------------------------------------------------------------------------------------------------------- fused dropout


def _replace_dropout_add(compute) -> None:
    """Let fused_dropout_add fall back to compute(real, x, y, p, **options)."""
    import importlib

    module = importlib.import_module("paddle.incubate.nn.functional.fused_dropout_add")
    real = module.paddle_dropout_add
    module.paddle_dropout_add = lambda x, y, p=0.5, **options: compute(real, x, y, p, **options)


@fault("12_memory", detected_by=("fused-ops.dropout-add", "fused-ops.fallback"), also_on=("sim",))
def fused_dropout_without_its_scale() -> None:
    """The operator fused_dropout_add does not scale what it keeps at p = 0.5."""

    def unscaled(real, x, y, p, **options):
        return (real(x, y, p, **options) - y) * (0.5 if p == 0.5 else 1.0) + y

    _replace_dropout_add(unscaled)


@fault("12_memory", detected_by=("fused-ops.dropout-add",))
def fused_dropout_of_everything_is_nan() -> None:
    """The operator fused_dropout_add computes 0 / 0 at p = 1."""
    _replace_dropout_add(lambda real, x, y, p, **options: real(x, y, p, **options) + (float("nan") if p == 1 else 0.0))


@fault("12_memory", detected_by=("fused-ops.dropout-add",))
def fused_dropout_gradient_without_its_mask() -> None:
    """The gradient of fused_dropout_add does not use the mask of the forward pass."""
    _replace_dropout_add(lambda real, x, y, p, **options: (real(x, y, p, **options) - x - y).detach() + x + y)


@fault("12_memory", detected_by=("fused-ops.fallback",))
def fused_dropout_falls_back_silently() -> None:
    """The operator fused_dropout_add falls back without a warning."""
    import warnings

    real = warnings.warn
    warnings.warn = lambda message, *given, **named: (
        None if "fused_dropout_add" in str(message) else real(message, *given, **named)
    )
