"""Faults of the way from a folder to a server: scripts that load, convert and serve another model than was trained."""

from __future__ import annotations

from xpulab.chapters.shared.fault import FILES, fault, replace_in_file

SERVER = "data/take_home/serve.py"


@fault(
    "job.folder",
    smoke=("job.folder",),
    lanes=("cpu", "sim"),
    after="paddlenlp.transformers:AutoModelForCausalLM.from_pretrained",
)
def loaded_weights_are_rounded(network, *given, **named):
    """The weights that are loaded have 16 bits less."""
    import paddle

    with paddle.no_grad():
        for weight in network.parameters():
            weight.set_value(weight.astype("bfloat16").astype(weight.dtype))
    return network


@fault("job.better", where="ranks", wraps="paddlenlp.peft:LoRAModel.merge")
def the_adapter_is_not_merged(_real, self):
    """merge() leaves the weights as they are, so the merged folder has the model without its adapter."""


@fault("job.hugging-face", breaks=FILES)
def matrices_are_not_transposed() -> None:
    """The folder for transformers has Paddle's layout."""
    replace_in_file("data/take_home/to_transformers.py", "weight.T.contiguous() if is_transposed else weight", "weight")


@fault("job.served", breaks=FILES)
def the_cache_is_no_copy() -> None:
    """The cache is the memory that the next run of the predictor writes over."""
    replace_in_file(SERVER, "cache.clone()", "cache")


@fault("job.cache", breaks=FILES)
def positions_count_the_padding() -> None:
    """A row that was padded goes on at the position of the longest row."""
    replace_in_file(SERVER, "positions = self.mask.sum(axis=1, keepdims=True)", "positions = 0 * last + self.mask.shape[1]")


@fault("job.protocol", breaks=FILES)
def a_stream_loses_its_spaces() -> None:
    """Each piece of a stream is sent without the space before it."""
    replace_in_file(SERVER, 'delta | {"content": text}', 'delta | {"content": text.strip()}')


@fault("job.exercise-cache", wraps="paddle:zeros")
def half_types_are_made_in_float32(real, shape, dtype=None, **named):
    """A tensor that should be of bfloat16 is made in float32."""
    return real(shape, dtype="float32" if dtype == "bfloat16" else dtype, **named)
