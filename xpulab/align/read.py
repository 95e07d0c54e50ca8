"""Reads logs of trainings, whatever wrote them: a table of names, one of formats, and what is there twice is settled.

Every error names the file, the line and the remedy.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from xpulab import files
from xpulab.align.log import FORMAT
from xpulab.errors import InputError

QUANTITIES = ("learning_rate", "loss", "grad_norm")
"""The numbers of a step that are compared, in the order in which a step uses or computes them."""

NAMES = {
    "step": ("global_step/max_steps", "global_step", "current_steps", "step", "iteration", "iter", "steps"),
    "loss": ("loss", "lm_loss", "train_loss", "train_loss_step", "loss_metrics/global_avg_loss", "training_loss"),
    "learning_rate": ("learning_rate", "lr"),
    "grad_norm": ("grad_norm", "global_grad_norm", "global_norm", "gradient_norm"),
}
"""By quantity what files call it, the likeliest first: in small letters, with _ for blanks and -, without "train/"."""

FORMATS = (
    ("PaddleNLP or PaddleFormers", r"\bloss: .*\bglobal_step: \d"),
    ("ms-swift", r"global_step/max_steps|iteration['\"]: ['\"]\d+/\d"),
    ("LlamaFactory", r'"current_steps": .*"total_steps"'),
    ("Megatron", r"\biteration +\d+/ *\d+ \|"),
    ("torchtitan", r"\bstep: +\d+ +loss: .*\btps: "),
    ("transformers", r"\{'loss': "),
    ("xpulab.align", re.escape(FORMAT)),
)
"""What wrote a log, by how the first line with a loss (or the header) looks."""

LONGEST, MOST_LINES, MOST_STEPS, LARGEST_JSON = 2**20, 2**25, 4_000_000, 2**29
"""Characters of a line, lines and steps of a log, characters of one that is a single JSON value."""
UNREAD = 100_000
"""A text without a loss in so many lines is none that can be read."""
SAMPLE, FEW, LEAST_DIGITS = 2000, 5, 4
"""So many values say how many digits a file has; where fewer different ones do, it has at least so many digits."""

_REMEDY = (
    'give the log of xpulab.align.Log or of a trainer (docs/align.md lists them), or write one: first line "step,loss", '
    'then "1,3.52", "2,3.41"'
)
_NUMBER = r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?)\b"
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_RANK = re.compile(
    r"\s*(?:\[(?:default|rank|trainer|worker)?[ _]?(\d+)\]:?|(?:rank|worker)[ _]?(\d+)\s*[:|]|(\d+):)\s|\[1,(\d+)\]<"
)
_OTHERS = ("val", "eval", "validation", "test", "max", "total", "aux")
_NOT_TRAINING = "".join(rf"(?<!{word} )" for word in _OTHERS)


@dataclass
class Column:
    """One quantity, a value for each step. digits: the most that a value has; lowest: the smallest exponent of a last digit."""

    values: Any = field(default_factory=lambda: array("d"))
    digits: int = 0
    lowest: int = 0
    different: set[str] = field(default_factory=set)

    def add(self, text: str) -> None:
        """Raises ValueError for a text that is no number."""
        self.values.append(value := float(text))
        if math.isinf(value) and text[-1].isdigit():
            raise ValueError(f"{text[:20]}... is too large")
        if len(self.values) <= SAMPLE and value and math.isfinite(value):
            mantissa, _, exponent = text.lower().partition("e")
            self.digits = max(self.digits, len(mantissa.replace(".", "").strip("+-").lstrip("0")))
            self.lowest = min(self.lowest, int(exponent or 0) - len(mantissa.partition(".")[2]))
            self.different.add(text)

    def resolution(self, values: np.ndarray) -> np.ndarray:
        """Half a unit of the last digit of these values: as many digits or decimals as the file has."""
        is_known = len(self.different) >= FEW
        size = np.floor(np.log10(np.where(np.isfinite(values) & (values != 0), np.abs(values), 1e-320)))
        last = size - (self.digits if is_known else max(self.digits, LEAST_DIGITS)) + 1
        return 0.5 * 10.0 ** (np.maximum(last, self.lowest) if is_known else last)


@dataclass(frozen=True)
class TrainingLog:
    """A log. format: what wrote it. environment: values by group and name, joined by a dot, as "optimizer.epsilon".

    steps: their numbers, each larger than the one before; of a file without numbers those of its lines (is_counted).
    columns: by quantity, where each step has it. batches: a hash of each digest, or None.
    """

    path: Path
    format: str
    environment: dict[str, Any]
    steps: np.ndarray
    columns: dict[str, Column]
    batches: np.ndarray | None
    is_counted: bool
    notes: tuple[str, ...]


@dataclass
class _Records:
    """What a file has, in its order. names: by quantity what the user calls it. chosen: by quantity the field that is read."""

    path: Path
    names: Mapping[str, Sequence[str]]
    format: str = ""
    environment: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    steps: array[int] = field(default_factory=lambda: array("q"))
    ranks: array[int] = field(default_factory=lambda: array("q"))
    batches: array[int] = field(default_factory=lambda: array("q"))
    columns: dict[str, Column] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)
    others: dict[str, None] = field(default_factory=dict)

    def named(self, fields: Iterable[str]) -> dict[str, str]:
        """By quantity the field that has it: one that the user names, or else the likeliest of NAMES."""
        plain = {
            re.sub(r"[ -]+", "_", name.rpartition(" - ")[2].lower().strip()).removeprefix("train/"): name for name in fields
        }
        found = {name: [plain[text] for text in texts if text in plain] for name, texts in NAMES.items()}
        for name, texts in self.names.items():
            found[name] = [text for text in texts if text in plain.values()] or found[name]
        return {name: texts[0] for name, texts in found.items() if texts}

    def add(self, record: Mapping[str, Any], line: int) -> bool:
        """Take the step of a record; False when it has no loss. Raises InputError for what is no number."""
        if len(self.chosen) < len(NAMES) and len(self.steps) < SAMPLE:
            self.chosen = {**self.named(record), **self.chosen}
        texts = {name: str(record[text]) for name, text in self.chosen.items() if record.get(text) not in (None, "")}
        if "loss" not in texts:
            if len(self.others) < SAMPLE:
                self.others.update(dict.fromkeys(record))
            return False
        rank = str(record.get("rank", ""))
        self.take(texts, line, int(rank) if rank.isdigit() else -1)
        if "batch" in record:
            self.batches.append(hash(str(record["batch"])))
        return True

    def take(self, texts: Mapping[str, str], line: int, rank: int) -> None:
        """Take a step. texts: its numbers, by quantity. rank: of the process that wrote it, -1 when the line does not say."""
        if len(self.steps) == MOST_STEPS:
            raise InputError(f"{self.path}: has more than {MOST_STEPS:,} steps; {_REMEDY}")
        try:
            self.steps.append(int(float(texts["step"].partition("/")[0])) if "step" in texts else -1)
            for name in QUANTITIES:
                if name in texts:
                    if name not in self.columns:
                        self.columns[name] = Column()
                    self.columns[name].add(texts[name])
        except (ValueError, OverflowError) as error:
            raise InputError(f"{self.path} line {line}: {files.shortened(str(error))}; {_REMEDY}") from error
        self.ranks.append(rank)

    def recognize(self, line: str, kind: str) -> None:
        """Say what wrote the log, by a line of it. kind: of file, as "console"."""
        if not self.format:
            self.format = ", ".join([*(name for name, pattern in FORMATS if re.search(pattern, line)), kind][-2:])


def read_log(path: Path, names: Mapping[str, Sequence[str]] | None = None) -> TrainingLog:
    """Read a log, from a file or a pipe, or from a folder with event files. names: by quantity what else a file may call it.

    Raises InputError for what is no log.
    """
    records = _Records(path, names or {})
    events = sorted([*path.glob("*tfevents*"), *path.glob("*vdlrecords*")]) if path.is_dir() else [path]
    try:
        if path.is_dir() or "tfevents" in path.name or "vdlrecords" in path.name:
            _read_events(records, events)
        else:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # else it waits for whoever may write into a named pipe
            os.set_blocking(descriptor, True)
            with open(descriptor, "rb") as file:
                _read_text(records, file)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; {_REMEDY}") from error
    if not records.steps and records.others:
        there = files.shortened(", ".join(records.others))
        raise InputError(f"{path}: no step with a loss; its fields are {there}; name one with --column loss=NAME, or {_REMEDY}")
    if not records.steps:
        raise InputError(f"{path}: no step in it; {_REMEDY}")
    return _settled(records)


# ------------------------------------------------------------------------------------------------------------ kinds of files


def _read_text(records: _Records, file: BinaryIO) -> None:
    head = file.peek(64)[:64]  # type: ignore[attr-defined]
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    if encoding != "utf-16" and b"\0" in head:
        encoding = "utf-16-le" if head[1::2].count(0) > head[::2].count(0) else "utf-16-be"
    text = io.TextIOWrapper(file, encoding, "replace")  # a progress bar ends its lines with "\r"
    first = text.readline(LONGEST)
    if "\0" in first or not first:
        raise InputError(f"{records.path} line 1: {'not a text' if first else 'empty'}; {_REMEDY}")
    if first.strip() in ("{", "[") or records.path.suffix == ".json":
        whole = first + text.read(LARGEST_JSON)
        if _read_json(records, whole):
            return
        text = io.StringIO(whole)  # type: ignore[assignment]
        first = text.readline(LONGEST)
    lines = _lines(records.path, first, text)
    if first.lstrip().startswith('{"'):
        _read_json_lines(records, lines)
    elif header := _header(records, first):
        _read_table(records, header, lines)
    else:
        _read_console(records, lines)


def _lines(path: Path, line: str, text: io.TextIOBase) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers; line: the first one. Raises InputError for a text that does not end."""
    for number in range(1, MOST_LINES):
        if not line:
            return
        if len(line) == LONGEST:
            raise InputError(f"{path} line {number}: longer than {LONGEST >> 20} MiB; {_REMEDY}")
        if stripped := line.strip():
            yield number, stripped
        line = text.readline(LONGEST)
    raise InputError(f"{path}: has more than {MOST_LINES:,} lines; {_REMEDY}")


