"""Errors in data files name the file, the line and the field; files are written whole, and through no link."""

from __future__ import annotations

import json
import os

import pytest

from xpulab import files
from xpulab.errors import InputError
from xpulab.fleet import bundle

FIELDS = ("question", "answer")
BUNDLE = bundle.Bundle((), {}, "0", "2026-01-01T00:00:00+00:00")
ROW = '{"question": "q", "answer": "a"}'


@pytest.fixture
def jsonl(tmp_path):
    """A function that loads rows from text or bytes written to train.jsonl."""

    def load(content):
        path = tmp_path / "train.jsonl"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return files.load_jsonl(path, FIELDS)

    return load


@pytest.mark.parametrize(
    "content", [f"{ROW}\n{ROW}\n", f"{ROW}\n{ROW}", f"{ROW}\r\n{ROW}\r\n"], ids=["newline", "none", "crlf"]
)
def test_each_line_is_a_row(jsonl, content):
    assert jsonl(content) == [{"question": "q", "answer": "a"}] * 2


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85", "\xa0", "鱼"])
def test_a_text_may_hold_any_character_that_json_allows(jsonl, character):
    row = {"question": f"a{character}b", "answer": "a"}
    assert jsonl(json.dumps(row, ensure_ascii=False)) == [row]


MALFORMED = {
    "not JSON": ("nonsense", "column 1"),
    "half an object": ('{"question": "q",', "column 18"),
    "two objects": (f"{ROW} {ROW}", "column 34"),
    "a blank line": ("", "column 1"),
    "a list": ("[1]", "list"),
    "a text": ('"q"', "str"),
    "null": ("null", "NoneType"),
    "a field is missing": ('{"question": "q"}', "'answer' is missing"),
    "a field is empty": ('{"question": "q", "answer": ""}', "'answer' must be"),
    "a field is blank": ('{"question": " \\n", "answer": "a"}', "'question' must be"),
    "a field is a number": ('{"question": "q", "answer": 1}', "'answer' must be"),
    "a field is null": ('{"question": null, "answer": "a"}', "'question' must be"),
    "a field too many": ('{"question": "q", "answer": "a", "extra": "x"}', "unknown field 'extra'"),
}


@pytest.mark.parametrize(("line", "said"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_row_is_refused_with_file_and_line(jsonl, tmp_path, line, said):
    with pytest.raises(InputError) as refused:
        jsonl(f"{ROW}\n{line}\n{ROW}\n")
    assert str(refused.value).startswith(f"{tmp_path / 'train.jsonl'} line 2: ") and said in str(refused.value)


@pytest.mark.parametrize("content", ["", "\n"])
def test_a_file_without_rows_is_refused_with_what_is_expected(jsonl, content):
    with pytest.raises(InputError, match=r"train.jsonl: empty; expected one JSON object per line with question, answer"):
        jsonl(content)


def test_a_file_that_is_not_utf8_is_refused_with_its_line(jsonl):
    with pytest.raises(InputError, match=r"train.jsonl line 2: not UTF-8 at byte 33; save it as UTF-8"):
        jsonl(ROW.encode() + b"\n\xff\n")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"gone.jsonl: cannot be read: No such file"):
        files.load_jsonl(tmp_path / "gone.jsonl", FIELDS)


def test_data_names_the_missing_file_and_the_fix():
    with pytest.raises(InputError, match=r"data/nowhere/x.jsonl: not found. .* run env/validate.sh there"):
        files.data("nowhere", "x.jsonl")


# ---------------------------------------------------------------------------------------------------------------- yaml

SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["id"],
        "properties": {"id": {"type": "string"}, "tags": {"type": "array", "items": {"enum": ["cpu", "xpu"]}}},
    },
}


@pytest.fixture
def load(tmp_path):
    """A function that loads YAML text written to issues.yaml, validated against SCHEMA."""

    def load_text(content):
        path, schema = tmp_path / "issues.yaml", tmp_path / "schema.json"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        schema.write_text(json.dumps(SCHEMA))
        return files.load_yaml(path, schema)

    return load_text


