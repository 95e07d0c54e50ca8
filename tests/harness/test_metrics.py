"""metrics.prom can be read by Prometheus' own parser, and says what result.json says."""

from __future__ import annotations

import math
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from xpulab.harness.execute import Run, RunOptions
from xpulab.harness.judge import Group, Verdict
from xpulab.harness.report.metrics import to_metrics
from xpulab.harness.report.result import Result
from xpulab.records.record import Measurement, Record

RATE = Measurement('product, "fp32"\n', "rate", "TFLOP/s", (1.0, 3.0))
RECORDS = (
    Record("demo.good", "passed", "it is good", control="rejected"),
    Record("demo.bad", "failed", "it is bad", control="rejected", reason="since 2 is not 3"),
    Record("demo.rate", "skipped", "no baseline", measurements=(RATE, replace(RATE, case="nan", values=(math.nan,)))),
)


def samples(*records):
    """By name the samples of a run with these records: (labels, value)."""
    groups = (Group("the section", "lesson", records),)
    verdict = Verdict("00_demo", "A demo", "failed", Run("xpu", "quick", 1, 2.0, 30.0, None), groups)
    result = Result(RunOptions("xpu", "quick", 8), (verdict,), 12.5, None, date="2026-11-22T03:10:00+00:00")
    found = {}
    for family in text_string_to_metric_families(to_metrics(result)):
        assert family.type == "gauge" and family.documentation
        found[family.name] = [(sample.labels, sample.value) for sample in family.samples]
    return found


def test_the_verdict_its_times_and_its_checks():
    found = samples(*RECORDS)
    assert found["xpulab_run_green"] == [({"device": "xpu", "level": "quick", "cards": "8"}, 0.0)]
    assert found["xpulab_run_partial"] == [({}, 0.0)]
    assert (found["xpulab_run_end_time_seconds"], found["xpulab_run_duration_seconds"]) == ([({}, 1795317000.0)], [({}, 12.5)])
    counts = {labels["outcome"]: value for labels, value in found["xpulab_checks"]}
    assert (counts["passed"], counts["failed"], counts["skipped"], counts["broken"]) == (1, 1, 1, 0)
    assert found["xpulab_check_red"] == [({"notebook": "00_demo", "check": "demo.bad", "outcome": "failed"}, 1.0)]
    assert "xpulab_check_red" not in samples(RECORDS[0])
    assert [labels["case"] for labels, _ in found["xpulab_measured"]] == [RATE.case, "nan"]
    assert found["xpulab_measured"][0][1] == 2.0
