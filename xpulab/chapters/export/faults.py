"""Faults of exported programs: kernels, weights and files that change between the export and the server."""

from __future__ import annotations

import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

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


def _changed_results(forward, change):
    """The forward function of a loaded program, whose results as a list change(results) gives."""

    def changed(*inputs):
        found = forward(*inputs)
        results = change([found] if isinstance(found, paddle.Tensor) else list(found))
        return results[0] if isinstance(found, paddle.Tensor) else type(found)(results)

    return changed


def _saved_with(real, tensors, change, *given, **options):
    """Save while each of the tensors has the value change(tensor)."""
    before = [each.clone() for each in tensors]
    for each in tensors:
        each.set_value(change(each))
    real(*given, **options)
    for each, value in zip(tensors, before, strict=True):
        each.set_value(value)


@fault(
    detected_by=("export.loaded", "export.programs", "export.same-logits"),
    smoke=("export.loaded",),
    also_on=("sim",),
    after="paddle.jit:load",
)
def weights_rounded_by_the_export(loaded, path, **options):
    """The float32 weights of a loaded program have the precision of bfloat16."""
    for weight in loaded.parameters():
        if weight.dtype == paddle.float32:
            weight.set_value(weight.astype("bfloat16").astype("float32"))


@fault(detected_by=("export.programs",), after="paddle.jit:load")
def weights_of_the_same_shape_exchanged(loaded, path, **options):
    """Two weights of a loaded program that have the same shape are exchanged."""
    first: dict[tuple, Any] = {}
    for weight in loaded.parameters():
        other = first.pop(shape := tuple(weight.shape), None)
        if other is None:
            first[shape] = weight
            continue
        ours, theirs = weight.clone(), other.clone()
        weight.set_value(theirs)
        other.set_value(ours)


@fault(detected_by=("export.programs", "export.loaded"), replaces="paddle.nn.functional:gelu")
def another_kernel_in_programs(real):
    """GELU is computed by its approximation with tanh in programs, and exactly in eager mode."""
    translated = paddle.jit.not_to_static
    return translated(lambda x, approximate=False, name=None: real(x, approximate or not paddle.in_dynamic_mode()))


@fault(detected_by=("export.programs",), wraps="paddle.static.pir_io:_inference_optimize")
def dropout_stays_in_the_program(_real, program, prune_read_op=True):
    """The export of a layer in training mode leaves its dropout on."""


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


@fault(detected_by=("export.programs",), wraps="paddle.static.nn:while_loop")
def a_loop_runs_once_more(real, condition, body, values, *others):
    """The loop of a program runs its body once more when its condition is no longer true."""
    return body(*real(condition, body, values, *others))


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


@fault(detected_by=("export.programs",), after="paddle.jit:load")
def gradients_of_loaded_programs_twice(loaded, path, **options):
    """The gradients of a loaded program are added twice."""
    for weight in loaded.parameters():
        if not weight.stop_gradient:
            weight.register_hook(lambda gradient: 2 * gradient)


@fault(detected_by=("export.training",), after="paddle.jit:to_static")
def translated_training_forgets_the_embedding(translated, function=None, **options):
    """A training step that to_static translated gives the embedding a gradient of 0."""
    if isinstance(function, paddle.nn.Layer):
        for name, weight in function.named_parameters():
            if "embed_tokens" in name:
                weight.register_hook(lambda gradient: 0 * gradient)


@fault(detected_by=("export.older-releases",), after="paddle.jit:load")
def older_programs_read_in_another_order(loaded, path, **options):
    """Matrices of programs that an older release wrote are read column by column."""
    from xpulab.chapters.export import export_files

    if export_files.read(path).version < max(export_files.VERSIONS.values()):
        for weight in loaded.parameters():
            if weight.ndim == 2:
                weight.set_value(weight.t().contiguous().reshape(weight.shape))


@fault(detected_by=("export.older-releases",), also_on=("sim",), after="paddle.jit:load")
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


