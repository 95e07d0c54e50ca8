"""metrics.prom: verdict and measurements in Prometheus' text format, for the textfile directory of its node exporter.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/. A sample has no timestamp, as that directory wants it;
xpulab_run_end_time_seconds says how old the verdict is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from xpulab.harness.report.result import Result
from xpulab.messages import plain
from xpulab.records.origin import seconds_of
from xpulab.records.record import OUTCOMES, RED


def to_metrics(result: Result) -> str:
    """The metrics of a run, a family each with its help and type; one without samples has neither."""
    registry, options = CollectorRegistry(), result.options

    def gauge(name: str, about: str, samples: Sequence[tuple[dict[str, str], float]]) -> None:
        if not samples:
            return
        family = Gauge(name, about, list(samples[0][0]), registry=registry)
        for labels, value in samples:
            written = {key: plain(text) for key, text in labels.items()}
            (family.labels(**written) if written else family).set(value)

    run = {"device": options.device, "level": options.level, "cards": str(options.cards)}
    verdict = [] if result.no_verdict else [(run, float(result.is_green))]
    gauge("xpulab_run_green", "1 when nothing is wrong, 0 when something is; absent without a verdict.", verdict)
    gauge("xpulab_run_partial", "1 when only some sections ran: no verdict on the machine.", [({}, result.is_partial)])
    ended = seconds_of(result.date)
    gauge("xpulab_run_end_time_seconds", "When the run ended, in seconds since 1970.", [({}, ended)])
    gauge("xpulab_run_duration_seconds", "How long the run took.", [({}, result.seconds)])
    checks = [(verdict.name, record) for verdict in result.verdicts for record in verdict.records]
    counts = [({"outcome": outcome}, sum(record.outcome == outcome for _, record in checks)) for outcome in OUTCOMES]
    gauge("xpulab_checks", "How many checks have this outcome.", counts)
    red = [
        ({"notebook": notebook, "check": record.name, "outcome": record.outcome}, 1.0)
        for notebook, record in checks
        if record.outcome in RED
    ]
    gauge("xpulab_check_red", "1 for each check that is failed, broken or missing.", red)
    measured = [
        (
            {"check": record.name, "case": each.case, "kind": each.kind, "unit": each.unit},
            math.fsum(each.values) / len(each.values),
        )
        for _, record in checks
        for each in record.measurements
    ]
    gauge("xpulab_measured", "Rates, losses and memory, compared with a baseline; the mean of a trajectory.", measured)
    return generate_latest(registry).decode("utf-8")
