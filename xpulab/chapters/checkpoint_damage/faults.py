"""The faults of this chapter."""

from __future__ import annotations

import contextlib
import os
from unittest import mock

from xpulab.chapters.shared.fault import CELLS, fault, replace_in_cells


@fault("checkpoint-damage.manifest", "checkpoint-damage.exercise-newest", smoke=("checkpoint-damage.smoke-flip",), breaks=CELLS)
def manifest_not_verified() -> None:
    """A checkpoint with a manifest is accepted without comparing checksums."""
    replace_in_cells("found = checksums(folder)\n", "found = wanted\n")


@fault("checkpoint-damage.manifest", "checkpoint-damage.exercise-copy", breaks=CELLS)
def folder_not_verified() -> None:
    """A checkpoint is accepted under another checkpoint's name."""
    replace_in_cells("if sealed_as != folder.name:", "if not sealed_as:")


@fault("crash-save.newest", "crash-save.durable", breaks=CELLS)
def manifest_written_in_place() -> None:
    """The manifest is written under its own name, and not renamed."""
    replace_in_cells(
        "write_atomically(folder / MANIFEST, lambda partial: partial.write_text(text))", "(folder / MANIFEST).write_text(text)"
    )


@fault("crash-save.durable", breaks=CELLS)
def file_written_in_place() -> None:
    """A file is overwritten in place, under its own name."""
    replace_in_cells('partial = path.with_name(f"{path.name}.partial")', "partial = path")


@fault("crash-save.no-room", "crash-save.full-disk", where="everywhere", wraps="paddle:save")
def full_disk_ignored(save, *given, **named):
    """A save that does not fit on the disk raises no error."""
    with contextlib.suppress(OSError):
        save(*given, **named)


@fault("crash-save.rules", breaks=CELLS, lanes=("sim",))
def checkpoints_sorted_by_name() -> None:
    """`checkpoint-9` counts as newer than `checkpoint-10`."""
    replace_in_cells(
        "return sorted(int(name) for name in names if name.isdigit())",
        "return sorted((int(name) for name in names if name.isdigit()), key=str)",
    )


@fault("checkpoint-damage.refused", "checkpoint-damage.pickles", breaks=CELLS, lanes=("sim",))
def unpickler_allows_everything() -> None:
    """The unpickler for untrusted files allows every import."""
    replace_in_cells("if (module, name) not in ALLOWED:", "if not module:")


@fault("checkpoint-damage.missing-key-told", "checkpoint-damage.missing-key", breaks=CELLS)
def names_not_compared() -> None:
    """A state dict is loaded although a name of the model is missing in it."""
    replace_in_cells("network.state_dict().keys() ^ state.keys()", "state.keys() - network.state_dict().keys()")


@fault(
    "checkpoint-damage.silent",
    "checkpoint-damage.loud",
    where="ranks",
    wraps="paddlenlp.trainer:Trainer._load_optimizer_and_scheduler",
)
def unreadable_optimizer_skipped(real, self, checkpoint):
    """A run goes on without the optimizer's state when its file cannot be read."""
    with contextlib.suppress(Exception):
        real(self, checkpoint)


@fault(
    "crash-save.loads",
    where="ranks",
    after=("paddle.optimizer.lr:LRScheduler.set_state_dict", "paddle.optimizer.lr:LRScheduler.set_dict"),
)
def schedule_one_step_behind(_result, self, state):
    """The learning rate's schedule is restored one step behind the checkpoint."""
    self.step(self.last_epoch - 1)


@fault("crash-save.get-last-checkpoint", wraps="paddlenlp.trainer.trainer_utils:get_last_checkpoint")
def markers_not_looked_at(real, folder, *given, **named):
    """The newest folder is taken, with or without the marker of a complete save."""
    with mock.patch.dict(os.environ, {"FLAG_LLM_PDC": "0"}):
        return real(folder, *given, **named)
