"""Tiny models, their tokenizer, instructions and preferences from data/; the same functions work for any other model.

The name of a model is a folder below data/models ("tiny-qwen2"), a release that `xpulab model` prepared ("smollm2-135m"), any
local folder, of PaddleNLP or of Hugging Face's transformers, or a name that PaddleNLP knows. A folder with only a config gives
a model with random weights. A folder with weights has all of them: what PaddleNLP would initialize at random is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import paddle
from paddlenlp.transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from xpulab import files
from xpulab.errors import InputError
from xpulab.pretrained import cache, torch_folder
from xpulab.pretrained.paddle_class import require_complete
from xpulab.pretrained.prepare import find, prepare
from xpulab.pretrained.releases import RELEASES

STAND_IN = "tiny-smollm2"
"""The model of data/models that takes the place of a release that is not prepared."""
IGNORED = -100
"""The label that every loss of PaddleNLP ignores."""


def instructions(split: str) -> list[dict[str, str]]:
    """The rows of data/instructions/<split>.jsonl, each with "question" and "answer"."""
    return files.load_jsonl(files.data("instructions", f"{split}.jsonl"), ("question", "answer"))


def preferences(split: str) -> list[dict[str, str]]:
    """The rows of data/preferences/<split>.jsonl, each with "question" and the answers "chosen" and "rejected"."""
    return files.load_jsonl(files.data("preferences", f"{split}.jsonl"), ("question", "chosen", "rejected"))


def folder_of(model: str) -> str:
    """The folder from which PaddleNLP loads the model and its tokenizer; a name that only PaddleNLP knows, unchanged.

    A folder in the layout of torch is converted into the user's cache, once; the user's own folder is not changed.
    Raises InputError for a release that is not prepared, and for a folder from which PaddleNLP would not load the whole model:
    without config.json or tokenizer, or with weights that are damaged, missing or of another shape.
    """
    folder = _folder_of_weights(model)
    if Path(folder).is_dir() and not (Path(folder) / "tokenizer_config.json").is_file():
        raise InputError(f"{folder}: has no tokenizer_config.json, so it has no tokenizer; copy the model's tokenizer into it")
    return folder


@dataclass(frozen=True)
class Chosen:
    """The model that a notebook uses.

    folder: where it is, for PaddleNLP. is_real: whether it is pretrained.
    sentence: which model it is and why, for the reader.
    """

    folder: str
    is_real: bool
    sentence: str


def chosen(model: str) -> Chosen:
    """The model itself, except that a release that is not prepared on this machine gives the stand-in.

    Raises InputError as folder_of does.
    """
    release = RELEASES.get(model)
    if release and not find(model):
        return Chosen(
            folder_of(STAND_IN),
            False,
            f"{release.title} is not prepared on this machine, so this is its stand-in {STAND_IN}: the same architecture, but "
            f"tiny and with random weights, so what it writes means nothing. The command `xpulab model {model}` fetches "
            f"{release.title} once ({release.size_mb} MB).",
        )
    folder, is_real = folder_of(model), has_weights(model)
    if release:
        return Chosen(folder, is_real, f"{release.title}: {release.origin}. License: {release.license}.")
    return Chosen(folder, is_real, f"{model}, " + ("with its own weights." if is_real else "with random weights."))


def has_weights(model: str) -> bool:
    """Whether the model comes with weights; a folder that holds only a config does not. Raises InputError as folder_of does."""
    return _holds_weights(_folder_of_weights(model))


def new_model(model: str, seed: int) -> Any:
    """The model in single precision on the device in use, with its weights, or with random ones from `seed` if it has none.

    Raises InputError as folder_of does, and when PaddleNLP cannot load the model.
    """
    source = _folder_of_weights(model)
    paddle.seed(seed)
    if not _holds_weights(source):
        return AutoModelForCausalLM.from_config(_load(AutoConfig, source), dtype="float32")
    return _load(AutoModelForCausalLM, source, dtype="float32")


def new_tokenizer(model: str) -> Any:
    """The model's tokenizer. It pads on the left, as generation needs. Raises InputError when there is none."""
    return _load(AutoTokenizer, folder_of(model), padding_side="left")


