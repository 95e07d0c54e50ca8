"""The catalogue of what xpulab says, made with Babel from the texts in the source.

.venv/bin/python tools/messages.py update      # new and changed messages into the .po file, old ones out; then translate there
.venv/bin/python tools/messages.py check       # what is missing, stale or fuzzy, which --release makes an error

The files are xpulab/locale/<language>/LC_MESSAGES/xpulab.po. Messages are the first arguments of N_, shown and labelled in
Python and in the report's page, some fields of files in data/, the known issues and what devices lack, and of chapters the
titles, those of their sections, what checks mean, and why they, or cases of them, are skipped. The translation of a section's
title is the heading of the notebook in that language: update takes it from there.
"""

from __future__ import annotations

import argparse
import ast
import io
import string
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import cache
from pathlib import Path

import yaml
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po
from jinja2.ext import babel_extract

from xpulab import files
from xpulab.harness.chapter import Chapter, read_chapter
from xpulab.harness.sections import code_cells
from xpulab.messages import DOMAIN, ENGLISH, LANGUAGES, LOCALE, SEMICOLON
from xpulab.records import known_issues, refusals
from xpulab.records.planned import python_of

MARKS = ("N_", "shown", "labelled")
DATA = {
    "data/remedies.yaml": ("cause", "remedy"),
    "data/exercises.yaml": ("hint", "answer"),
    "data/supported_versions.yaml": ("remedy",),
}
"""Files whose fields are shown to people, and these fields."""
ENVIRONMENT = "env/make_venv.py"
"""Beside the package, with messages: what runs before the package can be installed."""
PER_LINE = 120
_chapter = cache(read_chapter)
_UNDATED = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NOT_KEPT = ("#, fuzzy", '"POT-Creation', '"PO-Revision', '"Last-Trans', '"Language-Team', '"Report-Msgid', '"Project-Id')


class WrongMark(Exception):
    """A marked text cannot be a message. The text says where and why."""


