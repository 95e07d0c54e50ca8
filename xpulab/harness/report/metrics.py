"""metrics.prom: verdict and measurements in Prometheus' text format, for the textfile directory of its node exporter.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/. A sample has no timestamp, as that directory wants it;
xpulab_run_end_time_seconds says how old the verdict is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.samples import Sample

from xpulab.harness.report.result import Result
from xpulab.records.record import OUTCOMES, RED, Record

Labelled = tuple[Mapping[str, str], float]
"""The labels of a sample, and its value."""


def to_metrics(result: Result) -> str:
    """The metrics of a run, a family each with its help and type; a family without samples is left out."""
    registry = CollectorRegistry()
    for name, about, samples in _families(result):
        family = GaugeMetricFamily(name, about)
        family.samples.extend(Sample(name, _writable(labels), value) for labels, value in samples)
        if family.samples:
            registry.register(_Once(family))
    return generate_latest(registry).decode("utf-8")


def _writable(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels with what UTF-8 cannot write as escapes: names of files can hold it."""
    return {key: text.encode("utf-8", "backslashreplace").decode("utf-8") for key, text in labels.items()}


class _Once:
    """A collector of one family that does not change."""

    def __init__(self, family: GaugeMetricFamily) -> None:
        self._family = family

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield self._family


def _families(result: Result) -> Iterator[tuple[str, str, Iterable[Labelled]]]:
    """Name, help and samples of each family."""
    target, records = result.target, [record for verdict in result.verdicts for record in verdict.records]
    ran = {"device": target.device, "level": target.level, "cards": str(target.cards)}
    yield "xpulab_run_green", "1 when nothing is wrong, 0 when something is.", [(ran, float(result.is_green))]
    yield "xpulab_run_partial", "1 when only some sections ran: no verdict on the machine.", [({}, float(result.is_partial))]
    ended = datetime.fromisoformat(result.date).timestamp()
    yield "xpulab_run_end_time_seconds", "When the run ended, in seconds since 1970.", [({}, ended)]
    yield "xpulab_run_duration_seconds", "How long the run took.", [({}, result.seconds)]
    counts = {outcome: sum(record.outcome == outcome for record in records) for outcome in OUTCOMES}
    by_outcome = [({"outcome": outcome}, float(count)) for outcome, count in counts.items()]
    yield "xpulab_checks", "How many checks have this outcome.", by_outcome
    yield "xpulab_check_red", "1 for each check that is failed, broken or missing.", _checks(result, RED)
    yield "xpulab_check_outcome", "1 for each check, with its outcome.", _checks(result, OUTCOMES)
    about = "Rates, losses and memory that are compared with a baseline; the mean of a trajectory."
    yield "xpulab_measured", about, _measured(result, records)
    yield from _cards(result)


def _checks(result: Result, outcomes: Collection[str]) -> Iterator[Labelled]:
    """The checks with these outcomes."""
    for verdict in result.verdicts:
        for record in verdict.records:
            if record.outcome in outcomes:
                yield {"notebook": verdict.name, "check": record.name, "outcome": record.outcome}, 1.0


def _measured(result: Result, records: Iterable[Record]) -> Iterator[Labelled]:
    """With the model of the cards: rates of different ones are not comparable."""
    cards = result.run_context.card_facts if result.run_context else ()
    model = ", ".join(sorted({card.model for card in cards}))
    for record in records:
        for each in record.measurements:
            labels = {"check": record.name, "case": each.case, "kind": each.kind, "unit": each.unit, "model": model}
            yield labels, math.fsum(each.values) / len(each.values)


def _cards(result: Result) -> Iterator[tuple[str, str, Iterable[Labelled]]]:
    """What the vendor's tool showed of each card; nothing where there is no tool."""
    cards = result.run_context.card_facts if result.run_context else ()
    of_card = [({"card": str(card.index), "model": card.model, "serial": card.serial or ""}, card) for card in cards]
    shown = {
        "xpulab_card_temperature_celsius": ("Temperature of the card during the run.", "temperature_c", 1),
        "xpulab_card_power_watts": ("Power of the card during the run.", "power_w", 1),
        "xpulab_card_memory_used_bytes": ("Used memory of the card during the run.", "memory_used_mib", 2**20),
        "xpulab_card_memory_bytes": ("Memory of the card.", "memory_total_mib", 2**20),
    }
    for name, (about, attribute, factor) in shown.items():
        values = [(labels, getattr(card, attribute)) for labels, card in of_card]
        yield name, about, [(labels, float(value) * factor) for labels, value in values if value is not None]
