"""Faults of exported programs: kernels, weights and files that change between the export and the server."""

from __future__ import annotations

import json
import math
import tempfile
import time
from pathlib import Path

from xpulab.chapters.shared.fault import FILES, fault, kept, np, paddle, wrap


class _Changed:
    """A predictor whose results change(run, inputs) gives: run is its own, and takes a list of tensors."""

    def __init__(self, predictor, change):
        self._predictor, self._change = predictor, change

    def run(self, inputs):
        return self._change(self._predictor.run, inputs)

    def clone(self):
        return _Changed(self._predictor.clone(), self._change)


def _in_programs(full, change):
    """paddle.full, which fills a tensor of a program with change(number)."""

    def changed(shape, fill_value, dtype=None, name=None, **options):
        number = fill_value if paddle.in_dynamic_mode() else change(fill_value)
        return full(shape, number, dtype, name, **options)

    return paddle.jit.not_to_static(changed)


@fault(
    detected_by=("export.loaded", "export.programs", "export.same-logits"),
    smoke=("export.loaded",),
    after="paddle.jit:load",
)
def weights_rounded_by_the_export(loaded, path, **options):
    """The float32 weights of a loaded program have the precision of bfloat16."""
    for weight in loaded.parameters():
        if weight.dtype == paddle.float32:
            weight.set_value(weight.astype("bfloat16").astype("float32"))


@fault(detected_by=("export.infinity",), replaces="paddle:full")
def infinity_written_as_the_largest_number(full):
    """An attribute that is infinite is written as the largest float32 number."""
    largest = float(np.finfo("float32").max)
    return _in_programs(full, lambda x: math.copysign(largest, x) if x in (math.inf, -math.inf) else x)


@fault(detected_by=("export.exact-attributes",), replaces="paddle:full")
def attributes_in_single_precision(full):
    """A program keeps the numbers that fill a tensor in float32, also those of a float64 tensor."""
    return _in_programs(full, lambda x: float(np.float32(x)) if isinstance(x, float) else x)


@fault(detected_by=("export.argument-plus",), replaces="paddle:full")
def fractions_of_attributes_lost(full):
    """A program keeps the numbers that fill a tensor as integers."""
    return _in_programs(full, lambda x: float(int(x)) if isinstance(x, float) and math.isfinite(x) else x)


@fault(detected_by=("export.exercise-bytes",), after="paddle.jit:save")
def weights_written_twice(_result, layer, path, *given, **options):
    """An export writes all weights a second time into their file."""
    file = Path(f"{path}.pdiparams")
    file.write_bytes(2 * file.read_bytes())


@fault(detected_by=("export.exercise-operators",), wraps="paddle.pir:Value.reshape")
def a_reshape_copies_first(real, self, *given, **options):
    """In a program a reshape multiplies its tensor by 1 before."""
    return real(self * 1.0, *given, **options)


@fault(detected_by=("export.operators",), replaces="paddle.nn.functional:gelu")
def an_operator_that_changes_nothing(real):
    """A program multiplies the result of GELU by 1, which the layer does not."""

    def gelu(x, approximate=False, name=None):
        result = real(x, approximate)
        return result if paddle.in_dynamic_mode() else result * 1.0

    return paddle.jit.not_to_static(gelu)


@fault(detected_by=("export.attributes",), replaces="paddle.nn.layer.norm:layer_norm")
def another_epsilon_in_programs(real):
    """A program has the epsilon of another framework in its layer norms."""

    def layer_norm(x, normalized_shape, weight=None, bias=None, epsilon=1e-05, name=None):
        return real(x, normalized_shape, weight, bias, epsilon if paddle.in_dynamic_mode() else 1e-6, name)

    return paddle.jit.not_to_static(layer_norm)


