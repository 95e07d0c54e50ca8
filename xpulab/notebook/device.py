"""Choose a device, describe it, and show what landed on it.

`auto` takes the first of xpu, gpu and cpu that works. Nothing here was run on a GPU or an XPU yet; what those lanes do is
written against Paddle's documented interface.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import paddle
import psutil

from xpulab.checks.ledger import ledger
from xpulab.devices import DEVICES, REAL, SIMULATED, WHEELS
from xpulab.doctor.nvidia_smi import read_nvidia_smi
from xpulab.doctor.xpu_smi import read_xpu_smi
from xpulab.errors import InputError
from xpulab.records.record import RunContext

_PACKAGES = (*WHEELS, "paddlenlp", "numpy")


@dataclass(frozen=True)
class Device:
    """A device in use. name: "cpu", "gpu", "xpu" or "sim"; cards: how many may be used; place: what paddle.set_device took."""

    name: str
    cards: int
    place: str


def use_device(name: str = "auto", cards: int = 1) -> Device:
    """Make `name` the device of everything that Paddle computes from here on, and note where this notebook ran.

    Prints one line that says where. Raises InputError when there is no such device, it has fewer cards, or the first
    computation on it is wrong.
    """
    if name not in ("auto", *DEVICES):
        raise InputError(f"no device {name!r}: choose auto, {', '.join(DEVICES)}")
    device = _first_that_works(cards) if name == "auto" else _select(name, cards)
    ledger.run_context = RunContext(device.name, device.cards, {**machine(), **_card(device.name)}, versions())
    _note(ledger.run_context)
    return device


def places(tensors: Iterable[Any] | Mapping[str, Any]) -> list[str]:
    """On which kinds of device these tensors live, sorted, each once: ["cpu"], or ["cpu", "xpu"] when they are split."""
    values = tensors.values() if isinstance(tensors, Mapping) else tensors
    return sorted({_kind(value.place) for value in values if hasattr(value, "place")})


@contextmanager
def no_fallback() -> Iterator[None]:
    """Inside the block an operator that has no kernel for the device raises instead of running on the CPU in silence.

    Source: FLAGS_enable_api_kernel_fallback in paddle/phi/core/kernel_factory.cc.
    """
    flag = "FLAGS_enable_api_kernel_fallback"
    before = paddle.get_flags(flag)
    paddle.set_flags({flag: False})
    try:
        yield
    finally:
        paddle.set_flags(before)


def synchronize(device: Device) -> None:
    """Wait until the device has done all that was asked of it; without it a clock measures only the asking."""
    if device.name != "cpu":
        paddle.device.synchronize()


def card_count(name: str) -> int:
    """How many cards of this kind Paddle sees. The CPU counts as one for each core, since ranks are processes there."""
    if name == "cpu":
        return os.cpu_count() or 1
    if name == SIMULATED:
        return paddle.base.core.get_custom_device_count(SIMULATED)
    compiled = {"gpu": paddle.is_compiled_with_cuda, "xpu": paddle.is_compiled_with_xpu}[name]()
    return getattr(paddle.device, {"gpu": "cuda", "xpu": "xpu"}[name]).device_count() if compiled else 0


def machine() -> dict[str, Any]:
    """The machine in a person's words: operating system, processor, cores, memory in GiB."""
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """The installed version of each package that decides what is computed."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _first_that_works(cards: int) -> Device:
    refused = []
    for name in REAL:
        try:
            return _select(name, cards)
        except InputError as error:
            refused.append(str(error))
    raise InputError("no device works here: " + "; ".join(refused))


def _select(name: str, cards: int) -> Device:
    if name == SIMULATED:
        from xpulab import sim

        sim.load(cards)
    available = card_count(name)
    if available == 0:
        raise InputError(f"Paddle sees no {name} here. `xpulab doctor` says what the machine has and which wheel belongs to it")
    if name != "cpu" and cards > available:
        raise InputError(f"{cards} cards of {name} were asked for, Paddle sees {available}")
    place = name if name == "cpu" else f"{name}:0"
    try:
        paddle.set_device(place)
        total = float(paddle.arange(8, dtype="float32").sum())
    except (ValueError, RuntimeError, OSError) as error:
        raise InputError(f"{place} is there, but the first computation on it raised: {error}") from error
    if total != 28.0:
        raise InputError(f"{place} is there, but adds 0 to 7 up to {total}, not 28")
    return Device(name, cards, place)


def _card(name: str) -> dict[str, str]:
    """The model of the cards and the version of their driver, as the vendor's tool tells them; nothing without cards."""
    tool = {"gpu": read_nvidia_smi, "xpu": read_xpu_smi}.get(name)
    if tool is None:
        return {}
    reading = tool()
    models = sorted({card.model for card in reading.cards})
    return {"card": ", ".join(models) or f"unknown, {reading.tool}: {reading.outcome}", "driver": reading.driver or "unknown"}


def _note(run_context: RunContext) -> None:
    from IPython.display import display

    line = f"{run_context.device}, {run_context.machine['processor']}, {run_context.machine['cores']} cores"
    display({"text/plain": line}, raw=True, metadata=run_context.to_metadata())


def _kind(place: Any) -> str:
    """ "Place(gpu:0)" -> "gpu"; "Place(gpu_pinned)" -> "gpu_pinned"."""
    return str(place).removeprefix("Place(").removesuffix(")").split(":", 1)[0]


def _processor() -> str:
    """The processor's name; on x86 with family, model and stepping, since virtual machines call many by one name."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            one_core = dict(_fields(lines))
    except OSError:
        one_core = {}
    name = one_core.get("model name") or platform.processor() or platform.machine()
    kind = [one_core[field] for field in ("cpu family", "model", "stepping") if field in one_core]
    return f"{name} ({'-'.join(kind)})" if kind else name


def _fields(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The fields of /proc/cpuinfo's first core."""
    for line in lines:
        if not line.strip():
            return
        name, _, value = line.partition(":")
        yield name.strip(), value.strip()
