"""Conversations for fine-tuning: read row by row, written by the model's chat template, tokenized once, packed where asked.

    rows = chat_data.load("train.jsonl", tokenizer, max_length=4096, cache="tokens")
    rows = chat_data.Packed(rows, max_length=4096)                  several examples in a row, which do not see each other
    batch = chat_data.Collator(tokenizer)([rows[0], rows[1]])       tensors
    pairs = chat_data.load_pairs("pairs.jsonl", tokenizer, max_length=4096, max_prompt=2048, cache="tokens")

A file has one JSON object a line, all in one of these formats:

    {"messages": [{"role": "system", "content": "..."}, {"role": "user", ...}, {"role": "assistant", ...}, ...]}    OpenAI's
    {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}, ...]}                    ShareGPT's
    {"src": "...", "tgt": "..."}           as PaddleNLP's llm/run_finetune.py; each may be a list with a text for each turn
    {"question": "...", "answer": "..."}   likewise; or instruction and output, prompt and completion, query and response
    {"question": ..., "chosen": ..., "rejected": ...}      preferences: texts, or messages as above

Only what the assistant says counts in the loss, with the token that ends it; a message with "weight": 0 does not. It needs
numpy, Paddle, and a tokenizer of PaddleNLP.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from array import array
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from pathlib import Path

import numpy as np
import paddle

IGNORED = -100  # the label of a token that does not count
LONGEST_LINE = 64 << 20  # bytes
PAIRS = (("src", "tgt"), ("question", "answer"), ("instruction", "output"), ("prompt", "completion"), ("query", "response"))
ROLES = {
    **{"human": "user", "gpt": "assistant", "model": "assistant", "function_call": "assistant", "observation": "tool"},
    **{role: role for role in ("system", "user", "assistant", "tool")},
}  # by the role of OpenAI's messages and of ShareGPT's conversations the one of chat templates


class DataError(ValueError):
    """What is wrong with a file of examples: the file, the line, and what to do."""


@dataclass(frozen=True)
class Turn:
    """role: "system", "user", "assistant" or "tool". counts: whether the loss counts its tokens."""

    role: str
    text: str
    counts: bool


@dataclass(frozen=True)
class Example:
    """A row. line: its number in the file. format: its fields. texts: one; of chosen and rejected two, each a list of turns."""

    line: int
    format: str
    texts: tuple


def read_examples(path):
    """The rows of a JSON Lines file, of which only one is in memory; blank lines are left out.

    Raises DataError, with the line, for what is not JSON or in no format that is known, or in another one than the first row.
    """
    first = ""
    if not Path(path).is_file():
        raise DataError(f"{path}: is no file; name one with a JSON object a line")
    with open(path, "rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
            if not line.strip(b"\xef\xbb\xbf \t\r\n"):
                continue
            at = f"{path} line {number}"
            try:
                row = json.loads(line.decode("utf-8-sig"))
            except (ValueError, RecursionError) as error:  # not UTF-8, or not JSON
                raise DataError(f"{at}: not JSON in UTF-8: {error}; write one object a line") from error
            if not isinstance(row, dict):
                raise DataError(f"{at}: is a {type(row).__name__}, no object; write one a line: jq -c '.[]' FILE > FILE.jsonl")
            name, texts = _texts(row, at)
            if name != (first := first or name):
                raise DataError(f"{at}: has the fields {name}, and rows before it {first}; write all in one format")
            yield Example(number, name, texts)
    if not first:
        raise DataError(f"{path}: has no row; write one JSON object a line")


def files_of(path):
    """The files of examples that a path names: itself, or those in a folder that end in .json or .jsonl, by name.

    Raises DataError where there is none.
    """
    path = Path(path)
    found = sorted(each for each in path.iterdir() if each.suffix in (".json", ".jsonl")) if path.is_dir() else [path]
    if not found:
        raise DataError(f"{path}: is a folder without .json or .jsonl files; put some there")
    return found


def pieces(turns, tokenizer, at="the row", is_asked=False):
    """The text of a conversation as the model reads it, in pieces: (text, whether its tokens count).

    is_asked: an answer follows. It is written by the tokenizer's chat template; a tokenizer without one gets
    "Question: ...\\nAnswer: ..." by hand.
    Raises DataError where the template refuses the order of the turns.
    """
    if not tokenizer.chat_template:
        for turn in turns:
            if turn.counts:
                yield f" {turn.text}" if turn.text else "", True
                yield tokenizer.eos_token if turn.text else "", True
            else:
                yield f"Question: {turn.text}\nAnswer:" if turn.role == "user" else f"{turn.text}\n", False
        return
    done = ""
    for number, turn in enumerate(turns):
        if turn.counts:
            before, after = _written(turns[:number], tokenizer, at, True), _written(turns[: number + 1], tokenizer, at)
            if not (before.startswith(done) and after.startswith(before)):  # it writes earlier turns in another way
                before, done = after[: after.rfind(turn.text)], ""
            yield before[len(done) :], False
            said = after[len(before) :]
            end = said.rfind(tokenizer.eos_token)
            end = len(said) if end < 0 else end + len(tokenizer.eos_token)
            yield said[:end] if turn.text.strip() else "", True
            done = before + said[:end]
    yield _written(turns, tokenizer, at, is_asked)[len(done) :], False


def encode(turns, tokenizer, at="the row"):
    """A conversation as token ids, and for each whether it counts in the loss: two lists; what comes after the last one that
    counts is left out."""
    ids, counts = [], []
    by_hand = not tokenizer.chat_template  # a template writes all special tokens
    for text, counted in pieces(turns, tokenizer, at):
        if text:
            new = tokenizer(text, add_special_tokens=by_hand and not ids)["input_ids"]
            ids += new
            counts += [counted] * len(new)
    end = len(counts) - counts[::-1].index(True) if True in counts else len(counts)
    return ids[:end], counts[:end]


def encode_pair(row, tokenizer, at="the row"):
    """A row of preferences, {"question": ..., "chosen": ..., "rejected": ...}, as token ids: a dict of three lists.

    prompt: the conversation until the last answer begins. chosen, rejected: that answer with the token that ends it.
    """
    return _encode_pair(_texts(row, at)[1], tokenizer, at)


def load(path, tokenizer, max_length, cache, longer="leave out"):
    """The examples of a file as a dataset of token ids on disk, made by the first process that comes; the others wait for it.

    max_length: tokens. longer: what to do with a longer example: "leave out", or "cut" its end.
    path: a file, or a folder with files of one format. cache: a folder for what was made. It is made anew when the files, the
    tokenizer, max_length or longer are others.
    Raises DataError as read_examples does, and where no example is left.
    """
    path, what = Path(path), [_tokenizer_key(tokenizer), max_length, longer]
    hint = f"raise max_length ({max_length}), or cut longer rows"
    return Tokenized(_cached(path, cache, what, lambda new: _tokenize(path, _Rows(tokenizer, max_length, longer), hint, new)))


def load_pairs(path, tokenizer, max_length, max_prompt, cache, longer="leave out"):
    """The preferences of a file as a dataset of token ids on disk, as load() makes one of conversations.

    max_length: tokens of prompt and both answers. max_prompt: of the prompt, where a pair is cut: first the beginning of its
    prompt, then the ends of both answers in proportion.
    """
    path, what = Path(path), [_tokenizer_key(tokenizer), max_length, max_prompt, longer, "pairs"]
    hint = f"raise max_seq_len ({max_length}), or cut longer pairs"
    made = _Pairs(tokenizer, max_length, max_prompt, longer)
    return TokenizedPairs(_cached(path, cache, what, lambda new: _tokenize(path, made, hint, new)))


def _cached(path, cache, what, make):
    """The folder that make(folder) has filled of this file and of `what`, now or earlier."""
    stats = [(str(each), os.stat(each)) for each in files_of(path) if each.is_file()]
    what = [str(path), *((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats), *what]
    key = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]
    folder = Path(cache) / f"{path.stem}-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / f"{path.stem}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a process that dies lets it go
        if not folder.is_dir():
            new = Path(tempfile.mkdtemp(prefix=f"{path.stem}-", suffix=".part", dir=folder.parent))
            try:
                make(new)
                new.rename(folder)
            finally:
                shutil.rmtree(new, ignore_errors=True)
    return folder


class Tokenized(paddle.io.Dataset):
    """Examples that load() wrote: each item a dict of lists, input_ids and labels of the same length.

    A label is the id of the token after it, or IGNORED. counts: what load() counted: rows, kept, cut, left_out, tokens, labels.
    """

    def __init__(self, folder):
        super().__init__()
        self.folder = Path(folder)
        self.counts = json.loads((self.folder / "counts.json").read_text(encoding="utf-8"))
        self.starts = np.load(self.folder / "starts.npy", mmap_mode="r")
        self.tokens = np.memmap(self.folder / "tokens.int32", dtype=np.int32, mode="r")

    def __len__(self):
        return len(self.starts) - 1

    def length(self, index):
        """In tokens."""
        return int(self.starts[index + 1] - self.starts[index])

    def __getitem__(self, index):
        stored = np.array(self.tokens[self.starts[index] : self.starts[index + 1]])
        counts = stored < 0
        ids = np.where(counts, ~stored, stored)
        labels = np.full(len(ids), IGNORED, dtype=np.int32)
        labels[:-1] = np.where(counts[1:], ids[1:], IGNORED)
        return {"input_ids": ids.tolist(), "labels": labels.tolist()}


class TokenizedPairs(Tokenized):
    """Preferences that load_pairs() wrote: each item a dict of lists of token ids, prompt, chosen and rejected."""

    def __getitem__(self, index):
        stored = np.array(self.tokens[self.starts[index] : self.starts[index + 1]])
        (chosen,) = np.nonzero(stored < 0)
        parts = np.split(np.where(stored < 0, ~stored, stored), [chosen[0], chosen[-1] + 1])
        return {name: part.tolist() for name, part in zip(("prompt", "chosen", "rejected"), parts, strict=True)}


class Packed(paddle.io.Dataset):
    """Several examples in each row of at most max_length tokens. Each item is a dict of lists, with "examples": their lengths.

    first_fit: the examples of a window of 1,000 are put where they fit, the longest first, which leaves less room empty;
    otherwise they stay in order.
    """

    WINDOW = 1000

    def __init__(self, rows, max_length, first_fit=False):
        super().__init__()
        self.rows = rows
        self.order, self.ends = array("q"), array("q")
        for start in range(0, len(rows), self.WINDOW):
            window = range(start, min(start + self.WINDOW, len(rows)))
            for pack in self._packs(window, max_length, first_fit):
                self.order.extend(pack)
                self.ends.append(len(self.order))

    def _packs(self, window, max_length, first_fit):
        packs, room = [], []
        for index in sorted(window, key=self.rows.length, reverse=True) if first_fit else window:
            length = self.rows.length(index)
            open_packs = range(len(packs)) if first_fit else range(max(len(packs) - 1, 0), len(packs))
            place = next((place for place in open_packs if room[place] >= length), None)
            if place is None:
                place = len(packs)
                packs.append([])
                room.append(max_length)
            packs[place].append(index)
            room[place] -= length
        return packs

    def __len__(self):
        return len(self.ends)

    def __getitem__(self, index):
        examples = [self.rows[each] for each in self.order[self.ends[index - 1] if index else 0 : self.ends[index]]]
        joined = {name: [value for each in examples for value in each[name]] for name in ("input_ids", "labels")}
        return {**joined, "examples": [len(each["input_ids"]) for each in examples]}


class Collator:
    """Makes a batch of examples: input_ids, labels, attention_mask, and position_ids where examples are packed.

    The rows are padded on the right, to the longest of them or to a multiple of `multiple_of` tokens, or to `length`.
    attention_mask is int64 [rows, tokens]; of packed examples bool [rows, 1, tokens, tokens]: each token sees its own example,
    up to itself.
    """

    def __init__(self, tokenizer, length=None, multiple_of=1):
        self.pad, self.length, self.multiple_of = tokenizer.pad_token_id or 0, length, multiple_of

    def __call__(self, rows):
        longest = max(len(row["input_ids"]) for row in rows)
        size = self.length or -(-longest // self.multiple_of) * self.multiple_of
        batch = {
            "input_ids": np.full((len(rows), size), self.pad, dtype=np.int64),
            "labels": np.full((len(rows), size), IGNORED, dtype=np.int64),
        }
        for place, row in enumerate(rows):
            for name in batch:
                batch[name][place, : len(row[name])] = row[name]
        batch |= self._packed(rows, size) if "examples" in rows[0] else self._single(rows, size)
        return {name: paddle.to_tensor(value) for name, value in batch.items()}

    def _single(self, rows, size):
        lengths = np.array([len(row["input_ids"]) for row in rows])
        return {"attention_mask": (np.arange(size) < lengths[:, None]).astype(np.int64)}

    def _packed(self, rows, size):
        mask = np.zeros((len(rows), 1, size, size), dtype=bool)
        positions = np.zeros((len(rows), size), dtype=np.int64)
        for place, row in enumerate(rows):
            start = 0
            for length in row["examples"]:
                mask[place, 0, start : start + length, start : start + length] = np.tri(length, dtype=bool)
                positions[place, start : start + length] = np.arange(length)
                start += length
            mask[place, 0, start:, 0] = True  # a softmax needs something to see; these positions have no label
        return {"attention_mask": mask, "position_ids": positions}


def samples(network, tokenizer, file, count=3):
    """The first questions of a file, each with the model's answer."""
    texts = [example.texts[0] for _, example in islice(_all_examples(file), count)]
    asked = [list(takewhile(lambda turn: not turn.counts, text)) for text in texts]
    prompts = ["".join(text for text, _ in pieces(text, tokenizer, is_asked=True)) for text in asked]
    return [(text[-1].text, answer) for text, answer in zip(asked, answers(network, tokenizer, prompts), strict=True)]