def prompt(tokenizer: Any, question: str) -> str:
    """The text that the model reads before it answers: by the tokenizer's chat template, or by hand where it has none."""
    if tokenizer.chat_template is None:
        return prompt_by_hand(question)
    turns = [{"role": "user", "content": question}]
    return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)


def prompt_by_hand(question: str) -> str:
    """The prompt for a model whose tokenizer has no chat template."""
    return f"Question: {question}\nAnswer:"


def encode(tokenizer: Any, row: dict[str, str]) -> dict[str, list[int]]:
    """One training example: input_ids, attention_mask and labels, of the same length.

    The labels are shifted: each is the next token. Those within the prompt are IGNORED.
    """
    by_hand = tokenizer.chat_template is None  # a template writes all special tokens, and the line before the answer
    asked = tokenizer(prompt(tokenizer, row["question"]), add_special_tokens=by_hand)["input_ids"]
    answer = " " + row["answer"] if by_hand else row["answer"]
    answered = [*tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    labels = [*[IGNORED] * (len(asked) - 1), *answered, IGNORED]
    return {"input_ids": asked + answered, "attention_mask": [1] * len(labels), "labels": labels}


class Examples(paddle.io.Dataset):
    """Rows of instructions, encoded for training."""

    def __init__(self, tokenizer: Any, rows: Sequence[dict[str, str]]) -> None:
        super().__init__()
        self._encoded = [encode(tokenizer, row) for row in rows]

    def __len__(self) -> int:
        return len(self._encoded)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        return self._encoded[index]


@paddle.no_grad()
def answers(network: Any, tokenizer: Any, rows: Sequence[dict[str, str]], at_most: int = 24) -> list[str]:
    """The network's answer to the question of each row: greedy search, at most `at_most` tokens."""
    network.eval()
    asked = [prompt(tokenizer, row["question"]) for row in rows]
    by_hand = tokenizer.chat_template is None
    batch = tokenizer(asked, padding=True, add_special_tokens=by_hand, return_attention_mask=True, return_tensors="pd")
    tokens, _ = network.generate(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        max_new_tokens=at_most,
        decode_strategy="greedy_search",
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return [tokenizer.decode(line, skip_special_tokens=True).strip() for line in tokens.tolist()]


def words_in_common(answers: Sequence[str], rows: Sequence[Mapping[str, str]]) -> float:
    """The share of the words that each answer and the "answer" of its row have in common, in the same order; their mean.

    0 when no word is common, 1 when every answer is the wanted one. Raises ValueError when the numbers of answers and rows
    differ.
    """
    shares = [
        SequenceMatcher(None, answer.split(), row["answer"].split(), autojunk=False).ratio()
        for answer, row in zip(answers, rows, strict=True)
    ]
    return sum(shares) / len(shares)


def _folder_of_weights(model: str) -> str:
    """As folder_of, but without a look at the tokenizer."""
    folder = files.DATA / "models" / model
    if not folder.is_dir() and model in RELEASES:
        prepared = find(model)
        if not prepared:
            raise InputError(
                f"model {model!r} is not prepared on this machine: the command `xpulab model {model}` fetches it once "
                f"({RELEASES[model].size_mb} MB); or give a local folder"
            )
        return _complete(prepared)
    if not folder.is_dir():
        folder = Path(model)
    if not folder.is_dir():
        return model
    if torch_folder.has_weights(folder):
        return _complete(prepare(str(folder)))
    torch_folder.read_config(folder)  # says what is wrong with it
    return str(folder)


def _complete(folder: Path) -> str:
    """The folder, whose files hold every weight of the model. Raises InputError when they do not."""
    try:
        require_complete(folder)
    except InputError as error:
        if not folder.is_relative_to(cache.root()):
            raise
        raise InputError(f"{error}. It is a folder of the cache: remove {folder}, and prepare the model again") from error
    return str(folder)


def _holds_weights(folder: str) -> bool:
    """Whether weights are in the folder, as folder_of returned it; a name that PaddleNLP knows has some."""
    return not Path(folder).is_dir() or torch_folder.has_weights(Path(folder))


def _load(kind: Any, source: str, **options: Any) -> Any:
    try:
        return kind.from_pretrained(source, **options)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(
            f"model {source!r}: {kind.__name__} cannot load it: {error}. Give a folder below data/models, a local folder "
            "with config.json and weights, or a name that PaddleNLP knows"
        ) from error
