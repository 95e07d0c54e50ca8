"""The catalogue of what xpulab says, made with Babel from the texts in the source.

.venv/bin/python tools/messages.py update      # new and changed messages into the .po file, old ones out; then translate there
.venv/bin/python tools/messages.py compile     # the .mo file beside it, which the command line reads
.venv/bin/python tools/messages.py check       # exit code 1 when a message is missing, stale, fuzzy or wrong, or the .mo is old

The files are xpulab/locale/<language>/LC_MESSAGES/xpulab.po and .mo. Messages are the first arguments of N_, shown and labelled
in Python, of these and of text in the report's page, some fields of files in data/, the known issues and what devices lack,
what faults do, and of notebooks the titles of chapters and sections, the rules of grids, what checks mean and why they, or
cases of them, are skipped. An f-string is a message with placeholders, which are named after what they show: {count} for
f"{count} cells" and f"{len(count)} cells". The translation of a section's title is the heading of the notebook in that
language: update takes it from there.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import cache
from pathlib import Path

import yaml
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from jinja2.ext import babel_extract

from xpulab import files
from xpulab.faults import CATALOGUE
from xpulab.harness.chapter import Chapter, code_cells, read_chapter
from xpulab.messages import DOMAIN, ENGLISH, LANGUAGES, LOCALE, NUMBERS, SEMICOLON, Catalogue, template_of
from xpulab.records import known_issues, refusals
from xpulab.records.planned import python_of
from xpulab.records.record import METADATA_KEY

MARKS = ("N_", "shown", "labelled")
PAGE_MARKS = ("shown", "text", "labelled")
DATA = {
    "data/remedies.yaml": ("cause", "remedy"),
    "data/exercises.yaml": ("hint", "answer"),
    "data/supported_versions.yaml": ("remedy",),
}
"""Files whose fields are shown to people, and these fields."""
ENVIRONMENT = "env/make_venv.py"
"""Beside the package, with messages: what runs before the package can be installed."""
MAKERS: tuple[str, ...] = ()
"""Tools that make pages of both languages, with these messages."""
KEPT = ("{install}",)
"""What stands for a placeholder in the files of data/; other braces are text."""
LETTERS = 3
"""How many letters a message with placeholders must have of its own: one with fewer would fit other texts."""
PER_LINE = 120
_chapter = cache(read_chapter)
_UNDATED = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NOT_KEPT = ("#, fuzzy", '"POT-Creation', '"PO-Revision', '"Last-Trans', '"Language-Team', '"Report-Msgid', '"Project-Id')


class WrongMark(Exception):
    """A marked text cannot be a message. The text says where and why."""


def in_python(source: str, path: str) -> Iterator[tuple[str, int]]:
    """The messages of a Python file, each with its line, in the order of the lines. Raises WrongMark."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in MARKS or not node.args:
            continue
        argument = node.args[0]
        if isinstance(argument, ast.JoinedStr):
            found.append((_message(argument), node.lineno))
        elif isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            found.append((_escaped(argument.value), node.lineno))
        elif node.func.id == "N_":
            raise WrongMark(f"{path} line {node.lineno}: N_ takes a literal or an f-string")
    for message, line in sorted(found, key=lambda each: each[1]):
        literals = template_of(message).literals
        if len(literals) > 1 and sum(map(str.isalpha, "".join(literals))) < LETTERS:
            raise WrongMark(f"{path} line {line}: {message!r} has fewer than {LETTERS} letters of its own")
        if "" in literals[1:-1]:
            raise WrongMark(f"{path} line {line}: {message!r} has two placeholders with nothing between them")
        yield message, line


