"""index.html: the result of a run for people: one page that needs no network and no other file."""

from __future__ import annotations

from collections import Counter

import jinja2

import xpulab
from xpulab.doctor.cards import format_card_count
from xpulab.harness.report.result import DEFECTS, PARTIAL, PREDICTIONS, Result
from xpulab.messages import N_, joined, labelled, language, plain, shown
from xpulab.records.format import format_machine, format_measured, format_value


def to_html(result: Result) -> str:
    """The page of a run, in the chosen language."""
    environment = jinja2.Environment(loader=jinja2.PackageLoader("xpulab.harness.report", "."), autoescape=True)
    environment.globals |= {"shown": shown, "labelled": labelled, "text": _text}
    environment.filters["number"] = format_value
    environment.filters["measured"] = format_measured
    page = environment.get_template("page.html")
    rendered = page.render(
        html_language={"en": "en", "zh": "zh-Hans"}[language()],
        result=result,
        counted=_counted(result),
        defects=DEFECTS,
        predictions=PREDICTIONS,
        partial=PARTIAL,
        where=_where(result),
        cards=result.run_context.card_facts if result.run_context else (),
        version=xpulab.__version__,
    )
    return plain(rendered)


def _where(result: Result) -> list[str]:
    """What the banner says of the machine: device, card or processor, driver, wheel, level, duration, date."""
    options, context = result.options, result.run_context
    cards = shown(format_card_count(options.cards))
    device = f"{options.device} as {options.stands_for}" if options.stands_for else options.device
    facts = [f"{device}, {cards}" if device != "cpu" else device]
    facts += map(shown, format_machine(context)) if context else ()
    facts += [shown(N_("seed {seed}", seed=options.seed))] if options.seed else []
    return [*facts, shown(N_("level {level}", level=options.level)), f"{result.seconds:.1f} s", result.date.replace("T", " ")]


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