def _read_json(records: _Records, text: str) -> bool:
    """Read one JSON value, as trainer_state.json; False when the text is none."""
    try:
        value = json.loads(text, parse_float=str)
    except (ValueError, RecursionError):
        return False
    lists = [value] if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    rows = next((rows for rows in lists if isinstance(rows, list) and rows and isinstance(rows[0], dict)), [])
    is_state = isinstance(value, dict) and "log_history" in value
    if is_state and not rows:
        raise InputError(
            f"{records.path}: log_history is empty, as PaddleNLP 3.0's Trainer leaves it: give its console or its VisualDL file"
        )
    records.format = "trainer_state.json" if is_state else "JSON"
    for row in rows:
        records.add(row, 1)
    return bool(rows)


def _read_json_lines(records: _Records, lines: Iterable[tuple[int, str]]) -> None:
    damaged, headers = None, 0
    for number, line in lines:
        try:
            value = json.loads(line, parse_float=str)
        except (ValueError, RecursionError) as error:
            if damaged or not (headers or records.steps):
                raise _damaged(records.path, *(damaged or (number, error))) from error
            damaged = number, error
            continue
        is_header = isinstance(value, dict) and "format" in value and "loss" not in value
        if damaged and not is_header:
            raise _damaged(records.path, *damaged)
        damaged = None
        records.recognize(line, "JSON lines")
        if is_header:
            if value["format"] != FORMAT or not isinstance(value.get("environment"), dict):
                raise InputError(
                    f"{records.path} line {number}: format {str(value['format'])[:40]!r}; expected {FORMAT}; {_REMEDY}"
                )
            environment, headers = dict(_flat(value["environment"])), headers + 1
            changed = sorted(name for name in environment if headers > 1 and environment[name] != records.environment.get(name))
            records.notes += [
                f"{records.path.name} goes on at line {number} with other settings: {', '.join(changed[:5])}"
            ] * bool(changed)
            records.environment = environment
        elif not isinstance(value, dict) or (not records.add(value, number) and headers):
            raise InputError(
                f"{records.path} line {number}: no loss; data/schema/align_log.schema.json has the format; {_REMEDY}"
            )
    if damaged and not records.steps:
        raise _damaged(records.path, *damaged)
    if damaged:
        records.notes.append(f"{records.path.name}: its last line was cut")


