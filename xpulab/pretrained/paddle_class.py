"""PaddleNLP's class of a model: which weights it needs, in which shapes, and whether the files of a folder hold them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from xpulab.errors import InputError
from xpulab.pretrained import torch_folder

_FORMAT = "np"
"""What PaddleNLP writes as "format" into a file's metadata, and the only one that it reads. A file without metadata it takes
for its own, and then it finds none of the names of a file of torch."""
_SILU_ONLY = frozenset({"LlamaForCausalLM", "Qwen2ForCausalLM"})
"""Classes that compute SiLU whatever config.json says."""
_SHOWN = 5
"""Names in a message."""


def model_class(config: Mapping[str, Any]) -> Any:
    """The class that config.json names. Raises InputError when PaddleNLP has none of this name."""
    with warnings.catch_warnings():  # its import warns of packages that do not matter here
        warnings.simplefilter("ignore")
        from paddlenlp import transformers

    name = config["architectures"][0]
    found = getattr(transformers, name, None)
    if not isinstance(found, type) or not hasattr(found, "config_class"):
        raise InputError(f"PaddleNLP has no class {name!r} that reads weights of transformers; choose another model")
    return found


def config_for_paddle(config: Mapping[str, Any]) -> dict[str, Any]:
    """config.json of transformers as PaddleNLP reads it. rope_parameters of transformers 5 becomes rope_theta and rope_scaling.

    Raises InputError for what PaddleNLP 3.0.0b4 would ignore, so that the model would give other logits: a scaling of the
    rotary embedding, except that of Llama 3, and another activation than its Llama and Qwen2 compute.
    """
    made = {key: value for key, value in config.items() if key != "rope_parameters"}
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    if "rope_theta" in rope:
        made["rope_theta"] = rope.pop("rope_theta")
    kind, name = rope.get("rope_type", rope.get("type", "default")), config["architectures"][0]
    if kind == "default":
        made.pop("rope_scaling", None)
    elif kind == "llama3" and name == "LlamaForCausalLM":
        made["rope_scaling"] = rope
    else:
        raise InputError(f"config.json: PaddleNLP's {name} ignores a rotary embedding of type {kind!r}; choose another model")
    if name in _SILU_ONLY and config.get("hidden_act", "silu") != "silu":
        raise InputError(f"config.json: PaddleNLP's {name} ignores hidden_act {config['hidden_act']!r}; choose another model")
    return made


def shapes_of(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """By the name of each weight in PaddleNLP its shape, from a model that is built without memory for its weights.

    A tied output layer is not among them: it is the embedding. Neither the random state nor the default names of layers change.
    Raises InputError for a class that PaddleNLP lacks, and for sizes that do not fit each other.
    """
    kind = model_class(config)
    import paddle
    from paddle.utils import unique_name
    from paddlenlp.transformers.model_utils import no_init_weights

    try:
        with unique_name.guard(), paddle.LazyGuard(), no_init_weights():
            network = kind(kind.config_class.from_dict(dict(config)))
    except (AssertionError, TypeError, ValueError, ZeroDivisionError) as error:
        raise InputError(f"config.json: PaddleNLP cannot build a {kind.__name__} from it: {error}; correct it") from error
    return {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}


def is_paddle(folder: Path) -> bool:
    """Whether the weights are in PaddleNLP's layout: the metadata say so, or say nothing and no name begins as torch's do."""
    kind, shapes = torch_folder.header_of(torch_folder.weight_files(folder)[0])
    return kind == _FORMAT if kind else not any(name.startswith("model.") for name in shapes)


def require_complete(folder: Path) -> None:
    """Raise InputError, with names, unless the folder's files hold every weight of its model in its shape.

    PaddleNLP initializes a weight that it does not find at random, and says so only in its log, which notebooks silence.
    """
    compare_shapes(folder, stored_shapes(torch_folder.weight_files(folder)), shapes_of(torch_folder.read_config(folder)))


def compare_shapes(folder: Path, stored: Mapping[str, tuple[int, ...]], needed: Mapping[str, tuple[int, ...]]) -> None:
    """Raise InputError that names the folder where a needed weight is missing or has another shape. By name: the shapes."""
    if missing := [name for name in needed if name not in stored]:
        count = f"{len(missing)} of {len(needed)} weights are missing and would be random"
        raise InputError(f"{folder}: {count}: {', '.join(missing[:_SHOWN])}; copy the whole model again")
    for name, shape in needed.items():
        if stored[name] != shape:
            raise InputError(
                f"{folder}: weight {name} has the shape {list(stored[name])}, but config.json gives {list(shape)}; "
                "is config.json that of this model?"
            )


def stored_shapes(paths: Iterable[Path]) -> dict[str, tuple[int, ...]]:
    """By name the shapes of the weights in these safetensors files. Raises InputError for a damaged one."""
    return {name: shape for path in paths for name, shape in torch_folder.header_of(path)[1].items()}
