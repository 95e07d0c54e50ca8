"""tools/releases.py: docs/releases.md and docs/zh/releases.md from runs that are kept, and what it judges."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys

import pytest

from tests.fleet.compare.made_up import check, notebook, of, result, row
from xpulab import files

OLD, NEW = (
    {"versions": {"paddlepaddle": "3.2.2", "numpy": "1.26.4"}},
    {"versions": {"paddlepaddle": "3.3.1", "numpy": "1.26.4"}},
)
RED = {"outcome": "failed", "measured": 2.5, "reason": "2.5 | 1, in /somewhere/else/file.py"}
NEVER = {"outcome": "missing", "measured": None, "reason": "the cell was never reached"}
REFUSED = check("install.versions", **RED)
NO_BUILD = "xpulab: the simulated accelerator does not build: /usr/bin/g++ stopped\n  /a/b/allocator.h:22:10: no glog\n"

LEFT_AS_IT_IS = "the simulated accelerator does not build: g++ stopped; allocator.h:22:10: no glog"
"""Of NO_BUILD what the page shows, in each language: the catalogue of messages does not have it."""


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """tools/releases.py, which keeps runs in a folder of this test and writes its page there."""
    spec = importlib.util.spec_from_file_location("releases", files.ROOT / "tools" / "releases.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "releases", module)
    monkeypatch.syspath_prepend(files.ROOT / "tools")
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(module, "PAGE", tmp_path / "releases.md")
    monkeypatch.setattr(module.files, "ROOT", tmp_path)
    return module


@pytest.fixture
def keep(tool):
    """keep(version, lane, result or text of a failure): as the tool keeps it."""

    def put(version, lane, what):
        folder = tool.KEPT / version / lane
        folder.mkdir(parents=True)
        text = what if isinstance(what, str) else json.dumps({**what, "device": lane}, indent=2)
        (folder / ("failure.txt" if isinstance(what, str) else "result.json")).write_text(text)

    return put


@pytest.fixture
def page(tool):
    """page(): the lines of the page that the tool writes, and its exit code."""

    def write():
        code = tool.main(["--page-only"])
        return tool.PAGE.read_text().splitlines(), code

    return write


def test_a_row_for_each_capability_and_lane_and_a_column_for_each_release(keep, page):
    skipped = check("card-vote.step", "skipped", measured=None, reason="no card")
    known = check("export.a", "known", reason="a defect")
    keep("3.2.2", "cpu", of(REFUSED, check("lora.a", **RED), check("lora.b", **RED), skipped, **OLD))
    keep("3.2.2", "sim", NO_BUILD)
    keep("3.3.1", "cpu", of(check("install.versions"), check("lora.a"), skipped, known, **NEW))
    keep("3.3.1", "sim", of(check("lora.a"), **NEW))
    lines, code = page()
    assert code == 0
    assert "| capability | lane | 3.2.2 | 3.3.1 |" in lines
    assert "| lora | cpu | **red** a +1 | green |" in lines
    assert "| lora | sim | does not build | green |" in lines
    assert "| card-vote | cpu | - | - |" in lines
    assert "| export | cpu |  | known |" in lines
    assert "| 3.3.1 | cpu | 2 | 1 | 0 | 0 | 1 | 2026-11-22 |" in lines
    assert lines[2] == "**Take 3.3.1** (run on cpu, sim): nothing is red on 3.3.1."
    assert lines[3].startswith("**Not run yet**: 3.0.0 (cpu), 3.0.0 (sim), 3.1.1 (cpu), 3.1.1 (sim), 3.3.0 (cpu), 3.3.0 (sim);")


def test_what_an_upgrade_changes_is_named_with_the_failing_check(keep, page):
    keep("3.2.2", "cpu", of(REFUSED, check("lora.a", **RED), check("dpo.a"), **OLD))
    keep("3.2.2", "sim", NO_BUILD)
    keep("3.3.1", "cpu", of(check("install.versions"), check("lora.a"), check("dpo.a", **RED), **NEW))
    keep("3.3.1", "sim", of(check("lora.a"), **NEW))
    lines, _ = page()
    changed = "*red, now green*: install, lora; *green, now red*: dpo (`dpo.a`)"
    assert f"- **from 3.2.2 to 3.3.1, cpu**: {changed}." in lines
    assert "- **from 3.2.2 to 3.3.1, sim**: it runs now, before it does not build." in lines


MEAN = row("mean", "failed", reason="0.5, not 0.6")
HALF = row("kind reduce, dtype float16, shape 1024", "failed", reason="inf")
SINGLE = row("kind reduce, shape 1024", "failed", reason="inf")


def red_rows(name, *rows):
    return check(name, **{**RED, "rows": list(rows)})


def test_causes_are_of_the_first_row_that_no_list_has(tool, keep, page):
    of_a_list = red_rows("first-lora.mean-of-the-counted", MEAN, row("sum", "failed", reason="0.1"))
    of_a_grid = red_rows("collectives.reductions", HALF, SINGLE)
    keep("3.0.0", "cpu", of(REFUSED, check("indexing.get", **RED), of_a_list, of_a_grid, check("lora.a", **RED), **OLD))
    lines, _ = page()
    assert f"| indexing.get | cpu | {tool.DEFECTS['3.0.0']['indexing.get']} |" in lines
    assert "| first-lora.mean-of-the-counted | cpu | sum: 0.1 |" in lines
    assert "| collectives.reductions | cpu | kind reduce, shape 1024: inf |" in lines
    assert "| lora.a | cpu | 2.5 \\| 1, in file.py |" in lines
    assert "| install.versions | cpu | the suite supports 3.3.0, 3.3.1 |" in lines


def test_what_the_list_has_for_a_newer_release_is_told_from_what_only_the_older_one_has(keep, page):
    passport = red_rows("passport.defects", row("cross-entropy-mean", "failed", reason="has it"))
    mean, half = red_rows("first-lora.mean-of-the-counted", MEAN), red_rows("collectives.reductions", HALF)
    keep("3.1.1", "cpu", of(REFUSED, passport, mean, red_rows("collectives.reductions", SINGLE), **OLD))
    keep("3.2.2", "cpu", of(REFUSED, passport, check("first-lora.mean-of-the-counted"), half, **OLD))
    known = check("collectives.reductions", "known", reason="a defect")
    keep("3.3.0", "cpu", of(check("install.versions"), check("passport.defects"), known, **NEW))
    lines, _ = page()
    assert "| passport | cpu | known in 3.3 | known in 3.3 | green |" in lines
    assert "| first-lora | cpu | known in 3.3 | green |  |" in lines
    assert "| collectives | cpu | **red** reductions | known in 3.3 | known |" in lines
    assert "- **from 3.2.2 to 3.3.0, cpu**: *red, now green*: install; *known in 3.3, now green*: passport." in lines


def test_a_release_that_cannot_run_is_a_row_with_its_reason(keep, page):
    keep("3.2.2", "cpu", "Traceback (most recent call last):\n  File ...\nImportError: libpaddle.so: undefined symbol\n")
    keep("3.2.2", "sim", NO_BUILD)
    keep("3.1.1", "cpu", "{}")
    lines, code = page()
    assert "- cpu: ImportError: libpaddle.so: undefined symbol" in lines
    assert "- sim: the simulated accelerator does not build: g++ stopped; allocator.h:22:10: no glog" in lines
    assert any(line.startswith("| 3.2.2 | cpu | - | - | - | does not run | - | 20") for line in lines)
    assert code == 1  # neither install.versions nor the defects of 3.1.1 are seen


def test_the_chinese_page_comes_from_the_same_run_with_the_same_numbers_names_and_a_reason_in_each_cell(tool, keep, page):
    keep("3.0.0", "cpu", of(REFUSED, red_rows("indexing.get", row("a", "failed", reason="1 | 2")), **OLD))
    keep("3.2.2", "cpu", of(REFUSED, check("lora.a", **RED), check("lora.b", **RED), check("dpo.a"), **OLD))
    keep("3.2.2", "sim", NO_BUILD)
    keep("3.3.1", "cpu", of(check("install.versions"), check("lora.a"), check("dpo.a", **RED), **NEW))
    keep("3.3.1", "sim", of(check("lora.a"), **NEW))
    english, _ = page()
    header, *lines = (tool.PAGE.parent / "zh" / tool.PAGE.name).read_text(encoding="utf-8").splitlines()
    assert header.startswith("<!-- of docs/releases.md ")
    assert "| 能力 | 测试设备 | 3.0.0 | 3.2.2 | 3.3.1 |" in lines
    assert "| lora | cpu |  | **红色** a +1 | 绿色 |" in lines
    assert "| lora | sim |  | 无法编译 | 绿色 |" in lines
    changed = "*红色，现在绿色*：install, lora；*绿色，现在红色*：dpo (`dpo.a`)"
    assert f"- **从 3.2.2 到 3.3.1，cpu**：{changed}。" in lines
    assert "- **从 3.2.2 到 3.3.1，sim**：现在可以运行，以前无法编译。" in lines
    assert "| indexing.get | cpu | 两个轴的掩码与切片并用时被拒绝 |" in lines
    assert any("[原因](#为什么是红色)" in line for line in lines)
    assert [len(re.split(r"(?<!\\)\|", line)) for line in lines] == [len(re.split(r"(?<!\\)\|", line)) for line in english]
    prose = [line for line in lines if re.match(r"[^|\s]", line) and not re.fullmatch(r"### [\d.]+", line)]
    assert [line for line in prose if not re.search(r"[\u4e00-\u9fff]", line)] == ["- sim: " + LEFT_AS_IT_IS]


def test_a_damaged_run_is_a_failure_and_an_unfinished_one_is_left_out(tool, keep, page):
    keep("3.2.2", "cpu", of(REFUSED, **OLD))
    (tool.KEPT / "3.2.2" / "cpu" / "result.json").write_text('{"schema": 1}')
    keep("3.3.0", "cpu", of(check("lora.a"), outcome="running", **NEW))
    lines, code = page()
    assert code == 1 and tool.kept("3.3.0", "cpu") is None
    assert "| capability | lane | 3.2.2 |" in lines
    assert any("not what `xpulab run` writes" in line.replace("\\", "") for line in lines)


@pytest.mark.parametrize(
    ("version", "kept", "said"),
    [
        ("3.1.1", of(REFUSED, check("indexing.get", **RED), **OLD), None),
        ("3.1.1", of(REFUSED, check("indexing.get"), **OLD), "3.1.1: MISSED indexing.get: a mask of two axes"),
        ("3.1.1", of(check("install.versions"), check("indexing.get", **RED), **OLD), "3.1.1: MISSED install.versions: it acc"),
        ("3.3.1", of(check("lora.a", **RED), **NEW), "3.3.1, cpu: red: lora.a"),
        ("3.3.1", result(notebook(check(), outcome="failed", reason="its text differs"), **NEW), "3.3.1, cpu: red: 00_demo"),
        ("3.3.1", "no compiler", "3.3.1, cpu: red: no compiler"),
    ],
)
def test_a_listed_defect_that_is_not_seen_and_a_red_supported_release_are_exit_code_1(keep, page, capsys, version, kept, said):
    keep(version, "cpu", kept)
    _, code = page()
    assert code == (1 if said else 0)
    printed = capsys.readouterr().out
    assert (said or "every listed defect is seen") in printed
    not_run = ", ".join(each for each in ("3.0.0", "3.1.1") if each != version)
    assert f"not compared: {not_run}\n" in printed


def test_a_damaged_second_run_is_a_failure(tool, keep):
    keep("3.3.1", "cpu", of(check("lora.a"), **NEW))
    (tool.KEPT / "3.3.1" / "cpu" / "again").mkdir()
    (tool.KEPT / "3.3.1" / "cpu" / "again" / "result.json").write_text('{"schema": 1}')
    assert "not what `xpulab run` writes" in tool.kept("3.3.1", "cpu").failure


def test_an_environment_is_made_again_when_the_pins_have_changed(tool, tmp_path, monkeypatch):
    pins, made = tmp_path / "env" / "requirements" / "common.txt", []
    pins.parent.mkdir(parents=True)
    pins.write_text("numpy==1\n")
    monkeypatch.setattr(
        tool, "_done", lambda command: made.append(command) or (tool.KEPT / "3.3.1" / "env").mkdir(parents=True, exist_ok=True)
    )
    tool.environment("3.3.1")
    first = len(made)
    tool.environment("3.3.1")
    assert first and len(made) == first
    pins.write_text("numpy==2\n")
    tool.environment("3.3.1")
    assert len(made) == 2 * first


def test_wrong_arguments_and_an_empty_folder_are_exit_code_2(tool, capsys):
    assert tool.main(["2.6.2", "--page-only"]) == 2
    assert "no release 2.6.2 here; choose of 3.0.0" in capsys.readouterr().err
    assert tool.main(["--page-only"]) == 2
    assert "run this without --page-only" in capsys.readouterr().err


def pretended(folder, script):
    """A Python that runs a script of the shell instead of xpulab."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return python


