"""Choose a device, describe it, and show which device tensors are on.

`auto` takes the device that this machine is meant to have, as xpulab.doctor.meant decides, and never a lesser one. The code for
GPU and XPU follows Paddle's documented interface and has not been run on such a card yet. Paddle is imported where it is used:
this module also works where that fails.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields
from typing import Any

import psutil

from xpulab import processor
from xpulab.chapters.shared import workarounds
from xpulab.chapters.shared.parameters import check_parameters
from xpulab.checks.ledger import ledger
from xpulab.devices import DEVICES, REPEATABLE, SIMULATED, WHEELS
from xpulab.doctor import meant
from xpulab.doctor.cards import Card
from xpulab.doctor.detect import detect
from xpulab.doctor.nvml import read_nvml
from xpulab.doctor.paddle_facts import card_count
from xpulab.doctor.system import link_of
from xpulab.doctor.xpu_smi import read_xpu_smi
from xpulab.errors import InputError
from xpulab.records.environments import SUCCESSOR, installed_frameworks, installed_versions
from xpulab.records.record import CardFacts, RunContext

_SUM = 28.0

_PACKAGES = (*WHEELS, "paddlenlp", SUCCESSOR, "numpy")


@dataclass(frozen=True)
class Device:
    """The device in use.

    name: "cpu", "gpu", "xpu" or "sim".
    cards: how many cards may be used.
    place: the argument of paddle.set_device.
    """

    name: str
    cards: int
    place: str


def use_device(name: str = "auto", cards: int = 1) -> Device:
    """Make `name` the device on which Paddle computes from now on, and record the run context of this notebook.

    Prints one line with the device and the machine. Raises InputError when there is no such device, when it has fewer cards,
    also than XPULAB_EXPECT says, when the first computation on it is wrong, for `auto` also when this machine is
    meant to have an accelerator that cannot be used, and for a wrong or unknown parameter of the chapter that calls it.
    """
    check_parameters()
    if name not in ("auto", *DEVICES):
        raise InputError(f"no device {name!r}: choose auto, {', '.join(DEVICES)}")
    workarounds.multiply_fast_on_amd()
    device = _select(_meant() if name == "auto" else name, cards)
    _require_expected(device)
    _record_run_context(device)
    return device


def name_device(name: str = "auto", cards: int = 1) -> Device:
    """Where Paddle cannot be imported: the device that use_device would choose, recorded, but nothing is computed on it."""
    check_parameters()
    if name not in ("auto", *DEVICES):
        raise InputError(f"no device {name!r}: choose auto, {', '.join(DEVICES)}")
    name = _meant() if name == "auto" else name
    device = Device(name, cards, name if name == "cpu" else f"{name}:0")
    _record_run_context(device)
    return device


def places(tensors: Iterable[Any] | Mapping[str, Any]) -> list[str]:
    """The kinds of device that these tensors are on, sorted, each once: ["cpu"], or ["cpu", "xpu"] for tensors on both."""
    values = tensors.values() if isinstance(tensors, Mapping) else tensors
    return sorted({_kind(value.place) for value in values if hasattr(value, "place")})


def no_fallback() -> AbstractContextManager[None]:
    """Inside the block an operator without a kernel for the device raises instead of running silently on the CPU.

    Source: FLAGS_enable_api_kernel_fallback in paddle/phi/core/kernel_factory.cc.
    """
    return flag_set("FLAGS_enable_api_kernel_fallback", False)


@contextmanager
def flag_set(flag: str, value: bool) -> Iterator[None]:
    """Inside the block one of Paddle's flags has this value; afterwards it is as before."""
    import paddle

    before = paddle.get_flags(flag)
    paddle.set_flags({flag: value})
    try:
        yield
    finally:
        paddle.set_flags(before)


def synchronize(device: Device) -> None:
    """Wait until the device has finished all work; without it a timer measures only how long launching the work takes."""
    if device.name != "cpu":
        import paddle

        paddle.device.synchronize()


def machine() -> dict[str, Any]:
    """The operating system, processor, cores, memory in GiB and Python version, in readable form."""
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """The installed version of each package that influences the results, by name."""
    return installed_versions(_PACKAGES)


