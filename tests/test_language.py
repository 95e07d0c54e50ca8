"""Shown text is plain technical English: the words that the glossary of CONTRIBUTING.md replaces occur nowhere."""

from __future__ import annotations

import re

import nbformat
import pytest

from xpulab import files

FORBIDDEN = {
    r"ways? round": "workaround",
    r"\bcur(?:e|es|ed|ing)\b": "fix, workaround",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\blet(?:s|ting)? loose\b": "inject a fault",
    r"\bsurviv(?:ed|or|ors)\b": "missed",
    r"\b(?:is|are|was|were|be|been) caught\b|\bcaught by\b": "detected",
    r"\bto blame\b|\bblam(?:e|es|ed|ing)\b|\bculprit": "root cause",
    r"\bvictims?\b|\bsuffers\b": "affected rank",
    r"\bparcels?\b": "serialize, dumps",
    r"\blifelines?\b": "keepalive pipe",
    r"\blast words\b": "error message, last log lines",
    r"\bmisfits?\b": "incomparable",
    r"\bsurroundings\b": "run context",
    r"\bhand(?:s|ed|ing)? on\b": "forward",
    r"\bpatience\b": "timeout",
    r"\b(?:hold|holds|held|holding)(?: \w+){0,4} against\b": "compare with",
    r"\bnobody (?:is told|knows)\b|\b(?:is|are|be) told\b": "silently, is reported",
    r"\b(?:goes|go|went|gone) astray\b": "fails",
    r"\bshall\b": "must, will",
}
"""Regular expressions of words that readers stumble over, and what to write instead."""

TEXTS = sorted(
    path
    for pattern in (
        "*.md",
        "docs/*.md",
        "env/*.md",
        "env/*.sh",
        "env/*.py",
        "env/operations/**/*.*",
        "data/*.md",
        "data/*.yaml",
        "data/schema/*.json",
    )
    for path in files.ROOT.glob(pattern)
)
CODE = sorted(
    path
    for pattern in ("xpulab/**/*.py", "xpulab/**/*.html", "xpulab/**/*.cc", "xpulab/**/*.h", "tools/**/*.py")
    for path in files.ROOT.glob(pattern)
)
NOTEBOOKS = sorted(files.NOTEBOOKS.glob("*.ipynb"))


def hits(text):
    """Each forbidden word of a text with its line and what to write instead."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern, instead in FORBIDDEN.items():
            found += [f"line {number}: {word.group()!r}: write {instead}" for word in re.finditer(pattern, line, re.IGNORECASE)]
    return found


def shown_by(notebook):
    """What a reader of a notebook sees: the sources of its cells, and its outputs as text."""
    for cell in notebook.cells:
        yield cell.source
        for output in cell.get("outputs", []):
            yield output.get("text") or output.get("data", {}).get("text/plain", "")
            yield output.get("data", {}).get("text/html", "")


@pytest.mark.parametrize("text", ["A way round it.", "It is told.", "It is held against.", "Hold this against that.", "cured"])
def test_a_forbidden_word_is_found(text):
    assert len(hits(text)) == 1


def test_words_that_only_contain_a_forbidden_one_are_not_found():
    assert hits("secure, recommended, an accurate procedure, survives a crash, a told apart case, shallow") == []


def test_documents_and_data_use_the_words_of_the_glossary():
    naming_them = {"CONTRIBUTING.md", "CHANGELOG.md"}  # the glossary, and what was called otherwise before
    found = {path.name: hits(path.read_text(encoding="utf-8")) for path in TEXTS if path.name not in naming_them}
    assert {name: words for name, words in found.items() if words} == {}


def test_code_and_its_messages_use_the_words_of_the_glossary():
    found = {str(path.relative_to(files.ROOT)): hits(path.read_text(encoding="utf-8")) for path in CODE}
    assert {path: words for path, words in found.items() if words} == {}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_use_the_words_of_the_glossary(path):
    assert hits("\n".join(shown_by(nbformat.read(path, as_version=4)))) == []