@fault(detected_by=("export.programs",), after="paddle.inference:create_predictor")
def predictor_answers_the_request_before(predictor, config):
    """For arguments of the same shapes as in the call before, a predictor returns the result of that call."""

    def change(run, inputs):
        shapes = [each.shape for each in inputs]
        if shapes not in kept[:1]:
            kept[:] = [shapes, run(inputs)]
        return kept[1]

    return _Changed(predictor, change)


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


@fault(device="sim", detected_by=("export.device",), after="paddle.jit:load")
def loaded_weights_stay_on_the_host(loaded, path, **options):
    """The weights of a loaded program are on the CPU, not on the card."""
    loaded.to(device="cpu")


@fault(detected_by=("export.programs",), after="paddle.inference:create_predictor")
def predictor_with_onednn_computes_in_bfloat16(predictor, config):
    """With oneDNN the results of a predictor have the precision of bfloat16."""
    if not config.mkldnn_enabled():
        return predictor

    def change(run, inputs):
        return [each.astype("bfloat16").astype(each.dtype) if each.is_floating_point() else each for each in run(inputs)]

    return _Changed(predictor, change)


@fault(detected_by=("export.programs",), after="paddle.static:Executor.run")
def an_executor_gives_its_results_in_reverse(found, *given, **options):
    """The results of a program in an executor come in reverse order."""
    return found[::-1]


@fault(detected_by=("export.programs",), wraps="paddle.jit:save")
def a_program_saved_again_loses_bits(real, layer, path, *given, **options):
    """A loaded program that is saved again has the precision of bfloat16."""
    if type(layer).__name__.endswith("TranslatedLayer"):
        for weight in layer.parameters():
            weight.set_value(weight.astype("bfloat16").astype(weight.dtype))
    real(layer, path, *given, **options)


@fault(detected_by=("export.programs",), after="paddle.jit:load")
def a_loaded_program_drops_numbers_in_training_mode(loaded, path, **options):
    """A loaded program has dropout when it is in training mode, although its export removed it."""
    loaded.forward = _changed_results(
        loaded.forward,
        lambda results: [paddle.nn.functional.dropout(each) if loaded.training else each for each in results],
    )


@fault(detected_by=("export.programs",), after="paddle.jit:load")
def results_of_one_shape_are_exchanged(loaded, path, **options):
    """The two results of a loaded program are exchanged where they have one shape."""
    loaded.forward = _changed_results(
        loaded.forward,
        lambda results: results[::-1] if len(results) == 2 and results[0].shape == results[1].shape else results,
    )


@fault(detected_by=("export.programs",), after="paddle.jit:load")
def nested_results_in_another_order(loaded, path, **options):
    """The results of a loaded program that has more than two come in another order."""
    loaded.forward = _changed_results(
        loaded.forward, lambda results: results[1:] + results[:1] if len(results) > 2 else results
    )


@fault(detected_by=("export.programs",), after="paddle.jit:load")
def arguments_in_the_order_of_their_names(loaded, path, **options):
    """Two arguments of one type and shape reach a loaded program in the order of their names."""
    forward = loaded.forward

    def sorted_first(*inputs):
        alike = len(inputs) == 3 and inputs[0].dtype == inputs[1].dtype and inputs[0].shape == inputs[1].shape
        return forward(*(inputs[1], inputs[0], inputs[2]) if alike else inputs)

    loaded.forward = sorted_first


@fault(detected_by=("export.programs",), replaces="paddle:where")
def masks_are_inverted_in_programs(real):
    """In programs where() takes its two tensors in another order, as select() of other frameworks does."""

    def where(condition, x=None, y=None, name=None):
        return real(condition, x, y, name) if paddle.in_dynamic_mode() else real(condition, y, x, name)

    return paddle.jit.not_to_static(where)


@fault(detected_by=("export.programs",), replaces="paddle.nn.functional:embedding")
def last_row_of_a_table_is_padding_in_programs(real):
    """In programs a padding index of -1, which stands for none, is the last row of an embedding's table."""

    def embedding(x, weight, padding_idx=None, *given, **named):
        last = padding_idx if paddle.in_dynamic_mode() else weight.shape[0] - 1
        return real(x, weight, last, *given, **named)

    return paddle.jit.not_to_static(embedding)


