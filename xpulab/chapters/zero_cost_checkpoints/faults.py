"""The faults of this chapter."""

from __future__ import annotations

from xpulab.chapters.shared.fault import CELLS, FILES, fault, replace_in_cells, replace_in_file


@fault(
    "zero-cost-checkpoint.plain-save",
    "zero-cost-checkpoint.smoke-snapshot",
    smoke=("zero-cost-checkpoint.smoke-snapshot",),
    breaks=CELLS,
)
def copied_after_the_step() -> None:
    """Most of a snapshot is copied after the optimizer has changed the weights."""
    rest = "for _ in pieces:  # the rest\n    pass\n"
    replace_in_cells(f"{rest}update(optimizer)", f"update(optimizer)\n{rest}")
    replace_in_cells("        saver.finish()\n", "        update(optimizer)\n        saver.finish()\n")


@fault("zero-cost-checkpoint.ema", "zero-cost-checkpoint.exercise-average", breaks=CELLS)
def shares_of_the_average_exchanged() -> None:
    """The average gives the new weights the share of the old ones."""
    replace_in_cells("keep * average + (1 - keep) * arrays[name]", "(1 - keep) * average + keep * arrays[name]")


@fault("zero-cost-checkpoint.goes-on", "zero-cost-checkpoint.marker", "zero-cost-checkpoint.exercise-steps", breaks=CELLS)
def marked_before_written() -> None:
    """The completion marker is written before the data, and only its presence counts."""
    replace_in_cells("path.mkdir(parents=True)\n", "path.mkdir(parents=True)\n    (path / MARKER).touch()\n")
    replace_in_cells("json.loads((path / MARKER).read_text()) == listing(path)", "(path / MARKER).exists()")


@fault("zero-cost-checkpoint.buffers", breaks=CELLS)
def buffer_not_returned() -> None:
    """A buffer that was written is not given back."""
    replace_in_cells(
        "while self.writing:\n            self.take_back()", "for each in self.writing:\n            each.result()"
    )


@fault("zero-cost-checkpoint.error-is-told", breaks=CELLS)
def writer_errors_not_reported() -> None:
    """The errors of the writer are not reported."""
    replace_in_cells(
        "        self.write(step, buffer)\n",
        "        with __import__('contextlib').suppress(Exception):\n            self.write(step, buffer)\n",
    )


@fault("zero-cost-checkpoint.newest", breaks=CELLS)
def newest_by_name() -> None:
    """Step-8 counts as newer than step-10."""
    replace_in_cells('key=lambda path: int(path.name.split("-")[1])', "key=lambda path: path.name")


@fault("zero-cost-checkpoint.resume", breaks=CELLS)
def powers_not_filled() -> None:
    """A run that resumes keeps the powers of beta that it began with."""
    replace_in_cells("state[name].set_value(arrays[name])", "'_pow_' in name or state[name].set_value(arrays[name])")


@fault(
    "zero-cost-checkpoint.async-save",
    lanes=("sim",),
    after="paddle.distributed.flex_checkpoint.dcp.save_state_dict:copy_dict_to_cpu",
)
def background_save_copies_too_little(copied, tensors):
    """Before a save in the background, the copy to host memory ends before the last row of each tensor."""
    for each in copied.values():
        each[-1] = 0


@fault("zero-cost-checkpoint.take-home", breaks=FILES)
def file_averages_otherwise() -> None:
    """The file to take home has another default for the average than the lesson."""
    replace_in_file("data/take_home/zero_cost_saver.py", "keep=0.75", "keep=0.5")
