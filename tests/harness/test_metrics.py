"""metrics.prom can be read by Prometheus' own parser, and says what result.json says."""

from __future__ import annotations

import math
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from xpulab.harness.execute import Run, Target
from xpulab.harness.judge import Verdict
from xpulab.harness.report.metrics import to_metrics
from xpulab.harness.report.result import Result
from xpulab.records.record import CardFacts, Measurement, Record, RunContext

RATE = Measurement('product, "fp32"\n', "rate", "TFLOP/s", (1.0, 3.0))
RECORDS = (
    Record("demo.good", "passed", "it is good", control="rejected"),
    Record("demo.bad", "failed", "it is bad", control="rejected", reason="since 2 is not 3"),
    Record("demo.rate", "skipped", "no baseline", measurements=(RATE, replace(RATE, case="nan", values=(math.nan,)))),
)
CARD = CardFacts(3, "P800", serial="02K01Y", temperature_c=41.0, memory_used_mib=2)


def samples(*records, cards=()):
    """By name the samples of a run with these records: (labels, value)."""
    context = RunContext("xpu", 1, card_facts=tuple(cards))
    verdict = Verdict("00_demo", "A demo", "failed", Run("xpu", "quick", 1, 2.0, 30.0, None), records, context, (), (), None)
    result = Result(Target("xpu", "quick", 8), (verdict,), 12.5, None, date="2026-11-22T03:10:00+00:00")
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
    outcomes = {labels["check"]: labels["outcome"] for labels, _ in found["xpulab_check_outcome"]}
    assert outcomes == {"demo.good": "passed", "demo.bad": "failed", "demo.rate": "skipped"}


def test_a_card_has_its_number_model_and_serial_and_no_sample_of_what_its_tool_does_not_show():
    found = samples(*RECORDS, cards=[CARD, replace(CARD, index=4)])
    named = {"card": "3", "model": "P800", "serial": "02K01Y"}
    assert found["xpulab_card_temperature_celsius"][0] == (named, 41.0)
    assert found["xpulab_card_memory_used_bytes"][0] == (named, 2.0 * 2**20)
    assert found["xpulab_measured"][0][0]["model"] == "P800" and "xpulab_card_power_watts" not in found
