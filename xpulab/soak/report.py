"""What a soak found: its verdict; soak.json for programs, summary.txt and the terminal for people, junit.xml for CI systems."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree import ElementTree

from xpulab.doctor.meant import LostAccelerator
from xpulab.harness.execute import Target
from xpulab.harness.plan import Plan
from xpulab.harness.report.result import SCOPE
from xpulab.messages import N_, shown
from xpulab.soak.rounds import INTERRUPTED, PASSED, Found, Round, extremes, part_names
from xpulab.soak.values import Place

SCHEMA = 1

_SHOWN = 10
"""Places that the summary lists; soak.jsonl has all."""

_RANGES: dict[str, Callable[[float, float], str]] = {
    "temperature_c": lambda low, high: N_(f"{low:g} to {high:g} °C"),
    "clock_mhz": lambda low, high: N_(f"{low:g} to {high:g} MHz"),
    "power_w": lambda low, high: N_(f"{low:g} to {high:g} W"),
    "memory_used_mib": lambda low, high: N_(f"{low:g} to {high:g} MiB"),
}
_FORBIDDEN = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Summary:
    """A soak, at its end or after one of its rounds.

    target: of all rounds; its seed is that of the first one. plans: of one round. rounds: in order.
    seconds: how long it took. hours: what was asked for, None for until it is interrupted.
    interrupted: whether it was ended from outside. folder: the absolute path of its reports.
    first_bad: the number of the first round with a problem, whose reports are kept; None when there is none.
    lost: the accelerator that the machine is meant to have and that Paddle cannot use, so that no round ran; else None.
    """

    target: Target
    plans: tuple[Plan, ...]
    rounds: tuple[Round, ...]
    seconds: float
    hours: float | None
    interrupted: bool
    folder: Path
    first_bad: int | None
    lost: LostAccelerator | None = None

    @property
    def found(self) -> tuple[Found, ...]:
        """All problems, the first one first."""
        return tuple(found for each in self.rounds for found in each.found)

    @property
    def scope(self) -> str:
        """What the soak says, and what it does not."""
        return N_(f"No round ran: {self.lost.headline}") if self.lost else SCOPE[self.target.device]

    @property
    def complete(self) -> tuple[Round, ...]:
        """The rounds that ran to their end."""
        return tuple(each for each in self.rounds if each.outcome != INTERRUPTED)

    @property
    def repeated(self) -> int:
        """How many values were compared with those of an earlier round."""
        return sum(each.repeated for each in self.rounds)

    @property
    def outcome(self) -> str:
        """ "failed" when something was found or lost, else "passed" when rounds were compared, else "nothing compared"."""
        if self.found or self.lost:
            return "failed"
        return "passed" if self.repeated else "nothing compared"

    @property
    def exit_code(self) -> int:
        """1 when it failed, however it ended; else 130 when interrupted; else 0, or 2 when no value was compared."""
        if self.outcome == "failed":
            return 1
        if self.interrupted:
            return 130
        return 0 if self.repeated else 2

    def rounds_of(self, place: Place) -> tuple[Found, ...]:
        """The problems of one check or row, in order."""
        return tuple(each for each in self.found if each.problem.place == place)

    def places(self) -> dict[Place, int]:
        """Each place that has a problem with the number of rounds in which it has, the first one first."""
        return dict(Counter(each.problem.place for each in self.found))


def files(summary: Summary) -> dict[str, str]:
    """The reports by file name."""
    return {
        "summary.txt": shown(format_summary(summary)) + "\n",
        "junit.xml": _xml(summary),
        "soak.json": json.dumps(to_json(summary), indent=2, allow_nan=False) + "\n",
    }


def files_of_refused(summary: Summary) -> dict[str, str]:
    """The reports by file name of a soak that could not start; `xpulab run` writes junit.xml of every such run."""
    return {name: text for name, text in files(summary).items() if name != "junit.xml"}


def to_json(summary: Summary) -> dict[str, Any]:
    """What soak.json holds, as JSON values; its schema is data/schema/soak_result.schema.json."""
    samples = tuple(sample for each in summary.rounds for sample in each.samples)
    target = summary.target
    memory = [each.memory for each in summary.rounds]
    times = _spread([each.seconds for each in summary.complete])
    return {
        "schema": SCHEMA,
        "outcome": summary.outcome,
        "interrupted": summary.interrupted,
        "device": target.device,
        "scope": summary.scope,
        "lost": asdict(summary.lost) if summary.lost else None,
        "level": target.level,
        "cards": target.cards,
        "hours_asked": summary.hours,
        "hours": round(summary.seconds / 3600, 4),
        "ended": datetime.now().astimezone().isoformat(timespec="seconds"),
        "notebooks": [plan.name for plan in summary.plans],
        "rounds": len(summary.rounds),
        "rounds_passed": sum(each.outcome == PASSED for each in summary.rounds),
        "seeds": sorted({each.seed for each in summary.rounds}),
        "checks": sum(each.checks for each in summary.rounds),
        "repeated": summary.repeated,
        "round_seconds": {name: round(value, 1) for name, value in times.items()},
        "parts": {name: extremes(samples, name) for name in part_names(samples)},
        "memory_mib": {"first": vars(memory[0]), "last": vars(memory[-1])} if memory else {},
        "first_bad_round": summary.first_bad,
        "problems": [
            {"notebook": place.notebook, "check": place.check, "case": place.case, "rounds": count, "first": str(first)}
            for place, count in summary.places().items()
            for first in summary.rounds_of(place)[:1]
        ],
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    """Lowest, median and highest of some values; empty for none."""
    return {"lowest": min(values), "median": median(values), "highest": max(values)} if values else {}


def format_round(this: Round) -> str:
    """The line of a round for a terminal, its problems below."""
    cards = "".join(f", {text}" for text in _parts(this))
    lines = [
        N_(
            f"{this.began:%H:%M:%S}  round {this.number}, seed {this.seed}: {this.outcome}, {this.checks} checks compared, "
            f"{this.repeated} values repeated, {this.seconds:.0f} s{cards}"
        )
    ]
    lines += [f"          {found}" for found in this.found[:_SHOWN]]
    lines += [f"          {N_(f'and {len(this.found) - _SHOWN} more problems')}"] if len(this.found) > _SHOWN else []
    return "\n".join([*lines, *(f"          note: {note}" for note in this.notes)])


def format_summary(summary: Summary) -> str:
    """The summary for a terminal."""
    return "\n".join(_lines(summary))


def _lines(summary: Summary) -> Iterator[str]:
    rounds, names = summary.rounds, ", ".join(plan.name for plan in summary.plans)
    soak = N_(f"soak on {summary.target.device}, {names}")
    if summary.lost:
        yield f"{soak}: {N_('it did not start')}"
        yield str(summary.lost)
        return
    hours = f"{summary.seconds / 3600:.2f} h"
    ended = N_(f"interrupted after {hours}") if summary.interrupted else N_(f"ended after {hours}")
    yield f"{soak}: {ended}"
    seeds, complete = ", ".join(map(str, sorted({each.seed for each in rounds}))), len(summary.complete)
    yield "  " + N_(f"rounds       {len(rounds)}, of which {complete} complete; seeds {seeds}")
    checks = sum(each.checks for each in rounds)
    yield "  " + N_(
        f"checks       {checks} compared; {summary.repeated} values compared with an earlier round of the same seed"
    )
    if times := _spread([each.seconds for each in summary.complete]):
        lowest, middle, highest = (f"{times[name]:.0f}" for name in ("lowest", "median", "highest"))
        yield "  " + N_(f"a round      {lowest} to {highest} s, median {middle} s")
    samples = tuple(sample for each in rounds for sample in each.samples)
    for name in part_names(samples):
        ranges = (_RANGES[key](low, high) for key, (low, high) in extremes(samples, name).items())
        yield f"  {name:<12} {'; '.join(ranges)}"
    notes = [*(sample.note for sample in samples if sample.note), *(note for each in rounds for note in each.notes)]
    yield from ("  " + N_(f"note         {note}") for note in dict.fromkeys(notes))
    if rounds:
        first, last = rounds[0].memory, rounds[-1].memory
        before, after = first.machine, last.machine
        yield "  " + N_(f"memory       {before} MiB of the machine used after the first round, {after} MiB after the last")
        yield " " * 15 + N_(f"this process {first.own} and {last.own} MiB, /dev/shm {first.shared} and {last.shared} MiB")
    yield from _problems(summary)
    yield summary.scope
    verdict = _VERDICTS[summary.outcome]
    yield N_(f"{verdict}: report {summary.folder}")


_VERDICTS = {
    "passed": N_("green: nothing was red, and every value repeated"),
    "failed": N_("RED: see the first problem above"),
    "nothing compared": N_("no verdict: no two rounds with the same seed ended, so no value was compared with an earlier one"),
}


def _problems(summary: Summary) -> Iterator[str]:
    if not summary.found:
        return
    yield f"{N_('first problem: ')}{summary.found[0]}"
    places = list(summary.places().items())
    for place, count in places[:_SHOWN]:
        first = summary.rounds_of(place)[0]
        kind, number = first.problem.kind, first.number
        yield f"  {place}: " + N_(f"{kind} in {count} of {len(summary.rounds)} rounds, first in round {number}")
    if len(places) > _SHOWN:
        yield "  " + N_(f"and {len(places) - _SHOWN} more places; soak.jsonl has all")
    if summary.first_bad is not None:
        page = f"rounds/{summary.first_bad:04d}/index.html"
        yield "  " + N_(f"reports of round {summary.first_bad}: {page}")


def _parts(this: Round) -> Iterator[str]:
    """The highest temperature and the lowest clock of each card."""
    for name in part_names(this.samples):
        values = extremes(this.samples, name)
        temperature, clock = values.get("temperature_c"), values.get("clock_mhz")
        texts = [f"{temperature[1]:g} °C" if temperature else "", f"{clock[0]:g} MHz" if clock else ""]
        yield " ".join([name, *filter(None, texts)])


def _xml(summary: Summary) -> str:
    """A test suite for each notebook, a test case for each check; a failure names the rounds."""
    root = ElementTree.Element("testsuites", name="xpulab soak", time=str(round(summary.seconds, 1)))
    for plan in summary.plans:
        named = [check.name for check in plan.checks]
        places = [place for place in summary.places() if place.notebook == plan.name]
        cases = [*named, *dict.fromkeys(place.check for place in places if place.check not in named)]
        suite = ElementTree.SubElement(root, "testsuite", name=plan.name, tests=str(len(cases)))
        failures = 0
        for name in cases:
            case = ElementTree.SubElement(suite, "testcase", classname=plan.name, name=name)
            found = [
                each for each in summary.found if (each.problem.place.notebook, each.problem.place.check) == (plan.name, name)
            ]
            if found:
                failures += 1
                numbers = ", ".join(str(number) for number in dict.fromkeys(each.number for each in found))
                failure = ElementTree.SubElement(case, "failure", message=f"{found[0].problem.kind} in round {numbers}")
                failure.text = _FORBIDDEN.sub("", "\n".join(map(str, found[:_SHOWN])))
        suite.set("failures", str(failures))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
