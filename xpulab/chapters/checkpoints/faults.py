"""The faults of this chapter."""

from __future__ import annotations

import random

from xpulab.chapters.shared.fault import CELLS, fault, paddle, replace_in_cells


@fault(detected_by=("resume.exact",), breaks=CELLS, lanes=("sim",))
def sampler_restarts() -> None:
    """A resumed run sees the data from the beginning again."""
    replace_in_cells("def _get_train_sampler(self):", "def _unused(self):")


@fault(
    where="everywhere",
    detected_by=("resume.stock", "resume.exact", "resume.trainer"),
    wraps="paddlenlp.trainer:Trainer._load_rng_state",
)
def random_state_lost(_real, self, checkpoint):
    """The random state is not restored when a run is resumed."""


@fault(detected_by=("resume.trainer", "resume.trainer-alone"), wraps="paddlenlp.trainer:Trainer._load_rng_state")
def python_random_state_lost(real, self, checkpoint):
    """The state of Python's random number generator is not restored."""
    state = random.getstate()
    real(self, checkpoint)
    random.setstate(state)


@fault(
    where="everywhere",
    detected_by=("resume.exact", "resume.trainer", "resume.exercise-longer"),
    wraps=("paddle.optimizer.lr:LRScheduler.set_state_dict", "paddle.optimizer.lr:LRScheduler.set_dict"),
)
def schedule_not_restored(_real, self, state):
    """A resumed run begins with the learning rate of the first step."""


@fault(
    detected_by=(
        "checkpoint.pdparams",
        "checkpoint.safetensors",
        "checkpoint.nested",
        "checkpoint.exercise-values",
    ),
    after="paddle:load",
)
def load_drops_a_key(state, path, **configs):
    """`paddle.load` drops the last entry of a file."""
    if isinstance(state, dict) and len(state) > 1:
        state.pop(list(state)[-1])


@fault(
    detected_by=(
        "checkpoint.pdparams",
        "checkpoint.safetensors",
        "checkpoint.workarounds",
        "checkpoint.nested",
        "checkpoint.written-by-others",
    ),
    smoke=("checkpoint.smoke-values", "resume.smoke-step"),
    after="paddle:load",
)
def load_returns_zeros(state, *given, **named):
    """`paddle.load` returns zeros of the correct type and shape."""
    return _with_each_tensor(state, lambda tensor: paddle.zeros(tensor.shape, tensor.dtype))


@fault(detected_by=("checkpoint.pdparams", "checkpoint.safetensors", "checkpoint.read-by-others"), wraps="paddle:save")
def bfloat16_as_float32(real, state, path, *rest, **named):
    """Bfloat16 is saved as float32."""
    wide = _with_each_tensor(state, lambda each: each.astype("float32") if each.dtype == paddle.bfloat16 else each)
    return real(wide, path, *rest, **named)


@fault(detected_by=("checkpoint.special-values",), after="paddle:load")
def float64_loses_bits(state, *given, **named):
    """Float64 comes back with the precision of float32."""
    return _with_each_tensor(
        state, lambda each: each.astype("float32").astype(each.dtype) if each.dtype == paddle.float64 else each
    )


@fault(detected_by=("checkpoint.flattened",), breaks=CELLS, lanes=("sim",))
def flattened_names_collide() -> None:
    """Flattening a nested state drops the names of the outer levels."""
    replace_in_cells('found |= flat(value, f"{prefix}{key}.")', "found |= flat(value)")


@fault(where="ranks", detected_by=("checkpoint.file-sizes",), wraps="paddle:save")
def second_moment_not_saved(real, state, path, *rest, **named):
    """A checkpoint holds only the first of the optimizer's two moments."""
    if isinstance(state, dict) and str(path).endswith(".pdopt"):
        state = {name: value for name, value in state.items() if "moment2" not in name}
    return real(state, path, *rest, **named)


@fault(detected_by=("checkpoint.not-a-tensor",), breaks=CELLS)
def flattening_drops_what_is_no_tensor() -> None:
    """Flattening drops the numbers and texts of a state without an error."""
    replace_in_cells('            raise TypeError(f"{prefix}{key} is a', '            (f"{prefix}{key} is a')


@fault(detected_by=("checkpoint.views",), wraps="paddle:save")
def view_saved_without_its_strides(real, state, *given, **named):
    """The values of a view are read one after the other from where it begins in memory."""

    def in_memory_order(tensor):
        return tensor if tensor.is_contiguous() else paddle.as_strided(tensor, tensor.shape, [1], tensor.offset)

    return real(_with_each_tensor(state, in_memory_order), *given, **named)


def _with_each_tensor(value, change):
    """A tensor, or a dict of such values, with change(tensor) in the place of each tensor; another value as it is."""
    if isinstance(value, dict):
        return {name: _with_each_tensor(each, change) for name, each in value.items()}
    return change(value) if isinstance(value, paddle.Tensor) else value


@fault(detected_by=("checkpoint.large",), after="paddle:load")
def last_block_not_read(state, *given, **named):
    """Of a large tensor the last block of 64 kB, which is read by itself, stays zero."""
    for value in state.values() if isinstance(state, dict) else ():
        if isinstance(value, paddle.Tensor) and value.ndim == 1 and value.size > 2**16:
            value[-(2**14) :] = 0


STATES = ("resume.states",)


@fault(detected_by=STATES, after="paddle.optimizer.lr:LRScheduler.set_state_dict")
def step_0_is_taken_for_none(_result, self, state):
    """A schedule that was saved before the first step begins with its second."""
    if not self.last_epoch and not isinstance(self, paddle.optimizer.lr.ReduceOnPlateau):  # that one takes a metric
        self.step()


@fault(
    detected_by=("checkpoint.arrays",),
    wraps="paddle:load",
)
def arrays_of_half_precision_are_widened(load, path, **options):
    """paddle.load(return_numpy=True) gives arrays of float32 for tensors of float16."""
    found = load(path, **options)
    if not (options.get("return_numpy") and isinstance(found, dict)):
        return found
    return {name: each.astype("float32") if str(each.dtype) == "float16" else each for name, each in found.items()}
