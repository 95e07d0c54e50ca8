"""The faults of this chapter."""

from __future__ import annotations

from xpulab.chapters.shared.fault import CELLS, fault, paddle, replace_in_cells


@fault("moe.layer", "moe.parallel", smoke=("moe.smoke-layer",), breaks=CELLS)
def combine_without_weights() -> None:
    """Outputs of experts are added up without their weights."""
    replace_in_cells("(weights.unsqueeze(-1) * table).sum(axis=1)", "table.sum(axis=1)")


@fault("moe.dropped", "moe.layer", "moe.exercise-dropped", breaks=CELLS)
def queue_counts_from_one() -> None:
    """Each expert takes one choice less than its capacity."""
    replace_in_cells("((queue.cumsum(axis=0) - 1) * queue)", "(queue.cumsum(axis=0) * queue)")


@fault("moe.layer", "moe.zero", breaks=CELLS)
def dropped_tokens_are_computed() -> None:
    """Experts compute the choices that are above their capacity."""
    replace_in_cells("< capacity_of(len(x), self.k, self.factor)", "< len(x) * EXPERTS")


@fault("moe.balance", "moe.layer", "moe.learns", breaks=CELLS)
def auxiliary_loss_without_gradient() -> None:
    """The auxiliary loss is a constant: no gradient goes through the probabilities."""
    replace_in_cells("(share * chances.sum(axis=0)).sum()", "(share * chances.detach().sum(axis=0)).sum()")


@fault("moe.gate", "moe.layer", breaks=CELLS)
def weight_of_one_expert_is_one() -> None:
    """The weight of a single expert is divided by itself, so the gate gets no gradient."""
    replace_in_cells("if k > 1:", "if k > 0:")


@fault("moe.weights", "moe.gate", breaks=CELLS)
def weights_not_divided_by_their_sum() -> None:
    """The weights of two experts do not add up to one."""
    replace_in_cells("if k > 1:", "if k > EXPERTS:")


@fault("moe.dispatch", "moe.parallel", "moe.loss", where="ranks", after="paddle.distributed:all_gather")
def gathered_rows_begin_with_the_last(_result, parts, tensor, *given, **named):
    """all_gather gives the last row of each rank first, where a rank has more than four."""
    parts[:] = [each.roll(1, axis=0) if each.ndim == 2 and len(each) > 4 else each for each in parts]


@fault("moe.expert-and-tensor-parallel", where="ranks", wraps="paddle.distributed:all_reduce")
def parts_of_a_cut_expert_not_added(real, tensor, *given, group=None, **named):
    """A sum in a group of two of four ranks leaves on each rank what it had."""
    return real(tensor, *given, group=group, **named) if group is None else None


@fault("moe.expert-gradients", "moe.parallel", breaks=CELLS)
def gradients_of_experts_added() -> None:
    """Gradients of different experts are added over the ranks, like those of copied parameters."""
    replace_in_cells("dist.all_reduce(layer.gate.weight.grad)", "[dist.all_reduce(each.grad) for each in layer.parameters()]")


@fault("moe.checkpoint", breaks=CELLS)
def experts_numbered_in_turn() -> None:
    """A checkpoint numbers experts as if the ranks took them in turn."""
    right, place = "experts.{number}.{name}", "(number - rank * len(layer.experts))"
    replace_in_cells(right, "experts.{" + place + " * (EXPERTS // len(layer.experts)) + rank}.{name}")


@fault("moe.paddle-operators", lanes=("sim",), wraps="paddle.distributed.models.moe.utils:_limit_by_capacity")
def capacity_of_the_first_rank_only(real, count, capacity, workers):
    """limit_by_capacity limits the choices of the first rank only."""
    share = len(count) // workers
    return paddle.concat([real(count[:share], capacity, 1), count[share:]])


@fault("moe.exercise-stored", wraps="paddle.nn:Linear.__init__")
def large_layer_is_cut(real, self, in_features, out_features, *given, **named):
    """A linear layer has at most 4,096 outputs, whatever it is asked for."""
    real(self, in_features, min(out_features, 4096), *given, **named)
