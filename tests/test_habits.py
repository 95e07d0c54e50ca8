"""How the project is worked on: the version, lint, and what CONTRIBUTING.md shows."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys

import jsonschema
import pytest
import yaml

import xpulab
from xpulab.files import DATA, NOTEBOOKS, ROOT, data

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_version_is_shown():
    done = subprocess.run([sys.executable, "-m", "xpulab", "--version"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"xpulab {xpulab.__version__}\n", "")


# ------------------------------------------------------------------------------------------------------------------ lint


@pytest.fixture
def lint(tmp_path):
    """A function that runs tools/lint.sh with pretended tools, one of which fails: exit code, errors, the tools it called."""
    for folder in ("tools", "env", "bin", "xpulab/sim/plugin/deeper"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tools/lint.sh", tmp_path / "tools")
    (tmp_path / "env/venv.sh").write_text(f"echo {tmp_path}/bin\n")
    for source in ("card.cc", "card.h", "deeper/stream.cc"):
        (tmp_path / "xpulab/sim/plugin" / source).touch()

    def run(failing):
        for tool in ("ruff", "mypy", "python", "clang-format"):
            script = tmp_path / "bin" / tool
            script.write_text(f'#!/bin/sh\necho "{tool} $@" >> {tmp_path}/calls\nexit {int(tool == failing)}\n')
            script.chmod(0o755)
        command = ["bash", str(tmp_path / "tools/lint.sh")]
        done = subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        return done.returncode, (tmp_path / "calls").read_text().splitlines()

    return run


@pytest.mark.parametrize("failing", [None, "ruff", "mypy", "python", "clang-format"])
def test_lint_runs_every_tool_and_fails_when_one_does(lint, failing):
    code, calls = lint(failing)
    assert code == (failing is not None)
    assert [call.split()[0] for call in calls] == ["ruff", "ruff", "mypy", "python", "clang-format"]
    assert [name for name in ("plugin/card.cc", "plugin/card.h", "plugin/deeper/stream.cc") if name not in calls[-1]] == []


@pytest.fixture
def project(monkeypatch):
    """tools/lint_project.py as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("lint_project")


def test_a_forbidden_word_is_found_with_its_line_and_a_word_that_contains_one_is_not(project):
    for text in ("A way round it.", "It is told.", "It is held against.", "Hold this against that.", "cured"):
        assert [line for _, line, _ in project.words(DATA, f"right\n{text}")] == [2]
    assert not list(project.words(DATA, "secure, recommended, an accurate procedure, survives a crash, shallow"))


def test_a_link_that_leads_nowhere_is_found_with_its_line(project, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Some `words`: here\n[a](#some-words-here) [b](page.md#x) [c](https://a.b)\n[d](#some) [e](gone.md)\n")
    assert [(line, text.split()[2]) for _, line, text in project.links(page)] == [
        (2, "page.md#x"),
        (3, "#some"),
        (3, "gone.md"),
    ]


def test_a_link_of_a_chapter_to_a_word_that_the_glossary_lacks_is_found(project):
    text = "A [rank](../docs/glossary.md#rank)\nhas [none](../docs/glossary.md#no-such-word) of [these](03_lora.ipynb#x)."
    assert list(project.leads_nowhere(NOTEBOOKS / "02_sft.ipynb", text)) == [(2, "../docs/glossary.md#no-such-word")]


BROKEN = {
    '"execution_count": 2,': '"execution_count": 7,',
    '"verdict()"': '"verdict();"',
    "<!-- contents -->": "<!-- contents -->x",
    '"device = ': '"devise = ',
    '"image/png": "': '"text/html": "/home/me/x", "image/png": "',
}


@pytest.mark.parametrize("right", BROKEN)
def test_a_chapter_that_is_laid_out_otherwise_is_found(project, tmp_path, right):
    path = tmp_path / "02_sft.ipynb"
    chapters = [path if each.name == path.name else each for each in sorted(NOTEBOOKS.glob("*.ipynb"))]
    text = (NOTEBOOKS / path.name).read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    assert list(project.chapter(path, chapters)) == []
    path.write_text(text.replace(right, BROKEN[right], 1), encoding="utf-8")
    assert list(project.chapter(path, chapters))


# ---------------------------------------------------------------------------------------------------------- contributing


def schema(name: str) -> dict:
    return json.loads(data("schema", f"{name}.schema.json").read_text(encoding="utf-8"))


def test_contributing_has_the_section_that_messages_name():
    assert "\n## Add a chapter\n" in CONTRIBUTING


def test_the_metadata_that_contributing_shows_fits_the_schemas():
    notebook, section = re.findall(r'"xpulab": (\{(?:[^{}]|\{[^{}]*\})*\})', CONTRIBUTING)
    jsonschema.validate(json.loads(notebook), schema("notebook_metadata"))
    jsonschema.validate(json.loads(section), schema("section_metadata"))


def test_the_known_issue_that_contributing_shows_is_a_listed_one():
    shown = re.search(r"(?m)^    - id: .*\n(?:      .*\n)+", CONTRIBUTING)[0]
    (entry,) = yaml.safe_load(shown)
    jsonschema.validate([entry], schema("known_issues"))
    assert entry["id"] in {each["id"] for each in yaml.safe_load(data("known_issues.yaml").read_text(encoding="utf-8"))}
