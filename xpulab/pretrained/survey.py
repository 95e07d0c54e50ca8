"""What a file of examples gives a model to learn, before a training: lengths, labels that count, ends, repetitions, cuts.

The rows are read and written as data/take_home/chat_data.py does for a training. Of a row a few bytes stay in memory.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import tempfile
import warnings
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xpulab import files
from xpulab.errors import InputError
from xpulab.messages import N_
from xpulab.pretrained.tokenizer import write_from_folder
from xpulab.pretrained.torch_folder import read_config, read_json

PROBLEMS = {
    "no-label": (0.0, N_("no token of the row counts in the loss")),
    "no-end": (0.0, N_("the labels do not end with an end token, so that the model does not learn to stop")),
    "same-answers": (0.0, N_("chosen and rejected are the same")),
    "vocabulary": (0.0, N_("a token is not in the vocabulary of the model")),
    "special-token": (0.1, N_("a text holds a special token, which the model reads as one")),
    "cut": (0.1, N_("the row is longer than the limit and is cut")),
    "duplicate": (0.1, N_("the row has come before")),
}
"""By what may be wrong with a row the share of rows above which the file is wrong, below a warning; and what it is."""
_LINES, _BARS, _WIDTH = 5, 10, 40


@dataclass
class Survey:
    """What was counted.

    limit: tokens at which a row is cut. lengths: of each text in tokens, before the cut. labels, left: tokens that count in the
    loss, before and after the cut. lines: by problem the lines of the rows that have it.
    """

    name: str
    limit: int
    format: str = ""
    rows: int = 0
    labels: int = 0
    left: int = 0
    lengths: array[int] = field(default_factory=lambda: array("L"))
    lines: dict[str, array[int]] = field(default_factory=lambda: {name: array("L") for name in PROBLEMS})

    def is_wrong(self, problem: str) -> bool:
        """Whether so many rows have the problem that one should not train on the file."""
        return len(self.lines[problem]) > PROBLEMS[problem][0] * self.rows

    @property
    def outcome(self) -> str:
        """ "wrong", "warn" or "ok"."""
        return "wrong" if any(map(self.is_wrong, PROBLEMS)) else "warn" if any(self.lines.values()) else "ok"


def survey(path: Path, folder: Path, limit: int | None = None) -> Survey:
    """Read a file of examples with the tokenizer of a model's folder. limit: None is the context of the model.

    Raises InputError, with the line, for a row that cannot be read or that the template refuses, and without a tokenizer.
    """
    source = importlib.util.spec_from_file_location("chat_data", files.DATA / "take_home" / "chat_data.py")
    assert source and source.loader
    chat_data = sys.modules["chat_data"] = importlib.util.module_from_spec(source)  # its dataclasses look themselves up there
    source.loader.exec_module(chat_data)
    try:
        return _counted(path, folder, limit, chat_data)
    except chat_data.DataError as error:
        raise InputError(str(error)) from error


def _counted(path: Path, folder: Path, limit: int | None, chat_data: Any) -> Survey:
    config, tokenizer, rows = read_config(folder), _tokenizer(folder), array("Q")
    found = Survey(str(path), limit or config.get("max_position_embeddings") or tokenizer.model_max_length)
    tokenizer.model_max_length = int(1e9)  # else it warns of each row that is longer
    generation = read_json(stops) if (stops := folder / "generation_config.json").is_file() else {}
    stated = [np.atleast_1d(each.get("eos_token_id", [])) for each in (config, generation)]  # a number, a list, or none
    ends, special = {tokenizer.eos_token_id, *np.hstack(stated).tolist()}, tokenizer.all_special_tokens
    numbers, vocabulary = array("L"), config.get("vocab_size", len(tokenizer))
    for example in chat_data.read_examples(path):
        at = f"{path} line {example.line}"
        read = [list(zip(*chat_data.encode(turns, tokenizer, at), strict=True)) for turns in example.texts]
        kept = [[token for token, counts in tokens[: found.limit] if counts] for tokens in read]
        complete = [labels for labels, tokens in zip(kept, read, strict=True) if labels and len(tokens) <= found.limit]
        texts = [turn.text for turns in example.texts for turn in turns]
        has = {
            "no-label": not all(kept),
            "no-end": any(not ends & {*labels[-3:]} for labels in complete),
            "same-answers": len(read) > 1 and read[0] == read[1],
            "vocabulary": any(token >= vocabulary for tokens in read for token, _ in tokens),
            "special-token": any(token in text for text in texts for token in special),
            "cut": any(len(tokens) > found.limit for tokens in read),
        }
        for problem in filter(has.get, has):
            found.lines[problem].append(example.line)
        found.format, found.rows = example.format, found.rows + 1
        found.lengths.extend(map(len, read))
        found.labels += sum(counts for tokens in read for _, counts in tokens)
        found.left += sum(map(len, kept))
        numbers.append(example.line)
        rows.append(int(hashlib.blake2b(repr(example.texts).encode("utf-8", "replace"), digest_size=8).hexdigest(), 16))
    again = np.setdiff1d(np.arange(found.rows), np.unique(rows, return_index=True)[1])
    found.lines["duplicate"].extend(np.asarray(numbers)[again].tolist())
    return found


def format_survey(found: Survey) -> str:
    """Several lines: sizes, a picture of the lengths, problems."""
    lengths = np.asarray(found.lengths)
    half, most, longest = np.quantile(lengths, (0.5, 0.9, 1), method="higher")
    lines = [
        f"{found.name}: {found.rows:,} rows of {found.format}; the model reads {found.limit:,} tokens",
        f"tokens   {lengths.sum():,} in {len(lengths):,} texts; half have at most {half:,}, 90 % {most:,}, all {longest:,}",
        f"labels   {found.left:,} count, {found.left / max(lengths.sum(), 1):.1%} of all tokens; "
        f"{1 - found.left / max(found.labels, 1):.1%} of the labels are cut off",
        "lengths",
    ]
    bars, edges = np.histogram(lengths, bins=_BARS)
    for count, least, end in zip(bars, edges, edges[1:], strict=False):
        lines.append(f"{least:>9,.0f} - {end:<9,.0f} {'#' * int(np.ceil(_WIDTH * count / bars.max()))} {count:,}")
    for problem, (_, meaning) in PROBLEMS.items():
        if rows := found.lines[problem]:
            verdict, where = "wrong" if found.is_wrong(problem) else "warn", ", ".join(map(str, rows[:_LINES]))
            lines.append(f"{verdict:<9}{problem}: {len(rows):,} rows ({len(rows) / found.rows:.1%}): {meaning}; lines {where}")
    return "\n".join([*lines, found.outcome])


def _tokenizer(folder: Path) -> Any:
    """The tokenizer of a folder as PaddleNLP or transformers writes it."""
    with warnings.catch_warnings():  # its import warns of packages that do not matter here
        warnings.simplefilter("ignore")
        from paddlenlp.transformers import AutoTokenizer

    if not (folder / "tokenizer_config.json").is_file():
        raise InputError(f"{folder}: has no tokenizer_config.json, so it has no tokenizer; copy the model's tokenizer into it")
    if not (folder / "tokenizer.json").is_file():
        return AutoTokenizer.from_pretrained(str(folder))
    with tempfile.TemporaryDirectory() as copy:
        write_from_folder(folder, Path(copy))
        return AutoTokenizer.from_pretrained(copy)
