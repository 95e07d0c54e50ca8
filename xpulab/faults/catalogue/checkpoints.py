"""Faults that 05_checkpoints must detect."""

from __future__ import annotations

from xpulab.faults.fault import fault, in_every_rank, replace_in_cells


@fault("05_checkpoints", detected_by=("resume.data-order", "resume.losses", "resume.weights"))
def sampler_restarts() -> None:
    """A resumed run sees the data from the beginning again."""
    from xpulab.notebook import workarounds

    workarounds.resume_data_order = lambda trainer_class: trainer_class


@fault("05_checkpoints", where="ranks", detected_by=("resume.random-numbers", "resume.next-random-numbers", "resume.weights"))
def random_state_lost() -> None:
    """The random state is not restored when a run is resumed."""
    from paddlenlp.trainer import Trainer

    Trainer._load_rng_state = lambda self, checkpoint: None


@fault("05_checkpoints", detected_by=("checkpoint-damage.manifest",))
def checksum_ignored() -> None:
    """`verify` compares only the names of the files."""
    replace_in_cells("if wanted.get(name) != found.get(name):", "if (name in wanted) != (name in found):")


@fault("05_checkpoints", detected_by=("resume.random-numbers", "resume.weights"))
def random_state_lost_between_epochs() -> None:
    """The random state is not restored when a run is resumed where an epoch ends."""
    from xpulab.notebook import workarounds

    workarounds.resume_random_state = lambda trainer_class: trainer_class


@fault("05_checkpoints", where="ranks", detected_by=("resume.random-numbers", "resume.next-random-numbers"))
def python_random_state_lost() -> None:
    """The state of Python's random number generator is not restored."""
    from paddlenlp.trainer import Trainer

    real = Trainer._load_rng_state

    def without_python(self, checkpoint):
        import random

        state = random.getstate()
        real(self, checkpoint)
        random.setstate(state)

    Trainer._load_rng_state = without_python


@fault("05_checkpoints", where="ranks", detected_by=("resume.moments", "resume.weights", "resume.losses"))
def optimizer_not_restored() -> None:
    """A resumed run begins with an empty optimizer state."""
    from paddle.optimizer import AdamW

    AdamW.set_state_dict = lambda self, state: None


@fault("05_checkpoints", where="ranks", detected_by=("resume.weights", "resume.losses"))
def schedule_not_restored() -> None:
    """A resumed run begins with the learning rate of the first step."""
    from paddle.optimizer.lr import LRScheduler

    LRScheduler.set_state_dict = LRScheduler.set_dict = lambda self, state: None


@fault("05_checkpoints", where="ranks", detected_by=("resume.begins-where-it-stopped",))
def step_not_restored() -> None:
    """A resumed run counts its steps from 0."""
    from paddlenlp.trainer.trainer_callback import TrainerState

    TrainerState.load_from_json = classmethod(lambda cls, path: cls())


@fault(
    "05_checkpoints",
    detected_by=("checkpoint.pdparams", "checkpoint.safetensors", "checkpoint.nested", "resume.loads-the-file"),
)
def load_drops_a_key() -> None:
    """`paddle.load` drops the last entry of a file."""
    import paddle

    real = paddle.load

    def dropping(path, **configs):
        state = real(path, **configs)
        if isinstance(state, dict) and len(state) > 1:
            state.pop(list(state)[-1])
        return state

    paddle.load = dropping


@fault(
    "05_checkpoints",
    detected_by=("checkpoint.pdparams", "checkpoint.safetensors", "checkpoint.nested", "checkpoint.written-by-others"),
    smoke=("checkpoint.smoke-values", "resume.smoke-step"),
)
def load_returns_zeros() -> None:
    """`paddle.load` returns zeros of the correct type and shape."""
    import paddle

    real = paddle.load

    def zeros(value):
        if isinstance(value, dict):
            return {key: zeros(item) for key, item in value.items()}
        return paddle.zeros(value.shape, value.dtype) if isinstance(value, paddle.Tensor) else value

    paddle.load = lambda *given, **named: zeros(real(*given, **named))


@fault("05_checkpoints", where="ranks", detected_by=("resume.weights", "resume.loads-the-file"))
def weight_not_loaded() -> None:
    """A resumed run keeps the initial values of its last layer."""
    from paddle import nn

    real = nn.Layer.set_state_dict

    def without_the_last_layer(self, state, *rest, **named):
        return real(self, {name: value for name, value in state.items() if "lm_head" not in name}, *rest, **named)

    nn.Layer.set_state_dict = nn.Layer.set_dict = nn.Layer.load_dict = without_the_last_layer


@fault("05_checkpoints", where="ranks", detected_by=("resume.losses", "resume.weights", "resume.loads-the-file"))
def stale_checkpoint() -> None:
    """Resuming loads the checkpoint before the requested one."""
    import os

    from paddlenlp.trainer import Trainer

    real = Trainer._load_from_checkpoint

    def stale(self, resume_from_checkpoint=None):
        if resume_from_checkpoint:
            folder, step = resume_from_checkpoint.rsplit("-", 1)
            older = f"{folder}-{int(step) - 1}"
            resume_from_checkpoint = older if os.path.isdir(older) else resume_from_checkpoint
        return real(self, resume_from_checkpoint)

    Trainer._load_from_checkpoint = stale


@fault("05_checkpoints", detected_by=("checkpoint-damage.manifest",))
def checksum_of_the_beginning() -> None:
    """A checksum covers only the first kilobyte of a file."""
    replace_in_cells("while chunk := file.read(1 << 20):", "for chunk in [file.read(1024)]:")


