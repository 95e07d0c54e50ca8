"""The table of a run beside the stored run with a pretrained model, and the tool that stores it."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import asdict, replace

import IPython.display
import nbformat
import pytest

from xpulab import files
from xpulab.chapters.shared import pretrained_results
from xpulab.checks.ledger import ledger
from xpulab.records.record import Record, RunContext

RESULT = pretrained_results.Result(
    chapter="lora",
    model="SmolLM2-135M-Instruct",
    parameters=1_000,
    trainable=10,
    steps=3,
    loss_before=4.0,
    loss_after=0.5,
    counted="questions answered exactly",
    right_before=0,
    right_after=7,
    questions=8,
    seconds=12.3,
    machine="cpu, a processor, 2 cores",
    date="2026-11-23",
)


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A data folder whose stored results are those that the function is given."""
    (tmp_path / "schema").mkdir()
    schema = "pretrained_results.schema.json"
    (tmp_path / "schema" / schema).write_text((files.DATA / "schema" / schema).read_text())
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    monkeypatch.setattr(files, "DATA", tmp_path)

    def write(*results):
        path = tmp_path / "pretrained_results.json"
        path.write_text(json.dumps([asdict(result) for result in results]))
        return path

    write()
    return write


@pytest.fixture
def tool(store):
    """tools/pretrained_results.py, with the data folder of this test."""
    spec = importlib.util.spec_from_file_location("tool", files.ROOT / "tools" / "pretrained_results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ROOT = module.files.ROOT
    return module


def shown(monkeypatch, result):
    """What `show` displays, and its metadata."""
    calls = []
    monkeypatch.setattr(IPython.display, "display", lambda data, raw, metadata: calls.append((data, metadata)))
    pretrained_results.show(result)
    ((data, metadata),) = calls
    return data, metadata


def executed(path, *results, outcome="passed"):
    """An executed notebook with these results and one check."""
    record = Record(name="lora.x", outcome=outcome, means="")
    metadata = [{"xpulab": {pretrained_results.KEY: asdict(result)}} for result in results]
    metadata.append({"xpulab": {"check": asdict(record)}})
    outputs = [nbformat.v4.new_output("display_data", {"text/plain": ""}, metadata=each) for each in metadata]
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=outputs)]), path)
    return path


def test_a_run_is_shown_beside_the_stored_one(store, monkeypatch):
    store(RESULT)
    data, metadata = shown(monkeypatch, replace(RESULT, model="tiny-qwen2", trainable=117))
    assert "tiny-qwen2" in data["text/plain"] and "SmolLM2-135M-Instruct" in data["text/plain"]
    assert "117 (11.70%)" in data["text/html"] and "10 (1.00%)" in data["text/html"]
    assert pretrained_results.result_in(metadata).trainable == 117


def test_without_a_stored_run_the_run_is_shown_alone(store, monkeypatch):
    data, _ = shown(monkeypatch, RESULT)
    assert "stored run" not in data["text/plain"]


def test_a_result_has_the_machine_of_the_kernel_and_the_name_of_the_release(monkeypatch):
    context = RunContext("cpu", 1, {"processor": "a processor", "cores": 2})
    monkeypatch.setattr(ledger, "run_context", context)
    values = {name: value for name, value in asdict(RESULT).items() if name not in ("model", "machine", "date")}
    result = pretrained_results.measured(model="/cache/smollm2-135m-1", **values)
    assert (result.model, result.machine) == ("SmolLM2-135M-Instruct", "cpu, a processor, 2 cores")


def test_the_tool_replaces_the_result_of_one_chapter(store, tool, tmp_path):
    path = store(replace(RESULT, chapter="dpo"), replace(RESULT, right_after=1))
    tool.FILE = path
    files_root, tool.files.ROOT = tool.files.ROOT, tmp_path
    try:
        tool.main([executed(tmp_path / "run.ipynb", RESULT)])
    finally:
        tool.files.ROOT = files_root
    assert [(row["chapter"], row["right_after"]) for row in json.loads(path.read_text())] == [("dpo", 7), ("lora", 7)]


@pytest.mark.parametrize(
    ("results", "outcome", "said"),
    [
        ([RESULT], "failed", "not green: lora.x"),
        ([], "passed", "holds 0 results"),
        ([replace(RESULT, model="tiny")], "passed", "tiny is not a pretrained model"),
    ],
)
def test_the_tool_refuses_what_must_not_be_stored(tool, tmp_path, results, outcome, said):
    with pytest.raises(SystemExit, match=said):
        tool.result_of(executed(tmp_path / "run.ipynb", *results, outcome=outcome))


def test_every_chapter_that_shows_a_result_has_a_stored_one():
    shows = [name for name, text in _sources().items() if "pretrained_results.show(" in text]
    assert {name.partition("_")[2] for name in shows} <= {result.chapter for result in pretrained_results.load()}


def _sources():
    return {path.stem: path.read_text(encoding="utf-8") for path in files.NOTEBOOKS.glob("*.ipynb")}
