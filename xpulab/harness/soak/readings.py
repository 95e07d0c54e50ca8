"""Temperatures, clocks and memory while a round runs: of the cards from the vendor's tool, of the processor from the system."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psutil

from xpulab.doctor.cards import Card
from xpulab.doctor.nvidia_smi import read_nvidia_smi
from xpulab.doctor.xpu_smi import read_xpu_smi

INTERVAL_SECONDS = 30.0
"""Between two samples of one round; there is one at its beginning and one at its end."""

_TOOLS = {"xpu": read_xpu_smi, "gpu": read_nvidia_smi}
_MIB = 2**20
_STOP_SECONDS = 60.0
"""A hanging tool is killed by its own timeouts before."""


@dataclass(frozen=True)
class Part:
    """One card, or the processor, at one time.

    name: "card 0", "processor". A field is None when nothing shows it.
    temperature_c: degrees Celsius. clock_mhz: MHz. power_w: W. memory_used_mib: MiB, of cards only.
    """

    name: str
    temperature_c: float | None = None
    clock_mhz: float | None = None
    power_w: float | None = None
    memory_used_mib: int | None = None


@dataclass(frozen=True)
class Sample:
    """What was read at one time. time: local, with its offset from UTC. note: why there are no parts, else None."""

    time: datetime
    parts: tuple[Part, ...]
    note: str | None = None


@dataclass(frozen=True)
class Memory:
    """What is used between two rounds, in MiB: growth is a leak.

    machine: of the machine's memory. own: by this process. shared: in /dev/shm. disk_free: free where the reports are.
    """

    machine: int
    own: int
    shared: int
    disk_free: int


def read_parts(device: str) -> Sample:
    """One sample for a device: "gpu" or "xpu" from the vendor's tool, "cpu" and "sim" of the processor."""
    now = datetime.now().astimezone()
    if tool := _TOOLS.get(device):
        reading = tool()
        note = None if reading.cards else f"no tool shows temperatures and clocks: {reading.detail}"
        return Sample(now, tuple(map(_card, reading.cards)), note)
    part = _processor()
    if part.temperature_c is None and part.clock_mhz is None:
        return Sample(now, (), "no sensor of the processor is readable here")
    return Sample(now, (part,))


def read_memory(folder: Path) -> Memory:
    """What is used now; folder: where the reports are."""
    shared = psutil.disk_usage("/dev/shm").used if Path("/dev/shm").is_dir() else 0
    own = psutil.Process().memory_info().rss
    sizes = (psutil.virtual_memory().used, own, shared, psutil.disk_usage(str(folder)).free)
    return Memory(*(size // _MIB for size in sizes))


class Sampler:
    """Samples while a block runs: `with Sampler("xpu") as sampler: ...`, then sampler.samples, in order of time."""

    def __init__(self, device: str, interval: float = INTERVAL_SECONDS, read: Callable[[str], Sample] = read_parts) -> None:
        self._device, self._interval, self._read = device, interval, read
        self._samples: list[Sample] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="temperatures and clocks", daemon=True)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """What was read so far."""
        return tuple(self._samples)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        over = False
        while True:
            self._samples.append(self._read(self._device))
            if over:
                return
            over = self._over.wait(self._interval)


def nearest(samples: Sequence[Sample], moment: datetime) -> Sample | None:
    """The sample that was read nearest to a moment; None when there is none."""
    return min(samples, key=lambda sample: abs(sample.time - moment), default=None)


def _card(card: Card) -> Part:
    return Part(f"card {card.index}", card.temperature_c, card.clock_mhz, card.power_w, card.memory_used_mib)


def _processor() -> Part:
    """The hottest sensor of the processor and its mean clock, as far as the kernel shows them."""
    sensors = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
    hottest = max((entry.current for entries in sensors.values() for entry in entries if entry.current), default=None)
    clock = psutil.cpu_freq()
    return Part("processor", hottest, round(clock.current) if clock and clock.current else None)
