"""Faults that 12_memory must detect in its ranks: sharded optimizers and fused buffers."""

from __future__ import annotations

from xpulab.faults.fault import fault


@fault("12_memory", where="ranks", detected_by=("gradient-accumulation.fleet",))
def sharded_optimizer_does_not_add_gradients() -> None:
    """The sharded optimizer of fleet makes a step with the gradients of its own rank only."""
    from paddle.distributed.fleet.meta_optimizers.dygraph_optimizer.dygraph_sharding_optimizer import DygraphShardingOptimizer

    DygraphShardingOptimizer.reduce_gradients = lambda self, *given: None


@fault("12_memory", where="ranks", detected_by=("tensor-fusion.slots", "tensor-fusion.steps"))
def slots_overlap() -> None:
    """The slots of neighbouring gradients in a fused buffer share 32 bytes."""
    from paddle.distributed.fleet.meta_parallel.sharding.group_sharded_storage import GradStorage

    real = GradStorage._add_grad_as_view

    def too_early(self, param, align):
        real(self, param, 0)
        self._fill -= 8

    GradStorage._add_grad_as_view = too_early


@fault("12_memory", where="ranks", detected_by=("tensor-fusion.steps",))
def fused_sum_not_divided() -> None:
    """The sum of a fused buffer is not divided by the number of ranks."""
    from paddle.distributed.fleet.utils.tensor_fusion_helper import FusedCommBuffer

    def undivided(self):
        self._task.wait()
        self._reset_params_checked_in()

    FusedCommBuffer.scale_grads = undivided


@fault("12_memory", where="ranks", detected_by=("tensor-fusion.overlap", "tensor-fusion.steps"))
def buffer_sent_too_early() -> None:
    """A fused buffer is sent before its last gradient is ready."""
    from paddle.distributed.fleet.utils.tensor_fusion_helper import FusedCommBuffer

    real = FusedCommBuffer.add_grad

    def early(self, param, use_comm=True):
        last_micro_batch = self._params_step_dict[param.name] == self._acc_steps - 1
        real(self, param, use_comm=False)
        if last_micro_batch and len(self._params_step_dict) == 1:
            self._comm_grads()
            self._task.wait()

    FusedCommBuffer.add_grad = early


@fault("12_memory", where="ranks", detected_by=("tensor-fusion.overlap",))
def buffer_sent_after_the_backward_pass() -> None:
    """Fused buffers are sent after the backward pass, so nothing overlaps."""
    from paddle.distributed.fleet.utils.tensor_fusion_helper import FusedCommBuffer

    add_grad, scale_grads = FusedCommBuffer.add_grad, FusedCommBuffer.scale_grads
    FusedCommBuffer.add_grad = lambda self, param, use_comm=True: add_grad(self, param, use_comm=False)

    def send_and_scale(self):
        self.comm_grads()
        scale_grads(self)

    FusedCommBuffer.scale_grads = send_and_scale


@fault("12_memory", where="ranks", detected_by=("tensor-fusion.steps", "tensor-fusion.slots"))
def weights_not_in_their_buffer() -> None:
    """A fused weight is a copy of its slot, so the optimizer changes the buffer and not the weight."""
    from paddle.distributed.fleet.meta_parallel.sharding.group_sharded_storage import ParamStorage

    real = ParamStorage._convert_buffer

    def copied(self, param, shape, align):
        real(self, param, shape, align)
        param.detach().clone()._share_buffer_to(param)

    ParamStorage._convert_buffer = copied
