"""docs/xpu-environment.md lists every variable that the suite and the installed launcher know, each with source and advice."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from xpulab import files
from xpulab.devices import LAUNCHER_VARIABLES
from xpulab.doctor.diagnosis import VISIBILITY_VARIABLES

PAGE = (files.ROOT / "docs/xpu-environment.md").read_text(encoding="utf-8")
PADDLE = Path(importlib.util.find_spec("paddle").origin).parent
VARIABLE = r"\b(?:FLAGS_[A-Za-z0-9_]*[A-Za-z0-9]|(?:C?XPU|XPULINK|XPUAPI|XPURT|XBLAS|BKCL)_[A-Z0-9_]*[A-Z0-9])\b"
SEARCHED = ("data/remedies.yaml", "data/known_issues.yaml", "xpulab/**/*.py", "notebooks/*.ipynb", "env/*.sh")


def rows():
    """The rows of the page's tables, as lists of their cells."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def listed():
    """Every variable that has a row."""
    return {name for row in rows() for name in re.findall(r"`(\w+)`", row[0])}


def named_in_the_suite():
    """Variables of Paddle and of Kunlun's libraries that code, data, chapters or scripts name, without prefixes of names."""
    texts = [path.read_text(encoding="utf-8") for pattern in SEARCHED for path in files.ROOT.glob(pattern)]
    found = {name for text in texts for name in re.findall(VARIABLE, text)}
    return {name for name in found if not any(other.startswith(f"{name}_") for other in found | listed())}


def test_every_row_has_an_effect_a_source_and_advice():
    assert [row[0] for row in rows() if len(row) != 4 or not all(row)] == []


def test_every_variable_that_the_suite_names_is_on_the_page():
    named = named_in_the_suite()
    assert {"FLAGS_use_stride_kernel", "XPU_PADDLE_FC_LOCAL_INT16", "XPU_VISIBLE_DEVICES", "XPUAPI_DEFAULT_SIZE"} <= named
    assert named - listed() == set()


@pytest.mark.parametrize("name", [*LAUNCHER_VARIABLES, *VISIBILITY_VARIABLES])
def test_every_variable_that_the_doctor_looks_for_is_on_the_page(name):
    assert name in listed()


def test_every_variable_of_the_installed_launcher_and_of_paddles_headers_is_on_the_page():
    source = (PADDLE / "distributed/launch/context/args_envs.py").read_text(encoding="utf-8")
    mapping = next(node.value for node in ast.parse(source).body if isinstance(node, ast.Assign))
    headers = [path.read_text(encoding="utf-8") for path in (PADDLE / "include/paddle/phi/kernels/xpu").glob("*.h")]
    named = {name for text in headers for name in re.findall(r'"(XPU_PADDLE_\w+)"', text)}
    assert "XPU_PADDLE_FC_TF32" in named
    assert (named | {key.value for key in mapping.keys}) - listed() == set()
