"""tools/releases.py: docs/releases.md from runs that are kept, and what it judges."""

from __future__ import annotations

import importlib
import json

import pytest

from xpulab import files

NO_BUILD = "xpulab: the simulated accelerator does not build: /usr/bin/g++ stopped\n  /a/b/allocator.h:22:10: no glog\n"


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """tools/releases.py, which keeps runs in a folder of this test and writes its page there."""
    monkeypatch.syspath_prepend(str(files.ROOT / "tools"))
    module = importlib.import_module("releases")
    monkeypatch.setattr(module, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(module, "PAGE", tmp_path / "releases.md")
    return module


def check(name, outcome="passed", reason=None, rows=()):
    rows = [{"case": case, "outcome": "failed", "reason": why} for case, why in rows]
    return {"name": name, "outcome": outcome, "reason": reason, "rows": rows}


@pytest.fixture
def keep(tool):
    """keep(version, lane, *checks): as a run of one notebook; keep(version, lane, text): a failure."""

    def put(version, lane, *what, outcome="failed", of_notebook="failed", reason=None):
        folder = tool.KEPT / version / lane
        folder.mkdir(parents=True)
        if isinstance(what[0], str):
            (folder / tool.FAILURE).write_text(what[0])
            return
        notebook = {"name": "trainer", "outcome": of_notebook, "reason": reason, "checks": list(what)}
        result = {"outcome": outcome, "date": "2026-11-28T10:00:00+00:00", "notebooks": [notebook]}
        (folder / tool.RESULT).write_text(json.dumps({**result, "versions": {"paddlepaddle": version, "paddlenlp": "3.0.0b4"}}))

    return put


def test_a_row_for_each_capability_and_a_column_for_each_release_and_lane(tool, keep):
    keep("3.2.2", "cpu", check("lora.a", "failed", "0.5, not 0.6"), check("lora.b", "broken"), check("moe.a", "skipped"))
    keep("3.2.2", "sim", NO_BUILD)
    keep("3.3.1", "cpu", check("lora.a"), check("moe.a", "known"), of_notebook="passed")
    keep("3.10.0", "cpu", check("lora.a"), outcome="running")
    assert tool.main(["--page-only"]) == 0
    lines = tool.PAGE.read_text().splitlines()
    assert "| capability | 3.2.2, cpu | 3.2.2, sim | 3.3.1, cpu |" in lines
    assert "| lora | **red** a | no run | green |" in lines
    assert "| moe | - | no run | known |" in lines
    assert "| 3.2.2 | cpu | lora.a | 0.5, not 0.6 |" in lines
    no_build = "the simulated accelerator does not build: g++ stopped; allocator.h:22:10: no glog"
    assert f"| 3.2.2 | sim | no run | {no_build} |" in lines


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ([check("lora.a", "failed", "a table", rows=[("a | b", "1, in /some/where/file.py")])], "lora.a: a | b: 1, in file.py"),
        ([check("lora.a")], "trainer: its text differs"),
        (["Traceback (most recent call last):\n  File ...\nImportError: undefined symbol\n"], "no run: ImportError: undefined"),
        ([check("lora.a", "missing", "never reached")], "lora.a: never reached"),
    ],
)
def test_a_supported_release_with_something_red_is_exit_code_1(tool, keep, capsys, kept, said):
    keep("3.3.1", "cpu", *kept, reason="its text differs")
    assert tool.main(["--page-only"]) == 1
    assert f"3.3.1, cpu: {said}" in capsys.readouterr().out


def test_a_run_is_kept_and_one_without_a_result_leaves_its_reason(tool, tmp_path):
    python = tmp_path / "python"
    script = 'case "$*" in *sim*) echo "xpulab: no compiler" >&2; exit 2;; esac\nwhile [ "$1" != --out ]; do shift; done\n'
    python.write_text(
        f'#!/bin/sh\n{script}mkdir -p $2; echo \'{{"outcome": "passed", "date": "2026-11-28T"}}\' >$2/result.json\n'
    )
    python.chmod(0o755)
    for lane in tool.LANES:
        tool.run(python, tool.KEPT / "3.3.1" / lane, lane)
    assert tool.kept("3.3.1", "cpu").failure == ""
    assert tool.kept("3.3.1", "sim").failure == "no compiler"
    assert tool.kept("3.3.0", "sim") is None


def test_wrong_arguments_and_an_empty_folder_are_exit_code_2(tool, capsys):
    assert tool.main(["newest", "--page-only"]) == 2
    assert "newest" in capsys.readouterr().err
    assert tool.main(["--page-only"]) == 2
    assert "--page-only" in capsys.readouterr().err