@paddle.no_grad()
def answers(network, tokenizer, prompts, at_most=24):
    """The answer to each prompt, which the chat template has written: the most likely token each time, at most 24."""
    network.eval()
    by_hand = tokenizer.chat_template is None
    batch = tokenizer(prompts, padding=True, add_special_tokens=by_hand, return_attention_mask=True, return_tensors="pd")
    tokens, _ = network.generate(
        **batch,
        max_new_tokens=at_most,
        decode_strategy="greedy_search",
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return [tokenizer.decode(line, skip_special_tokens=True).strip() for line in tokens.tolist()]


def _all_examples(path):
    """Each example of a file, or of the files of a folder, with its place."""
    for file in files_of(path):
        for example in read_examples(file):
            yield f"{file} line {example.line}", example


def _texts(row, at):
    """The format of a row, and its texts."""
    if {"chosen", "rejected"} <= row.keys():
        asked = next((name for name in ("question", "prompt", "src", "instruction") if name in row), "")
        before = _turns(row[asked], "user", f"{at}: {asked!r}") if asked else []
        texts = []
        for name in ("chosen", "rejected"):
            turns = _turns(row[name], "assistant", f"{at}: {name!r}")
            turns = turns if turns[: len(before)] == before else before + turns
            texts.append([*(replace(turn, counts=False) for turn in turns[:-1]), turns[-1]])  # the last answer is compared
        return "chosen, rejected", tuple(texts)
    for name in ("messages", "conversations"):
        if name in row:
            return name, (_turns(row.get("system") or [], "system", at) + _turns(row[name], "user", f"{at}: {name!r}"),)
    for asked, answered in PAIRS:
        if {asked, answered} <= row.keys():
            sides = [row[name] if isinstance(row[name], list) else [row[name]] for name in (asked, answered)]
            if len(sides[0]) != len(sides[1]):
                raise DataError(
                    f"{at}: {asked!r} has {len(sides[0])} turns, {answered!r} {len(sides[1])}; write as many of each"
                )
            if asked == "instruction" and row.get("input"):
                sides[0] = [f"{row[asked]}\n{row['input']}"]
            turns = []
            for question, answer in zip(*sides, strict=True):
                turns += [_turn("user", question, f"{at}: {asked!r}"), _turn("assistant", answer, f"{at}: {answered!r}")]
            return f"{asked}, {answered}", (turns,)
    known = "; ".join(["messages", "conversations", "chosen, rejected", *map(", ".join, PAIRS)])
    raise DataError(f"{at}: its fields ({', '.join(row)}) are no format that is known; rename them to one of: {known}")


def _turns(value, role, at):
    """A text of that role, or messages: OpenAI's, with "weight": 0 where an answer does not count, or ShareGPT's."""
    if isinstance(value, str):
        return [_turn(role, value, at)]
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise DataError(f'{at} is no list of messages; write [{{"role": "user", "content": "..."}}, ...]')
    turns = []
    for message in value:
        said, text = message.get("role", message.get("from")), message.get("content", message.get("value"))
        if said not in ROLES:
            raise DataError(f"{at} has the role {said!r}; choose one of {', '.join(ROLES)}")
        if isinstance(text, list) and all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in text):
            text = "".join(part["text"] for part in text)
        text = json.dumps(message["tool_calls"]) if text is None and "tool_calls" in message else text
        turns.append(_turn(ROLES[said], text, at, message.get("weight", 1) != 0))
    return turns


