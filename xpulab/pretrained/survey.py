"""What a file of examples gives a model to learn, before a training: lengths, labels that count, ends, repetitions, cuts.

A row is written by the chat template of the model's tokenizer, and answers count; without a template an end token follows each
answer, as in PaddleNLP's SFT. Of a row a few bytes stay in memory.
"""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xpulab.errors import InputError
from xpulab.messages import N_
from xpulab.pretrained.examples import Turn, read_examples
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

    Raises InputError as read_examples does, for a folder without a tokenizer, and for a row that the chat template refuses.
    """
    config, tokenizer, rows = read_config(folder), _tokenizer(folder), array("Q")
    found = Survey(str(path), limit or config.get("max_position_embeddings") or tokenizer.model_max_length)
    tokenizer.model_max_length = int(1e9)  # else it warns of each row that is longer
    generation = read_json(stops) if (stops := folder / "generation_config.json").is_file() else {}
    stated = [np.atleast_1d(each.get("eos_token_id", [])) for each in (config, generation)]  # a number, a list, or none
    ends, special = {tokenizer.eos_token_id, *np.hstack(stated).tolist()}, tokenizer.all_special_tokens
    numbers, vocabulary = array("L"), config.get("vocab_size", len(tokenizer))
    for example in read_examples(path):
        read = [_tokens(turns, tokenizer, f"{path} line {example.line}") for turns in example.texts]
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


def _tokens(turns: list[Turn], tokenizer: Any, at: str) -> list[tuple[int, bool]]:
    """The tokens of a text, each with whether it counts."""
    pieces = [(text, counts) for text, counts in _pieces(turns, tokenizer, at) if text]
    return [(id, counts) for text, counts in pieces for id in tokenizer(text, add_special_tokens=False)["input_ids"]]


def _pieces(turns: list[Turn], tokenizer: Any, at: str) -> Iterator[tuple[str, bool]]:
    """The text in pieces that count or do not."""
    from jinja2.exceptions import TemplateError

    if not tokenizer.chat_template:
        for turn in turns:
            yield turn.text + (tokenizer.eos_token if turn.counts and turn.text else ""), turn.counts
        return

    def written(count: int, is_asked: bool = False) -> str:
        messages = [{"role": turn.role, "content": turn.text} for turn in turns[:count]]
        tokens = {name: getattr(tokenizer, name) for name in ("bos_token", "eos_token")}
        try:
            return tokenizer.chat_template.render(messages=messages, add_generation_prompt=is_asked, **tokens) if count else ""
        except (TemplateError, TypeError) as error:
            raise InputError(
                f"{at}: the model's chat template refuses the row: {error}; correct the order of its turns"
            ) from error

    done = ""
    for number, turn in enumerate(turns):
        if turn.counts:
            before, after = written(number, is_asked=True), written(number + 1)
            if not (before.startswith(done) and after.startswith(before)):  # it writes earlier turns in another way
                before, done = after[: after.rfind(turn.text)], ""
            yield before[len(done) :], False
            yield after[len(before) :] if turn.text.strip() else "", True
            done = after
    yield written(len(turns))[len(done) :], False
