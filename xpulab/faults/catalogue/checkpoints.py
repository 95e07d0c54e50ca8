"""Faults that 05_checkpoints must detect."""

from __future__ import annotations

from xpulab.faults.fault import fault, replace_in_cells


@fault("05_checkpoints", detected_by=("resume.exact", "resume.data-order", "resume.losses", "resume.weights"), also_on=("sim",))
def sampler_restarts() -> None:
    """A resumed run sees the data from the beginning again."""
    replace_in_cells("def _get_train_sampler(self):", "def _unused(self):")


@fault("05_checkpoints", where="ranks", detected_by=("resume.random-numbers", "resume.next-random-numbers", "resume.weights"))
def random_state_lost() -> None:
    """The random state is not restored when a run is resumed."""
    from paddlenlp.trainer import Trainer

    Trainer._load_rng_state = lambda self, checkpoint: None


@fault("05_checkpoints", detected_by=("resume.exact", "resume.random-numbers", "resume.weights"))
def random_state_lost_between_epochs() -> None:
    """The random state is not restored when a run is resumed where an epoch ends."""
    replace_in_cells("self.trainer._load_rng_state(self.checkpoint)", "pass")


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


@fault("05_checkpoints", detected_by=("checkpoint.flattened",), also_on=("sim",))
def flattened_names_collide() -> None:
    """Flattening a nested state drops the names of the outer levels."""
    replace_in_cells('found |= flat(value, f"{prefix}{key}.")', "found |= flat(value)")


@fault("05_checkpoints", where="ranks", detected_by=("checkpoint.file-sizes",))
def second_moment_not_saved() -> None:
    """A checkpoint holds only the first of the optimizer's two moments."""
    import paddle

    real = paddle.save

    def without_the_second(state, path, *rest, **named):
        if isinstance(state, dict) and str(path).endswith(".pdopt"):
            state = {name: value for name, value in state.items() if "moment2" not in name}
        return real(state, path, *rest, **named)

    paddle.save = without_the_second