def _damaged(path: Path, number: int, error: Exception) -> InputError:
    found = f"{getattr(error, 'msg', error)} at column {getattr(error, 'colno', 1)}"
    return InputError(f"{path} line {number}: not JSON: {files.shortened(found)}; {_REMEDY}")


def _header(records: _Records, line: str) -> list[str]:
    """The delimiter of a table and the names of its columns, when a line is their header; else nothing."""
    for delimiter in (",", "\t", ";", "|", " "):
        try:
            cells = [cell.strip() for cell in next(csv.reader([line.strip()], delimiter=delimiter, skipinitialspace=True), [])]
        except csv.Error:  # a field that is too long is no name
            continue
        is_named = "loss" in records.named(cells) or (len(cells) > 1 and records.path.suffix in (".csv", ".tsv"))
        if is_named and not any(re.fullmatch(_NUMBER, cell, re.I) for cell in cells):
            return [delimiter, *cells]
    return []


def _read_table(records: _Records, header: Sequence[str], lines: Iterable[tuple[int, str]]) -> None:
    records.format = "table with a header"
    delimiter, *names = header
    if names == ["Wall time", "Step", "Value"]:  # what TensorBoard exports
        records.chosen = {"step": "Step", "loss": "Value"}
    rows = csv.reader((line for _, line in lines), delimiter=delimiter, skipinitialspace=True)
    try:
        for number, row in enumerate(rows, start=1):
            cells = [cell.strip() for cell in row]
            if delimiter == ";":  # as spreadsheets write it where a comma stands before decimals
                cells = [re.sub(r"^(-?\d+),(\d+)", r"\1.\2", cell) for cell in cells]
            if cells != names:  # one that was appended to has its header twice
                records.add(dict(zip(names, cells, strict=False)), number)
    except csv.Error as error:
        raise InputError(f"{records.path} line {rows.line_num}: {error}; {_REMEDY}") from error


