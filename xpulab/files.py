"""Finds the repository's own files, and folders of the user's cache; reads JSON, JSON Lines and YAML files.

Every error names the file and the line.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any, BinaryIO

from xpulab.errors import InputError
from xpulab.messages import ENGLISH, N_

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "data"
NOTEBOOKS = ROOT / "notebooks"
RELEASE = "release"
"""The folder of notebooks/ whose notebooks judge a release of Paddle and PaddleNLP, and what `xpulab run` calls all of them."""

LONGEST_MESSAGE = 300
"""Characters of an error message about a value; the middle of a longer one is left out."""


def data(*parts: str) -> Path:
    """The path of a file or folder below data/.

    Raises InputError when it does not exist, which happens when the package was copied without its repository.
    """
    path = DATA.joinpath(*parts)
    if not path.exists():
        raise InputError(
            N_(
                "{path}: not found. xpulab reads its data from its own repository: run env/validate.sh there, or "
                "install the clone with pip install --editable.",
                path=path,
            )
        )
    return path


def notebooks_in(language: str) -> Path:
    """The folder with the notebooks in a language, one of messages.LANGUAGES."""
    return NOTEBOOKS if language == ENGLISH else NOTEBOOKS / language


def chapters() -> dict[str, str]:
    """The notebooks by name without number: 03_lora by lora."""
    return {path.stem.partition("_")[2]: path.stem for path in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")}


def release_notebooks() -> list[Path]:
    """The notebooks that judge a release, in the order of their names."""
    return sorted((NOTEBOOKS / RELEASE).glob("*.ipynb"))


def load_jsonl(path: Path, fields: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows of a JSON Lines file: each is an object with exactly these fields, each field a string that is not blank.

    Raises InputError with the file, the line and what is wrong there.
    """
    lines = read_text(path).removesuffix("\n").split("\n")  # splitlines would also split at U+2028 within a string
    if lines == [""]:
        raise InputError(
            N_("{path}: empty; expected one JSON object per line with {fields}", path=path, fields=", ".join(fields))
        )
    return [_row(line, fields, f"{path} line {number}") for number, line in enumerate(lines, start=1)]


def load_yaml(path: Path, schema: Path) -> Any:
    """The content of a YAML file, validated against a JSON schema.

    Raises InputError with the file, the line and what is wrong there. A key that occurs twice in a mapping is an error.
    """
    text = read_text(path)
    value, tree = _parse_yaml(path, text)
    if error := _violation(value, schema):
        raise _located(error, path, tree)
    return value


def load_json(path: Path, schema: Path) -> Any:
    """The content of a JSON file, validated against a JSON schema.

    Raises InputError with the file, the line and what is wrong there.
    """
    import yaml

    text = read_text(path)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            N_(
                "{path} line {lineno}: not JSON: {msg} at column {colno}",
                path=path,
                lineno=error.lineno,
                msg=error.msg,
                colno=error.colno,
            )
        ) from error
    if violation := _violation(value, schema):
        raise _located(violation, path, yaml.compose(text, Loader=yaml.SafeLoader))  # JSON is YAML, whose nodes have lines
    return value


def opened(path: Path) -> BinaryIO:
    """A file, open for reading. Raises InputError when it cannot be read, or is a pipe or a device, which may never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(N_("{path}: cannot be read: {strerror}", path=path, strerror=error.strerror)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(N_("{path}: is no file", path=path))
    return os.fdopen(descriptor, "rb")


def replace_text(path: Path, text: str, errors: str = "strict") -> None:
    """Write a text file as a whole: whoever reads it finds the old text or the new one, whenever the writer is killed.

    It is on the disk when this returns. errors: as of open(), for characters that UTF-8 cannot hold.
    """
    with replacing(path) as file:
        file.write(text.encode("utf-8", errors))


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file beside this one, which takes its place as a whole at the end of the block; after an error nothing of it stays.

    Nobody can have put a link there: its name cannot be guessed, and a name that exists is not opened.
    """
    name = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with name.open("xb") as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            name.replace(path)
        finally:
            name.unlink(missing_ok=True)


def cache_folder(variable: str, name: str) -> Path:
    """A folder of the user's cache: that which the variable names, else NAME in $XDG_CACHE_HOME/xpulab, by default ~/.cache."""
    if own := os.environ.get(variable):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "xpulab" / name