def test_yaml_that_fits_its_schema_is_loaded(load):
    assert load("- id: a\n- id: b\n  tags: [cpu]\n") == [{"id": "a"}, {"id": "b", "tags": ["cpu"]}]


WRONG_YAML = {
    "an indentation": ("- id: a\n   tags: [cpu]\n", 2, "not YAML"),
    "a bracket that is not closed": ("- id: a\n- tags: [cpu\n", 3, "not YAML"),
    "a tab": ("- id: a\n-\tid: b\n\t- c\n", 2, "not YAML"),
    "an unknown alias": ("- id: *nothing\n", 1, "undefined alias"),
    "a control character": ("- id: a\n- id: b\x00\n", 2, "not YAML"),
    "bytes that are not UTF-8": (b"- id: a\n- id: \xff\n", 2, "not UTF-8 at byte 14"),
    "nothing": ("", 1, "None is not"),
    "no list": ("id: a\n", 1, "'array'"),
    "an item of another type": ("- id: a\n- b\n", 2, "'b' is not"),
    "a field that is missing": ("- id: a\n- tags: [cpu]\n", 2, "'id' is a required"),
    "a field too many": ("- id: a\n- id: b\n  why: x\n", 3, "'why'"),
    "a field for the second time": ("- id: a\n- id: b\n  id: c\n", 3, "twice"),
    "a field of another type": ("- id: a\n-\n  id: 5\n", 3, "5 is not"),
    "an item of a list in it": ("- id: a\n  tags:\n  - cpu\n  - tpu\n", 4, "'tpu'"),
}


@pytest.mark.parametrize(("content", "line", "said"), WRONG_YAML.values(), ids=WRONG_YAML.keys())
def test_yaml_that_is_wrong_is_refused_with_file_and_line(load, tmp_path, content, line, said):
    with pytest.raises(InputError) as refused:
        load(content)
    assert str(refused.value).startswith(f"{tmp_path / 'issues.yaml'} line {line}: ") and said in str(refused.value)


def test_a_long_value_is_shortened_in_the_message(load):
    entries = "".join(f"entry-{number}: text\n" for number in range(100))
    with pytest.raises(InputError, match=r"line 1: \{'entry-0': .* \.\.\. .*\} is not of type 'array'$") as refused:
        load(entries)
    assert len(str(refused.value)) < 400


def test_yaml_runs_no_code(load):
    with pytest.raises(InputError, match=r"line 1: not YAML: could not determine a constructor"):
        load("- id: !!python/object/apply:os.getcwd []\n")


# -------------------------------------------------------------------------------------------------------------- errors


def test_an_input_error_is_one_line_in_a_notebook():
    assert InputError("x: gone")._render_traceback_() == ["InputError: x: gone"]


@pytest.mark.parametrize("write", [lambda path: files.replace_text(path, "new"), lambda path: bundle.write(BUNDLE, {}, path)])
def test_a_file_is_written_under_no_name_that_somebody_can_have_made_a_link_of(tmp_path, write):
    victim, path = tmp_path / "victim", tmp_path / "out"
    victim.write_text("precious")
    links = [tmp_path / name for name in (".out.new", f".out.{os.getpid()}", ".out.tmp")]
    for link in links:
        link.symlink_to(victim)
    write(path)
    assert victim.read_text() == "precious" and not path.is_symlink()
    assert sorted(tmp_path.iterdir()) == sorted([victim, path, *links])


def test_a_file_that_was_not_written_whole_leaves_nothing_and_the_old_one_stays(tmp_path):
    (tmp_path / "out").write_text("old")
    with pytest.raises(UnicodeEncodeError):
        files.replace_text(tmp_path / "out", "\ud800")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_who_reads_a_file_may_be_another_user(tmp_path):
    files.replace_text(tmp_path / "out", "text")
    (tmp_path / "plain").write_text("text")
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode
