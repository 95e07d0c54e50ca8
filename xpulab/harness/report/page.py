"""index.html: the result of a run for people: one page that needs no network and no other file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import jinja2

import xpulab
from xpulab.harness.report.result import PARTIAL, Result
from xpulab.records.format import format_measured, format_value
from xpulab.records.record import CardFacts


def to_html(result: Result) -> str:
    """The page of a run."""
    environment = jinja2.Environment(loader=jinja2.PackageLoader("xpulab.harness.report", "."), autoescape=True)
    environment.filters["number"] = format_value
    environment.filters["measured"] = format_measured
    page = environment.get_template("page.html")
    return page.render(
        result=result,
        not_passed=_not_passed(result),
        partial=PARTIAL,
        where=_where(result),
        card_columns=_card_columns(result),
        version=xpulab.__version__,
    )


_CARD_COLUMNS: dict[str, Callable[[CardFacts], str]] = {
    "model": lambda card: card.model,
    "serial": lambda card: card.serial or "",
    "firmware": lambda card: card.firmware or "",
    "state": lambda card: card.state or "",
    "temperature": lambda card: "" if card.temperature_c is None else f"{card.temperature_c:g} °C",
    "power": lambda card: "" if card.power_w is None else f"{card.power_w:g} W",
    "memory used": lambda card: "" if card.memory_used_mib is None else f"{card.memory_used_mib} MiB",
    "memory": lambda card: "" if card.memory_total_mib is None else f"{card.memory_total_mib} MiB",
    "link": lambda card: card.link or "",
}


def _card_columns(result: Result) -> dict[str, Callable[[CardFacts], str]]:
    """The columns of the table of cards that the vendor's tool fills for at least one card."""
    cards = result.run_context.card_facts if result.run_context else ()
    return {title: value for title, value in _CARD_COLUMNS.items() if any(map(value, cards))}


def _where(result: Result) -> list[str]:
    """What the banner says of the machine: device, card or processor, driver, wheel, level, duration, date."""
    target, context = result.target, result.run_context
    cards = f"{target.cards} card{'s' if target.cards != 1 else ''}"
    facts = [f"{target.device}, {cards}" if target.device != "cpu" else "cpu"]
    if context:
        facts += [str(context.machine[name]) for name in ("card", "processor") if context.machine.get(name)]
        facts += [f"driver {context.machine['driver']}"] if context.machine.get("driver") else []
        facts += [f"{package} {version}" for package, version in context.versions.items() if "paddle" in package]
    facts += [f"seed {target.seed}"] if target.seed else []
    return [*facts, f"level {target.level}", f"{result.seconds:.1f} s", result.date.replace("T", " ")]


def _not_passed(result: Result) -> list[tuple[str, int]]:
    """How many checks have each outcome but passed."""
    outcomes = Counter(record.outcome for verdict in result.verdicts for record in verdict.records)
    return [(outcome, count) for outcome, count in outcomes.items() if outcome != "passed"]