def _turn(role, text, at, counts=True):
    if not isinstance(text, str):
        raise DataError(f"{at} has a {type(text).__name__} in the place of a text; only texts can be trained on here")
    return Turn(role, text, counts and role == "assistant")


def _written(turns, tokenizer, at, is_asked=False):
    """What the chat template writes; is_asked: with the beginning of an answer."""
    from jinja2.exceptions import TemplateError

    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    tokens = {name: getattr(tokenizer, name) for name in ("bos_token", "eos_token")}
    try:
        return tokenizer.chat_template.render(messages=messages, add_generation_prompt=is_asked, **tokens) if turns else ""
    except (TemplateError, TypeError) as error:
        raise DataError(f"{at}: the model's chat template refuses the row: {error}; correct the order of its turns") from error


def _tokenizer_key(tokenizer):
    """What tells tokenizers apart: their words and the ids of a text in many scripts."""
    probe = "The quick brown fox, 12,345.67 times. 飞桨 训练 naïve Ελληνικά 한국어 🙂\n\tdef f(x):  return x**2"
    template = tokenizer.chat_template and _written(
        [Turn("user", "a", False), Turn("assistant", "b", True)], tokenizer, "a test"
    )
    return [type(tokenizer).__name__, len(tokenizer), tokenizer.eos_token, tokenizer(probe)["input_ids"], template]


