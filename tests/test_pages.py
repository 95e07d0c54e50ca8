"""The pages: links lead somewhere, and the commands, options, checks, faults and tests that they name are there."""

from __future__ import annotations

import importlib
import re

import nbformat
import pytest
import typer.main

from tests.conftest import chapters, release
from xpulab import cli, files
from xpulab.faults import CATALOGUE

ENGLISH = [*sorted(files.ROOT.glob("docs/*.md")), *(files.ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING"))]
PAGES = [*ENGLISH, files.ROOT / "README_cn.md", *sorted(files.ROOT.glob("docs/zh/*.md"))]
FIELD = files.ROOT / "docs" / "field.md"
CAPABILITIES = {check.name.split(".")[0] for chapter in (*chapters(), *release()) for check in chapter.checks}
COMMAND = re.compile(r"^(?:    |\$ ?)\S*?(?:bin/|-m )?\bxpulab (.*)$", re.MULTILINE)

of_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(files.ROOT).as_posix())
of_english_page = pytest.mark.parametrize("page", ENGLISH, ids=lambda page: page.relative_to(files.ROOT).as_posix())
"""A Chinese page may be behind until a release, for which `tools/translate.py check --release` asks."""


def text_of(page):
    return page.read_text(encoding="utf-8")


def names(text):
    """What stands in backticks."""
    return re.findall(r"(?<!`)`([^`\n]+)`", text)


@of_page
def test_links_lead_to_files_and_headings(monkeypatch, page):
    monkeypatch.syspath_prepend(str(files.ROOT / "tools"))
    lint = importlib.import_module("lint_project")
    assert list(lint.leads_nowhere(page, text_of(page))) == []


@of_english_page
def test_checks_that_a_page_names_are_planned_in_a_notebook(checks_of_the_book, page):
    named = {name for name in names(text_of(page)) if re.fullmatch(r"[a-z\d-]+\.[a-z\d-]+", name)}
    assert {name for name in named if name.split(".")[0] in CAPABILITIES} - checks_of_the_book == set()


@of_english_page
def test_commands_that_a_page_shows_are_there_with_their_options(page):
    shown = [line.split("  #")[0].split(" # ")[0] for line in COMMAND.findall(text_of(page))]
    assert [wrong for line in shown for wrong in unknown_in(line)] == []


def unknown_in(line):
    """The command, or the options, that `xpulab LINE` does not have."""
    command, words = typer.main.get_command(cli.app), line.split()
    while words and words[0].isidentifier() and hasattr(command, "commands"):
        name = words.pop(0)
        if name not in command.commands:
            return [name]
        command = command.commands[name]
    if command.context_settings.get("ignore_unknown_options"):  # those of another command
        return []
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    given = []
    for word in words:
        if word in ("|", ">", "&&", "-m") or word.endswith(".py"):
            break  # what follows belongs to another program
        given.append(word.split("=")[0])
    return [f"{command.name} {word}" for word in given if word.startswith("--") and word not in known]


# ------------------------------------------------------------------------------------------------------------ docs/field.md


def problems():
    """The rows of the table of docs/field.md by number: problem, threads, seen by, faults, lanes."""
    lines = [line.strip("|").split("|") for line in text_of(FIELD).splitlines() if re.match(r"\| \d", line)]
    return {int(number): [cell.strip() for cell in cells] for number, *cells in lines}


def test_each_fault_of_a_problem_is_detected_by_a_check_of_its_row():
    detected_by = {fault.name: set(fault.detected_by) for fault in CATALOGUE}
    for number, cells in problems().items():
        for name in names(cells[3]):
            assert detected_by[name] & set(names(cells[2])), (number, name)


def test_each_test_that_the_page_of_problems_names_is_there():
    for path, name in re.findall(r"`(tests/\S+)::(\w+)`", text_of(FIELD)):
        assert f"def {name}(" in text_of(files.ROOT / path)


# ----------------------------------------------------------------------------------------------------------- the first chapter


def test_the_first_table_for_users_of_pytorch_is_that_of_chapter_00():
    texts = [cell.source for cell in nbformat.read(files.NOTEBOOKS / "00_environment.ipynb", as_version=4).cells]
    (lesson,) = [text for text in texts if text.startswith("## From PyTorch to Paddle")]
    shown = re.findall(r"^\| `.*\|$", lesson, re.MULTILINE)
    assert (
        shown and shown == re.findall(r"^\| `.*\|$", text_of(files.ROOT / "docs/from-pytorch.md"), re.MULTILINE)[: len(shown)]
    )
