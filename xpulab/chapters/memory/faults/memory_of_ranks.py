"""Faults in ranks: sharded optimizers and fused buffers."""

from __future__ import annotations

from xpulab.chapters.shared.fault import fault, wrap

BUFFER = "paddle.distributed.fleet.utils.tensor_fusion_helper:FusedCommBuffer"


@fault(
    where="ranks",
    also_on=("sim",),
    detected_by=("gradient-accumulation.fleet",),
    wraps="paddle.distributed.fleet.meta_optimizers.dygraph_optimizer.dygraph_sharding_optimizer:DygraphShardingOptimizer.reduce_gradients",
)
def sharded_optimizer_does_not_add_gradients(_real, self, *given):
    """The sharded optimizer of fleet makes a step with the gradients of its own rank only."""


@fault(
    where="ranks",
    also_on=("sim",),
    detected_by=("tensor-fusion.slots", "tensor-fusion.steps"),
    wraps="paddle.distributed.fleet.meta_parallel.sharding.group_sharded_storage:GradStorage._add_grad_as_view",
)
def slots_overlap(real, self, param, align):
    """The slots of neighbouring gradients in a fused buffer share 32 bytes."""
    real(self, param, 0)
    self._fill -= 8


@fault(where="ranks", also_on=("sim",), detected_by=("tensor-fusion.steps",), wraps=f"{BUFFER}.scale_grads")
def fused_sum_not_divided(_real, self):
    """The sum of a fused buffer is not divided by the number of ranks."""
    self._task.wait()
    self._reset_params_checked_in()


@fault(
    where="ranks", also_on=("sim",), detected_by=("tensor-fusion.overlap", "tensor-fusion.steps"), wraps=f"{BUFFER}.add_grad"
)
def buffer_sent_too_early(real, self, param, use_comm=True):
    """A fused buffer is sent before its last gradient is ready."""
    last_micro_batch = self._params_step_dict[param.name] == self._acc_steps - 1
    real(self, param, use_comm=False)
    if last_micro_batch and len(self._params_step_dict) == 1:
        self._comm_grads()
        self._task.wait()


@fault(
    where="ranks",
    also_on=("sim",),
    detected_by=("tensor-fusion.overlap",),
    breaks=(f"{BUFFER}.add_grad", f"{BUFFER}.scale_grads"),
)
def buffer_sent_after_the_backward_pass() -> None:
    """Fused buffers are sent after the backward pass, so nothing overlaps."""

    def send_and_scale(scale_grads, self):
        self.comm_grads()
        scale_grads(self)

    wrap(f"{BUFFER}.add_grad", lambda add_grad, self, param, use_comm=True: add_grad(self, param, use_comm=False))
    wrap(f"{BUFFER}.scale_grads", send_and_scale)


@fault(
    where="ranks",
    also_on=("sim",),
    detected_by=("tensor-fusion.steps", "tensor-fusion.slots"),
    after="paddle.distributed.fleet.meta_parallel.sharding.group_sharded_storage:ParamStorage._convert_buffer",
)
def weights_not_in_their_buffer(_result, self, param, shape, align):
    """A fused weight is a copy of its slot, so the optimizer changes the buffer and not the weight."""
    param.detach().clone()._share_buffer_to(param)