def test_a_run_is_kept_and_one_without_a_result_leaves_its_reason(tool, tmp_path):
    python = pretended(
        tmp_path,
        "[ $5 = sim ] && { echo 'xpulab: no compiler' >&2; exit 2; }\n"
        'for out; do :; done; mkdir -p "$out"; echo \'{"notebooks": []}\' >"$out/result.json"; exit 1',
    )
    tool.run(python, tool.KEPT / "3.3.1" / "cpu", "cpu")
    assert os.listdir(tool.KEPT / "3.3.1" / "cpu") == ["result.json"]
    tool.run(python, tool.KEPT / "3.3.1" / "sim", "sim")
    assert tool.kept("3.3.1", "sim").failure == "no compiler"
    assert tool.kept("3.3.0", "sim") is None


def test_chapters_that_a_time_limit_stopped_are_run_again_alone_and_count_as_the_second_time(tool, tmp_path, page):
    late = notebook(check("lora.a", **NEVER), name="03_lora", outcome="failed", reason="cell 3 had not ended after 75 s")
    first = result(notebook(check("dpo.a"), name="04_dpo"), late, device="cpu", outcome="failed", **NEW)
    second = result(notebook(check("lora.a"), name="03_lora"), device="cpu", outcome="partial", **NEW)
    for name, what in {"first": first, "second": second}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(what))
    python = pretended(
        tmp_path,
        'for out; do :; done; mkdir -p "$out"; echo "$@" >>' + f"{tmp_path}/calls\n"
        f'case "$*" in *03_lora*) which=second;; *) which=first;; esac; cp {tmp_path}/$which.json "$out/result.json"',
    )
    folder = tool.KEPT / "3.3.1" / "cpu"
    tool.run(python, folder, "cpu")
    for _ in range(2):  # the second time there is nothing to do
        tool.repeat_late(python, folder, "cpu")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 2 and "run 03_lora --jobs 1 --device cpu" in calls[1]
    lines, code = page()
    assert code == 0 and "| 3.3.1 | cpu | 2 | 0 | 0 | 0 | 0 | 2026-11-22 |" in lines


def test_the_published_page_is_of_the_releases_that_the_tool_runs():
    text = (files.ROOT / "docs" / "releases.md").read_text(encoding="utf-8")
    assert "| capability | lane | 3.0.0 | 3.1.1 | 3.2.2 | 3.3.0 | 3.3.1 |" in text
