"""The templates for GitHub, GitLab and Jenkins: valid, and their commands leave all reports, also of a red run.

They run in a copy of env/ whose venv.sh starts the Python of the tests instead of making an environment.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from xpulab.files import ROOT

pytestmark = pytest.mark.environments

KEPT = [
    "build/bundle.zip",
    "build/doctor.json",
    "build/report/index.html",
    "build/report/junit.xml",
    "build/report/result.json",
]
VENV = f"""#!/bin/sh
while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
[ $# -gt 0 ] || exit 0
shift
case "$*" in
    *" $STUBBED "*bundle.zip) [ -d "$3" ] && touch "$5"; exit ;;
    *" $STUBBED "* | *" doctor "*) echo '{{}}'; exit ;;
esac
program=$1
shift
exec {Path(sys.executable).parent}/"$program" "$@"
"""
"""The diagnosis has tests of its own, and takes long; so does a bundle, which is written by the templates of GitHub only."""


@dataclass(frozen=True)
class Template:
    """path: its file. schema: check-jsonschema's arguments, or none. labels: that it runs on."""

    path: str
    schema: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return (ROOT / "env/operations/ci" / self.path).read_text(encoding="utf-8")


GITHUB = Template("github.yml", ("vendor.github-workflows",))
GITLAB = Template("gitlab-ci.yml", ("vendor.gitlab-ci", "--data-transform", "gitlab-ci"))
JENKINS = Template("Jenkinsfile")
TEMPLATES = [GITHUB, GITLAB, JENKINS]


def commands(template):
    """The commands in order: (command, whether it also runs after one has failed)."""
    if template is GITHUB:
        steps = yaml.safe_load(template.text)["jobs"]["measure"]["steps"]
        return [(step["run"], "always()" in step.get("if", "")) for step in steps if "run" in step]
    if template is GITLAB:
        job = yaml.safe_load(template.text)["xpulab"]
        return [
            *((each, False) for each in job["before_script"] + job["script"]),
            *((each, True) for each in job["after_script"]),
        ]
    before, after = template.text.split("always {")
    return [(each, part is after) for part in (before, after) for each in re.findall(r"^ +sh '(.*)'$", part, re.MULTILINE)]


def artifacts(template):
    """The patterns of what is kept."""
    if template is GITHUB:
        (upload,) = [
            each for each in yaml.safe_load(template.text)["jobs"]["measure"]["steps"] if "upload" in each.get("uses", "")
        ]
        assert upload["if"] == "${{ always() }}"
        return upload["with"]["path"].split()
    if template is GITLAB:
        kept = yaml.safe_load(template.text)["xpulab"]["artifacts"]
        assert (kept["when"], kept["reports"]) == ("always", {"junit": "build/report/junit.xml"})
        return kept["paths"]
    always = template.text.split("always {")[1]
    return re.search("archiveArtifacts artifacts: '(.*?)'", always)[1].split(", ")


@pytest.fixture
def job(site, clean_path):
    """job(template, label, measured): runs a template's commands as its tool does; returns the exit codes, and the folder."""
    folder = site.folder / "clone"
    shutil.copytree(ROOT / "env", folder / "env")
    (folder / "env/venv.sh").write_text(VENV)

    def run(template, label="cpu-1", measured=2, change=lambda command: command):
        variables = {"LABEL": label, "LEVEL": "smoke", "XPULAB_LOCK": str(site.folder), "OMP_NUM_THREADS": "1"}
        stubbed = "" if template is GITHUB else "bundle"
        arguments = f"{site.notebook(measured)} --cold"
        environment = {**os.environ, **variables, "PATH": clean_path, "ARGUMENTS": arguments, "STUBBED": stubbed}
        codes, failed = [], False
        for command, always in commands(template):
            if always or not failed:
                shell = ["bash", "-e", "-c", change(command)]
                done = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
                codes.append(done.returncode)
                failed |= done.returncode != 0
        return codes, folder

    return run


@pytest.mark.parametrize("template", [GITHUB, GITLAB], ids=lambda each: each.path)
def test_a_template_fits_its_schema_and_another_field_does_not(template, tmp_path):
    command = [str(Path(sys.executable).parent / "check-jsonschema"), "--builtin-schema", *template.schema]
    path = tmp_path / "template.yml"
    path.write_text(template.text)
    assert subprocess.run([*command, str(path)], capture_output=True, timeout=60).returncode == 0
    path.write_text(re.sub("^( +)(runs-on|tags):", r"\1\2-wrong:", template.text, flags=re.MULTILINE))
    assert subprocess.run([*command, str(path)], capture_output=True, timeout=60).returncode == 1


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda each: each.path)
@pytest.mark.parametrize(("measured", "outcome"), [(2, "passed"), (1, "failed")], ids=["green", "red"])
def test_all_reports_are_kept_also_of_a_red_run(template, measured, outcome, job):
    codes, folder = job(template, measured=measured)
    assert sorted(set(codes)) == ([0] if measured == 2 else [0, 1]) and len(codes) == len(commands(template))
    assert json.loads((folder / "build/report/result.json").read_text())["outcome"] == outcome
    kept = {str(path.relative_to(folder)) for pattern in artifacts(template) for path in folder.glob(pattern)}
    assert [name for name in KEPT if name not in kept] == []


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda each: each.path)
@pytest.mark.parametrize("cards", [0, 1])
def test_a_machine_without_its_cards_runs_nothing_and_is_red_when_some_are_there(template, cards, job, site, monkeypatch):
    (site.folder / "root/dev").mkdir(parents=True)
    for name in ("xpu0", "xpuctrl")[: 2 * cards]:
        (site.folder / "root/dev" / name).touch()
    monkeypatch.setenv("XPULAB_SYSTEM_ROOT", str(site.folder / "root"))
    codes, folder = job(template, label="xpu-p800-8")
    assert (2 - cards) in codes
    assert not list((folder / "build").rglob("shown.ipynb"))
    if cards:
        assert json.loads((folder / "build/report/result.json").read_text())["lost"]["problem"].startswith("1 of 8 cards")


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda each: each.path)
def test_a_machine_that_is_being_measured_is_left_alone(template, job, site):
    held = os.open(site.folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    codes, folder = job(template, change=lambda command: command.replace("--timeout 7200", "--timeout 0"))
    os.close(held)
    assert 2 in codes and not (folder / "build/report").exists()
