"""index.html: the result of a run for people: one page that needs no network and no other file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import jinja2

import xpulab
from xpulab.doctor.cards import format_card_count
from xpulab.harness.report.result import PARTIAL, Result
from xpulab.messages import N_, joined, labelled, language, shown
from xpulab.records.format import format_measured, format_value
from xpulab.records.record import CardFacts


def to_html(result: Result) -> str:
    """The page of a run, in the chosen language."""
    environment = jinja2.Environment(loader=jinja2.PackageLoader("xpulab.harness.report", "."), autoescape=True)
    environment.globals |= {"shown": shown, "labelled": labelled, "text": _text}
    environment.filters["number"] = format_value
    environment.filters["measured"] = format_measured
    page = environment.get_template("page.html")
    return page.render(
        html_language={"en": "en", "zh": "zh-Hans"}[language()],
        result=result,
        counted=_counted(result),
        partial=PARTIAL,
        where=_where(result),
        card_columns=_card_columns(result),
        version=xpulab.__version__,
    )


_CARD_COLUMNS: dict[str, Callable[[CardFacts], str]] = {
    N_("model"): lambda card: card.model,
    N_("serial"): lambda card: card.serial or "",
    N_("firmware"): lambda card: card.firmware or "",
    N_("state"): lambda card: card.state or "",
    N_("temperature"): lambda card: "" if card.temperature_c is None else f"{card.temperature_c:g} °C",
    N_("power"): lambda card: "" if card.power_w is None else f"{card.power_w:g} W",
    N_("memory used"): lambda card: "" if card.memory_used_mib is None else f"{card.memory_used_mib} MiB",
    N_("memory"): lambda card: "" if card.memory_total_mib is None else f"{card.memory_total_mib} MiB",
    N_("link"): lambda card: card.link or "",
}


def _card_columns(result: Result) -> dict[str, Callable[[CardFacts], str]]:
    """The columns of the table of cards that the vendor's tool fills for at least one card."""
    cards = result.run_context.card_facts if result.run_context else ()
    return {title: value for title, value in _CARD_COLUMNS.items() if any(map(value, cards))}


def _where(result: Result) -> list[str]:
    """What the banner says of the machine: device, card or processor, driver, wheel, level, duration, date."""
    target, context = result.target, result.run_context
    cards = shown(format_card_count(target.cards))
    facts = [f"{target.device}, {cards}" if target.device != "cpu" else "cpu"]
    if context:
        facts += [str(context.machine[name]) for name in ("card", "processor") if context.machine.get(name)]
        facts += [shown(N_("driver {machine}", machine=context.machine["driver"]))] if context.machine.get("driver") else []
        facts += [f"{package} {version}" for package, version in context.versions.items() if "paddle" in package]
    facts += [shown(N_("seed {seed}", seed=target.seed))] if target.seed else []
    return [*facts, shown(N_("level {level}", level=target.level)), f"{result.seconds:.1f} s", result.date.replace("T", " ")]


def _counted(result: Result) -> str:
    """How many checks compared something, how many controls were rejected, and how many checks have each outcome but passed."""
    outcomes = Counter(record.outcome for verdict in result.verdicts for record in verdict.records)
    compared = shown(N_("{compared} of {planned} planned checks compared", compared=result.compared, planned=result.planned))
    rejected = shown(N_("{controls_rejected} controls rejected", controls_rejected=result.controls_rejected))
    others = [f"{count} {shown(outcome)}" for outcome, count in outcomes.items() if outcome != "passed"]
    return joined([compared, rejected, *others])


def _text(message: str, **values: object) -> str:
    """A message of the page with its values, in the chosen language."""
    return shown(N_(message, **values))
