"""Faults of checkpoints: what is not saved, not restored, not looked at, or not written in one step."""

from __future__ import annotations

import textwrap

from xpulab.faults.fault import Fault, in_every_rank

_IN_THE_CELLS = """
from IPython import get_ipython
def spoilt(lines):
    text = "".join(lines)
    return text.replace({old!r}, {new!r}).splitlines(keepends=True)
get_ipython().input_transformers_cleanup.append(spoilt)
"""


def in_the_cells(old: str, new: str) -> str:
    """Python for a notebook's process that executes its cells with one text exchanged for another."""
    return _IN_THE_CELLS.format(old=textwrap.dedent(old), new=textwrap.dedent(new))


def _fault(name: str, what: str, breaks: str, *seen_by: str, device: str = "cpu") -> Fault:
    return Fault(
        name=name, what=what, notebook="04_checkpoints", breaks=textwrap.dedent(breaks), seen_by=seen_by, device=device
    )


FAULTS = (
    _fault(
        "sampler-restarts",
        "the data start again when a run is resumed",
        """
        from xpulab.notebook import workarounds
        workarounds.resume_data_order = lambda trainer_class: trainer_class
        """,
        "resume.data-order",
        "resume.losses",
        "resume.weights",
    ),
    _fault(
        "random-state-lost",
        "the random state is not restored when a run is resumed",
        in_every_rank("""
            from paddlenlp.trainer import Trainer
            Trainer._load_rng_state = lambda self, checkpoint: None
        """),
        "resume.random-numbers",
        "resume.next-random-numbers",
        "resume.weights",
    ),
    _fault(
        "checksum-ignored",
        "verify looks at the names of the files only",
        in_the_cells("if wanted.get(name) != found.get(name):", "if (name in wanted) != (name in found):"),
        "checkpoint-damage.manifest",
    ),
    _fault(
        "random-state-lost-between-epochs",
        "the random state is not restored where an epoch ends",
        """
        from xpulab.notebook import workarounds
        workarounds.resume_random_state = lambda trainer_class: trainer_class
        """,
        "resume.random-numbers",
        "resume.weights",
    ),
    _fault(
        "python-random-state-lost",
        "the state of Python's own generator is not restored",
        in_every_rank("""
            from paddlenlp.trainer import Trainer
            real = Trainer._load_rng_state
            def without_python(self, checkpoint):
                import random
                state = random.getstate()
                real(self, checkpoint)
                random.setstate(state)
            Trainer._load_rng_state = without_python
        """),
        "resume.random-numbers",
        "resume.next-random-numbers",
    ),
    _fault(
        "optimizer-not-restored",
        "a resumed run begins with an empty optimizer state",
        in_every_rank("""
            from paddle.optimizer import AdamW
            AdamW.set_state_dict = lambda self, state: None
        """),
        "resume.moments",
        "resume.weights",
        "resume.losses",
    ),
    _fault(
        "schedule-not-restored",
        "a resumed run begins with the learning rate of the first step",
        in_every_rank("""
            from paddle.optimizer.lr import LRScheduler
            LRScheduler.set_state_dict = LRScheduler.set_dict = lambda self, state: None
        """),
        "resume.weights",
        "resume.losses",
    ),
    _fault(
        "step-not-restored",
        "a resumed run begins to count at step 0",
        in_every_rank("""
            from paddlenlp.trainer.trainer_callback import TrainerState
            TrainerState.load_from_json = classmethod(lambda cls, path: cls())
        """),
        "resume.begins-where-it-stopped",
    ),
    _fault(
        "load-drops-a-key",
        "loading leaves out the last weight of a file",
        """
        import paddle
        real = paddle.load
        def dropping(path, **configs):
            state = real(path, **configs)
            if isinstance(state, dict) and len(state) > 1:
                state.pop(list(state)[-1])
            return state
        paddle.load = dropping
        """,
        "checkpoint.pdparams",
        "checkpoint.safetensors",
        "checkpoint.nested",
        "resume.loads-the-file",
    ),
    _fault(
        "weight-not-loaded",
        "a resumed run keeps the initial values of its last layer",
        in_every_rank("""
            from paddle import nn
            real = nn.Layer.set_state_dict
            def forgetful(self, state, *rest, **named):
                return real(self, {name: value for name, value in state.items() if "lm_head" not in name}, *rest, **named)
            nn.Layer.set_state_dict = nn.Layer.set_dict = nn.Layer.load_dict = forgetful
        """),
        "resume.weights",
        "resume.loads-the-file",
    ),
    _fault(
        "stale-checkpoint",
        "the checkpoint before the one that was asked for is loaded",
        in_every_rank("""
            import os, re
            from paddlenlp.trainer import Trainer
            real = Trainer._load_from_checkpoint
            def stale(self, resume_from_checkpoint=None):
                if resume_from_checkpoint:
                    folder, step = resume_from_checkpoint.rsplit("-", 1)
                    older = f"{folder}-{int(step) - 1}"
                    resume_from_checkpoint = older if os.path.isdir(older) else resume_from_checkpoint
                return real(self, resume_from_checkpoint)
            Trainer._load_from_checkpoint = stale
        """),
        "resume.losses",
        "resume.weights",
        "resume.loads-the-file",
    ),
    _fault(
        "checksum-of-the-beginning",
        "only the first kilobyte of a file is in its checksum",
        in_the_cells("while chunk := file.read(1 << 20):", "for chunk in [file.read(1024)]:"),
        "checkpoint-damage.manifest",
    ),
    _fault(
        "manifest-not-verified",
        "a checkpoint counts as whole when it has a manifest",
        in_the_cells("    found = checksums(folder)\n", "    found = wanted\n"),
        "checkpoint-damage.manifest",
        "checkpoint-damage.folders",
    ),
    _fault(
        "folder-not-verified",
        "a checkpoint passes for another one",
        in_the_cells("if sealed_as != folder.name:", "if not sealed_as:"),
        "checkpoint-damage.folders",
    ),
    _fault(
        "save-not-atomic",
        "the manifest is written first, the files after it",
        in_every_rank("""
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
        """)
        + in_the_cells("if wanted.get(name) != found.get(name):", "if name not in found:"),
        "crash-save.newest",
    ),
    _fault(
        "file-written-in-place",
        "a file is overwritten under its own name",
        in_the_cells(
            'partial = path.with_name(f"{path.name}.partial")',
            "partial = path",
        ),
        "crash-save.full-disk-file",
        "crash-save.durable",
    ),
    _fault(
        "nothing-synced",
        "what is written is not brought to the disk before the manifest says so",
        in_the_cells("        sync(path)\n", "        pass\n"),
        "crash-save.durable",
    ),
    _fault(
        "old-one-deleted-first",
        "the old checkpoint is deleted before the new one is complete",
        in_every_rank("""
            import shutil
            from pathlib import Path
            from paddlenlp.trainer import Trainer
            real = Trainer._save_checkpoint
            def impatient(self, model, metrics=None):
                for folder in Path(self.args.output_dir).glob("checkpoint-*"):
                    if any(type(callback).__name__ == "Sealed" for callback in self.callback_handler.callbacks):
                        shutil.rmtree(folder)
                real(self, model, metrics)
            Trainer._save_checkpoint = impatient
        """),
        "crash-save.newest",
        "crash-save.full-disk-previous",
    ),
    _fault(
        "full-disk-ignored",
        "a save that does not fit on the disk goes on without a word",
        in_every_rank("""
            import paddle
            real = paddle.save
            def careless(*given, **named):
                try:
                    real(*given, **named)
                except OSError:
                    pass
            paddle.save = careless
        """),
        "crash-save.full-disk",
        "crash-save.full-disk-previous",
        "crash-save.full-disk-file",
    ),
    _fault(
        "no-dropout",
        "dropout does nothing, so that nothing random is left to be restored",
        in_every_rank("""
            import paddle.nn.functional as F
            F.dropout = lambda x, *given, **named: x
        """),
        "resume.dropout-acts",
    ),
    _fault(
        "bfloat16-as-float32",
        "bfloat16 is saved as float32",
        """
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
        """,
        "checkpoint.pdparams",
        "checkpoint.safetensors",
        "checkpoint.read-by-others",
    ),
    _fault(
        "checkpoints-in-order-of-their-names",
        "checkpoint-9 counts as newer than checkpoint-10",
        in_the_cells(
            "return sorted(int(name) for name in names if name.isdigit())",
            "return sorted((int(name) for name in names if name.isdigit()), key=str)",
        ),
        "crash-save.rules",
    ),
    _fault(
        "unpickler-lets-all-in",
        "the unpickler for strangers' files lets everything in",
        in_the_cells("if (module, name) not in LET_IN:", "if not module:"),
        "checkpoint-damage.stays-quiet",
        "checkpoint-damage.refused",
    ),
    _fault(
        "float64-loses-bits",
        "float64 comes back as if it had been float32",
        """
        import paddle
        real = paddle.load
        def narrow(value):
            if isinstance(value, dict):
                return {key: narrow(item) for key, item in value.items()}
            double = isinstance(value, paddle.Tensor) and value.dtype == paddle.float64
            return value.astype("float32").astype("float64") if double else value
        paddle.load = lambda *given, **named: narrow(real(*given, **named))
        """,
        "checkpoint.special-values",
    ),
    _fault(
        "int64-loses-bits",
        "only 32 bits of int64 are saved",
        """
        import paddle
        real = paddle.save
        def narrow(value):
            if isinstance(value, dict):
                return {key: narrow(item) for key, item in value.items()}
            long = isinstance(value, paddle.Tensor) and value.dtype == paddle.int64 and value.size
            return value.astype("int32").astype("int64") if long else value
        paddle.save = lambda state, *given, **named: real(narrow(state), *given, **named)
        """,
        "checkpoint.special-values",
    ),
)
