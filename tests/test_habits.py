"""The version, and that the metadata and the known issue that CONTRIBUTING.md shows are accepted as they stand there."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import jsonschema
import yaml

import xpulab
from xpulab.files import ROOT, data

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_version_is_shown():
    done = subprocess.run([sys.executable, "-m", "xpulab", "--version"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"xpulab {xpulab.__version__}\n", "")


def schema(name: str) -> dict:
    return json.loads(data("schema", f"{name}.schema.json").read_text(encoding="utf-8"))


def test_the_metadata_that_contributing_shows_fits_the_schemas():
    notebook, section = re.findall(r'"xpulab": (\{(?:[^{}]|\{[^{}]*\})*\})', CONTRIBUTING)
    jsonschema.validate(json.loads(notebook), schema("notebook_metadata"))
    jsonschema.validate(json.loads(section), schema("section_metadata"))


def test_the_known_issue_that_contributing_shows_is_a_listed_one():
    (entry,) = yaml.safe_load(re.search(r"(?m)^    - id: .*\n(?:      .*\n)+", CONTRIBUTING)[0])
    jsonschema.validate([entry], schema("known_issues"))
    assert entry["id"] in {each["id"] for each in yaml.safe_load(data("known_issues.yaml").read_text(encoding="utf-8"))}
