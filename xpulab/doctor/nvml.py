"""NVIDIA's cards as its management library (NVML) shows them, through the package nvidia-ml-py. Standard library but for that.

A driver that hangs stops whoever asks it, so the library is asked in a process of its own: this file, started as a script.
Written after the package's documents; not run on a card.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from typing import Any

if __name__ != "__main__":
    from xpulab.doctor.cards import Card, Reading, format_card_count, normal_address
    from xpulab.doctor.tool import TIMEOUT, run_tool
    from xpulab.messages import N_

MIB, MILLIWATTS = 1 << 20, 1000
NAME = "NVML"


def read_nvml(timeout: float | None = None) -> Reading:
    """Ask NVIDIA's library for its cards; at most timeout seconds, by default those of a tool.

    "missing" without the package nvidia-ml-py or the library, as before anything is installed; "failed" without a driver.
    """
    if importlib.util.find_spec("pynvml") is None:
        return Reading(NAME, (), "missing", N_("the package nvidia-ml-py is not installed in this environment"))
    timeout = TIMEOUT if timeout is None else timeout
    run = run_tool((sys.executable, "-W", "ignore", __file__), timeout)
    if run.outcome == "hung":
        return Reading(NAME, (), "hung", N_("NVML did not answer within {timeout} s", timeout=f"{timeout:g}"))
    if run.outcome != "ok":
        return Reading(NAME, (), "failed", run.detail)
    said = json.loads(run.output)
    if "error" in said:
        return Reading(NAME, (), "missing" if said["is_missing"] else "failed", f"NVML: {said['error']}")
    cards = tuple(Card(**{**card, "pci_address": _address(card["pci_address"])}) for card in said["cards"])
    detail = "; ".join(
        [
            N_("NVML shows {cards}, driver {said}", cards=format_card_count(len(cards)), said=said["driver"] or "unknown"),
            *said["lost"],
        ]
    )
    return Reading(NAME, (), "ok", detail, said["driver"], cards)


def _address(text: str | None) -> str | None:
    return normal_address(text) if text else None


def main() -> None:
    """Print what the library says, as one JSON object."""
    import pynvml  # type: ignore[import-not-found, import-untyped, unused-ignore]

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        missing = isinstance(error, pynvml.NVMLError_LibraryNotFound)
        print(json.dumps({"error": str(error), "is_missing": missing}))
        return
    cards: list[dict[str, Any]] = []
    lost: list[str] = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            cards.append(_card(pynvml, index))
        except pynvml.NVMLError as error:  # one that has fallen off the bus
            cards.append({"index": index, "model": "unknown", "generation": "cuda", "state": "error", "pci_address": None})
            lost.append(f"card {index}: {error}")
    print(json.dumps({"driver": _value(pynvml, pynvml.nvmlSystemGetDriverVersion), "cards": cards, "lost": lost}))


def _card(pynvml: Any, index: int) -> dict[str, Any]:
    """The fields of a Card. Raises NVMLError when the card does not answer; a value that it does not have is None."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = _value(pynvml, pynvml.nvmlDeviceGetMemoryInfo, handle)
    power = _value(pynvml, pynvml.nvmlDeviceGetPowerUsage, handle)
    use = _value(pynvml, pynvml.nvmlDeviceGetUtilizationRates, handle)
    bus = _value(pynvml, pynvml.nvmlDeviceGetPciInfo, handle)
    return {
        "index": index,
        "model": pynvml.nvmlDeviceGetName(handle),
        "generation": "cuda",
        "pci_address": bus.busId.decode() if bus and isinstance(bus.busId, bytes) else bus and bus.busId,
        "serial": _value(pynvml, pynvml.nvmlDeviceGetSerial, handle),
        "memory_total_mib": memory.total // MIB if memory else None,
        "memory_used_mib": memory.used // MIB if memory else None,
        "temperature_c": _value(pynvml, pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        "power_w": None if power is None else power / MILLIWATTS,
        "utilisation_percent": use.gpu if use else None,
    }


def _value(pynvml: Any, ask: Callable[..., Any], *given: Any) -> Any:
    try:
        return ask(*given)
    except pynvml.NVMLError:
        return None


if __name__ == "__main__":
    sys.path[:1] = []  # this folder: its modules must not take the place of others with their names
    main()