@fault("05_checkpoints", detected_by=("checkpoint-damage.manifest", "checkpoint-damage.folders"))
def manifest_not_verified() -> None:
    """A checkpoint with a manifest is accepted without comparing checksums."""
    replace_in_cells("found = checksums(folder)\n", "found = wanted\n")


@fault("05_checkpoints", detected_by=("checkpoint-damage.folders",))
def folder_not_verified() -> None:
    """A checkpoint is accepted under another checkpoint's name."""
    replace_in_cells("if sealed_as != folder.name:", "if not sealed_as:")


@fault("05_checkpoints", detected_by=("crash-save.newest",))
def save_not_atomic() -> None:
    """The manifest is written before the files."""

    def in_rank():
        import json
        from pathlib import Path

        from paddlenlp.trainer import Trainer

        real = Trainer._save_checkpoint

        def eager(self, model, metrics=None):
            folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "manifest.json").write_text(json.dumps({"folder": folder.name, "sha256": {}}))
            real(self, model, metrics)

        Trainer._save_checkpoint = eager

    in_every_rank(in_rank)
    replace_in_cells("if wanted.get(name) != found.get(name):", "if name not in found:")


@fault("05_checkpoints", detected_by=("crash-save.full-disk-file", "crash-save.durable"))
def file_written_in_place() -> None:
    """A file is overwritten in place, under its own name."""
    replace_in_cells('partial = path.with_name(f"{path.name}.partial")', "partial = path")


@fault("05_checkpoints", detected_by=("crash-save.durable",))
def nothing_synced() -> None:
    """Files are not synced to the disk before the manifest is renamed."""
    replace_in_cells("sync(path)\n", "pass\n")


@fault("05_checkpoints", where="ranks", detected_by=("crash-save.newest", "crash-save.full-disk-previous"))
def old_checkpoint_deleted_first() -> None:
    """The old checkpoint is deleted before the new one is complete."""
    import shutil
    from pathlib import Path

    from paddlenlp.trainer import Trainer

    real = Trainer._save_checkpoint

    def deleting_first(self, model, metrics=None):
        for folder in Path(self.args.output_dir).glob("checkpoint-*"):
            if any(type(callback).__name__ == "Sealed" for callback in self.callback_handler.callbacks):
                shutil.rmtree(folder)
        real(self, model, metrics)

    Trainer._save_checkpoint = deleting_first


@fault(
    "05_checkpoints",
    where="ranks",
    detected_by=("crash-save.full-disk", "crash-save.full-disk-previous", "crash-save.full-disk-file"),
)
def full_disk_ignored() -> None:
    """A save that does not fit on the disk raises no error."""
    import contextlib

    import paddle

    real = paddle.save

    def without_errors(*given, **named):
        with contextlib.suppress(OSError):
            real(*given, **named)

    paddle.save = without_errors


@fault("05_checkpoints", where="ranks", detected_by=("resume.dropout-acts",))
def no_dropout() -> None:
    """Dropout does nothing, so the resumed runs do not test the random state."""
    import paddle.nn.functional as F

    F.dropout = lambda x, *given, **named: x


@fault("05_checkpoints", detected_by=("checkpoint.pdparams", "checkpoint.safetensors", "checkpoint.read-by-others"))
def bfloat16_as_float32() -> None:
    """Bfloat16 is saved as float32."""
    import paddle

    real = paddle.save

    def widening(state, path, *rest, **named):
        def wide(value):
            if isinstance(value, dict):
                return {key: wide(item) for key, item in value.items()}
            low = isinstance(value, paddle.Tensor) and "bfloat16" in str(value.dtype)
            return value.astype("float32") if low else value

        return real(wide(state), path, *rest, **named)

    paddle.save = widening


@fault("05_checkpoints", detected_by=("crash-save.rules",))
def checkpoints_sorted_by_name() -> None:
    """`checkpoint-9` counts as newer than `checkpoint-10`."""
    replace_in_cells(
        "return sorted(int(name) for name in names if name.isdigit())",
        "return sorted((int(name) for name in names if name.isdigit()), key=str)",
    )


@fault("05_checkpoints", detected_by=("checkpoint-damage.stays-quiet", "checkpoint-damage.refused"))
def unpickler_allows_everything() -> None:
    """The unpickler for untrusted files allows every import."""
    replace_in_cells("if (module, name) not in ALLOWED:", "if not module:")


@fault("05_checkpoints", detected_by=("checkpoint.special-values",))
def float64_loses_bits() -> None:
    """Float64 comes back with the precision of float32."""
    import paddle

    real = paddle.load

    def narrow(value):
        if isinstance(value, dict):
            return {key: narrow(item) for key, item in value.items()}
        double = isinstance(value, paddle.Tensor) and value.dtype == paddle.float64
        return value.astype("float32").astype("float64") if double else value

    paddle.load = lambda *given, **named: narrow(real(*given, **named))


@fault("05_checkpoints", detected_by=("checkpoint.special-values",))
def int64_loses_bits() -> None:
    """Only 32 bits of int64 are saved."""
    import paddle

    real = paddle.save

    def narrow(value):
        if isinstance(value, dict):
            return {key: narrow(item) for key, item in value.items()}
        long = isinstance(value, paddle.Tensor) and value.dtype == paddle.int64 and value.size
        return value.astype("int32").astype("int64") if long else value

    paddle.save = lambda state, *given, **named: real(narrow(state), *given, **named)
