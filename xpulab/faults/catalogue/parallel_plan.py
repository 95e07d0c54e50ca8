"""Faults that 09_parallel_plan must detect."""

from __future__ import annotations

from xpulab.faults.fault import CELLS, fault, replace_in_cells


@fault(
    "09_parallel_plan",
    detected_by=("auto-parallel-config.published",),
    smoke=("auto-parallel-config.smoke-memory",),
    replaces="xpulab.reference.cost:Memory.total",
)
def gradients_not_counted(_real):
    """The formula for memory does not count the gradients."""
    return property(lambda self: self.parameters + self.optimizer + self.activations)


@fault("09_parallel_plan", device="sim", detected_by=("auto-parallel-config.memory",), breaks="xpulab.reference.cost:PLAIN")
def attention_scores_not_counted() -> None:
    """The formula for memory does not count the attention scores of plain kernels."""
    from dataclasses import replace

    from xpulab.reference import cost

    cost.PLAIN = replace(cost.PLAIN, scores=0)


@fault(
    "09_parallel_plan",
    device="sim",
    detected_by=("auto-parallel-config.memory-of-two",),
    wraps="xpulab.reference.cost:_copies_of_gradients",
)
def buffers_of_gradients_not_counted(_real, degrees):
    """The formula for memory does not count the buffers in which data parallelism sends gradients."""
    return 1


@fault(
    "09_parallel_plan", device="sim", detected_by=("auto-parallel-config.memory-of-two",), breaks="xpulab.reference.cost:PLAIN"
)
def copies_for_cut_matrices_not_counted() -> None:
    """The formula for memory does not count the copies that tensor parallelism makes of the inputs of its matrices."""
    from dataclasses import replace

    from xpulab.reference import cost

    cost.PLAIN = replace(cost.PLAIN, copies=0)


@fault(
    "09_parallel_plan",
    device="sim",
    detected_by=("auto-parallel-config.memory-of-two",),
    wraps="xpulab.reference.cost:_gradients_of_mlp",
)
def gradients_between_layers_not_counted(_real, *given):
    """The formula for memory does not count the gradients of the MLP on a pipeline stage without a head."""
    return 0.0


@fault("09_parallel_plan", detected_by=("auto-parallel-config.legal",), wraps="xpulab.reference.cost:legal")
def tensor_parallel_across_nodes(real, model, training, cards):
    """Degrees count as legal although tensor parallelism leaves the node."""
    return real(model, training, cards, 64)


@fault("09_parallel_plan", detected_by=("auto-parallel-config.arguments",), wraps="xpulab.reference.cost:as_arguments")
def wrong_sharding_degree_written(real, model, training, each):
    """The configuration file has another sharding degree than the chosen one."""
    found = real(model, training, each)
    return found | {key: 1 for key in found if key == "sharding_parallel_degree"}


@fault("09_parallel_plan", detected_by=("auto-parallel-config.traffic",), replaces="xpulab.reference.cost:_all_reduce")
def all_reduce_counted_as_all_gather(_real):
    """The formula for traffic counts an all-reduce as an all-gather, which sends half as much."""
    from xpulab.reference import cost

    return cost._ring


@fault("09_parallel_plan", detected_by=("auto-parallel-config.traffic",), wraps="xpulab.reference.cost:bubble")
def bubble_not_counted(_real, training, each):
    """The formula for the bubble says that the stages of a pipeline never wait."""
    return 0.0


@fault(
    "09_parallel_plan",
    detected_by=("parallel-plan.launch-files",),
    breaks=("xpulab.notebook.take_home:CARDS", "xpulab.notebook.take_home:launch_files"),
)
def launched_on_half_of_the_cards() -> None:
    """The launch files start a process on four of the eight cards of a node."""
    from xpulab.notebook import take_home

    take_home.CARDS = 4
    real = take_home.launch_files
    take_home.launch_files = lambda *given: {name.replace("-4-", "-8-"): text for name, text in real(*given).items()}


@fault("09_parallel_plan", detected_by=("parallel-plan.same-code",), wraps="xpulab.notebook.take_home:script_path")
def script_differs_from_the_chapter(real, script):
    """The script labels each token with itself, and the chapter with the token that follows."""
    import tempfile
    from pathlib import Path

    path = Path(tempfile.mkdtemp()) / f"{script}.py"
    path.write_text(real(script).read_text().replace("tokens[1 : samples * length + 1]", "tokens[: samples * length]"))
    return path


@fault("09_parallel_plan", detected_by=("parallel-plan.blocks",), also_on=("sim",), breaks=CELLS)
def labels_of_blocks_not_shifted() -> None:
    """The dataset of the script labels each token with itself."""
    replace_in_cells("tokens[1 : samples * length + 1]", "tokens[: samples * length]")


@fault("09_parallel_plan", detected_by=("parallel-plan.refused",), breaks=CELLS)
def too_few_cards_not_refused() -> None:
    """The script does not compare the number of cards with the product of the degrees."""
    replace_in_cells("if cards % product:", "if cards % product and False:")
