"""The status of each node of a fleet, and its one sentence."""

from __future__ import annotations

import json

import jsonschema
import pytest

from tests.fleet.compare import made_up
from xpulab import files
from xpulab.fleet.cluster.fleet_run import STATUSES, format_summary, summarize, to_json
from xpulab.fleet.cluster.submit import OUTCOMES, Answer


@pytest.fixture
def put(tmp_path):
    """Write the run of a node, with changes: of the check, the notebook, and the result. Returns the node's answer."""

    def write(node, check=None, notebook=None, answer="done", **changed):
        of_node = made_up.notebook(made_up.check(**{"digest": None, **(check or {})}), **(notebook or {}))
        (tmp_path / node).mkdir()
        (tmp_path / node / "result.json").write_text(json.dumps(made_up.result(of_node, **changed)))
        return Answer(node, answer, "it was late" if answer == "late" else "", 20.0, node)

    return write


@pytest.fixture
def failed(put):
    """The answer of a node whose check is red."""

    def write(node):
        check = {"outcome": "failed", "measured": 0.75, "reason": "too large"}
        notebook = {"outcome": "failed", "reason": "1 of 1 checks are red"}
        return put(node, check, notebook, green=False, outcome="failed")

    return write


def status(summary):
    return {node.name: node.status for node in summary.nodes}


def test_a_red_node_has_check_measured_expected_and_command(put, failed, tmp_path):
    summary = summarize([put("a"), failed("b"), put("c")], tmp_path)
    assert status(summary) == {"b": "red", "a": "green", "c": "green"} and not summary.is_green
    shown = format_summary(summary)
    assert "demo.sum measured 0.75, expected < 1" in shown
    assert "xpulab run 00_demo --check demo.sum --device xpu --cards 1 --level quick" in shown


def test_a_node_whose_disk_was_full_is_unknown_with_the_cause(put, tmp_path):
    notebook = {"outcome": "failed", "reason": "cell 3 raised OSError"}
    full = put("c", {"outcome": "missing"}, notebook, green=False, outcome="unknown", reason="00_demo: /tmp: no space")
    summary = summarize([put("a"), put("b"), full], tmp_path)
    assert status(summary)["c"] == "unknown" and "no verdict: 00_demo: /tmp: no space" in format_summary(summary)


def test_a_node_with_another_value_than_the_majority_is_an_outlier(put, tmp_path):
    summary = summarize([put("a"), put("b"), put("c", {"measured": 0.125})], tmp_path)
    assert status(summary)["c"] == "outlier" and not summary.is_green


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("late", "red"),
        ("disk", "unknown"),
        ("failed", "red"),
        ("left out", "left out"),
        ("silent", "silent"),
        ("waiting", "unknown"),
        ("cancelled", "unknown"),
        ("done", "unknown"),
    ],
)
def test_a_node_without_a_run_has_its_own_sentence(put, tmp_path, outcome, expected):
    assert outcome in OUTCOMES
    summary = summarize([put("a"), put("b"), Answer("c", outcome, "it said why")], tmp_path)
    assert status(summary)["c"] == expected in STATUSES
    assert "it said why" in format_summary(summary) or outcome == "done"
    assert summary.is_green is (expected == "left out")


def test_a_late_node_whose_run_reports_something_says_both(put, tmp_path):
    stopped = {"outcome": "missing", "measured": None, "expected": "", "reason": "the cell was never reached"}
    notebook = {"outcome": "failed", "reason": "cell 3 had not ended after 25 s"}
    late = put("c", stopped, notebook, answer="late", green=False, outcome="failed")
    summary = summarize([put("a"), put("b"), late], tmp_path)
    assert summary.nodes[0].sentence == "it was late; 00_demo: cell 3 had not ended after 25 s"


def test_a_bundle_that_cannot_be_read_is_unknown(put, tmp_path):
    (tmp_path / "c.zip").write_bytes(b"PK, cut off")
    summary = summarize([put("a"), put("b"), Answer("c", "done", "", 1.0, "c.zip")], tmp_path)
    assert status(summary)["c"] == "unknown" and "c.zip" in format_summary(summary)


def test_the_record_fits_its_schema(put, failed, tmp_path):
    summary = summarize([put("a"), failed("b"), put("c"), Answer("d", "silent", "it never answered")], tmp_path)
    stored = to_json(summary, "slurm", 30.0, interrupted=False)
    jsonschema.validate(stored, json.loads(files.data("schema", "fleet.schema.json").read_text()))
    assert {node["node"]: node["status"] for node in stored["nodes"]} == status(summary)
