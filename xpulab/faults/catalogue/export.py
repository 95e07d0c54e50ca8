"""Faults of exported programs: kernels, weights and files that change between the export and the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xpulab.faults.fault import fault


def _after_loading(change: Callable[[Any], None]) -> None:
    """From now on each program is changed after it was loaded."""
    import paddle

    real = paddle.jit.load

    def load(path, **options):
        loaded = real(path, **options)
        change(loaded)
        return loaded

    paddle.jit.load = load


def _around_predictors(change: Callable[[Any, list[Any]], list[Any]]) -> None:
    """From now on change(run, inputs) gives the results of a predictor, whose own run takes a list of tensors."""
    import paddle

    class Changed:
        def __init__(self, real):
            self._real = real

        def run(self, inputs):
            return change(self._real.run, inputs)

        def clone(self):
            return Changed(self._real.clone())

    real = paddle.inference.create_predictor
    paddle.inference.create_predictor = lambda config: Changed(real(config))


@fault(
    "17_export",
    detected_by=("export.loaded", "export.programs", "export.same-logits"),
    smoke=("export.loaded",),
    also_on=("sim",),
)
def weights_rounded_by_the_export() -> None:
    """The float32 weights of a loaded program have the precision of bfloat16."""
    import paddle

    def change(loaded):
        for weight in loaded.parameters():
            if weight.dtype == paddle.float32:
                weight.set_value(weight.astype("bfloat16").astype("float32"))

    _after_loading(change)


@fault("17_export", detected_by=("export.programs",))
def weights_of_the_same_shape_exchanged() -> None:
    """Two weights of a loaded program that have the same shape are exchanged."""

    def change(loaded):
        first: dict[tuple, Any] = {}
        for weight in loaded.parameters():
            other = first.pop(shape := tuple(weight.shape), None)
            if other is None:
                first[shape] = weight
                continue
            ours, theirs = weight.clone(), other.clone()
            weight.set_value(theirs)
            other.set_value(ours)

    _after_loading(change)


@fault("17_export", detected_by=("export.programs", "export.loaded"))
def another_kernel_in_programs() -> None:
    """GELU is computed by its approximation with tanh in programs, and exactly in eager mode."""
    import paddle
    import paddle.nn.functional as functional

    real = functional.gelu
    translated = paddle.jit.not_to_static
    functional.gelu = translated(lambda x, approximate=False, name=None: real(x, approximate or not paddle.in_dynamic_mode()))


@fault("17_export", detected_by=("export.modes",))
def dropout_stays_in_the_program() -> None:
    """The export of a layer in training mode leaves its dropout on."""
    from paddle.static import pir_io

    pir_io._inference_optimize = lambda program, prune_read_op=True: None


@fault("17_export", detected_by=("export.infinity",))
def infinity_written_as_the_largest_number() -> None:
    """An attribute that is infinite is written as the largest float32 number."""
    import math

    import numpy as np
    import paddle

    real = paddle.full

    def full(shape, fill_value, dtype=None, name=None, **options):
        if not paddle.in_dynamic_mode() and fill_value in (math.inf, -math.inf):
            fill_value = math.copysign(float(np.finfo("float32").max), fill_value)
        return real(shape, fill_value, dtype, name, **options)

    paddle.full = paddle.jit.not_to_static(full)


@fault("17_export", detected_by=("export.exact-attributes",))
def attributes_in_single_precision() -> None:
    """A program keeps the numbers that fill a tensor in float32, also those of a float64 tensor."""
    import numpy as np
    import paddle

    real = paddle.full

    def full(shape, fill_value, dtype=None, name=None, **options):
        if not paddle.in_dynamic_mode() and isinstance(fill_value, float):
            fill_value = float(np.float32(fill_value))
        return real(shape, fill_value, dtype, name, **options)

    paddle.full = paddle.jit.not_to_static(full)


@fault("17_export", detected_by=("export.programs",))
def a_loop_runs_once_more() -> None:
    """The loop of a program runs its body once more when its condition is no longer true."""
    import paddle

    real = paddle.static.nn.while_loop
    paddle.static.nn.while_loop = lambda condition, body, values, *others: body(*real(condition, body, values, *others))


@fault("17_export", detected_by=("export.types",))
def small_float8_numbers_lost() -> None:
    """Numbers below 1 that a program stores in float8 are 0 when it is loaded."""
    import paddle

    def change(loaded):
        for value in loaded.state_dict().values():
            if value.dtype in (paddle.float8_e4m3fn, paddle.float8_e5m2):
                wide = value.astype("float32")
                value.set_value(paddle.where(wide.abs() < 1, paddle.zeros_like(wide), wide).astype(value.dtype))

    _after_loading(change)


@fault("17_export", detected_by=("export.casts",))
def casts_in_a_program_round_to_nearest() -> None:
    """A cast from float32 to int8 in a program rounds to the nearest integer, in eager mode towards zero."""
    import paddle

    real = paddle.pir.Value.astype
    paddle.pir.Value.astype = lambda self, dtype: real(self.round() if dtype == "int8" else self, dtype)


@fault("17_export", detected_by=("export.saved-float8",))
def float8_widened_by_the_reader() -> None:
    """A file with float8 numbers is read as float16."""
    import paddle

    real = paddle.load

    def load(path, **options):
        found = real(path, **options)
        if isinstance(found, dict):
            for name, value in found.items():
                if getattr(value, "dtype", None) in (paddle.float8_e4m3fn, paddle.float8_e5m2):
                    found[name] = value.astype("float16")
        return found

    paddle.load = load


@fault("17_export", detected_by=("export.functions",))
def second_function_runs_the_first() -> None:
    """The second function of a loaded program runs the operators of the first."""

    def change(loaded):
        if hasattr(loaded, "hidden"):
            loaded.hidden = loaded.forward

    _after_loading(change)


@fault("17_export", detected_by=("export.sizes",))
def an_axis_of_one_is_dropped() -> None:
    """The result of a loaded program for one row has no axis of rows."""

    def change(loaded):
        forward = loaded.forward

        def short(*inputs):
            result = forward(*inputs)
            return result.squeeze(0) if result.shape[0] == 1 else result

        loaded.forward = short

    _after_loading(change)


@fault("17_export", detected_by=("export.json-form",))
def sizes_that_vary_are_written_as_one() -> None:
    """A size that may vary is 1 in the file of the program."""
    import paddle

    real = paddle.jit.save

    def save(layer, path, input_spec=None, **options):
        for spec in input_spec or ():
            spec.shape = tuple(1 if size in (None, -1) else size for size in spec.shape)
        real(layer, path, input_spec=input_spec, **options)

    paddle.jit.save = save


@fault("17_export", detected_by=("export.gradients",))
def gradients_of_loaded_programs_twice() -> None:
    """The gradients of a loaded program are added twice."""

    def change(loaded):
        for weight in loaded.parameters():
            if not weight.stop_gradient:
                weight.register_hook(lambda gradient: 2 * gradient)

    _after_loading(change)


@fault("17_export", detected_by=("export.training",))
def translated_training_forgets_the_embedding() -> None:
    """A training step that to_static translated gives the embedding a gradient of 0."""
    import paddle

    real = paddle.jit.to_static

    def to_static(function=None, **options):
        translated = real(function, **options)
        if isinstance(function, paddle.nn.Layer):
            for name, weight in function.named_parameters():
                if "embed_tokens" in name:
                    weight.register_hook(lambda gradient: 0 * gradient)
        return translated

    paddle.jit.to_static = to_static


@fault("17_export", detected_by=("export.older-releases",))
def older_programs_read_in_another_order() -> None:
    """Matrices of programs that an older release wrote are read column by column."""
    import paddle

    from xpulab.notebook import export_files

    real = paddle.jit.load

    def load(path, **options):
        loaded = real(path, **options)
        if export_files.read(path).version < max(export_files.VERSIONS.values()):
            for weight in loaded.parameters():
                if weight.ndim == 2:
                    weight.set_value(weight.t().contiguous().reshape(weight.shape))
        return loaded

    paddle.jit.load = load


@fault("17_export", detected_by=("export.damaged",))
def damaged_files_give_the_last_program() -> None:
    """When a file cannot be read, the loader returns the program that it loaded before."""
    import paddle

    real, last = paddle.jit.load, []

    def load(path, **options):
        try:
            last[:] = [real(path, **options)]
        except (RuntimeError, ValueError, KeyError):
            if not last:
                raise
        return last[0]

    paddle.jit.load = load


@fault("17_export", detected_by=("export.digests", "export.digests-of-damage"))
def digest_of_the_first_bytes() -> None:
    """The digest of a file depends on its first 16 bytes only."""
    import hashlib

    real = hashlib.sha256
    hashlib.sha256 = lambda content=b"", **options: real(content[:16], **options)


@fault("17_export", detected_by=("export.program-state",))
def state_of_a_program_not_loaded() -> None:
    """paddle.static.load reads the files of a program's state, and leaves the state as it was."""
    import paddle

    paddle.static.load = lambda program, path, executor=None, var_list=None: None