@contextmanager
def built(target: Path, remedy: str) -> Iterator[Path | None]:
    """Yield an empty folder; when the block ends without an error it becomes `target`, else nothing is left of it.

    One process at a time builds a target; None is yielded where another one has built it meanwhile.
    Raises InputError, with the remedy, when it cannot be written.
    """
    folder = target.with_name(f".{target.name}.unfinished")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.with_name(f".{target.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            shutil.rmtree(folder, ignore_errors=True)  # what a killed process left
            if target.is_dir() and any(target.iterdir()):
                yield None
                return
            try:
                folder.mkdir()
                yield folder
                folder.replace(target)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error}; {remedy}") from error


def _parse_yaml(path: Path, text: str) -> tuple[Any, Any]:
    """The value of a YAML text, and its tree of nodes, which know their lines. Both are None for an empty text."""
    import yaml

    try:
        loader = _loader_with_unique_keys()(text)
        tree = loader.get_single_node()
        return (None if tree is None else loader.construct_document(tree)), tree
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(N_("{path} line {line}: not YAML: {problem}", path=path, line=line, problem=error.problem)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = error.reason
        raise InputError(N_("{path} line {line}: not YAML: {problem}", path=path, line=line, problem=problem)) from error


@cache
def _loader_with_unique_keys() -> Any:
    """PyYAML's safe loader, which on its own keeps the last of two equal keys and drops the first silently."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if (key.tag, key.value) in seen:
                    problem = f"key '{key.value}' occurs twice"
                    raise yaml.constructor.ConstructorError(problem=problem, problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
            return super().construct_mapping(node, deep)

    return Loader


def _violation(value: Any, schema: Path) -> Any:
    """jsonschema's error for the most relevant violation of the schema; None when the value is valid."""
    import jsonschema

    validator = jsonschema.Draft202012Validator(json.loads(schema.read_text(encoding="utf-8")))
    return jsonschema.exceptions.best_match(validator.iter_errors(value))


def _located(error: Any, path: Path, tree: Any) -> InputError:
    """The violation with file and line. tree: the YAML nodes of the whole file."""
    node = _node_at(tree, error.absolute_path)
    if error.validator == "additionalProperties":
        node = next(key for key, _ in node.value if key.value not in error.schema.get("properties", {}))
    return InputError(f"{path} line {_line(node)}: {shortened(error.message)}")


def _node_at(tree: Any, steps: Iterable[str | int]) -> Any:
    """The YAML node to which keys and indices lead, as far as they lead."""
    import yaml

    node = tree
    for step in steps:
        if isinstance(node, yaml.SequenceNode):
            node = node.value[step]
        elif isinstance(node, yaml.MappingNode):
            node = next((value for key, value in node.value if key.value == str(step)), node)
    return node


def _line(node: Any) -> int:
    return node.start_mark.line + 1 if node else 1


def shortened(message: str) -> str:
    """A message of jsonschema begins with the value, which may be the whole file, and ends with what is wrong with it."""
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:60]} ... {message[-120:]}"


def read_text(path: Path) -> str:
    """The text of a file. Raises InputError when it cannot be read, as in `opened`, or is not UTF-8."""
    try:
        with io.TextIOWrapper(opened(path), encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError(
            N_("{path} line {line}: not UTF-8 at byte {start}; save it as UTF-8", path=path, line=line, start=error.start)
        ) from error


def _row(line: str, fields: tuple[str, ...], at: str) -> dict[str, str]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(N_("{at}: not JSON: {msg} at column {colno}", at=at, msg=error.msg, colno=error.colno)) from error
    if not isinstance(row, dict):
        raise InputError(
            N_(
                "{at}: expected a JSON object with {fields}, found {name}",
                at=at,
                fields=", ".join(fields),
                name=type(row).__name__,
            )
        )
    for name in fields:
        if name not in row:
            raise InputError(N_("{at}: field '{name}' is missing", at=at, name=name))
        if not isinstance(row[name], str) or not row[name].strip():
            raise InputError(N_("{at}: field '{name}' must be a string that is not blank", at=at, name=name))
    if unknown := sorted(row.keys() - set(fields)):
        raise InputError(
            N_("{at}: unknown field '{unknown}'; the fields are {fields}", at=at, unknown=unknown[0], fields=", ".join(fields))
        )
    return row
