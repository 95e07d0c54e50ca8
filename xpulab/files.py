"""Where the repository's own files are, whatever folder a command is run from, and how they are read.

What is wrong in a file is said with the file's name and line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xpulab.errors import InputError

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "data"
NOTEBOOKS = ROOT / "notebooks"


def data(*parts: str) -> Path:
    """The path of a file or folder below data/.

    Raises InputError when it is not there, which happens when the package was copied away from its repository.
    """
    path = DATA.joinpath(*parts)
    if not path.exists():
        raise InputError(
            f"{path}: not found. xpulab reads its data from the repository it was cloned with: run env/validate.sh "
            "there, or pip install --editable the clone."
        )
    return path


def load_jsonl(path: Path, fields: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows of a JSON Lines file, each an object with exactly these fields, each a text that is not blank.

    Raises InputError with the file, the line and what is wrong there.
    """
    lines = _text(path).removesuffix("\n").split("\n")  # splitlines would also split at U+2028 within a text
    if lines == [""]:
        raise InputError(f"{path}: empty; one JSON object a line with {', '.join(fields)} is expected")
    return [_row(line, fields, f"{path} line {number}") for number, line in enumerate(lines, start=1)]


def load_yaml(path: Path, schema: Path) -> Any:
    """What a YAML file holds, after it was held against a JSON schema.

    Raises InputError with the file, the line and what is wrong there.
    """
    import yaml

    text = _text(path)
    try:
        value, tree = yaml.safe_load(text), yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{path} line {line}: not YAML: {error.problem}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InputError(f"{path} line {line}: not YAML: {error.reason}") from error
    if error := _misfit(value, schema):
        raise InputError(f"{path} line {_line_at(tree, error.absolute_path)}: {error.message}")
    return value


def load_json(path: Path, schema: Path) -> Any:
    """What a JSON file holds, after it was held against a JSON schema.

    Raises InputError with the file, the line and what is wrong there.
    """
    import yaml

    text = _text(path)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path} line {error.lineno}: not JSON: {error.msg} at column {error.colno}") from error
    if error := _misfit(value, schema):
        tree = yaml.compose(text, Loader=yaml.SafeLoader)  # JSON is YAML, and YAML knows its lines
        raise InputError(f"{path} line {_line_at(tree, error.absolute_path)}: {error.message}")
    return value


def _misfit(value: Any, schema: Path) -> Any:
    """Where and why the value does not fit the schema, the worst of it; None when it fits."""
    import jsonschema

    validator = jsonschema.Draft202012Validator(json.loads(schema.read_text(encoding="utf-8")))
    return jsonschema.exceptions.best_match(validator.iter_errors(value))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path} line {line}: not UTF-8 at byte {error.start}; save it as UTF-8") from error


def _row(line: str, fields: tuple[str, ...], at: str) -> dict[str, str]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{at}: not JSON: {error.msg} at column {error.colno}") from error
    if not isinstance(row, dict):
        raise InputError(f"{at}: a JSON object with {', '.join(fields)} is expected, not {type(row).__name__}")
    for name in fields:
        if name not in row:
            raise InputError(f"{at}: no field '{name}'")
        if not isinstance(row[name], str) or not row[name].strip():
            raise InputError(f"{at}: field '{name}' must be a text that is not blank")
    if unknown := sorted(row.keys() - set(fields)):
        raise InputError(f"{at}: unknown field '{unknown[0]}'; the fields are {', '.join(fields)}")
    return row


def _line_at(node: Any, path: Any) -> int:
    """The 1-based line of the YAML node that a path of keys and indices leads to, as far as it leads."""
    import yaml

    for step in path:
        if isinstance(node, yaml.SequenceNode):
            node = node.value[step]
        elif isinstance(node, yaml.MappingNode):
            node = next((value for key, value in node.value if key.value == str(step)), node)
    return node.start_mark.line + 1 if node else 1
