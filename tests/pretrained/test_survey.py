"""`xpulab data`: every format gives the same counts, what is wrong is named with its lines, and one row is in memory."""

from __future__ import annotations

import json
import re
import resource

import pytest
from typer.testing import CliRunner

from xpulab import cli, files
from xpulab.chapters.shared.take_home import load_script

CHAT = str(files.data("models", "tiny-smollm2"))
PLAIN = str(files.data("models", "tiny-qwen2"))
PAIRS = [("What is a rank?", "One process of a job."), ("What is a card?", "A device."), ("And a node?", "A host with cards.")]


def look(tmp_path, rows, *options, model=CHAT):
    """The exit code and what is said of a file with these rows: objects, or lines as they are."""
    path = tmp_path / "data.jsonl"
    lines = [row if isinstance(row, bytes) else json.dumps(row, ensure_ascii=False).encode() for row in rows]
    path.write_bytes(b"\n".join([*lines, b""]))
    done = CliRunner().invoke(cli.app, ["data", str(path), "--model", model, *options])
    return done.exit_code, done.stdout if done.exit_code < 2 else done.stderr


def messages(*turns, said="role", text="content", names=("user", "assistant")):
    return [{said: names[place % 2], text: turn} for place, turn in enumerate(turns)]


FORMATS = {
    "question, answer": lambda q, a: {"question": q, "answer": a},
    "src, tgt": lambda q, a: {"src": [q], "tgt": [a]},
    "instruction, output": lambda q, a: {"instruction": q, "input": "", "output": a},
    "messages": lambda q, a: {"messages": messages(q, a)},
    "messages in parts": lambda q, a: {"messages": messages([{"type": "text", "text": q}], [{"type": "text", "text": a}])},
    "conversations": lambda q, a: {"conversations": messages(q, a, said="from", text="value", names=("human", "gpt"))},
}


def counted(tmp_path, rows, *options, model=CHAT):
    """What is said of a file in which nothing is wrong, without its first line, and the number of labels."""
    code, said = look(tmp_path, rows, *options, model=model)
    assert code == 0, said
    return said.split("\n", 1)[1], int(re.search(r"labels +([\d,]+) count", said)[1].replace(",", ""))


@pytest.mark.parametrize("model", [CHAT, PLAIN])
@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_the_same_counts(tmp_path, form, model):
    found = counted(tmp_path, [FORMATS[form](*pair) for pair in PAIRS], model=model)
    assert found == counted(tmp_path, [FORMATS["question, answer"](*pair) for pair in PAIRS], model=model)
    assert found[1] > 0 and found[0].endswith("\nok\n")


def test_the_labels_are_the_answers_with_their_end_tokens(tmp_path):
    from paddlenlp.transformers import AutoTokenizer

    labels = counted(tmp_path, [FORMATS["src, tgt"](*pair) for pair in PAIRS], model=PLAIN)[1]
    tokenizer = AutoTokenizer.from_pretrained(PLAIN)
    assert labels == sum(len(tokenizer(f" {answer}{tokenizer.eos_token}")["input_ids"]) for _, answer in PAIRS)


def test_every_answer_of_a_conversation_counts_and_one_of_weight_0_does_not(tmp_path):
    turns = messages("a b", "c d", "e f", "g h")
    both = counted(tmp_path, [{"messages": turns}])[1]
    turns[1]["weight"] = 0
    one = counted(tmp_path, [{"messages": turns}])[1]
    assert 0 < one < both


def test_both_answers_of_a_preference_are_counted(tmp_path):
    rows = [json.loads(line) for line in files.data("preferences", "train.jsonl").read_text().splitlines()]
    code, said = look(tmp_path, rows)
    assert code == 0 and f"{len(rows)} rows of chosen, rejected" in said and f"{2 * len(rows)} texts" in said


