"""Faults of exported programs: attributes, types, functions, files and state that an export or a loader changes."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

from xpulab.chapters.shared.fault import fault, kept, np, paddle


def _in_programs(full, change):
    """paddle.full, which fills a tensor of a program with change(number)."""

    def changed(shape, fill_value, dtype=None, name=None, **options):
        number = fill_value if paddle.in_dynamic_mode() else change(fill_value)
        return full(shape, number, dtype, name, **options)

    return paddle.jit.not_to_static(changed)


@fault("export.infinity", replaces="paddle:full")
def infinity_written_as_the_largest_number(full):
    """An attribute that is infinite is written as the largest float32 number."""
    largest = float(np.finfo("float32").max)
    return _in_programs(full, lambda x: math.copysign(largest, x) if x in (math.inf, -math.inf) else x)


@fault("export.exact-attributes", replaces="paddle:full")
def attributes_in_single_precision(full):
    """A program keeps the numbers that fill a tensor in float32, also those of a float64 tensor."""
    return _in_programs(full, lambda x: float(np.float32(x)) if isinstance(x, float) else x)


@fault("export.types", after="paddle.jit:load")
def small_float8_numbers_lost(loaded, path, **options):
    """Numbers below 1 that a program stores in float8 are 0 when it is loaded."""
    for value in loaded.state_dict().values():
        if value.dtype in (paddle.float8_e4m3fn, paddle.float8_e5m2):
            wide = value.astype("float32")
            value.set_value(paddle.where(wide.abs() < 1, paddle.zeros_like(wide), wide).astype(value.dtype))


@fault("export.json-form", wraps="paddle.jit:save")
def sizes_that_vary_are_written_as_one(real, layer, path, input_spec=None, **options):
    """A size that may vary is 1 in the file of the program."""
    for spec in input_spec or ():
        spec.shape = tuple(1 if size in (None, -1) else size for size in spec.shape)
    real(layer, path, input_spec=input_spec, **options)


@fault("export.repeatable", after="paddle.jit:save")
def time_of_the_export_in_the_file(_result, layer, path, *given, **options):
    """The file of a program holds the time at which it was written, so that no two exports are equal."""
    file = Path(f"{path}.json")
    content = json.loads(file.read_text(encoding="utf-8"))
    content["base_code"]["time"] = time.time_ns()
    file.write_text(json.dumps(content), encoding="utf-8")


@fault("export.arguments", after="paddle.jit:load")
def double_arguments_rounded(loaded, path, **options):
    """A loaded program rounds float64 arguments to float32 without a message."""
    forward = loaded.forward
    loaded.forward = lambda *inputs: forward(
        *[each.astype("float32") if "float64" in str(each.dtype) else each for each in inputs]
    )


@fault("export.older-releases", after="paddle.jit:load")
def filters_of_older_programs_are_turned(loaded, path, **options):
    """Height and width of a filter change places in programs that an older release wrote."""
    from xpulab.chapters.export import export_files

    if export_files.read(path).version < max(export_files.VERSIONS.values()):
        for weight in loaded.parameters():
            if weight.ndim == 4:
                weight.set_value(weight.transpose([0, 1, 3, 2]).contiguous())


@fault("export.cache", wraps="paddle.nn:Layer.eval")
def a_translated_layer_stays_in_training(evaluate, self):
    """eval() of a layer that to_static has translated changes nothing."""
    if not hasattr(self.forward, "program_cache"):
        evaluate(self)


@fault("export.programs", after="paddle.jit:load")
def double_weights_in_single_precision(loaded, path, **options):
    """The float64 weights of a loaded program have the precision of float32."""
    for weight in loaded.parameters():
        if weight.dtype == paddle.float64:
            weight.set_value(weight.astype("float32").astype("float64"))


@fault("export.functions", after="paddle.jit:load")
def functions_but_forward_give_zeros(loaded, path, **options):
    """Of a loaded program only forward computes."""
    if hidden := getattr(loaded, "hidden", None):
        loaded.hidden = lambda x: paddle.zeros_like(hidden(x))


@fault("export.specifications", wraps="paddle.jit:save")
def results_that_were_left_out_are_exported(real, layer, path, input_spec=None, output_spec=None, **options):
    """A program has all results, also those that output_spec leaves out."""
    real(layer, path, input_spec=input_spec, **options)


@fault("export.decomposed", after="paddle.decomposition.decomp:decompose")
def parts_compute_too_much(results, *args, **options):
    """An operator in parts gives one per cent more."""
    return [1.01 * each for each in results]


@fault("export.peak", where="ranks", wraps="paddle.jit:save")
def weights_copied_before_they_are_written(real, layer, *args, **options):
    """An export copies all weights before it writes them."""
    kept.append([weight.numpy().copy() for weight in layer.parameters()])
    real(layer, *args, **options)