def _encode_pair(texts, tokenizer, at):
    answers = []
    for text in texts:
        ids, counted = encode(text, tokenizer, at)
        if True not in counted:
            raise DataError(f"{at}: an answer is empty; write a chosen and a rejected answer")
        answers.append((ids[: counted.index(True)], ids[counted.index(True) :]))
    (prompt, chosen), (other, rejected) = answers
    if not prompt or prompt != other:
        raise DataError(f"{at}: what comes before the last answer must be there, and the same in chosen and rejected")
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected}


@dataclass(frozen=True)
class _Rows:
    """Encodes conversations. Each call returns what is stored, ~id where a token counts, or None; and whether it was cut."""

    tokenizer: object
    max_length: int
    longer: str

    def __call__(self, example, at):
        if len(example.texts) > 1:
            raise DataError(f"{at}: chosen and rejected are preferences; give a file of conversations")
        ids, counted = encode(example.texts[0], self.tokenizer, at)
        is_cut = len(ids) > self.max_length and self.longer == "cut"
        if is_cut:
            ids, counted = ids[: self.max_length], counted[: self.max_length]
        if len(ids) > self.max_length or True not in counted:
            return None, False
        stored = np.array(ids, dtype=np.int32)
        stored[counted] = ~stored[counted]
        return stored, is_cut