def _read_console(records: _Records, lines: Iterable[tuple[int, str]]) -> None:
    named = {name: records.names.get(name, ()) for name in NAMES}
    patterns = {
        name: _pattern("|".join(map(re.escape, named[name])) or "|".join(texts).replace("_", "[ _-]"))
        for name, texts in NAMES.items()
    }
    unread = None
    for number, line in lines:
        line = _ESCAPES.sub("", line) if "\x1b" in line else line
        if not patterns["loss"].search(line):
            if "16-bits training: " in line:
                records.environment["settings.dtype"] = "16 bits" if "16-bits training: True" in line else "float32"
            unread = unread or (number, line)
            if number >= UNREAD and not records.steps:
                break
            continue
        records.recognize(line, "console")
        texts = {name: match for name, pattern in patterns.items() if (match := pattern.search(line))}
        if not records.steps:
            patterns = {name: _fast(match[1].rstrip()) for name, match in texts.items()}
        rank = _RANK.match(line)
        records.take(
            {name: match[2] for name, match in texts.items()}, number, int(next(filter(None, rank.groups()))) if rank else -1
        )
    if not records.steps:
        number, line = unread or (1, "")
        raise InputError(
            f"{records.path} line {number}: no loss in {files.shortened(line)!r}; name it with --column loss=NAME, or {_REMEDY}"
        )


def _pattern(names: str) -> re.Pattern[str]:
    """Finds the number behind one of these names in a line of a console, at first anywhere, whatever separates them."""
    return re.compile(
        rf"(?<![\w./-]){_NOT_TRAINING}(['\"]?(?:train[/ ])?(?:{names})(?:\(\w*\))?['\"]?\s*[:=|]?)[\s\[('\"]*({_NUMBER})", re.I
    )


def _fast(text: str) -> re.Pattern[str]:
    """The same for a name and separator that are known: to begin with a literal is ten times as fast."""
    text = re.escape(text)
    others = "".join(rf"(?<!{word} {text})" for word in _OTHERS)
    return re.compile(rf"({text})(?<![\w./-]{text}){others}[\s\[('\"]*((?i:{_NUMBER}))")


def _read_events(records: _Records, paths: Sequence[Path]) -> None:
    """Read event files with the reader of those who wrote them. Raises InputError when that is not installed."""
    for path in paths:
        name, read = ("visualdl", _of_visualdl) if "vdlrecords" in path.name else ("tensorboard", _of_tensorboard)
        records.format = f"event files of {name}"
        try:
            scalars = read(str(path))
        except ImportError as error:
            raise InputError(f"{path}: an event file, which {name} reads: pip install {name}") from error
        except OSError:
            raise
        except Exception as error:  # whatever a reader does with a file that is damaged
            raise InputError(f"{path}: {name} cannot read it: {files.shortened(repr(error))}; {_REMEDY}") from error
        records.others.update(dict.fromkeys(scalars))
        tags = {quantity: tag for quantity, tag in records.named(scalars).items() if quantity != "step"}
        others = {quantity: dict(scalars[tag]) for quantity, tag in tags.items() if quantity != "loss"}
        for step, value in scalars[tags["loss"]] if "loss" in tags else ():
            there = {quantity: f"{values[step]:.8g}" for quantity, values in others.items() if step in values}
            records.take({**there, "step": str(step), "loss": f"{value:.8g}"}, 1, -1)