@fault(detected_by=("export.programs",), after="paddle.jit:load")
def double_weights_in_single_precision(loaded, path, **options):
    """The float64 weights of a loaded program have the precision of float32."""
    for weight in loaded.parameters():
        if weight.dtype == paddle.float64:
            weight.set_value(weight.astype("float32").astype("float64"))


@fault(detected_by=("export.programs",), after="paddle.jit:load")
def sizes_of_the_first_call_are_kept(loaded, path, **options):
    """A loaded program gives no more rows than in its first call."""
    rows: list[int] = []

    def cut(results):
        rows.append(results[0].shape[0])
        return [each[: rows[0]] for each in results]

    loaded.forward = _changed_results(loaded.forward, cut)


@fault(detected_by=("export.programs",), wraps="paddle.jit:save")
def batch_norm_is_exported_without_its_mean(real, layer, path, *given, **options):
    """The mean that a batch norm gathered in training is zero in the files."""
    means = [value for name, value in layer.named_parameters() if name.endswith("._mean")]
    _saved_with(real, means, lambda mean: mean * 0, layer, path, *given, **options)


@fault(detected_by=("export.programs",), wraps="paddle.jit:save")
def buffers_outside_of_the_state_are_lost(real, layer, path, *given, **options):
    """Buffers that are not persistable are zero in the files."""
    state = layer.state_dict() if isinstance(layer, paddle.nn.Layer) else {}
    lost = [value for name, value in layer.named_buffers() if name not in state]
    _saved_with(real, lost, lambda value: value * 0, layer, path, *given, **options)


@fault(detected_by=("export.programs",), replaces="paddle.static.nn:cond")
def a_condition_takes_its_first_branch(real):
    """A condition in a program always takes its first branch."""
    return lambda pred, true_fn=None, false_fn=None, *given, **named: real(pred, true_fn, true_fn, *given, **named)


@fault(detected_by=("export.programs",), replaces="paddle:matmul")
def transposition_of_a_square_is_lost(real):
    """In programs the product with a transposed square matrix is that with the matrix."""

    def matmul(x, y, transpose_x=False, transpose_y=False, name=None):
        is_square = len(y.shape) == 2 and y.shape[0] == y.shape[1]
        return real(x, y, transpose_x, transpose_y and (paddle.in_dynamic_mode() or not is_square), name)

    return paddle.jit.not_to_static(matmul)


@fault(detected_by=("export.programs",), wraps="paddle.optimizer:SGD.step")
def weights_shrink_although_they_are_frozen(real, self):
    """The optimizer makes weights smaller that are frozen."""
    real(self)
    for weight in self._parameter_list:
        if weight.stop_gradient:
            weight.set_value(0.9 * weight)


@fault(detected_by=("export.programs",), wraps="paddle.jit:save")
def weights_that_are_there_are_kept(real, layer, path, *given, **options):
    """An export to a path that has a file of weights leaves it as it is."""
    file = Path(f"{path}.pdiparams")
    there = file.read_bytes() if file.is_file() else None
    real(layer, path, *given, **options)
    if there is not None:
        file.write_bytes(there)


@fault(detected_by=("export.programs",), after="paddle.jit:save")
def weights_are_written_over_those_of_a_neighbour(_result, layer, path, *given, **options):
    """An export writes its weights also over those of an earlier one in the same folder that are as long."""
    file = Path(f"{path}.pdiparams")
    if not file.is_file():
        return
    for other in file.parent.glob("*.pdiparams"):
        if other.stat().st_size == file.stat().st_size:
            other.write_bytes(file.read_bytes())


@fault(detected_by=("export.cache",), also_on=("sim",), wraps="paddle.nn:Layer.eval")
def a_translated_layer_stays_in_training(evaluate, self):
    """eval() of a layer that to_static has translated changes nothing."""
    if not hasattr(self.forward, "program_cache"):
        evaluate(self)
