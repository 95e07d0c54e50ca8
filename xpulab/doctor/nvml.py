"""NVIDIA's cards as its management library (NVML) shows them, through the package nvidia-ml-py. Standard library but for that.

A driver that hangs stops whoever asks it, so the library is asked in a process of its own: this file, started as a script.
Where the package or its answer is missing, nvidia-smi is asked. Written after the documents of both; not run on a card.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

if __name__ != "__main__":
    from xml.etree import ElementTree

    from xpulab.doctor.cards import RAW_CHARACTERS, Reading, card_of, format_shown, not_read
    from xpulab.doctor.tool import TIMEOUT, run_tool
    from xpulab.messages import N_

MIB, MILLIWATTS = 1 << 20, 1000
NAME, TOOL, OPTIONS = "NVML", "nvidia-smi", ("-q", "-x")
_TAGS = {
    **{"product_name": "model", "fb_memory_usage/total": "total", "fb_memory_usage/used": "used"},
    **{"temperature/gpu_temp": "temperature_c", "power_readings/power_draw": "power_w"},
    **{"gpu_power_readings/power_draw": "power_w", "gpu_power_readings/instant_power_draw": "power_w"},
}
"""What each element of `nvidia-smi -q -x` means, by its path below <gpu>."""


def read_nvml(timeout: float | None = None) -> Reading:
    """Ask NVIDIA's library for its cards, else its tool; each at most timeout seconds, by default those of a tool.

    "missing" without the package nvidia-ml-py or the library, as before anything is installed; "failed" without a driver.
    """
    timeout = TIMEOUT if timeout is None else timeout
    reading = _read_library(timeout)
    if reading.outcome not in ("missing", "unreadable"):
        return reading
    asked = _read_tool(timeout)
    return reading if asked.outcome in ("missing", "failed") else asked


def _read_library(timeout: float) -> Reading:
    if importlib.util.find_spec("pynvml") is None:
        return Reading(NAME, (), "missing", N_("the package nvidia-ml-py is not installed in this environment"))
    run = run_tool((sys.executable, "-W", "ignore", __file__), timeout)
    if run.outcome == "hung":
        return Reading(NAME, (), "hung", N_("NVML did not answer within {timeout} s", timeout=f"{timeout:g}"))
    try:
        said = json.loads(run.output)
    except ValueError:  # it ended with an exception, or the package printed
        return Reading(NAME, (), "unreadable", run.detail, raw=run.output[:RAW_CHARACTERS])
    if "error" in said:
        return Reading(NAME, (), "missing" if said["is_missing"] else "failed", f"NVML: {said['error']}")
    cards = tuple(card_of(values, order) for order, values in enumerate(said["cards"]))
    return Reading(NAME, (), "ok", "; ".join([format_shown(NAME, cards, said["driver"]), *said["lost"]]), said["driver"], cards)


def _read_tool(timeout: float) -> Reading:
    """The same of `nvidia-smi -q -x`."""
    run = run_tool((TOOL, *OPTIONS), timeout)
    if run.outcome != "ok":
        return not_read(TOOL, run)
    try:
        log = ElementTree.fromstring(run.output)
        cards = tuple(card_of(_values(element), order) for order, element in enumerate(log.iter("gpu")))
    except (ElementTree.ParseError, KeyError, ValueError):
        return not_read(TOOL, run)
    driver, attached = log.findtext("driver_version"), log.findtext("attached_gpus")
    unread = () if attached == str(len(cards)) else (f"attached_gpus: {attached}",)
    raw = run.output[:RAW_CHARACTERS] if unread else ""
    return Reading(TOOL, run.command, "ok", format_shown(TOOL, cards, driver), driver, cards, unread, raw)


def _values(card: ElementTree.Element) -> dict[str, str]:
    named = [(_TAGS.get(path, path), text) for path, text in _tagged(card)]
    return {**dict(named), "address": card.attrib["id"], "generation": "cuda"}


def _tagged(element: ElementTree.Element, path: str = "") -> Iterator[tuple[str, str]]:
    """The path of tags and the text of each element without others in it."""
    for inner in element:
        here = f"{path}/{inner.tag}" if path else inner.tag
        yield from _tagged(inner, here) if len(inner) else [(here, (inner.text or "").strip())]


def main() -> None:
    """Print what the library says, as one JSON object."""
    import pynvml  # type: ignore[import-not-found, import-untyped, unused-ignore]

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        missing = isinstance(error, pynvml.NVMLError_LibraryNotFound)
        print(json.dumps({"error": str(error), "is_missing": missing}))
        return
    cards: list[dict[str, str]] = []
    lost: list[str] = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            cards.append(_card(pynvml, index))
        except pynvml.NVMLError as error:  # one that has fallen off the bus
            state = "requires reset" if isinstance(error, pynvml.NVMLError_ResetRequired) else "error"
            cards.append({"generation": "cuda", "state": state})
            lost.append(f"card {index}: {error}")
    print(json.dumps({"driver": _value(pynvml, pynvml.nvmlSystemGetDriverVersion), "cards": cards, "lost": lost}))


def _card(pynvml: Any, index: int) -> dict[str, str]:
    """The values that card_of takes, those that the card has. Raises NVMLError when the card does not answer."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = _value(pynvml, pynvml.nvmlDeviceGetMemoryInfo, handle)
    power = _value(pynvml, pynvml.nvmlDeviceGetPowerUsage, handle)
    bus = _value(pynvml, pynvml.nvmlDeviceGetPciInfo, handle)
    kind = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    rows = _value(pynvml, pynvml.nvmlDeviceGetRemappedRows, handle)  # corrected, uncorrected, is pending, has failed
    cause = pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR
    pages = _value(pynvml, pynvml.nvmlDeviceGetRetiredPages, handle, cause)  # before Ampere
    reasons = _value(pynvml, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    thermal = pynvml.nvmlClocksThrottleReasonSwThermalSlowdown | pynvml.nvmlClocksThrottleReasonHwThermalSlowdown
    values = {
        "model": pynvml.nvmlDeviceGetName(handle),
        "generation": "cuda",
        "address": bus.busId.decode() if bus and isinstance(bus.busId, bytes) else bus and bus.busId,
        "serial": _value(pynvml, pynvml.nvmlDeviceGetSerial, handle),
        "total": memory and memory.total // MIB,
        "used": memory and memory.used // MIB,
        "temperature_c": _value(pynvml, pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        "power_w": None if power is None else power / MILLIWATTS,
        "volatile/uncorr": _value(pynvml, pynvml.nvmlDeviceGetTotalEccErrors, handle, kind, pynvml.NVML_VOLATILE_ECC),
        "aggregate/uncorr": _value(pynvml, pynvml.nvmlDeviceGetTotalEccErrors, handle, kind, pynvml.NVML_AGGREGATE_ECC),
        "retired_pages": rows[1] if rows else None if pages is None else len(pages),
        "remapping_failure": "yes" if rows and rows[3] else None,
        "sw_thermal_slowdown": None if reasons is None else "yes" if reasons & thermal else "no",
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def _value(pynvml: Any, ask: Callable[..., Any], *given: Any) -> Any:
    try:
        return ask(*given)
    except pynvml.NVMLError_ResetRequired:
        raise
    except pynvml.NVMLError:
        return None


if __name__ == "__main__":
    sys.path[:1] = []  # this folder: its modules must not take the place of others with their names
    main()