@fault(detected_by=("export.types",), after="paddle.jit:load")
def small_float8_numbers_lost(loaded, path, **options):
    """Numbers below 1 that a program stores in float8 are 0 when it is loaded."""
    for value in loaded.state_dict().values():
        if value.dtype in (paddle.float8_e4m3fn, paddle.float8_e5m2):
            wide = value.astype("float32")
            value.set_value(paddle.where(wide.abs() < 1, paddle.zeros_like(wide), wide).astype(value.dtype))


@fault(detected_by=("export.casts",), wraps="paddle.pir:Value.astype")
def casts_in_a_program_round_to_nearest(real, self, dtype):
    """A cast from float32 to int8 in a program rounds to the nearest integer, in eager mode towards zero."""
    return real(self.round() if dtype == "int8" else self, dtype)


@fault(detected_by=("export.saved-float8",), after="paddle:load")
def float8_widened_by_the_reader(found, path, **options):
    """A file with float8 numbers is read as float16."""
    if isinstance(found, dict):
        for name, value in found.items():
            if getattr(value, "dtype", None) in (paddle.float8_e4m3fn, paddle.float8_e5m2):
                found[name] = value.astype("float16")


@fault(detected_by=("export.functions",), after="paddle.jit:load")
def second_function_runs_the_first(loaded, path, **options):
    """The second function of a loaded program runs the operators of the first."""
    if hasattr(loaded, "hidden"):
        loaded.hidden = loaded.forward


@fault(detected_by=("export.sizes",), after="paddle.jit:load")
def an_axis_of_one_is_dropped(loaded, path, **options):
    """The result of a loaded program for one row has no axis of rows."""
    forward = loaded.forward

    def short(*inputs):
        result = forward(*inputs)
        return result.squeeze(0) if result.shape[0] == 1 else result

    loaded.forward = short


@fault(detected_by=("export.json-form",), wraps="paddle.jit:save")
def sizes_that_vary_are_written_as_one(real, layer, path, input_spec=None, **options):
    """A size that may vary is 1 in the file of the program."""
    for spec in input_spec or ():
        spec.shape = tuple(1 if size in (None, -1) else size for size in spec.shape)
    real(layer, path, input_spec=input_spec, **options)


@fault(detected_by=("export.repeatable",), after="paddle.jit:save")
def time_of_the_export_in_the_file(_result, layer, path, *given, **options):
    """The file of a program holds the time at which it was written, so that no two exports are equal."""
    file = Path(f"{path}.json")
    content = json.loads(file.read_text(encoding="utf-8"))
    content["base_code"]["time"] = time.time_ns()
    file.write_text(json.dumps(content), encoding="utf-8")


@fault(detected_by=("export.arguments",), after="paddle.jit:load")
def double_arguments_rounded(loaded, path, **options):
    """A loaded program rounds float64 arguments to float32 without a message."""
    forward = loaded.forward
    loaded.forward = lambda *inputs: forward(
        *[each.astype("float32") if "float64" in str(each.dtype) else each for each in inputs]
    )


@fault(detected_by=("export.too-long",), after="paddle.jit:load")
def texts_that_are_too_long_cut(loaded, path, **options):
    """A loaded program cuts a text that is longer than its table of positions, without a message."""
    forward = loaded.forward

    def cut(*inputs):
        try:
            return forward(*inputs)
        except ValueError:
            if len(inputs) != 2 or inputs[0].shape != inputs[1].shape:
                raise
            return forward(*[each[:, :-1] for each in inputs])

    loaded.forward = cut


@fault(detected_by=("export.training",), after="paddle.jit:to_static")
def translated_training_forgets_the_embedding(translated, function=None, **options):
    """A training step that to_static translated gives the embedding a gradient of 0."""
    if isinstance(function, paddle.nn.Layer):
        for name, weight in function.named_parameters():
            if "embed_tokens" in name:
                weight.register_hook(lambda gradient: 0 * gradient)


@fault(
    detected_by=("export.older-releases",),
    after="paddle.jit:load",
)
def filters_of_older_programs_are_turned(loaded, path, **options):
    """Height and width of a filter change places in programs that an older release wrote."""
    from xpulab.chapters.export import export_files

    if export_files.read(path).version < max(export_files.VERSIONS.values()):
        for weight in loaded.parameters():
            if weight.ndim == 4:
                weight.set_value(weight.transpose([0, 1, 3, 2]).contiguous())


