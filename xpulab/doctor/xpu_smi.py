"""Kunlun's xpu-smi, read tolerantly: each line that says something of a card adds to its values, and the rest is kept as it is.

Two generations of the tool share two names. The KL3 tool looks like nvidia-smi, with three lines for each card, and has `-m`
and `-q`; of the KL1/KL2 tool only `-m` is read, which is enough to refuse these cards. Their formats are from documents, not
from a card: what this suite cannot read is not known, never wrong.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from itertools import takewhile

from xpulab.doctor.cards import Card, Reading, format_card_count, generation_of, normal_address
from xpulab.doctor.tool import TIMEOUT, ToolRun, run_tool
from xpulab.messages import N_

NAMES = ("xpu-smi", "xpu_smi")
FORMATS = (("-q",), ("-m",), ())
"""The options, in the order in which they are asked for: none of them changes the state of a card."""
INTEL = re.compile(r"Intel(\(R\))? XPU|oneAPI Level Zero")
ADDRESS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
MACHINE = dict(zip((0, 2, 3, 4, 8), ("address", "index", "serial", "temperature_c", "power_w"), strict=True))
MACHINE |= dict(zip((17, 18, 19, 20), ("used", "total", "use", "firmware"), strict=True))
"""Of a line of `-m` the fields with a meaning here; 21 is the model. Source: `xpu_smi --help`."""
MODEL = 21
LABELS = {
    **{"Minor Number": "index", "Product Name": "model", "Product Architecture": "generation", "Serial Number": "serial"},
    **{"SBL Version": "firmware", "Memory Usage/Total": "total", "Memory Usage/Used": "used", "Utilization/Xpu": "use"},
    **{"XPU Current Temp": "temperature_c", "Power Draw": "power_w"},
}
"""What each key of `-q` means, alone or after its section."""
_SHOWN_CHARACTERS = 4000


@dataclass
class _Output:
    """What was understood of one output. values: of each card, as printed, by the names of LABELS and MACHINE."""

    driver: str | None = None
    values: list[dict[str, str]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def read_xpu_smi(timeout: float = TIMEOUT) -> Reading:
    """Call the first of xpu-smi and xpu_smi on PATH that is Kunlun's."""
    readings = []
    for name in NAMES:
        reading = _read_tool(name, timeout)
        if reading.outcome in ("ok", "hung"):
            return reading
        readings.append(reading)
    if all(reading.outcome == "missing" for reading in readings):
        return replace(readings[0], detail=N_("neither xpu-smi nor xpu_smi is on PATH"))
    return next(reading for reading in readings if reading.outcome != "missing")


def _read_tool(name: str, timeout: float) -> Reading:
    """The first format of which everything was understood, else the one that shows most."""
    answers = []
    for options in FORMATS:
        command = (name, *options)
        ran = run_tool(command, timeout)
        if ran.outcome != "hung" and INTEL.search(ran.output):
            return Reading(
                name, command, "foreign", N_("{name} on PATH is Intel's tool with that name, not Kunlun's", name=name)
            )
        if ran.outcome in ("missing", "hung"):
            return Reading(name, command, ran.outcome, ran.detail)
        answers.append(_answer(name, ran))
        if answers[-1].cards and not answers[-1].unread:
            break
    return max(answers, key=lambda answer: (answer.outcome == "ok", len(answer.cards), bool(answer.unread)))


def _answer(name: str, ran: ToolRun) -> Reading:
    """The reading of one format. "unreadable" when neither a card nor a version was understood: then all of it is kept."""
    if ran.outcome != "ok":
        return Reading(name, ran.command, ran.outcome, ran.detail)
    read = _understood(ran.output)
    cards = tuple(_card(values, order) for order, values in enumerate(read.values))
    if not cards and not read.driver:
        lines = tuple(ran.output[:_SHOWN_CHARACTERS].splitlines())
        detail = N_("the output of {command} has no known format", command=" ".join(ran.command))
        return Reading(name, ran.command, "unreadable", detail, unread=lines)
    detail = N_(
        "{name} shows {cards}, driver {driver}",
        name=name,
        cards=format_card_count(len(cards)),
        driver=read.driver or "unknown",
    )
    return Reading(name, ran.command, "ok", detail, read.driver, cards, tuple(read.unread))