def in_data(text: str, fields: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The messages of a file in data/: these fields of each row."""
    rows = yaml.compose(text).value
    for row in rows:
        for key, value in row.value:
            if key.value in fields and value.value not in KEPT:
                message = _escaped(value.value)
                for kept in KEPT:
                    message = message.replace(_escaped(kept), kept)
                yield message, key.start_mark.line + 1


def in_page(source: bytes) -> Iterator[tuple[str, int]]:
    """The messages of a Jinja template."""
    for line, _, message, _ in babel_extract(io.BytesIO(source), PAGE_MARKS, (), {}):
        first = message[0] if isinstance(message, tuple) else message  # a call with values has more arguments
        if first is not None:
            yield first, line


def in_notebook(chapter: Chapter) -> Iterator[tuple[str, int]]:
    """The messages of a notebook with their cells: titles, rules of grids, what checks mean, why they are skipped.

    Raises WrongMark.
    """
    yield _escaped(chapter.title), 1
    yield from ((_escaped(section.title), section.cells.start + 1) for section in chapter.sections)
    for index, cell in enumerate(chapter.notebook.cells):
        for output in cell.get("outputs", []):
            rules = output.get("metadata", {}).get(METADATA_KEY, {}).get("grid", {}).get("rules", [])
            yield from ((_escaped(rule), index + 1) for rule in rules)
    cells = {index + 1: ast.parse(python_of(chapter.notebook.cells[index].source)) for index in code_cells(chapter.notebook)}
    anywhere = _assigned(cells.values())
    for number, tree in cells.items():
        assigned = anywhere | _assigned([tree])  # a name of several cells stands for what this cell assigns
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda each: (each.lineno, each.col_offset)):
            stated = [each.value for each in call.keywords if each.arg == "means"]
            texts = [text for value in stated for text in _texts(value, assigned)]
            if any(isinstance(value, ast.Name) for value in stated) and not texts:
                raise WrongMark(f"{chapter.path} cell {number}: {ast.unparse(stated[0])} has no text in this notebook")
            if isinstance(call.func, ast.Attribute) and call.func.attr == "skip":  # of check, or of the rows of a table
                texts += [text for value in call.args[1:] for text in _texts(value, assigned)]
            yield from ((text, number) for text in texts)


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
        yield from [_escaped(value.value)] if isinstance(value.value, str) and value.value else []
    elif isinstance(value, ast.JoinedStr):
        yield _message(value)
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
                titles[_escaped(section.title)].append(_escaped(names[section.name]))
    return titles


def of_faults() -> Iterator[tuple[str, str]]:
    """What each fault does, and why it does not run where it does not, with the notebook that it is injected into."""
    for fault in CATALOGUE:
        yield from ((_escaped(text), f"notebooks/{fault.notebook}.ipynb") for text in (fault.what, fault.not_run) if text)


def of_lists() -> Iterator[tuple[str, str]]:
    """What devices lack, and the sentences of the known issues, with the file that lists them."""
    for refusal in refusals.load():
        yield _escaped(refusal.format_reason()), "data/refusals.yaml"
    for issue in known_issues.load():
        for text in (issue.symptom, *issue.reference.split(SEMICOLON), issue.workaround):
            yield _escaped(text), "data/known_issues.yaml"


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
        for message, _ in messages:
            catalog.add(message, locations=[(name, 0)])
    for message, name in (*of_faults(), *of_lists()):
        catalog.add(message, locations=[(name, 0)])
    return catalog


def problems(catalog: Catalog, wanted: Catalog) -> Iterator[str]:
    """What is wrong with a catalogue, a line for each message."""
    known = {str(message.id): message for message in catalog if message.id}
    ids = [str(message.id) for message in wanted if message.id]
    yield from (f"missing: {id!r}; run tools/messages.py update and translate it" for id in ids if id not in known)
    yield from (f"stale: {id!r} is nowhere in the source; run tools/messages.py update" for id in known if id not in set(ids))
    yield from (f"obsolete: {id!r}; remove it" for id in catalog.obsolete)
    for id, message in known.items():
        if message.fuzzy:
            yield f"fuzzy: {id!r}; correct the translation and remove the mark"
        if not message.string:
            yield f"not translated: {id!r}"
        elif placeholders(id) != placeholders(str(message.string)):
            yield f"other placeholders: {id!r} and {message.string!r}"
    yield from _ambiguous([id for id, message in known.items() if message.string])


def placeholders(message: str) -> Counter[str]:
    """How often each placeholder is in a message; of one that is no template what makes it none."""
    try:
        return Counter(template_of(message).names)
    except ValueError as error:
        return Counter([str(error)])


def _ambiguous(ids: Sequence[str]) -> Iterator[str]:
    """Messages that would be found in the text of another one."""
    catalogue = Catalogue({id: id for id in ids})
    for id in ids:
        names = dict.fromkeys(template_of(id).names)
        values = {name: str(number) if name in NUMBERS else f"<{number}>" for number, name in enumerate(names)}
        if names and (found := catalogue.template(id.format(**values))) != (template_of(id), values):
            yield f"ambiguous: {id!r} would be taken for {found and found[0].message!r}; word one of them otherwise"


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


def compiled(catalog: Catalog) -> bytes:
    """The content of the .mo file."""
    file = io.BytesIO()
    write_mo(file, catalog)
    return file.getvalue()


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


def check(language: str) -> list[str]:
    """All that is wrong with the files of a language."""
    catalog = read(language)
    found = list(problems(catalog, extracted()))
    for title, headings in of_headings(language).items():
        if title in catalog and str(catalog[title].string) not in headings:
            found.append(f"another title: {title!r} is {headings[0]!r} in the notebooks; run tools/messages.py update")
    mo = po_of(language).with_suffix(".mo")
    if not mo.exists() or mo.read_bytes() != compiled(catalog):
        found.append(f"{mo.relative_to(files.ROOT)} is not that of the .po file; run tools/messages.py compile")
    return found


def _sources() -> list[Path]:
    package = files.ROOT / "xpulab"
    code = [*sorted(package.rglob("*.py")), *sorted(package.rglob("*.html"))]
    return [*code, *(files.ROOT / name for name in (ENVIRONMENT, *MAKERS, *DATA)), *sorted(files.NOTEBOOKS.glob("*.ipynb"))]


def _message(text: ast.JoinedStr) -> str:
    """The message of an f-string, whose placeholders have names."""
    names: dict[str, str] = {}
    parts = []
    for part in text.values:
        if isinstance(part, ast.Constant):
            parts.append(_escaped(str(part.value)))
            continue
        assert isinstance(part, ast.FormattedValue)
        shown = ast.dump(part.value)
        if shown not in names:
            name = _name(part.value)
            same = sum(re.fullmatch(rf"{name}\d*", other) is not None for other in names.values())
            names[shown] = f"{name}{same + 1}" if same else name
        parts.append(f"{{{names[shown]}}}")
    return "".join(parts)


def _name(shown: ast.expr) -> str:
    """What the placeholder of an expression is called: after a variable, an attribute, or the first argument of a call."""
    if isinstance(shown, ast.Name):
        return shown.id.strip("_")
    if isinstance(shown, ast.Attribute):
        return shown.attr.strip("_")
    if isinstance(shown, ast.Call):
        return _name(shown.args[0] if shown.args else shown.func)
    if isinstance(shown, ast.Subscript | ast.Starred | ast.UnaryOp | ast.BinOp | ast.BoolOp):
        inner = next(node for node in ast.iter_child_nodes(shown) if isinstance(node, ast.expr))
        return _name(inner)
    return "value"


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def main(arguments: Sequence[str]) -> int:
    """Do what is asked for with the catalogue of each language; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("update", "compile", "check"))
    action = parser.parse_args(arguments).action
    found = []
    try:
        for language in (each for each in LANGUAGES if each != ENGLISH):
            if action == "update":
                update(language)
            elif action == "compile":
                po_of(language).with_suffix(".mo").write_bytes(compiled(read(language)))
            found += [] if action == "compile" else check(language)
    except WrongMark as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(found) or "nothing is missing", file=sys.stderr if found else sys.stdout)
    return 1 if found and action == "check" else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