@fault(detected_by=("export.damaged",), wraps="paddle.jit:load")
def damaged_files_give_the_last_program(real, path, **options):
    """When a file cannot be read, the loader returns the program that it loaded before."""
    try:
        kept[:] = [real(path, **options)]
    except (RuntimeError, ValueError, KeyError):
        if not kept:
            raise
    return kept[0]


@fault(detected_by=("export.digests", "export.digests-of-damage", "export.older-files"), wraps="hashlib:sha256")
def digest_of_the_first_bytes(real, content=b"", **options):
    """The digest of a file depends on its first 16 bytes only."""
    return real(content[:16], **options)


@fault(detected_by=("export.program-state",), wraps="paddle.static:load")
def state_of_a_program_not_loaded(_real, program, path, executor=None, var_list=None):
    """paddle.static.load reads the files of a program's state, and leaves the state as it was."""


@fault(detected_by=("export.program-training",), wraps="paddle.optimizer:Adam.__init__")
def both_moments_decay_alike(real, self, *given, **named):
    """In a program Adam uses the first of its two decays for both moments."""
    real(self, *given, **named if paddle.in_dynamic_mode() else {**named, "beta2": 0.9})


@fault(detected_by=("export.predictor-files",), wraps="paddle.inference:Config")
def predictor_of_the_last_files(real, *files):
    """For files that are missing a predictor takes those of the predictor before."""
    if all(Path(each).is_file() for each in files):
        kept[:] = files
    return real(*(kept or files))


@fault(detected_by=("export.lengths",), after="paddle.inference:create_predictor")
def predictor_ignores_the_mask(predictor, config):
    """A predictor takes padding for tokens: it replaces the attention mask by ones."""

    def change(run, inputs):
        return run([inputs[0], paddle.ones_like(inputs[1])] if len(inputs) == 2 and inputs[1].ndim == 2 else inputs)

    return _Changed(predictor, change)


@fault(detected_by=("export.same-tokens",), after="paddle.inference:create_predictor")
def predictor_is_one_token_late(predictor, config):
    """A predictor gives for each token the logits of the token before."""
    return _Changed(predictor, lambda run, inputs: [each.roll(1, axis=1) if each.ndim == 3 else each for each in run(inputs)])


@fault(detected_by=("export.hugging-face",), wraps="safetensors.numpy:save_file")
def transposed_weights_written_as_they_lie(real, tensors, path, metadata=None):
    """safetensors writes a transposed matrix in the order in which its memory lies."""
    lying = {name: value.T.copy().reshape(value.shape) if value.ndim == 2 else value for name, value in tensors.items()}
    real(lying, path, metadata=metadata)


@fault(detected_by=("export.take-home",), breaks=FILES)
def take_home_export_without_the_mask() -> None:
    """The script that the chapter gives away exports an attention without its mask."""

    def script_path(real, script):
        text = real(script).read_text(encoding="utf-8").replace("F.softmax(scores + mask,", "F.softmax(scores,")
        path = Path(tempfile.mkdtemp(prefix="xpulab-")) / f"{script}.py"
        path.write_text(text, encoding="utf-8")
        return path

    wrap("xpulab.chapters.shared.take_home:script_path", script_path)


@fault(lanes=("sim",), detected_by=("export.device",), after="paddle.jit:load")
def loaded_weights_stay_on_the_host(loaded, path, **options):
    """The weights of a loaded program are on the CPU, not on the card."""
    loaded.to(device="cpu")


@fault(
    detected_by=("export.cache",),
    wraps="paddle.nn:Layer.eval",
)
def a_translated_layer_stays_in_training(evaluate, self):
    """eval() of a layer that to_static has translated changes nothing."""
    if not hasattr(self.forward, "program_cache"):
        evaluate(self)