def _record_run_context(device: Device) -> None:
    driver, card_facts = _cards(device)
    run_context = RunContext(device.name, device.cards, {**machine(), **driver}, versions(), card_facts)
    ledger.run_context = run_context
    line = f"{device.name}, {run_context.machine['processor']}, {run_context.machine['cores']} cores"
    flags = (*REPEATABLE.get(device.name, ()), "FLAGS_use_stride_kernel")
    line += "".join(f", {flag}={os.environ[flag]}" for flag in flags if flag in os.environ)
    from IPython.display import display

    display({"text/plain": line}, raw=True, metadata=run_context.to_metadata())


def _meant() -> str:
    """What `auto` stands for here. Raises AcceleratorLost where one can see that it cannot be used."""
    return meant.auto(detect(), installed_frameworks(), meant.expected())


def _require_expected(device: Device) -> None:
    """Raise InputError when Paddle sees fewer cards than this machine must have: a variable may hide some from it alone."""
    expect = meant.expected()
    if expect is None or device.name == "cpu":
        return
    seen = card_count(device.name)
    if seen < expect.count:
        raise _unusable(device.name, f"{expect.source}, but Paddle sees {seen}")


def _unusable(name: str, problem: str) -> InputError:
    """The error for a device on which Paddle cannot compute; never a reason to take another one."""
    instead = "" if name == "cpu" else f"; {meant.THE_CPU_ALL_THE_SAME}"
    return InputError(f"{problem}; `xpulab doctor` shows cause and remedy{instead}")


def _select(name: str, cards: int) -> Device:
    if name == SIMULATED:
        from xpulab import sim

        sim.load(cards)
    available = card_count(name)
    if available == 0:
        raise _unusable(name, f"Paddle sees no {name} here")
    if name != "cpu" and cards > available:
        raise InputError(f"{cards} cards of {name} were requested, Paddle sees {available}")
    place = name if name == "cpu" else f"{name}:0"
    import paddle

    try:
        paddle.set_device(place)
        total = _sum()
    except (ValueError, RuntimeError, OSError) as error:
        raise _unusable(name, f"{place} exists, but the first computation on it raised: {error}") from error
    if total != _SUM:
        raise _unusable(name, f"{place} exists, but computes {total} as the sum of 0 to 7, not {_SUM:.0f}")
    for flag in {*REPEATABLE.get(name, ())} - {*os.environ}:
        paddle.set_flags({flag: 1})
        os.environ[flag] = "1"  # for ranks
    return Device(name, cards, place)


def _sum() -> float:
    """The sum of 0 to 7, which is _SUM, computed on the present device."""
    import paddle

    return float(paddle.arange(8, dtype="float32").sum())


def _cards(device: Device) -> tuple[dict[str, str], tuple[CardFacts, ...]]:
    """The model of the cards and the version of their driver, then the facts of each card, from the vendor's tool.

    Both are empty for the CPU; simulated cards have no driver.
    """
    if device.name == SIMULATED:
        from xpulab import sim

        mib = sim.memory_of_a_card() // 2**20
        return {}, tuple(CardFacts(index, "simulated", memory_total_mib=mib) for index in range(device.cards))
    tool = {"gpu": read_nvml, "xpu": read_xpu_smi}.get(device.name)
    if tool is None:
        return {}, ()
    reading = tool()
    models = sorted({card.model for card in reading.cards})
    driver = {"card": ", ".join(models) or f"unknown, {reading.tool}: {reading.outcome}", "driver": reading.driver or "unknown"}
    return driver, tuple(map(_facts, reading.cards))


def _facts(card: Card) -> CardFacts:
    """What a report shows of a card; its link as the operating system shows it."""
    shown = {field.name: getattr(card, field.name) for field in fields(CardFacts) if field.name != "link"}
    return CardFacts(**shown, link=link_of(card.pci_address) if card.pci_address else None)


def _kind(place: Any) -> str:
    """ "Place(gpu:0)" -> "gpu"; "Place(gpu_pinned)" -> "gpu_pinned"."""
    return str(place).removeprefix("Place(").removesuffix(")").split(":", 1)[0]


def _processor() -> str:
    """The processor's name; on x86 with family, model and stepping, because virtual machines use one name for many."""
    one_core = processor.first_core()
    name = one_core.get("model name") or platform.processor() or platform.machine()
    kind = [one_core[field] for field in ("cpu family", "model", "stepping") if field in one_core]
    return f"{name} ({'-'.join(kind)})" if kind else name