@dataclass(frozen=True)
class _Pairs:
    """Encodes preferences, likewise: prompt, chosen and rejected one after another, with ~id in chosen."""

    tokenizer: object
    max_length: int
    max_prompt: int
    longer: str

    def __call__(self, example, at):
        if len(example.texts) < 2:
            raise DataError(f"{at}: has no chosen and rejected; give a file of preferences")
        pair = _encode_pair(example.texts, self.tokenizer, at)
        prompt, chosen, rejected = pair.values()
        is_cut = False
        if len(prompt) + len(chosen) + len(rejected) > self.max_length:
            prompt, is_cut = prompt[-self.max_prompt :], self.longer == "cut"
            room, both = self.max_length - len(prompt), len(chosen) + len(rejected)
            first = min(len(chosen), max(1, room * len(chosen) // both))
            if not is_cut or room < 2:
                return None, False
            chosen, rejected = chosen[:first], rejected[: room - first]
        return np.array([*prompt, *(~each for each in chosen), *rejected], dtype=np.int32), is_cut


def _tokenize(path, encoded, hint, folder):
    """Write tokens.int32, starts.npy and counts.json: the token ids of all examples, one after another.

    encoded: of an example and its place what is stored, or None; and whether it was cut. hint: what to do when none is left.
    """
    counts = dict.fromkeys(("rows", "kept", "cut", "left_out", "tokens", "labels"), 0)
    starts, said = array("q", [0]), time.monotonic()
    with open(folder / "tokens.int32", "wb") as file:
        for at, example in _all_examples(path):
            stored, is_cut = encoded(example, at)
            counts["rows"] += 1
            counts["cut"] += is_cut
            if stored is None:
                counts["left_out"] += 1
                continue
            stored.tofile(file)
            starts.append(starts[-1] + len(stored))
            counts["labels"] += int((stored < 0).sum())
            counts["kept"] += 1
            if time.monotonic() > said + 30:
                said = time.monotonic()
                print(f"{path}: {counts['rows']:,} rows are tokenized", flush=True)
    if not counts["kept"]:
        raise DataError(f"{path}: none of {counts['rows']} rows is left; {hint}")
    counts["tokens"] = starts[-1]
    np.save(folder / "starts.npy", np.frombuffer(starts, dtype=np.int64))
    (folder / "counts.json").write_text(json.dumps(counts), encoding="utf-8")
