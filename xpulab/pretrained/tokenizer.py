"""The tokenizer of a converted model: tokenizer.json for Paddle's PretrainedTokenizerFast, with the ids of the original.

PaddleNLP 3.0.0b4 does not know the class names that transformers writes ("GPT2Tokenizer", "PreTrainedTokenizerFast").
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xpulab.errors import InputError
from xpulab.pretrained.torch_folder import read_json

PADDLE_CLASS = "PretrainedTokenizerFast"

_AS_IT_IS = frozenset({"Qwen2Tokenizer", "LlamaTokenizer"})
"""Classes of transformers that PaddleNLP has under the same name and with the same ids, where tokenizer.json is missing."""


_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r"})
"""Pre-tokenizers, by llama.cpp's names, that split digits before everything else."""


def write_from_tokens(
    folder: Path,
    tokens: list[str],
    merges: list[str],
    special: list[str],
    pre_tokenizer: str,
    config: dict[str, Any],
    chat_template: str | None,
) -> None:
    """Write tokenizer.json and tokenizer_config.json of a byte-level BPE.

    config: of the model, for the ids of the tokens that begin, end and pad a text.
    Raises InputError for a pre-tokenizer that is not known.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    if pre_tokenizer not in {*_DIGITS, "gpt-2", "default"}:
        raise InputError(f"{folder.name}: its text is split in a way that is not known, {pre_tokenizer!r}")
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    built = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, pairs))
    bytes_first = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = [pre_tokenizers.Digits(individual_digits=True)] if pre_tokenizer in _DIGITS else []
    built.pre_tokenizer = pre_tokenizers.Sequence([*digits, bytes_first])
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    built.save(str(folder / "tokenizer.json"))
    named = {name: tokens[config[f"{name}_id"]] for name in ("bos_token", "eos_token", "pad_token")}
    _write_config(folder, {**named, "model_max_length": config["max_position_embeddings"], "chat_template": chat_template})


def write_from_folder(source: Path, folder: Path) -> None:
    """Copy the tokenizer of a folder of transformers, under the class name that PaddleNLP knows.

    Raises InputError when there is none, or when it is of a class that PaddleNLP lacks and has no tokenizer.json.
    """
    path = source / "tokenizer_config.json"
    config = read_json(path) if path.is_file() else {}
    fast, kind = source / "tokenizer.json", config.get("tokenizer_class", "")
    for name in ("tokenizer.model", "vocab.json", "merges.txt", "special_tokens_map.json", "chat_template.json"):
        if (source / name).is_file():
            (folder / name).write_bytes((source / name).read_bytes())
    if fast.is_file():
        (folder / "tokenizer.json").write_bytes(fast.read_bytes())
        template = source / "chat_template.jinja"
        if template.is_file() and not config.get("chat_template"):
            config["chat_template"] = template.read_text(encoding="utf-8")
        config = {key: value for key, value in config.items() if key not in _DROPPED}
    elif kind not in _AS_IT_IS:
        raise InputError(
            f"{source}: has no tokenizer.json, and PaddleNLP has no {kind or 'tokenizer class'!r}; in an environment with "
            "transformers run AutoTokenizer.from_pretrained(folder).save_pretrained(folder), which writes it"
        )
    _write_config(folder, {key: _plain(value) for key, value in config.items()})


_DROPPED = frozenset({"tokenizer_class", "added_tokens_decoder", "auto_map", "tokenizer_file", "name_or_path"})
"""What transformers writes and PaddleNLP reads otherwise, or not at all; tokenizer.json holds the added tokens."""


def _plain(value: Any) -> Any:
    """The text of a token that transformers describes with its properties; of several named chat templates the default."""
    if isinstance(value, list):
        named = {each["name"]: each["template"] for each in value if isinstance(each, dict) and "template" in each}
        return named.get("default", next(iter(named.values()))) if named else [_plain(each) for each in value]
    return value["content"] if isinstance(value, dict) and "content" in value else value


def _write_config(folder: Path, config: dict[str, Any]) -> None:
    shown = {key: value for key, value in config.items() if value is not None}
    text = json.dumps({"tokenizer_class": PADDLE_CLASS, "padding_side": "left", **shown}, indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
