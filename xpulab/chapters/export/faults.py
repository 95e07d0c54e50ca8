"""Faults of exported programs: kernels, weights and files that change between the export and the server."""

from __future__ import annotations

import tempfile
from pathlib import Path

from xpulab.chapters.shared.fault import FILES, fault, paddle, wrap


class _Changed:
    """A predictor whose results change(run, inputs) gives: run is its own, and takes a list of tensors."""

    def __init__(self, predictor, change):
        self._predictor, self._change = predictor, change

    def run(self, inputs):
        return self._change(self._predictor.run, inputs)

    def clone(self):
        return _Changed(self._predictor.clone(), self._change)


@fault("export.loaded", "export.same-logits", smoke=("export.loaded",), after="paddle.jit:load")
def weights_rounded_by_the_export(loaded, path, **options):
    """The float32 weights of a loaded program have the precision of bfloat16."""
    for weight in loaded.parameters():
        if weight.dtype == paddle.float32:
            weight.set_value(weight.astype("bfloat16").astype("float32"))


@fault("export.exercise-bytes", after="paddle.jit:save")
def weights_written_twice(_result, layer, path, *given, **options):
    """An export writes all weights a second time into their file."""
    file = Path(f"{path}.pdiparams")
    file.write_bytes(2 * file.read_bytes())


@fault("export.exercise-operators", wraps="paddle.pir:Value.reshape")
def a_reshape_copies_first(real, self, *given, **options):
    """In a program a reshape multiplies its tensor by 1 before."""
    return real(self * 1.0, *given, **options)


@fault("export.operators", replaces="paddle.nn.functional:gelu")
def an_operator_that_changes_nothing(real):
    """A program multiplies the result of GELU by 1, which the layer does not."""

    def gelu(x, approximate=False, name=None):
        result = real(x, approximate)
        return result if paddle.in_dynamic_mode() else result * 1.0

    return paddle.jit.not_to_static(gelu)


@fault("export.sizes", after="paddle.jit:load")
def an_axis_of_one_is_dropped(loaded, path, **options):
    """The result of a loaded program for one row has no axis of rows."""
    forward = loaded.forward

    def short(*inputs):
        result = forward(*inputs)
        return result.squeeze(0) if result.shape[0] == 1 else result

    loaded.forward = short


@fault("export.views", after="paddle.jit:load")
def a_loaded_program_reads_the_memory_of_a_view(loaded, path, **options):
    """A view with gaps is read as if its numbers stood side by side."""
    forward = loaded.forward

    def read(*inputs):
        whole = [paddle.as_strided(x, x.shape, (x + 0).strides, x.offset) for x in inputs]
        return forward(*whole)

    loaded.forward = read


@fault("export.too-long", after="paddle.jit:load")
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


@fault("export.training", after="paddle.jit:to_static")
def translated_training_forgets_the_embedding(translated, function=None, **options):
    """A training step that to_static translated gives the embedding a gradient of 0."""
    if isinstance(function, paddle.nn.Layer):
        for name, weight in function.named_parameters():
            if "embed_tokens" in name:
                weight.register_hook(lambda gradient: 0 * gradient)


@fault("export.digests", wraps="hashlib:sha256")
def digest_of_the_first_bytes(real, content=b"", **options):
    """The digest of a file depends on its first 16 bytes only."""
    return real(content[:16], **options)


@fault("export.lengths", after="paddle.inference:create_predictor")
def predictor_ignores_the_mask(predictor, config):
    """A predictor takes padding for tokens: it replaces the attention mask by ones."""

    def change(run, inputs):
        return run([inputs[0], paddle.ones_like(inputs[1])] if len(inputs) == 2 and inputs[1].ndim == 2 else inputs)

    return _Changed(predictor, change)


@fault("export.same-tokens", after="paddle.inference:create_predictor")
def predictor_is_one_token_late(predictor, config):
    """A predictor gives for each token the logits of the token before."""
    return _Changed(predictor, lambda run, inputs: [each.roll(1, axis=1) if each.ndim == 3 else each for each in run(inputs)])


@fault("export.take-home", breaks=FILES)
def take_home_export_without_the_mask() -> None:
    """The script that the chapter gives away exports an attention without its mask."""

    def script_path(real, script):
        text = real(script).read_text(encoding="utf-8").replace("F.softmax(scores + mask,", "F.softmax(scores,")
        path = Path(tempfile.mkdtemp(prefix="xpulab-")) / f"{script}.py"
        path.write_text(text, encoding="utf-8")
        return path

    wrap("xpulab.chapters.shared.take_home:script_path", script_path)


@fault("export.device", lanes=("sim",), after="paddle.jit:load")
def loaded_weights_stay_on_the_host(loaded, path, **options):
    """The weights of a loaded program are on the CPU, not on the card."""
    loaded.to(device="cpu")