@fault("17_export", detected_by=("export.predictor",))
def predictor_answers_the_request_before() -> None:
    """For arguments of the same shapes as in the call before, a predictor returns the result of that call."""
    last: dict[str, Any] = {}

    def change(run, inputs):
        shapes = [each.shape for each in inputs]
        if last.get("shapes") != shapes:
            last.update(shapes=shapes, results=run(inputs))
        return last["results"]

    _around_predictors(change)


@fault("17_export", detected_by=("export.lengths",))
def predictor_ignores_the_mask() -> None:
    """A predictor takes padding for tokens: it replaces the attention mask by ones."""
    import paddle

    def change(run, inputs):
        return run([inputs[0], paddle.ones_like(inputs[1])] if len(inputs) == 2 and inputs[1].ndim == 2 else inputs)

    _around_predictors(change)


@fault("17_export", detected_by=("export.same-tokens",))
def predictor_is_one_token_late() -> None:
    """A predictor gives for each token the logits of the token before."""

    def change(run, inputs):
        return [each.roll(1, axis=1) if each.ndim == 3 else each for each in run(inputs)]

    _around_predictors(change)


@fault("17_export", detected_by=("export.hugging-face",))
def transposed_weights_written_as_they_lie() -> None:
    """safetensors writes a transposed matrix in the order in which its memory lies."""
    import safetensors.numpy

    real = safetensors.numpy.save_file

    def save_file(tensors, path, metadata=None):
        lying = {name: value.T.copy().reshape(value.shape) if value.ndim == 2 else value for name, value in tensors.items()}
        real(lying, path, metadata=metadata)

    safetensors.numpy.save_file = save_file


@fault("17_export", detected_by=("export.take-home",))
def take_home_export_without_the_mask() -> None:
    """The script that the chapter gives away exports an attention without its mask."""
    import tempfile
    from pathlib import Path

    from xpulab.notebook import take_home

    real = take_home.script_path

    def other(script):
        text = real(script).read_text(encoding="utf-8").replace("F.softmax(scores + mask,", "F.softmax(scores,")
        path = Path(tempfile.mkdtemp(prefix="xpulab-")) / f"{script}.py"
        path.write_text(text, encoding="utf-8")
        return path

    take_home.script_path = other


@fault("17_export", device="sim", detected_by=("export.device",))
def loaded_weights_stay_on_the_host() -> None:
    """The weights of a loaded program are on the CPU, not on the card."""

    def change(loaded):
        loaded.to(device="cpu")

    _after_loading(change)
