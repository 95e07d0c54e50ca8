"""Bundles of many nodes, made from the result of one real run, with a defect in a few of them."""

from __future__ import annotations

import hashlib
import json
import random
import re
import zipfile
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from xpulab.fleet import bundle
from xpulab.fleet.outliers import (
    CARD_TWICE,
    DIFFERS,
    MISSING,
    RED_CHECK,
    RED_NOTEBOOK,
    SLOW,
    UNFINISHED,
    UNREADABLE,
)

RATE_DEVIATION = 0.01
"""Of the rates of healthy nodes, as a share."""

SLOW_FACTOR = 0.1
_VARYING = re.compile(r'"@(rate|seconds|serial) ([^"@]*)@"')

Result = dict[str, Any]


def red_check(result: Result) -> None:
    """A check fails, and with it its notebook and the run."""
    notebook, check = _compared(result)[0]
    check.update(outcome="failed", reason="planted", rows=[], measured=2.0, expected="< 1")
    notebook.update(outcome="failed", reason="planted")
    result.update(outcome="failed", green=False)


def red_notebook(result: Result) -> None:
    """A notebook shows other text, and none of its checks is red."""
    result["notebooks"][0].update(outcome="failed", reason="its text differs")
    result.update(outcome="failed", green=False)


def missing_check(result: Result) -> None:
    """A check is not in the run."""
    notebook, check = _compared(result)[1]
    notebook["checks"].remove(check)


def other_bits(result: Result) -> None:
    """A check passes with other bits than on the other nodes."""
    _, check = next((notebook, check) for notebook, check in _compared(result) if check["digest"] and not check["rows"])
    check["digest"] = "0123456789abcdef"


def other_row(result: Result) -> None:
    """A row of a table passes with another value."""
    tables = [check for _, check in _compared(result) if check["rows"] and not check["measurements"]]
    row = next(row for check in tables for row in check["rows"] if row["outcome"] == "passed")
    row["measured"] = 0.123456


def slow(result: Result) -> None:
    """Every rate is a tenth."""
    for _, check in _compared(result, also=("skipped",)):
        for each in check["measurements"]:
            if each["kind"] == "rate":
                each["values"] = [SLOW_FACTOR * each["values"][0]]


def unfinished(result: Result) -> None:
    """The run was killed while its second notebook ran."""
    result.update(outcome="running", green=False, notebooks=result["notebooks"][:1])


PLANTED: Mapping[str, tuple[str, Callable[[Result], None]]] = {
    "red": (RED_CHECK, red_check),
    "text": (RED_NOTEBOOK, red_notebook),
    "missing": (MISSING, missing_check),
    "bits": (DIFFERS, other_bits),
    "row": (DIFFERS, other_row),
    "slow": (SLOW, slow),
    "killed": (UNFINISHED, unfinished),
}
"""By the end of a node's name the kind that names it, and the defect. Also, two nodes share a card, and a file is damaged."""


def make_fleet(source: Result, folder: Path, nodes: int, seed: int) -> dict[str, set[str]]:
    """Write the bundles; returns by planted node the kinds that must name it."""
    rng = random.Random(seed)
    healthy = template(source)
    expected: dict[str, set[str]] = {}
    planted = dict(zip(rng.sample(range(nodes), len(PLANTED) + 3), [*PLANTED, "twin", "other-twin", "damaged"], strict=True))
    for number in range(nodes):
        kind = planted.get(number, "")
        name = f"node{number:04d}" + (f"-{kind}" if kind else "")
        text = healthy
        if kind in PLANTED:
            found, change = PLANTED[kind]
            changed = deepcopy(source)
            change(changed)
            expected[name], text = {found}, template(changed)
        board = "shared" if kind in ("twin", "other-twin") else name
        path = write_bundle(folder, name, fill(text, board, rng))
        if kind in ("twin", "other-twin"):
            expected[name] = {CARD_TWICE} if source["card_facts"] else set()
        if kind == "damaged":
            expected[path.stem] = {UNREADABLE}
            path.write_bytes(path.read_bytes()[:-200])
    return {name: kinds for name, kinds in expected.items() if kinds}


def template(source: Result) -> str:
    """The text of result.json with marks where each node has a value of its own."""
    result = deepcopy(source)
    for card in result["card_facts"]:
        card["serial"] = f"@serial {card['index']}@"
    for notebook in result["notebooks"]:
        notebook["seconds"] = f"@seconds {notebook['seconds']}@"
        for check in notebook["checks"]:
            check["seconds"] = f"@seconds {check['seconds']}@"
            for each in check["measurements"]:
                if each["kind"] == "rate":
                    each["values"] = [f"@rate {value}@" for value in each["values"]]
    return json.dumps(result, indent=2)


def fill(text: str, board: str, rng: random.Random) -> str:
    """The text of one node. board: what its cards' serial numbers begin with."""

    def value(mark: re.Match[str]) -> str:
        if mark[1] == "serial":
            return json.dumps(f"{board}-{mark[2]}")
        deviation = RATE_DEVIATION if mark[1] == "rate" else 0.1
        return repr(float(mark[2]) * max(0.5, rng.gauss(1, deviation)))

    return _VARYING.sub(value, text)


def write_bundle(folder: Path, name: str, text: str) -> Path:
    """A bundle that holds result.json and its manifest."""
    content = text.encode()
    inside = "run/result.json"
    entry = {"name": inside, "size": len(content), "sha256": hashlib.sha256(content).hexdigest(), "removed": {}}
    manifest = {"schema": bundle.SCHEMA, "node": name, "xpulab": "benchmark", "made": "", "left_out": {}, "entries": [entry]}
    path = folder / f"{name}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(bundle.MANIFEST, json.dumps(manifest))
        archive.writestr(inside, content)
    return path


def named(comparison: Mapping[str, Any]) -> dict[str, set[str]]:
    """By node the kinds of its findings in the JSON of a comparison."""
    found: dict[str, set[str]] = {}
    for finding in comparison["findings"]:
        found.setdefault(finding["node"], set()).add(finding["kind"])
    return found


def _compared(result: Result, also: tuple[str, ...] = ()) -> list[tuple[Result, Result]]:
    """Each check that passed, with its notebook before it."""
    pairs = [(notebook, check) for notebook in result["notebooks"] for check in notebook["checks"]]
    return [(notebook, check) for notebook, check in pairs if check["outcome"] in ("passed", *also)]
