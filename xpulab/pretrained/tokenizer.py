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


def write_from_tokens(
    folder: Path, tokens: list[str], merges: list[str], special: list[str], config: dict[str, Any], chat_template: str
) -> None:
    """Write tokenizer.json and tokenizer_config.json of SmolLM's byte-level BPE, which splits digits before everything else.

    config: of the model, for the ids of the tokens that begin, end and pad a text.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    built = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, pairs))
    bytes_first = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    built.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_first])
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    built.save(str(folder / "tokenizer.json"))
    named = {name: tokens[config[f"{name}_id"]] for name in ("bos_token", "eos_token", "pad_token")}
    _write_config(folder, {**named, "model_max_length": config["max_position_embeddings"], "chat_template": chat_template})


def write_from_folder(source: Path, folder: Path) -> None:
    """Copy the tokenizer of a folder of transformers, under the class name that PaddleNLP knows.

    Raises InputError when it has no tokenizer.json.
    """
    fast, path, template = (source / name for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"))
    if not fast.is_file():
        raise InputError(
            f"{source}: has no tokenizer.json; in an environment with transformers run "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder), which writes it"
        )
    (folder / "tokenizer.json").write_bytes(fast.read_bytes())
    config = read_json(path) if path.is_file() else {}
    if template.is_file() and not config.get("chat_template"):
        config["chat_template"] = template.read_text(encoding="utf-8")
    _write_config(folder, {key: _plain(value) for key, value in config.items() if key not in _DROPPED})


_DROPPED = frozenset({"tokenizer_class", "added_tokens_decoder", "auto_map", "tokenizer_file", "name_or_path"})
"""What transformers writes and PaddleNLP reads otherwise, or not at all; tokenizer.json holds the added tokens."""


def _plain(value: Any) -> Any:
    """The text of a token that transformers describes with its properties."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value["content"] if isinstance(value, dict) and "content" in value else value


def _write_config(folder: Path, config: dict[str, Any]) -> None:
    shown = {key: value for key, value in config.items() if value is not None}
    text = json.dumps({"tokenizer_class": PADDLE_CLASS, "padding_side": "left", **shown}, indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
