"""The faults of this chapter."""

from __future__ import annotations

from xpulab.chapters.shared.fault import CELLS, FILES, fault, replace_in_cells, replace_in_file, when_defined


@fault(
    detected_by=("zero-cost-checkpoint.plain-save", "zero-cost-checkpoint.smoke-snapshot"),
    smoke=("zero-cost-checkpoint.smoke-snapshot",),
    breaks=CELLS,
)
def copied_after_the_step() -> None:
    """Most of a snapshot is copied after the optimizer has changed the weights."""

    def change(cells):
        real, step = cells["copy_in_pieces"], cells["paddle"].optimizer.AdamW.step
        waiting = []

        def late(state, buffer, count):
            pieces = real(state, buffer, count)
            yield next(pieces)
            waiting.append(pieces)

        def step_then_copy(optimizer):
            step(optimizer)
            while waiting:
                list(waiting.pop())

        cells["copy_in_pieces"] = late
        cells["paddle"].optimizer.AdamW.step = step_then_copy

    when_defined("copy_in_pieces", change)


@fault(
    detected_by=("zero-cost-checkpoint.smoke-snapshot",),
    smoke=("zero-cost-checkpoint.smoke-snapshot",),
    also_on=("sim",),
    breaks=CELLS,
)
def last_tensors_not_copied() -> None:
    """A snapshot ends before its last tensor."""

    def change(cells):
        real = cells["copy_in_pieces"]
        cells["copy_in_pieces"] = lambda state, buffer, count: real(dict(list(state.items())[:-1]), buffer, count)

    when_defined("copy_in_pieces", change)


@fault(detected_by=("zero-cost-checkpoint.ema",), breaks=CELLS)
def average_written_too_early() -> None:
    """The EMA buffer is written before the weights of its step are added."""

    def change(cells):
        real, waiting = cells["update_average"], []

        def late(ema, arrays):
            for each in waiting:
                real(ema, each)
            waiting[:] = [{name: arrays[name].copy() for name in ema}]

        cells["update_average"] = late

    when_defined("update_average", change)


@fault(detected_by=("zero-cost-checkpoint.goes-on", "zero-cost-checkpoint.marker"), breaks=CELLS)
def marked_before_written() -> None:
    """The completion marker is written before the data, and only its presence counts."""

    def change(cells):
        marker, save_file = cells["MARKER"], cells["save_file"]

        def marker_first(path, contents, save=save_file):
            path.mkdir(parents=True)
            (path / marker).write_text("{}")
            for name, arrays in contents.items():
                save(arrays, path / f"{name}.safetensors")

        cells["write_checkpoint"] = marker_first
        cells["is_complete"] = lambda path: (path / marker).exists()

    when_defined("newest", change)


@fault(detected_by=("zero-cost-checkpoint.plain-save",), breaks=CELLS)
def one_buffer_used_twice() -> None:
    """A copy goes into the buffer that is still being written."""

    def change(cells):
        saver, copy_in_pieces = cells["ZeroCostSaver"], cells["copy_in_pieces"]
        begin = saver.begin

        def begin_in_one(self, step, count=4):
            begin(self, step, count)
            self.only = self.__dict__.get("only", self.buffer)
            self.buffer, self.pieces = self.only, copy_in_pieces(self.state, self.only, count)

        saver.begin = begin_in_one

    when_defined("ZeroCostSaver", change)


@fault(detected_by=("zero-cost-checkpoint.buffers",), breaks=CELLS)
def buffer_not_returned() -> None:
    """A buffer that was written is not given back."""

    def change(cells):
        saver = cells["ZeroCostSaver"]

        def close(self):
            for each in self.writing:
                each.result()

        saver.close = close

    when_defined("ZeroCostSaver", change)


@fault(detected_by=("zero-cost-checkpoint.error-is-told",), breaks=CELLS)
def writer_errors_not_reported() -> None:
    """The errors of the writer are not reported."""

    def change(cells):
        saver = cells["ZeroCostSaver"]
        write = saver.write_one

        def silent(self, step, buffer):
            try:
                return write(self, step, buffer)
            except Exception:
                return buffer

        saver.write_one = silent

    when_defined("ZeroCostSaver", change)


@fault(detected_by=("zero-cost-checkpoint.newest",), breaks=CELLS)
def newest_by_name() -> None:
    """Step-8 counts as newer than step-10."""
    replace_in_cells('key=lambda path: int(path.name.split("-")[1])', "key=lambda path: path.name")


@fault(detected_by=("zero-cost-checkpoint.resume",), breaks=CELLS)
def powers_not_filled() -> None:
    """A run that resumes keeps the powers of beta that it began with."""
    replace_in_cells("state[name].set_value(arrays[name])", "'_pow_' in name or state[name].set_value(arrays[name])")


@fault(
    device="sim",
    detected_by=("zero-cost-checkpoint.async-save",),
    after="paddle.distributed.flex_checkpoint.dcp.save_state_dict:copy_dict_to_cpu",
)
def background_save_copies_too_little(copied, tensors):
    """Before a save in the background, the copy to host memory ends before the last row of each tensor."""
    for each in copied.values():
        each[-1] = 0


@fault(detected_by=("zero-cost-checkpoint.take-home",), breaks=FILES)
def file_averages_otherwise() -> None:
    """The file to take home has another default for the average than the lesson."""
    replace_in_file("data/take_home/zero_cost_saver.py", "keep=0.75", "keep=0.5")


@fault(
    detected_by=("zero-cost-checkpoint.paddleformers",),
    wraps="paddleformers.trainer.utils.zero_cost_checkpoint:ZeroCostCheckpointEMAProcessor.ema_accumulate",
    not_run="it compares where PaddleFormers is installed only, which PaddleNLP 3.0.0b4 excludes",
)
def state_averaged_twice(real, self, *given):
    """The worker of PaddleFormers adds each state to the average twice.

    In an environment with PaddleFormers 1.2.0 it was detected on the CPU, and without it the check was as it should be.
    """
    real(self, *given)
    return real(self, *given)
