"""The result of a check: the one format that passes from inside a kernel to the outside.

A check writes its Record into the metadata of the output that it prints, and use_device writes a RunContext there, so an
executed notebook contains everything that a report shows. The rules that both sides need (what is red, what is missing, when a
notebook is green) are defined here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from xpulab.messages import N_, Message

METADATA_KEY = "xpulab"
"""The key, in a notebook's, an output's and an executed notebook's metadata, under which xpulab stores its data."""

CHECK_NAME = re.compile(r"[A-Za-z0-9_+-]+([.][A-Za-z0-9_+-]+)+")
"""The name of a check, "<capability>.<what>", as a whole; data/schema/result.schema.json has it too."""

LEVELS = ("smoke", "quick", "standard")
"""smoke: is this machine obviously broken. quick: does it work at all. standard: does it work right."""

OUTCOMES = (
    *(N_("passed"), N_("failed"), N_("broken"), N_("skipped"), N_("missing")),
    *(N_("known"), N_("fixed"), N_("predicted"), N_("refuted")),
)
"""The outcomes of a check, the same in the notebook, on the console and in every report.

known, fixed: it fails, or passes, where a defect of this release is listed. predicted, refuted: the same where the defect is
expected on this device from reading alone, and was never seen.
"""

CONTROL_OUTCOMES = (N_("rejected"), N_("accepted"), N_("raised"), N_("incomparable"), N_("not tried"))
"""The outcomes of a control. Only "rejected" shows that the check can fail; "not tried": there was no measured value."""

RED = frozenset({"failed", "broken", "missing"})
COMPARED = frozenset({"passed", "failed", "broken", "known", "fixed", "predicted", "refuted"})
RIGHT = frozenset({"passed", "fixed", "refuted"})
"""The outcomes of a value that is right."""

GREEN_NOTEBOOKS = frozenset({"passed", "partial"})
"""The outcomes of a notebook that is green."""

_GREEN = frozenset(OUTCOMES) - RED
_WORST_FIRST = ("broken", "failed", "missing", "predicted", "refuted", "fixed", "known", "passed", "skipped")


@dataclass(frozen=True)
class Row:
    """One case of a check that has many.

    case: the name of the case, for instance "float16".
    outcome, measured, expected, control, reason, digest: as in Record.
    """

    case: str
    outcome: str
    measured: float | str | None
    expected: str
    control: str
    reason: str | None = None
    digest: str | None = None


