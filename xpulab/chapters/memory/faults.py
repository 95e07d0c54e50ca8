"""The faults of this chapter."""

from __future__ import annotations

from xpulab.chapters.shared.fault import CELLS, fault, kept, paddle, replace_in_cells

RECOMPUTE = "paddle.distributed.fleet.recompute.recompute"


@fault(
    "memory.first-step",
    "memory.formula",
    "memory.exercise-length",
    smoke=("memory.first-step",),
    wraps="paddle.nn.functional:softmax",
)
def softmax_kept_twice(real, *given, **named):
    """Softmax keeps a second copy of its result for the backward pass."""
    return real(*given, **named) * paddle.ones([1])


@fault("memory.end-of-step", wraps="paddle.optimizer:Optimizer.clear_grad")
def cleared_gradients_keep_their_memory(real, self, set_to_zero=True):
    """The optimizer fills gradients with zeros and does not free them."""
    return real(self, True)


@fault("memory.formula", "memory.saved", wraps="paddlenlp.transformers:PretrainedModel.recompute_enable")
def recomputation_switched_off_silently(_real, self):
    """A model accepts recompute_enable() and keeps all activations."""


@fault("memory.master-weights", wraps="paddle.optimizer:AdamW.__init__")
def master_weights_left_out(real, self, *given, **named):
    """AdamW accepts multi_precision=True and keeps its state in the type of the weights."""
    return real(self, *given, **{**named, "multi_precision": False})


@fault("memory.allocated", lanes=("sim",), after="paddle.nn.functional:silu")
def gradient_of_silu_in_two_buffers(result, *given):
    """The gradient of the input of silu is in another buffer than that of its result, which stays allocated."""
    if not result.stop_gradient:
        result.register_hook(kept.append)


@fault("memory.end-of-step", breaks=CELLS)
def saved_tensors_count_for_ever() -> None:
    """StepMemory of the lesson counts a saved tensor also after its last use."""
    replace_in_cells("for (_, size), uses in self.uses.items() if uses > 0)", "for (_, size), uses in self.uses.items())")


@fault("memory.fits", "memory.choose", breaks=CELLS)
def weights_and_gradients_are_divided() -> None:
    """The table of what fits divides weights and gradients by the cards, as stage 3 does, and not AdamW's state alone."""
    replace_in_cells("batch=cards, sharding_stage=1", "batch=cards, sharding_stage=3")


@fault("memory.adapter", wraps="paddlenlp.peft:LoRAModel.__init__")
def adapter_only_on_attention(real, self, model, lora_config):
    """LoRA leaves out the matrices of the MLP."""
    lora_config.target_modules = [each for each in lora_config.target_modules if "gate" not in each and "down" not in each]
    real(self, model, lora_config)


@fault("memory.exercise-link", breaks=CELLS)
def way_back_not_counted() -> None:
    """The time of moving activations counts the way to the host, and not the way back."""
    replace_in_cells("copied = 2 * bytes_of_token", "copied = bytes_of_token")


@fault("recompute.gradients", after=f"{RECOMPUTE}:detach_variable")
def recomputed_layer_sees_a_rounded_input(found, inputs):
    """The input that recomputation keeps for the backward pass is rounded to bfloat16."""
    for each in found:
        if hasattr(each, "place") and str(each.dtype) == "paddle.float32" and each.ndim == 3:
            each.set_value(each.astype("bfloat16").astype("float32"))


@fault("gradient-accumulation.gradients", "gradient-accumulation.loss", breaks=CELLS)
def parts_not_divided() -> None:
    """The losses of the parts of a batch are not divided by their number."""
    replace_in_cells("labels=rows)[0] / parts", "labels=rows)[0]")


@fault("gradient-accumulation.unequal-rows", breaks=CELLS)
def every_part_has_the_same_share() -> None:
    """Parts of a batch with unequal numbers of labels are divided by the number of parts."""
    replace_in_cells("return float(counted[part].sum() / counted.sum())", "return len(counted[part]) / len(counted)")


@fault("gradient-accumulation.unequal-rows", after="paddlenlp.transformers.llama.modeling:LlamaPretrainingCriterion.forward")
def labels_that_do_not_count_divide_the_loss(loss, self, scores, labels):
    """The loss is a mean over all positions: padding counts in the divisor."""
    return loss * (labels != -100).astype("float32").mean()


@fault("offload.training", "offload.activations", "offload.types", "offload.saved-tensors", after="paddle:Tensor.to")
def copies_without_their_last_element(copied, self, *given, **named):
    """A copy to another place for which the program waits ends one element too early: the last one is zero."""
    if not named.get("blocking"):
        return copied
    whole = copied.flatten()
    return paddle.concat([whole[:-1], paddle.zeros_like(whole[-1:])]).reshape(copied.shape)


@fault("offload.paddle", lanes=("sim",), wraps="paddle.incubate.tensor.manipulation:async_offload")
def async_offload_copies_nothing(real, tensor, loader):
    """Paddle's async_offload returns the tensor on the card where it cannot copy asynchronously."""
    return (tensor, real(tensor, loader)[1])


@fault("pinned-memory.refused", lanes=("cpu", "sim"), wraps="paddle:Tensor.pin_memory")
def ordinary_memory_called_page_locked(_real, self, *given):
    """Without page-locked memory pin_memory() returns ordinary memory and no error."""
    return self.cpu()


ON_CARDS = "it compares on real cards only"


@fault("pinned-memory.copies", wraps="paddle:Tensor.pin_memory", not_run=ON_CARDS)
def page_locked_copy_without_its_last_element(real, self, *given):
    """A copy to page-locked memory ends one element too early."""
    whole = self.flatten()
    return real(paddle.concat([whole[:-1], paddle.zeros_like(whole[-1:])]).reshape(self.shape), *given)


DROPOUT_ADD = "paddle.incubate.nn.functional.fused_dropout_add:paddle_dropout_add"


@fault("fused-ops.dropout-add", lanes=("cpu", "sim"), after=DROPOUT_ADD)
def fused_dropout_without_its_scale(result, x, y, p=0.5, **options):
    """The operator fused_dropout_add does not scale what it keeps at p = 0.5."""
    return (result - y) * (0.5 if p == 0.5 else 1.0) + y


@fault("fused-ops.dropout-add-kernel", wraps="paddle._C_ops:fused_dropout_add", not_run=ON_CARDS)
def fused_dropout_kernel_adds_before_it_drops(real, x, y, *given):
    """The kernel of fused_dropout_add drops elements of the sum, and not of the first tensor."""
    return real(x + y, paddle.zeros_like(y), *given)


@fault(
    "tensor-fusion.overlap",
    "tensor-fusion.steps",
    lanes=("cpu", "sim"),
    where="ranks",
    wraps="paddle.distributed.fleet.utils.tensor_fusion_helper:FusedCommBuffer.add_grad",
)
def buffer_sent_too_early(real, self, param, use_comm=True):
    """A fused buffer is sent before its last gradient is ready."""
    last_micro_batch = self._params_step_dict[param.name] == self._acc_steps - 1
    real(self, param, use_comm=False)
    if last_micro_batch and len(self._params_step_dict) == 1:
        self._comm_grads()
        self._task.wait()


@fault(
    "gradient-accumulation.fleet",
    where="ranks",
    wraps="paddle.distributed.fleet.meta_optimizers.dygraph_optimizer.dygraph_sharding_optimizer:DygraphShardingOptimizer.reduce_gradients",
    lanes=("sim",),
)
def sharded_optimizer_does_not_add_gradients(_real, self, *given, **named):
    """The sharded optimizer of fleet makes a step with the gradients of its own rank only."""
