"""The status of each node of a fleet, its one sentence, and which nodes the drain commands name."""

from __future__ import annotations

import json

import jsonschema
import pytest

from tests.conftest import CHINESE
from tests.fleet.compare import made_up
from xpulab import files
from xpulab.fleet import bundle
from xpulab.fleet.cluster.answer import OUTCOMES, Answer, answers_in
from xpulab.fleet.cluster.fleet_run import drain_commands
from xpulab.fleet.cluster.summary import STATUSES, format_summary, summarize, to_json


@pytest.fixture
def put(tmp_path):
    """Write the run of a node, with changes: of the check, the notebook, and the result. Returns the node's answer."""

    def write(node, check=None, notebook=None, answer="done", gone="", **changed):
        of_node = made_up.notebook(made_up.check(**{"digest": None, **(check or {})}), **(notebook or {}))
        (tmp_path / node).mkdir()
        (tmp_path / node / "result.json").write_text(json.dumps(made_up.result(of_node, **changed)))
        return Answer(node, answer, "it was late" if answer == "late" else "", 1, 20.0, node, gone)

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
    return {node.node: node.status for node in summary.nodes}


def test_nodes_that_are_alike_are_green(put, tmp_path):
    summary = summarize([put("a"), put("b"), put("c")], tmp_path)
    assert set(status(summary).values()) == {"green"} and summary.is_green and list(drain_commands(summary)) == []


def test_a_red_node_is_drained_with_check_measured_expected_and_command(put, failed, tmp_path):
    summary = summarize([put("a"), failed("b"), put("c")], tmp_path)
    assert status(summary) == {"b": "red", "a": "green", "c": "green"} and not summary.is_green
    (command,) = drain_commands(summary)
    reason = "[node_problem] xpulab demo.sum measured 0.75 expected < 1; "
    reason += "rerun: xpulab run 00_demo --check demo.sum --device xpu --cards 1 --level quick"
    assert list(command) == ["scontrol", "update", "NodeName=b", "State=DRAIN", f"Reason={reason}"]
    assert reason.split("rerun: ")[1] in format_summary(summary)


def test_a_node_with_another_value_than_the_majority_is_an_outlier_and_drained(put, tmp_path):
    summary = summarize([put("a"), put("b"), put("c", {"measured": 0.125})], tmp_path)
    assert status(summary)["c"] == "outlier" and [command[2] for command in drain_commands(summary)] == ["NodeName=c"]


def test_what_most_nodes_share_drains_none(put, failed, tmp_path):
    summary = summarize([failed("a"), failed("b"), put("c")], tmp_path)
    assert list(drain_commands(summary)) == [] and "2 of 3 nodes have the same problem" in format_summary(summary)


@pytest.mark.parametrize(
    ("outcome", "expected", "drained"),
    [
        ("late", "red", True),
        ("disk", "red", True),
        ("failed", "red", True),
        ("undelivered", "unknown", False),
        ("left out", "left out", False),
        ("lost", "silent", False),
        ("silent", "silent", False),
        ("waiting", "unknown", False),
        ("cancelled", "unknown", False),
        ("done", "unknown", False),
    ],
)
def test_a_node_without_a_run_has_its_own_sentence_and_is_drained_only_for_its_own_problem(
    put, tmp_path, outcome, expected, drained
):
    summary = summarize([put("a"), put("b"), Answer("c", outcome, "it said why")], tmp_path)
    assert status(summary)["c"] == expected in STATUSES
    assert "it said why" in format_summary(summary) or outcome == "done"
    assert [command[2] for command in drain_commands(summary)] == (["NodeName=c"] if drained else [])
    assert summary.is_green is (expected == "left out")


def test_every_outcome_of_an_answer_has_a_status(tmp_path):
    summary = summarize([Answer(outcome, outcome, "why") for outcome in OUTCOMES], tmp_path)
    assert len(summary.nodes) == len(OUTCOMES) and set(status(summary).values()) <= set(STATUSES)