@dataclass(frozen=True)
class Measurement:
    """A value that depends on the device and is compared with the device's baseline.

    case: the name of the case, for instance "host to device".
    kind: "loss", "rate" or "memory".
    unit: of the values, for instance "GB/s", "nats" or "bytes".
    values: one number, or the numbers of a trajectory in order.
    conditions: what must be equal for two measurements to be comparable, for instance {"seed": "0"}.
    """

    case: str
    kind: str
    unit: str
    values: tuple[float, ...]
    conditions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """The result of one check.

    name: "<capability>.<what>", unique in the suite.
    outcome: one of OUTCOMES.
    means: what a pass means; the same text on every machine.
    measured: a number in the unit that `means` implies (a largest difference, a loss), a text, or None.
    expected: what the value was compared with, as text: "< 0.63".
    control: one of CONTROL_OUTCOMES; for a table "rejected" or, for instance, "rejected in 1 of 2".
    seconds: the duration of the comparison, including the control.
    reason: why the outcome is not passed, and what to look at; None for a passed check.
    rows: the cases of a check that has many, else empty.
    measurements: the measurements of a check against baselines, whether there is a baseline or not; else empty.
    digest: of the measured value: equal in two runs that measured the same to the last bit; None for what has no bits, and
        for a check that has rows.
    """

    name: str
    outcome: str
    means: str
    measured: float | str | None = None
    expected: str = ""
    control: str = "not tried"
    seconds: float = 0.0
    reason: str | None = None
    rows: tuple[Row, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    digest: str | None = None

    @property
    def capability(self) -> str:
        """The capability that the check belongs to: its name up to the first dot."""
        return self.name.split(".", 1)[0]

    def to_metadata(self) -> dict[str, Any]:
        """The record as JSON values, to be stored in an output's metadata; its messages are beside it."""
        messages = {str(each): [each.template, dict(each.values)] for each in _messages(self)}
        return {METADATA_KEY: {"check": asdict(self), **({"messages": messages} if messages else {})}}


def _messages(record: Record) -> Iterator[Message]:
    """The texts of a record that are made of a template and values."""
    texts = (record.means, record.reason, *(row.reason for row in record.rows))
    return (text for text in texts if isinstance(text, Message))


@dataclass(frozen=True)
class CardFacts:
    """One card as the vendor's tool shows it. A field is None when the tool does not show it.

    index: the number of the card. model, serial, firmware: as printed. state: "normal" or "error".
    temperature_c: degrees Celsius. power_w: W. memory_used_mib, memory_total_mib: MiB.
    link: of its PCI function, "32.0 GT/s x16", or "16.0 GT/s x8 of 32.0 GT/s x16" when it is below what the card can do.
    """

    index: int
    model: str
    serial: str | None = None
    firmware: str | None = None
    state: str | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    link: str | None = None


@dataclass(frozen=True)
class RunContext:
    """Where a notebook ran.

    device: "cpu", "gpu", "xpu" or "sim".
    cards: how many cards the notebook may use.
    machine: processor, cores, memory, and the model and driver of its cards, in readable form.
    versions: package name to version.
    card_facts: one for each card that the vendor's tool shows; empty without such a tool.
    """

    device: str
    cards: int
    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    card_facts: tuple[CardFacts, ...] = ()

    def to_metadata(self) -> dict[str, Any]:
        """The run context as JSON values, to be stored in an output's metadata."""
        return {METADATA_KEY: {"run_context": asdict(self)}}


def record_in(metadata: dict[str, Any]) -> Record | None:
    """The record that an output's metadata holds, or None. One that has no name of a check was never planned, and gets one."""
    own = metadata.get(METADATA_KEY, {})
    stored = own.get("check")
    if stored is None:
        return None
    messages = {text: Message(*made) for text, made in own.get("messages", {}).items()}

    def read(text: str | None) -> str | None:
        return messages.get(text or "", text)

    measurements = tuple(Measurement(**{**each, "values": tuple(each["values"])}) for each in stored.get("measurements", ()))
    rows = tuple(Row(**{**row, "reason": read(row["reason"])}) for row in stored["rows"])
    texts = {"means": read(stored["means"]), "reason": read(stored.get("reason"))}
    if not CHECK_NAME.fullmatch(stored["name"]):
        texts["name"] = "unnamed." + (re.sub(r"[^A-Za-z0-9_+-]+", "_", stored["name"]) or "_")
    return Record(**{**stored, **texts, "rows": rows, "measurements": measurements})


def run_context_in(metadata: dict[str, Any]) -> RunContext | None:
    """The run context that an output's metadata holds, or None."""
    stored = metadata.get(METADATA_KEY, {}).get("run_context")
    if stored is None:
        return None
    return RunContext(**{**stored, "card_facts": tuple(CardFacts(**facts) for facts in stored.get("card_facts", ()))})


def reconcile(
    planned: Sequence[str], recorded: Iterable[Record], reasons: Mapping[str, str] | None = None
) -> tuple[Record, ...]:
    """Match the records with the planned names. reasons: why checks of these names never ran, where that is known.

    Returns one record for each planned name, in that order, "missing" where a check never ran; then, as broken, every record
    that was not planned, because nothing would report it as missing. Of several records of one name the worst counts.
    """
    by_name: dict[str, Record] = {}
    for record in recorded:
        earlier = by_name.get(record.name)
        by_name[record.name] = worse(earlier, record) if earlier else record
    reconciled = [by_name.pop(name) if name in by_name else _missing(name, (reasons or {}).get(name)) for name in planned]
    reconciled += [_unplanned(record) for record in by_name.values()]
    return tuple(reconciled)


def is_compared(record: Record) -> bool:
    """Whether the check compared a value, whatever the outcome."""
    return record.outcome in COMPARED


def is_green(records: Sequence[Record]) -> bool:
    """Whether at least one check compared a value and none is failed, broken or missing."""
    return any(map(is_compared, records)) and all(record.outcome in _GREEN for record in records)


def is_green_run(notebooks: Iterable[str]) -> bool:
    """Whether, of notebooks with these outcomes, at least one is green, and every other one is green or was not to run here."""
    outcomes = set(notebooks)
    return bool(outcomes & GREEN_NOTEBOOKS) and outcomes <= {*GREEN_NOTEBOOKS, "skipped"}


def worst(outcomes: Iterable[str]) -> str:
    """The worst of several outcomes, in the order of _WORST_FIRST: a prediction before what is certain."""
    return min(outcomes, key=_WORST_FIRST.index)


def worse(one: Record, other: Record) -> Record:
    """The record with the worse outcome; `other` when both are equal."""
    return other if worst((one.outcome, other.outcome)) == other.outcome else one


def _missing(name: str, reason: str | None) -> Record:
    return Record(
        name=name,
        outcome="missing",
        means=N_("planned in the notebook's source, but it never ran"),
        reason=reason or N_("the cell was never reached, or a branch skipped the check"),
    )


def _unplanned(record: Record) -> Record:
    reason = N_('it was not planned: write its name as a literal in a cell, check.close("...", ...)')
    return replace(record, outcome="broken", reason=reason)