def in_python(source: str, path: str) -> Iterator[str]:
    """The messages of a Python file, in the order of the lines. Raises WrongMark."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and node.args)
    marked = (node for node in calls if isinstance(node.func, ast.Name) and node.func.id in MARKS)
    for node in sorted(marked, key=lambda each: each.lineno):
        for argument in node.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value
            elif isinstance(argument, ast.JoinedStr):
                raise WrongMark(
                    f'{path} line {node.lineno}: an f-string is no message; write N_("{{count}} cells", count=count)'
                )


def in_data(text: str, fields: Iterable[str]) -> Iterator[str]:
    """The messages of a file in data/: these fields of each row."""
    for row in yaml.safe_load(text):
        yield from (row[field] for field in fields if row.get(field))


def in_page(source: bytes) -> Iterator[str]:
    """The messages of a Jinja template."""
    for _, _, message, _ in babel_extract(io.BytesIO(source), (*MARKS, "text"), (), {}):
        first = message[0] if isinstance(message, tuple) else message  # a call with values has more arguments
        if first is not None:
            yield first


def in_notebook(chapter: Chapter) -> Iterator[str]:
    """The messages of a notebook: titles, what checks mean, why they are skipped, as far as these have no values."""
    yield chapter.title
    yield from (section.title for section in chapter.sections)
    cells = {index + 1: ast.parse(python_of(chapter.notebook.cells[index].source)) for index in code_cells(chapter.notebook)}
    anywhere = _assigned(cells.values())
    for tree in cells.values():
        assigned = anywhere | _assigned([tree])  # a name of several cells stands for what this cell assigns
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda each: (each.lineno, each.col_offset)):
            stated = [each.value for each in call.keywords if each.arg == "means"]
            texts = [text for value in stated for text in _texts(value, assigned)]
            if isinstance(call.func, ast.Attribute) and call.func.attr == "skip":  # of check, or of the rows of a table
                texts += [text for value in call.args[1:] for text in _texts(value, assigned)]
            yield from texts


def _assigned(trees: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    """What each name of a notebook stands for: values, one by one in `means, bound = "...", 0.1`, and what functions return.

    A name that holds others, as in `reasons["one"] = "..."`, stands for all of them, and so does what a loop takes from it.
    """
    values: dict[str, list[ast.expr]] = defaultdict(list)
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef):
            returned = (each.value for each in ast.walk(node) if isinstance(each, ast.Return))
            values[node.name] += [value for value in returned if value is not None]
        elif isinstance(node, ast.For):
            for taken in (each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)):
                values[taken].append(node.iter)
        elif isinstance(node, ast.Assign | ast.NamedExpr):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                for name, value in pairs:
                    name = name.value if isinstance(name, ast.Subscript) else name
                    if isinstance(name, ast.Name):
                        values[name.id].append(value)
    return values


def _texts(value: ast.expr, assigned: Mapping[str, Sequence[ast.expr]]) -> Iterator[str]:
    """The messages that an argument may be; none for what the package computes, where N_ marks it."""
    if isinstance(value, ast.Constant):
        yield from [value.value] if isinstance(value.value, str) and value.value else []
    elif isinstance(value, ast.IfExp):
        yield from (text for branch in (value.body, value.orelse) for text in _texts(branch, assigned))
    elif isinstance(value, ast.BoolOp | ast.Dict):
        yield from (text for each in value.values for text in _texts(each, assigned))
    elif isinstance(value, ast.Subscript) or (isinstance(value, ast.Attribute) and value.attr == "items"):
        yield from _texts(value.value, assigned)
    elif isinstance(value, ast.Call):
        yield from _texts(value.func, assigned)
    elif isinstance(value, ast.Name):
        others = {name: values for name, values in assigned.items() if name != value.id}
        yield from (text for each in assigned.get(value.id, ()) for text in _texts(each, others))


def of_headings(language: str) -> dict[str, list[str]]:
    """For each title of a section in English the titles of these sections in the notebooks of another language."""
    titles: dict[str, list[str]] = defaultdict(list)
    for path in sorted(files.NOTEBOOKS.glob("*.ipynb")):
        translated = path.parent / language / path.name
        if translated.exists():
            names = {section.name: section.title for section in _chapter(translated).sections}
            for section in _chapter(path).sections:
                titles[section.title].append(names[section.name])
    return titles


def of_lists() -> Iterator[tuple[str, str]]:
    """What devices lack, and the sentences of the known issues, with the file that lists them."""
    for refusal in refusals.load():
        yield str(refusal.format_reason()), "data/refusals.yaml"
    for issue in known_issues.load():
        for text in (issue.symptom, *issue.reference.split(SEMICOLON), issue.workaround):
            yield text, "data/known_issues.yaml"


def extracted() -> Catalog:
    """All messages, each with the files that have it. Raises WrongMark."""
    catalog = Catalog(domain=DOMAIN, project="xpulab", charset="utf-8")
    for path in _sources():
        name = path.relative_to(files.ROOT).as_posix()
        if path.suffix == ".py":
            messages = in_python(path.read_text(encoding="utf-8"), name)
        elif path.suffix == ".html":
            messages = in_page(path.read_bytes())
        elif path.suffix == ".ipynb":
            messages = in_notebook(_chapter(path))
        else:
            messages = in_data(path.read_text(encoding="utf-8"), DATA[name])
        for message in messages:
            catalog.add(message, locations=[(name, 0)])
    for message, name in of_lists():
        catalog.add(message, locations=[(name, 0)])
    return catalog


def problems(catalog: Catalog, wanted: Catalog) -> Iterator[tuple[bool, str]]:
    """What is to do in a catalogue, a line for each message, and whether it is wrong, and not only behind."""
    known = {str(message.id): message for message in catalog if message.id}
    ids = [str(message.id) for message in wanted if message.id]
    yield from ((False, f"missing: {id!r}; run tools/messages.py update and translate it") for id in ids if id not in known)
    yield from ((False, f"stale: {id!r}; run tools/messages.py update") for id in known if id not in set(ids))
    for id, message in known.items():
        if message.fuzzy or not message.string:
            yield False, f"{'fuzzy' if message.fuzzy else 'not translated'}: {id!r}"
        elif placeholders(id) != placeholders(str(message.string)):
            yield True, f"other placeholders: {id!r} and {message.string!r}"


def placeholders(message: str) -> set[str]:
    """The names of the values of a message; of one that is no template what makes it none."""
    try:
        return {name for _, name, _, _ in string.Formatter().parse(message) if name is not None}
    except ValueError as error:
        return {str(error)}


def po_of(language: str) -> Path:
    """The file to translate."""
    return LOCALE / language / "LC_MESSAGES" / f"{DOMAIN}.po"


def read(language: str) -> Catalog:
    """The catalogue of a language; an empty one where there is none yet."""
    path = po_of(language)
    if not path.exists():
        return Catalog(locale=language, domain=DOMAIN, charset="utf-8")
    with path.open("rb") as file:
        catalog = read_po(file, locale=language, domain=DOMAIN)
    catalog.revision_date = catalog.creation_date = _UNDATED  # else the time at which it is read
    return catalog


def written(catalog: Catalog) -> bytes:
    """The content of the .po file, without the dates, names and line numbers that change while no message does."""
    catalog.header_comment = f"# What xpulab says, for {catalog.locale}: tools/messages.py reads the English texts."
    file = io.BytesIO()
    write_po(file, catalog, width=PER_LINE, include_lineno=False, sort_by_file=True, ignore_obsolete=True)
    header, end, rest = file.getvalue().decode().partition("\n\n")
    kept = [line for line in header.splitlines() if not line.startswith(_NOT_KEPT)]
    return ("\n".join(kept) + end + rest).encode()


def update(language: str) -> None:
    """New messages into the catalogue, with the translation of a similar one where there is one, as fuzzy; old ones out.

    Titles of sections are translated: by the headings of the notebooks in that language.
    """
    catalog = read(language)
    catalog.update(extracted(), update_header_comment=False)
    catalog.obsolete.clear()
    for title, headings in of_headings(language).items():
        catalog[title].flags.discard("fuzzy")
        if str(catalog[title].string) not in headings:
            catalog[title].string = headings[0]
    po_of(language).parent.mkdir(parents=True, exist_ok=True)
    po_of(language).write_bytes(written(catalog))


def check(language: str) -> list[tuple[bool, str]]:
    """What is to do for a language, and whether it is wrong."""
    catalog = read(language)
    found = list(problems(catalog, extracted()))
    for title, headings in of_headings(language).items():
        if title in catalog and str(catalog[title].string) not in headings:
            found.append((False, f"another title: {title!r} is {headings[0]!r} in the notebooks; run tools/messages.py update"))
    return found


def _sources() -> list[Path]:
    package = files.ROOT / "xpulab"
    code = [*sorted(package.rglob("*.py")), *sorted(package.rglob("*.html"))]
    return [*code, *(files.ROOT / name for name in (ENVIRONMENT, *DATA)), *sorted(files.NOTEBOOKS.glob("*.ipynb"))]


def main(arguments: Sequence[str]) -> int:
    """Do what is asked for with the catalogue of each language; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("update", "check"))
    parser.add_argument("--release", action="store_true", help="what is behind is an error too")
    asked = parser.parse_args(arguments)
    found = []
    try:
        for language in (each for each in LANGUAGES if each != ENGLISH):
            if asked.action == "update":
                update(language)
            found += check(language)
    except WrongMark as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(text for _, text in found) or "nothing is missing")
    return 1 if asked.action == "check" and any(is_wrong or asked.release for is_wrong, _ in found) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