def test_a_green_node_that_stopped_answering_afterwards_is_silent_and_its_values_count(put, tmp_path):
    summary = summarize([put("a"), put("b", {"measured": 0.125}), put("c", gone="Slurm: down*")], tmp_path)
    assert status(summary) == {"a": "green", "b": "outlier", "c": "silent"}
    assert "the node stopped answering: Slurm: down*" in format_summary(summary)


def test_a_late_node_whose_run_reports_something_says_both(put, tmp_path):
    stopped = {"outcome": "missing", "measured": None, "expected": "", "reason": "the cell was never reached"}
    notebook = {"outcome": "failed", "reason": "cell 3 had not ended after 25 s"}
    late = put("c", stopped, notebook, answer="late", green=False, outcome="failed")
    summary = summarize([put("a"), put("b"), late], tmp_path)
    (node,) = [node for node in summary.nodes if node.node == "c"]
    assert node.sentence == "it was late; 00_demo: cell 3 had not ended after 25 s"


def test_a_bundle_that_cannot_be_read_is_unknown(put, tmp_path):
    (tmp_path / "c.zip").write_bytes(b"PK, cut off")
    summary = summarize([put("a"), put("b"), Answer("c", "done", "", 1, 1.0, "c.zip")], tmp_path)
    assert status(summary)["c"] == "unknown" and "c.zip" in format_summary(summary)


def test_machines_of_two_types_are_compared_each_with_their_own(put, tmp_path):
    other = {"versions": {"paddlepaddle-xpu": "3.2.0"}}
    answers = [put("a"), put("b"), put("c"), *(put(node, {"measured": 0.125}, **other) for node in "def")]
    summary = summarize(answers, tmp_path)
    assert set(status(summary).values()) == {"green"}


def test_the_record_fits_its_schema_and_shows_the_same_again(put, failed, tmp_path):
    answers = [put("a"), failed("b"), put("c"), Answer("d", "silent", "it never answered")]
    summary = summarize(answers, tmp_path)
    stored = to_json(summary, "slurm", "2026-11-22T03:10:00+00:00", 30.0, interrupted=False)
    jsonschema.validate(stored, json.loads(files.data("schema", "fleet.schema.json").read_text()))
    (tmp_path / "fleet.json").write_text(json.dumps(stored))
    assert format_summary(summarize(answers_in(tmp_path), tmp_path)) == format_summary(summary)


def test_a_bundle_that_came_late_counts_and_its_node_stays_silent(put, tmp_path, monkeypatch):
    monkeypatch.setattr(bundle.evidence, "evidence", lambda environ, device: iter(()))
    answers = [put("a"), put("b"), Answer("c", "silent", "it stopped answering"), Answer("d", "cancelled", "interrupted")]
    stored = to_json(summarize(answers, tmp_path), "slurm", "2026-11-22T03:10:00+00:00", 30.0, interrupted=False)
    (tmp_path / "fleet.json").write_text(json.dumps(stored))
    for node in ("c", "d"):
        bundle.write(*bundle.collect(tmp_path / put(node).node), tmp_path / f"{node}.zip")
    assert status(summarize(answers_in(tmp_path), tmp_path)) == {"a": "green", "b": "green", "c": "silent", "d": "green"}


def test_the_end_of_a_fleet_run_is_chinese_and_what_slurm_and_programs_get_stays(put, failed, tmp_path, chinese):
    silent = Answer("e", "silent", "it never answered (2 attempts): Slurm: down*")
    summary = summarize([put("a"), put("b"), failed("c"), put("d", gone="Slurm: down*"), silent], tmp_path)
    text = format_summary(summary)
    for line in text.splitlines():
        assert CHINESE.search(line), line
    assert "无应答   e  它从未应答（尝试 2 次）：Slurm: down*" in text and "绿色     a  1 个笔记本，比较了 1 个检查，" in text
    assert text.endswith("红色：5 个节点中有 2 个是绿色；1 红色, 2 无应答")
    assert not CHINESE.search(
        json.dumps([to_json(summary, "ssh", "", 1.0, False), *drain_commands(summary)], ensure_ascii=False)
    )