OK = [{"question": question, "answer": answer} for question, answer in PAIRS]
LONG = {"question": "word " * 600, "answer": "never seen"}
WRONG = {
    "an answer that is empty": ([*OK, {"question": "q", "answer": ""}], (), "no-label", "4"),
    "a prompt that fills the limit": ([LONG, *OK], (), "no-label", "1"),
    "a limit that is too low": (OK, ("--max-length", "5"), "no-label", "1, 2, 3"),
    "rows that came before": (OK + OK, (), "duplicate", "4, 5, 6"),
    "answers that are cut": ([*OK, {"question": "q", "answer": "word " * 600}], (), "cut", "4"),
    "a text with an end token": ([*OK, {"question": "a <|im_end|> b", "answer": "c"}], (), "special-token", "4"),
    "a pair without a difference": ([{"question": "q", "chosen": "a", "rejected": "a"}], (), "same-answers", "1"),
    "no answer of an assistant": ([{"messages": messages("only a question")}], (), "no-label", "1"),
}


@pytest.mark.parametrize(("rows", "options", "problem", "lines"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_a_verdict_with_its_lines(tmp_path, rows, options, problem, lines):
    code, said = look(tmp_path, rows, *options)
    line = next(line for line in said.splitlines() if f"{problem}: " in line)
    assert (code, line.split()[0]) == (1, "wrong") and line.endswith(f"lines {lines}")


def test_a_few_duplicates_are_a_warning(tmp_path):
    rows = [{"question": f"question {place}", "answer": f"answer {place}"} for place in range(20)]
    code, said = look(tmp_path, [*rows, rows[0]])
    assert code == 0 and "warn     duplicate: 1 rows" in said


def test_a_template_without_an_end_token_is_wrong(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    for path in files.data("models", "tiny-smollm2").iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    config = json.loads((model / "tokenizer_config.json").read_text())
    config["chat_template"] = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    code, said = look(tmp_path, OK, model=str(model))
    assert code == 1 and "no-end: 3 rows" in said
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, *range(512)]}))
    assert look(tmp_path, OK, model=str(model))[0] == 0  # another token ends an answer


UNREADABLE = {
    "not JSON": ([OK[0], b"{'question': 1}"], "line 2: not JSON in UTF-8"),
    "one array": ([json.dumps(OK).encode()], "line 1: is a list, no object; write one a line: jq"),
    "a list": ([OK[0], b"[1]"], "line 2: is a list"),
    "not UTF-8": ([b'{"question": "\xff"}'], "line 1: not JSON in UTF-8"),
    "other fields": ([OK[0], {"text": "a"}], "line 2: its fields (text) are no format that is known"),
    "another format": (
        [OK[0], {"src": "a", "tgt": "b"}],
        "line 2: has the fields src, tgt, and rows before it question, answer",
    ),
    "another type": ([{"question": "q", "answer": 3}], "line 1: 'answer' has a int in the place of a text"),
    "an unknown role": ([{"messages": [{"role": "boss", "content": "a"}]}], "line 1: 'messages' has the role 'boss'"),
    "no messages": ([{"messages": 3}], "line 1: 'messages' is no list of messages"),
    "unequal turns": ([{"src": ["a", "b"], "tgt": ["c"]}], "line 1: 'src' has 2 turns, 'tgt' 1"),
    "nothing": ([], "has no row"),
    "deep": ([b"[" * 100_000], "line 1"),
}


@pytest.mark.parametrize(("rows", "says"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_one_line_with_its_place(tmp_path, rows, says):
    code, said = look(tmp_path, rows)
    assert code == 2 and f"{tmp_path}/data.jsonl" in said and says in said and said.count("\n") == 1


def test_a_model_without_a_tokenizer_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    code, said = look(tmp_path, OK, model=str(tmp_path))
    assert code == 2 and "has no tokenizer_config.json" in said


def test_a_bom_blank_lines_and_windows_ends_are_no_error(tmp_path):
    code, said = look(
        tmp_path, [b"\xef\xbb\xbf" + json.dumps(OK[0]).encode() + b"\r", b"\r", json.dumps(OK[1]).encode() + b"\r"]
    )
    assert code == 0 and "2 rows" in said


def test_memory_does_not_grow_with_the_file(tmp_path):
    path = tmp_path / "large.jsonl"
    row = json.dumps({"question": "q" * 5000, "answer": "a" * 5000}).encode() + b"\n"
    with path.open("wb") as file:
        for _ in range(200):
            file.write(row * 100)  # 200 MB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(1 for _ in load_script("chat_data").read_examples(path)) == 20_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB
