"""The table of a run beside the stored run with a pretrained model."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import IPython.display
import pytest

from xpulab import files
from xpulab.chapters.shared import pretrained_results
from xpulab.records.record import METADATA_KEY

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


def shown(monkeypatch, result):
    """What `show` displays, and its metadata."""
    calls = []
    monkeypatch.setattr(IPython.display, "display", lambda data, raw, metadata: calls.append((data, metadata)))
    pretrained_results.show(result)
    ((data, metadata),) = calls
    return data, metadata


def test_a_run_is_shown_beside_the_stored_one(store, monkeypatch):
    store(RESULT)
    data, metadata = shown(monkeypatch, replace(RESULT, model="tiny-qwen2", trainable=117))
    assert "tiny-qwen2" in data["text/plain"] and "SmolLM2-135M-Instruct" in data["text/plain"]
    assert "117 (11.70%)" in data["text/html"] and "10 (1.00%)" in data["text/html"]
    assert metadata[METADATA_KEY][pretrained_results.KEY]["trainable"] == 117
