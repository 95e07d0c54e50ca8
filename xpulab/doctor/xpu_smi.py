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

from xpulab.doctor.cards import RAW_CHARACTERS, Reading, card_of, format_shown, not_read
from xpulab.doctor.tool import TIMEOUT, ToolRun, run_tool
from xpulab.messages import N_

NAMES = ("xpu-smi", "xpu_smi")
FORMATS = (("-q",), ("-m",), ())
"""The options, in the order in which they are asked for: none of them changes the state of a card."""
INTEL = re.compile(r"Intel(\(R\))? XPU|oneAPI Level Zero")
ADDRESS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
RESET = re.compile(rf"(?i)\b(?:XPU|GPU|card|device)\W*({ADDRESS}|\d+)\b.*\brequires?\s+(?:a\s+)?reset")
"""A line of its own about a card that computes nothing any more."""
MACHINE = dict(zip((0, 2, 3, 4, 8), ("address", "index", "serial", "temperature_c", "power_w"), strict=True))
MACHINE |= dict(zip((17, 18, 19, 20), ("used", "total", "use", "firmware"), strict=True))
"""Of a line of `-m` the fields with a meaning here; 21 is the model. Source: `xpu_smi --help`."""
MODEL = 21
LABELS = {
    **{"Minor Number": "index", "Product Name": "model", "Product Architecture": "generation", "Serial Number": "serial"},
    **{"SBL Version": "firmware", "Memory Usage/Total": "total", "Memory Usage/Used": "used"},
    **{"XPU Current Temp": "temperature_c", "Power Draw": "power_w"},
}
"""What each key of `-q` means, alone or after its section."""
MACHINE_NUMBERS = ("index", "temperature_c", "power_w", "used", "total", "use")


@dataclass
class _Output:
    """What was understood of one output. values: those of each card that card_of takes. resets: the cards, by index or
    address, that need one by a line of their own."""

    driver: str | None = None
    values: list[dict[str, str]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    resets: list[str] = field(default_factory=list)


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
            return not_read(name, ran)
        answers.append(_answer(name, ran))
        if answers[-1].cards and answers[-1].counts_cards:
            return answers[-1]
    return max(answers, key=lambda answer: (answer.outcome == "ok", len(answer.cards), bool(answer.unread)))


def _answer(name: str, ran: ToolRun) -> Reading:
    """The reading of one format. "unreadable" when neither a card nor a version was understood."""
    read = _understood(ran.output if ran.outcome == "ok" else "")
    cards = tuple(card_of(values, order) for order, values in enumerate(read.values))
    if not (cards or read.driver):
        return not_read(name, ran)
    detail, raw = format_shown(name, cards, read.driver), ran.output[:RAW_CHARACTERS] if read.unread else ""
    return Reading(name, ran.command, "ok", detail, read.driver, cards, tuple(read.unread), raw)


def _understood(text: str) -> _Output:
    """What the lines say, in whatever format they are."""
    read = _Output(_version(text))
    section, attached = "", None
    has_errors = re.search(r"Bus-Id.*\|\s*Volatile Uncorr", text) is not None  # the third column of the table
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
            read.values[-1] |= {"volatile/uncorr": cells[2]} if has_errors and len(cells) > 2 else {}
        elif said := RESET.search(line):
            read.resets.append(said[1])
        elif re.search(rf"(?<![\w:]){ADDRESS}", line) and (key, colon) != ("Bus Id", ":"):
            read.unread.append(line.strip())
        elif line.lstrip("| ").startswith("Processes:"):
            section = "Processes"
        elif read.values and section != "Processes" and len(cells) > 1:
            _add_units(read.values[-1], line)
        elif key.startswith("Attached") and value.isdigit():
            attached = line.strip()
        elif read.values and colon:
            name = f"{section}/{key}"
            name = LABELS.get(name) or LABELS.get(key) or name.lower().replace(" ", "_")
            read.values[-1].setdefault(name, value)
        elif key and not colon:
            section = key
    for values in read.values:
        if read.resets and {values.get("index"), values.get("address")} & {*read.resets}:
            values["state"] = "requires reset"
    read.unread += [f"no model: {values.get('address')}" for values in read.values if "model" not in values]
    read.unread += [attached] if attached and int(attached.split()[-1]) != len(read.values) else []
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
    if not all(re.fullmatch(r"\d+(\.\d+)?|N/A", values[name]) for name in MACHINE_NUMBERS) or len(values["use"]) > len("100"):
        return {}
    return {**values, "model": " ".join([parts[MODEL], *takewhile(lambda part: not part.isdigit(), parts[MODEL + 1 :])])}


def _add_units(values: dict[str, str], line: str) -> None:
    """What the second line of a KL3 card says, by its units; the third one is of another memory, and comes too late."""
    patterns = {
        "temperature_c": r"(\d+)\s*C\b",
        "power_w": r"(\d+)\s*W\s*/",
        "memory": r"(\d+\s*MiB\s*/\s*\d+)\s*MiB",
    }
    for name, pattern in patterns.items():
        if found := re.search(pattern, line):
            values.setdefault(name, found[1])


def _version(text: str) -> str | None:
    """The driver's version; None where it is not shown, or N/A."""
    found = re.search(r"Driver Version\s*:\s*(\S+)", text)
    return None if found is None or found[1] == "N/A" else found[1]
