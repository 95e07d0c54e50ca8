"""The faults of this chapter."""

from __future__ import annotations

from xpulab.chapters.shared.fault import CELLS, fault, paddle, replace_in_cells


@fault("resume.exact", breaks=CELLS, lanes=("sim",))
def sampler_restarts() -> None:
    """A resumed run sees the data from the beginning again."""
    replace_in_cells("def _get_train_sampler(self):", "def _unused(self):")


@fault("resume.stock", "resume.exact", where="everywhere", wraps="paddlenlp.trainer:Trainer._load_rng_state")
def random_state_lost(_real, self, checkpoint):
    """The random state is not restored when a run is resumed."""


@fault(
    "resume.exact",
    "resume.exercise-longer",
    where="everywhere",
    wraps=("paddle.optimizer.lr:LRScheduler.set_state_dict", "paddle.optimizer.lr:LRScheduler.set_dict"),
)
def schedule_not_restored(_real, self, state):
    """A resumed run begins with the learning rate of the first step."""


@fault("checkpoint.exercise-values", after="paddle:load")
def load_drops_a_key(state, path, **configs):
    """`paddle.load` drops the last entry of a file."""
    if isinstance(state, dict) and len(state) > 1:
        state.pop(list(state)[-1])


@fault(
    "checkpoint.smoke-values",
    "checkpoint.flattened",
    smoke=("checkpoint.smoke-values", "resume.smoke-step"),
    after="paddle:load",
)
def load_returns_zeros(state, *given, **named):
    """`paddle.load` returns zeros of the correct type and shape."""
    return with_each_tensor(state, lambda tensor: paddle.zeros(tensor.shape, tensor.dtype))


@fault("checkpoint.flattened", breaks=CELLS, lanes=("sim",))
def flattened_names_collide() -> None:
    """Flattening a nested state drops the names of the outer levels."""
    replace_in_cells('found |= flat(value, f"{prefix}{key}.")', "found |= flat(value)")


@fault("checkpoint.file-sizes", where="ranks", wraps="paddle:save")
def second_moment_not_saved(real, state, path, *rest, **named):
    """A checkpoint holds only the first of the optimizer's two moments."""
    if isinstance(state, dict) and str(path).endswith(".pdopt"):
        state = {name: value for name, value in state.items() if "moment2" not in name}
    return real(state, path, *rest, **named)


def with_each_tensor(value, change):
    """A tensor, or a dict of such values, with change(tensor) in the place of each tensor; another value as it is."""
    if isinstance(value, dict):
        return {name: with_each_tensor(each, change) for name, each in value.items()}
    return change(value) if isinstance(value, paddle.Tensor) else value


@fault("checkpoint.large", after="paddle:load")
def last_block_not_read(state, *given, **named):
    """Of a large tensor the last block of 64 kB, which is read by itself, stays zero."""
    for value in state.values() if isinstance(state, dict) else ():
        if isinstance(value, paddle.Tensor) and value.ndim == 1 and value.size > 2**16:
            value[-(2**14) :] = 0