def _of_visualdl(path: str) -> dict[str, list[tuple[int, float]]]:
    from visualdl import LogReader  # type: ignore[import-untyped]

    reader = LogReader(file_path=path)
    return {
        tag: [(item.id, item.value) for item in reader.get_data("scalar", tag)] for tag in reader.get_tags().get("scalar", ())
    }


def _of_tensorboard(path: str) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing import event_accumulator  # type: ignore[import-not-found]

    reader = event_accumulator.EventAccumulator(path, size_guidance={"scalars": 0}, purge_orphaned_data=False)
    reader.Reload()
    return {tag: [(item.step, item.value) for item in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


def _flat(value: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _flat(inner, f"{before}{name}.")
        else:
            yield f"{before}{name}", inner


# ------------------------------------------------------------------------------------------- what is in a file more than once


def _settled(records: _Records) -> TrainingLog:
    """One value for each step: the mean of several processes, and what came last where a training began again."""
    steps, ranks, notes = np.array(records.steps), np.array(records.ranks), records.notes
    whole = {name: column for name, column in records.columns.items() if len(column.values) == len(steps)}
    notes += [f"{records.path.name} has {name} only at some steps" for name in records.columns if name not in whole]
    values = {name: np.array(column.values) for name, column in whole.items()}
    batches = np.array(records.batches) if len(records.batches) == len(steps) else None
    if is_counted := bool((steps < 0).all()):
        steps = np.arange(1, len(steps) + 1)
    at = np.flatnonzero(steps >= 0)
    notes += [f"{records.path.name} has {len(steps) - len(at)} losses without a number of a step"] * (len(at) < len(steps))
    has_labels = len(np.unique(ranks[at])) > 1
    backwards = int((np.diff(steps[at]) <= 0).sum())
    has_many = has_labels or backwards * 2 >= len(np.unique(steps[at])) > 1
    if backwards and (has_labels or not has_many):
        groups = [at[ranks[at] == rank] for rank in np.unique(ranks[at])]
        kept = np.sort(np.concatenate([group[_is_last(steps[group])] for group in groups]))
        gone = np.setdiff1d(at, kept)
        twice, earlier, later = np.intersect1d(steps[gone], steps[kept], return_indices=True)
        if len(gone):
            begin = steps[at][np.flatnonzero(np.diff(steps[at]) <= 0)[-1] + 1]
            apart = np.abs(values["loss"][gone][earlier] - values["loss"][kept][later]).max(initial=0.0)
            notes.append(
                f"{records.path.name} begins again, at last at step {begin}: the {len(gone)} lines before from there on do not "
                f"count; of {len(twice)} steps that are there twice the losses differ by at most {apart:.2g}"
            )
        at = kept
    if has_many:
        numbers, first, inverse = np.unique(steps[at], return_index=True, return_inverse=True)
        each = np.bincount(inverse)
        apart = 0.0
        for name, column in values.items():
            mean = np.bincount(inverse, column[at]) / each
            spread = np.abs(column[at] - mean[inverse]).max()
            values[name] = mean if spread > 1e-12 * np.abs(mean).max() else column[at][first]
            apart = max(apart, spread) if name == "loss" else apart
        notes.append(
            f"{records.path.name} has lines of {each.max()} processes: their mean is compared (losses: within {apart:.2g})"
        )
        steps, batches = numbers, None
    else:
        steps, values = steps[at], {name: column[at] for name, column in values.items()}
        batches = batches if batches is None else batches[at]
    columns = {name: replace(column, values=values[name]) for name, column in whole.items()}
    return TrainingLog(records.path, records.format, records.environment, steps, columns, batches, is_counted, tuple(notes))


def _is_last(steps: np.ndarray) -> np.ndarray:
    """Where no later line has this step or an earlier one."""
    smallest = np.minimum.accumulate(steps[::-1])[::-1]
    return np.append(steps[:-1] < smallest[1:], True)