def _understood(text: str) -> _Output:
    """What the lines say, in whatever format they are."""
    read = _Output(_version(text))
    section = ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        key, colon, value = (part.strip() for part in line.partition(" :"))
        if machine := _machine_values(line):
            read.values.append(machine)
        elif begin := re.fullmatch(rf"XPU ({ADDRESS})", line.strip()):
            read.values.append({"address": begin[1]})
            section = ""
        elif begin := re.search(rf"\|\s*(\d+)\s+(\S.*?)\s+(?:On|Off|N/A)\s*\|\s*({ADDRESS})\s", line):
            read.values.append(dict(zip(("index", "model", "address"), begin.groups(), strict=True)))
        elif re.search(rf"(?<![\w:]){ADDRESS}", line) and (key, colon) != ("Bus Id", ":"):
            read.unread.append(line.strip())
        elif line.lstrip("| ").startswith("Processes:"):
            section = "Processes"
        elif read.values and section != "Processes" and len(cells) > 1:
            _add_units(read.values[-1], line)
        elif read.values and colon and (name := LABELS.get(f"{section}/{key}") or LABELS.get(key)):
            read.values[-1].setdefault(name, value)
        elif key and not colon:
            section = key
    return read


def _machine_values(line: str) -> dict[str, str]:
    """The values of a line of `-m`, which begins with a PCI address; empty for any other. A model without quotes is joined."""
    if not re.match(rf"{ADDRESS}\s", line):
        return {}
    try:
        parts = shlex.split(line)
    except ValueError:  # a quote that does not end
        return {}
    if len(parts) <= MODEL or not parts[MODEL][:1].isalpha():  # the fields have other places
        return {}
    values = {name: parts[place] for place, name in MACHINE.items()}
    return {**values, "model": " ".join([parts[MODEL], *takewhile(lambda part: not part.isdigit(), parts[MODEL + 1 :])])}


def _add_units(values: dict[str, str], line: str) -> None:
    """What the second line of a KL3 card says, by its units; the third one is of another memory, and comes too late."""
    patterns = {
        "temperature_c": r"(\d+)\s*C\b",
        "power_w": r"(\d+)\s*W\s*/",
        "use": r"(\d+)\s*%",
        "memory": r"(\d+\s*MiB\s*/\s*\d+)\s*MiB",
    }
    for name, pattern in patterns.items():
        if found := re.search(pattern, line):
            values.setdefault(name, found[1])


def _card(values: dict[str, str], order: int) -> Card:
    """order: its place in the output, which is its index where none is shown."""
    index, model = _number(values.get("index")), values.get("model", "unknown")
    used, _, total = values.get("memory", "").partition("/")
    firmware = values.get("firmware", "")
    third = re.fullmatch(r"[^:]+:[^:]+:(\d+\.\d+)\S*", firmware)  # init:bootloader:main.cpld
    return Card(
        index=order if index is None else int(index),
        model=model,
        generation=values.get("generation") or generation_of(model),
        pci_address=normal_address(values["address"]) if "address" in values else None,
        serial=values.get("serial"),
        memory_total_mib=_whole(values.get("total", total)),
        memory_used_mib=_whole(values.get("used", used)),
        temperature_c=_number(values.get("temperature_c")),
        power_w=_number(values.get("power_w")),
        utilisation_percent=_number(values.get("use")),
        firmware=third[1] if third else firmware or None,
    )


def _version(text: str) -> str | None:
    """The driver's version; None where it is not shown, or N/A."""
    found = re.search(r"Driver Version\s*:\s*(\S+)", text)
    return None if found is None or found[1] == "N/A" else found[1]


def _number(text: str | None) -> float | None:
    """The number at the start of a value, "46 C" or "75.00 W"; None for N/A and the like."""
    found = re.match(r"\s*(-?\d+(\.\d+)?)", text or "")
    return float(found[1]) if found else None


def _whole(text: str | None) -> int | None:
    number = _number(text)
    return None if number is None else int(number)
