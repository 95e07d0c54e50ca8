"""How the project is worked on: the version, lint, CI, and what git, pre-commit, GitHub and contributors are given."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import jsonschema
import pytest
import yaml

import xpulab
from xpulab.files import ROOT, data

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
DOCUMENTED = "\n".join(page.read_text(encoding="utf-8") for page in PAGES) + CONTRIBUTING
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*_report.yml"))
LANES = WORKFLOW["jobs"]["notebooks"]["strategy"]["matrix"]["lane"]


# ----------------------------------------------------------------------------------------------------------- the version


def test_the_version_is_shown():
    done = subprocess.run([sys.executable, "-m", "xpulab", "--version"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"xpulab {xpulab.__version__}\n", "")


def test_the_version_is_a_release_or_the_next_one_in_development():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev0)?", xpulab.__version__)


def test_a_release_has_its_entry_in_the_changelog():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = "## Unreleased" if ".dev" in xpulab.__version__ else f"## {xpulab.__version__} - 20"
    assert re.search(f"^{re.escape(heading)}", changelog, re.MULTILINE)


# ------------------------------------------------------------------------------------------------------------------ lint


@pytest.fixture
def lint(tmp_path):
    """A function that runs tools/lint.sh with pretended tools, of which some fail: exit code, what they were called with."""
    for folder in ("tools", "env", "bin", "xpulab/sim/plugin/deeper"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tools/lint.sh", tmp_path / "tools")
    (tmp_path / "env/venv.sh").write_text(f"echo {tmp_path}/bin\n")
    for source in ("card.cc", "card.h", "deeper/stream.cc"):
        (tmp_path / "xpulab/sim/plugin" / source).touch()

    def run(*failing):
        calls = tmp_path / "calls"
        calls.write_text("")
        for tool in ("ruff", "mypy", "clang-format"):
            script = tmp_path / "bin" / tool
            script.write_text(f'#!/bin/sh\necho "{tool} $@" >> {calls}\nexit {int(tool in failing)}\n')
            script.chmod(0o755)
        command = ["bash", str(tmp_path / "tools/lint.sh")]
        done = subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        return done, calls.read_text().splitlines()

    return run


def test_lint_runs_every_tool_on_every_source_of_the_plugin(lint):
    done, calls = lint()
    assert (done.returncode, done.stderr) == (0, "")
    assert [call.split()[0] for call in calls] == ["ruff", "ruff", "mypy", "clang-format"]
    assert {"xpulab/sim/plugin/card.cc", "xpulab/sim/plugin/card.h", "xpulab/sim/plugin/deeper/stream.cc"} <= set(
        calls[-1].split()
    )


@pytest.mark.parametrize("failing", ["ruff", "mypy", "clang-format"])
def test_lint_fails_when_a_tool_does_and_still_runs_the_others(lint, failing):
    done, calls = lint(failing)
    assert done.returncode == 1
    assert f"lint: failed: {failing}" in done.stderr
    assert len(calls) == 4


def test_ci_runs_lint_then_the_tests_then_the_notebooks_at_level_standard():
    steps = re.findall("^step (.*?)(?: #.*)?$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert steps == [
        "bash tools/lint.sh",
        "bash env/test.sh -m 'not real'",
        "bash env/validate.sh --no-model --device cpu --level standard --out build/ci-standard",
    ]


# ------------------------------------------------------------------------------------------------------------ pre-commit


def test_pre_commit_runs_the_pinned_versions():
    pins = (ROOT / "env/requirements/common.txt").read_text().splitlines()
    used = [pin for hook in HOOKS for pin in hook.get("additional_dependencies", [])]
    assert used != [] and [pin for pin in used if pin not in pins] == []


def test_pre_commit_runs_each_step_of_lint():
    steps = re.findall('^step "(.*?)"', (ROOT / "tools/lint.sh").read_text(), re.MULTILINE)
    assert {hook["name"] for hook in HOOKS} == {re.sub(" --.*", "", step) for step in steps}


# ---------------------------------------------------------------------------------------------------------------- GitHub


def commands() -> list[str]:
    """Every command of the workflow; those of the notebooks without the folder for their reports."""
    runs = [step["run"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "run" in step]
    runs.remove("${{ matrix.lane.command }} --out build/report")
    runs.remove("${{ matrix.command }}")
    return runs + [lane["command"] for lane in LANES] + WORKFLOW["jobs"]["real"]["strategy"]["matrix"]["command"]


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_workflow_is_a_documented_one(command):
    assert re.search(rf"^    {re.escape(command)}\s*(#.*)?$", DOCUMENTED, re.MULTILINE)
    assert (ROOT / command.split()[1]).is_file()


def test_the_workflow_runs_on_every_python_of_the_project():
    requires = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    supported = [f"3.{minor}" for minor in range(int(requires[1]), int(requires[2]))]
    for job in ("unit", "notebooks"):
        assert WORKFLOW["jobs"][job]["strategy"]["matrix"]["python"] == supported


@pytest.mark.parametrize("job", WORKFLOW["jobs"].values(), ids=WORKFLOW["jobs"])
def test_a_job_of_the_workflow_ends_in_time_and_caches_packages(job):
    assert job["timeout-minutes"] <= 60
    assert [step["with"]["cache"] for step in job["steps"] if "setup-python" in step.get("uses", "")] == ["pip"]


def test_the_workflow_keeps_the_reports_of_the_notebooks_when_they_are_red():
    *_, upload = WORKFLOW["jobs"]["notebooks"]["steps"]
    assert upload["if"] == "${{ !cancelled() }}"
    kept = upload["with"]["path"].split()
    assert kept == ["build/report/junit.xml", "build/report/index.html", "build/report/result.json"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_has_what_github_requires(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert form["name"] and form["description"]
    fields = [part for part in form["body"] if part["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields) > 0
    assert {field["type"] for field in fields} <= {"textarea", "input", "dropdown", "checkboxes"}
    assert [field["id"] for field in fields if not field["attributes"]["label"]] == []
    assert [field["id"] for field in fields if field["type"] == "dropdown" and not field["attributes"]["options"]] == []


def test_both_issue_forms_ask_for_diagnosis_and_report():
    assert [path.stem for path in FORMS] == ["bug_report", "hardware_report"]
    bug, hardware = (path.read_text(encoding="utf-8") for path in FORMS)
    assert "xpulab doctor --json" in bug and "result.json" in bug
    assert "--prove --bundle report.zip" in hardware and "docs/evidence.md" in hardware


# ------------------------------------------------------------------------------------------------------------------- git


def test_git_compares_and_merges_notebooks_with_nbdime():
    lines = [line.split() for line in (ROOT / ".gitattributes").read_text().splitlines()]
    attributes = {each for pattern, *rest in filter(None, lines) if pattern == "*.ipynb" for each in rest}
    assert {"diff=jupyternotebook", "merge=jupyternotebook"} <= attributes


# ---------------------------------------------------------------------------------------------------------- contributing


def schema(name: str) -> dict:
    return json.loads(data("schema", f"{name}.schema.json").read_text(encoding="utf-8"))


def test_contributing_has_the_section_that_messages_name():
    assert "\n## Add a chapter\n" in CONTRIBUTING


def test_the_links_of_contributing_lead_somewhere():
    anchors = {heading.lower().replace(" ", "-") for heading in re.findall("^##+ (.*)$", CONTRIBUTING, re.MULTILINE)}
    links = re.findall(r"\]\((?!https:)([^)]*)\)", CONTRIBUTING)
    lead = [link[1:] in anchors if link[0] == "#" else (ROOT / link.partition("#")[0]).exists() for link in links]
    assert [link for link, exists in zip(links, lead, strict=True) if not exists] == []


def test_the_files_that_contributing_names_exist():
    named = set(re.findall(r"\b(?:env|tools|data|xpulab|tests)/[\w./]*\w", CONTRIBUTING))
    assert len(named) > 5
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_metadata_that_contributing_shows_fits_the_schemas():
    notebook, section = re.findall(r'"xpulab": (\{(?:[^{}]|\{[^{}]*\})*\})', CONTRIBUTING)
    jsonschema.validate(json.loads(notebook), schema("notebook_metadata"))
    jsonschema.validate(json.loads(section), schema("section_metadata"))


def test_the_known_issue_that_contributing_shows_is_a_listed_one():
    shown = re.search(r"(?m)^    - id: .*\n(?:      .*\n)+", CONTRIBUTING)[0]
    (entry,) = yaml.safe_load(shown)
    jsonschema.validate([entry], schema("known_issues"))
    assert entry["id"] in {each["id"] for each in yaml.safe_load(data("known_issues.yaml").read_text(encoding="utf-8"))}
