"""Detects the device of this machine: xpu, gpu or cpu. Standard library only, fast to import.

Rules and formats as documented by the vendors; not run on a card.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from xpulab.devices import DEVICES, REAL, SIMULATED
from xpulab.doctor import system
from xpulab.doctor.cards import Reading
from xpulab.doctor.nvml import read_nvml
from xpulab.doctor.system import DeviceNode, PciCard
from xpulab.doctor.tool import TIMEOUT
from xpulab.doctor.xpu_smi import read_xpu_smi
from xpulab.errors import InputError
from xpulab.messages import N_

BEFORE_KL3 = ("KL1", "KL2", "KL1 or KL2")
INSTALLATION_STEPS = {
    "xpu": (
        N_("install the XPU driver (5.0.21.26 or newer) and load it: sudo modprobe kunlun"),
        N_("in a container, pass every card and the control node: --device=/dev/xpu0 --device=/dev/xpuctrl"),
        N_(
            "the wheel, for Python 3.10 only: python -m pip install 'paddlepaddle-xpu>=3.3.0,<=3.3.1' "
            "-i https://www.paddlepaddle.org.cn/packages/stable/xpu-p800/"
        ),
    ),
    "gpu": (
        N_("install the NVIDIA driver, until nvidia-smi lists the card"),
        N_("in a container, pass the cards: docker run --gpus all"),
        N_(
            "the wheel: python -m pip install paddlepaddle-gpu==3.3.1 -i https://www.paddlepaddle.org.cn/packages/stable/cu126/"
        ),
    ),
}


@dataclass(frozen=True)
class Detection:
    """What this machine has.

    available: those of "xpu", "gpu", "cpu" that this machine has, the best first; always with "cpu". What `auto` takes is said
        by xpulab.doctor.meant: a machine may lack what it is meant to have
    looked_for: a line for each thing that was examined for the decision
    kunlun_pci, nvidia_pci, nodes, nvidia_nodes, xpu_smi, nvml: the complete observations
    kunlun_module: the name of Kunlun's kernel module; None when it is not loaded
    nvidia_driver: whether NVIDIA's driver is loaded
    in_container: whether this is a container, which sees the whole bus and has the cards that it was given
    """

    available: tuple[str, ...]
    looked_for: tuple[str, ...]
    kunlun_pci: tuple[PciCard, ...]
    nvidia_pci: tuple[PciCard, ...]
    nodes: tuple[DeviceNode, ...]
    nvidia_nodes: tuple[DeviceNode, ...]
    xpu_smi: Reading
    nvml: Reading
    kunlun_module: str | None
    nvidia_driver: bool
    in_container: bool

    @property
    def device(self) -> str:
        """The best device that is available."""
        return self.available[0]

    @property
    def has_old_kunlun_cards_only(self) -> bool:
        """Whether there are Kunlun cards, and all of them are older than KL3."""
        return bool(self.kunlun_generations) and set(self.kunlun_generations) <= set(BEFORE_KL3)

    @property
    def kunlun_generations(self) -> list[str | None]:
        """Of every Kunlun card on the bus, then of every one that the tool shows; None for one that the suite does not know."""
        return [*(card.generation for card in self.kunlun_pci), *(card.generation for card in self.xpu_smi.cards)]

    @property
    def unknown_cards(self) -> tuple[str, ...]:
        """The Kunlun cards of a generation that this suite does not know, by their ids on the bus and their models."""
        on_bus = [str(card) for card in self.kunlun_pci if card.generation is None]
        of_tool = [card for card in self.xpu_smi.cards if card.generation is None]
        return (*on_bus, *(N_("card {index}, {model}", index=card.index, model=card.model) for card in of_tool))


def detect(root: Path | None = None, timeout: float = TIMEOUT) -> Detection:
    """Examines the PCI bus and /dev below root, and asks the vendors' tools, each for at most timeout seconds.

    xpu: a node /dev/xpuN exists; or Kunlun's tool answers; or a tool of that name hangs, fails or cannot be read while
    the PCI bus shows a Kunlun card. gpu: NVML lists at least one card, or a node /dev/nvidiaN exists; NVML is asked where
    anything of NVIDIA is seen. Takes milliseconds on a machine without cards and tools. root: None is system.system_root().
    """
    root = system.system_root() if root is None else root
    kunlun_pci, nvidia_pci, nodes = system.kunlun_cards(root), system.nvidia_cards(root), system.numbered_nodes(root, "xpu")
    nvidia_nodes, nvidia_driver = system.numbered_nodes(root, "nvidia"), system.nvidia_driver_is_loaded(root)
    nvidia_tool = shutil.which("nvidia-smi")
    xpu_smi = read_xpu_smi(timeout)
    nvml = Reading("NVML", (), "missing", N_("not asked: nothing of NVIDIA is here"))
    if nvidia_pci or nvidia_nodes or nvidia_driver or nvidia_tool:
        nvml = read_nvml(timeout)
    tool_fails = xpu_smi.outcome in ("hung", "failed", "unreadable")
    has_xpu = bool(nodes) or xpu_smi.outcome == "ok" or (tool_fails and bool(kunlun_pci))
    has = {"xpu": has_xpu, "gpu": bool(nvml.cards or nvidia_nodes), "cpu": True}

    looked_for = (
        *([] if root == Path("/") else [N_("bus, driver and nodes are those below {root}", root=root)]),
        _names(N_("Kunlun cards on the PCI bus"), [card.address for card in kunlun_pci]),
        _names(N_("device nodes /dev/xpu[0-9]*"), [node.path for node in nodes]),
        _looked_for(N_("xpu-smi or xpu_smi"), xpu_smi.outcome == "ok", xpu_smi.detail),
        _names(N_("NVIDIA cards on the PCI bus"), [card.address for card in nvidia_pci]),
        _looked_for(N_("NVIDIA's driver"), nvidia_driver, N_("loaded") if nvidia_driver else N_("not loaded")),
        _names(N_("device nodes /dev/nvidia[0-9]*"), [node.path for node in nvidia_nodes]),
        _looked_for("nvidia-smi", nvidia_tool is not None, nvidia_tool or N_("not on PATH")),
        _looked_for("NVML", nvml.outcome == "ok", nvml.detail),
    )
    return Detection(
        available=tuple(device for device in REAL if has[device]),
        looked_for=looked_for,
        kunlun_pci=kunlun_pci,
        nvidia_pci=nvidia_pci,
        nodes=nodes,
        nvidia_nodes=nvidia_nodes,
        xpu_smi=xpu_smi,
        nvml=nvml,
        kunlun_module=system.loaded_module(root),
        nvidia_driver=nvidia_driver,
        in_container=system.in_container(root),
    )


def require(device: str, detection: Detection) -> None:
    """Raises InputError when device ("xpu", "gpu", "cpu" or "sim") is not available: what was looked for, how to fix it.

    "sim" is always available: xpulab.sim builds the simulated cards, which run on the CPU.
    """
    require_known(device)
    if device in (*detection.available, SIMULATED):
        return
    lines = [
        N_("no {device} on this machine. Looked for:", device=device),
        *detection.looked_for,
        N_("To fix it:"),
        *INSTALLATION_STEPS[device],
    ]
    raise InputError("\n  ".join(lines))


def require_known(device: str) -> None:
    """Raises InputError for anything but "auto" and the names of devices."""
    if device not in ("auto", *DEVICES):
        raise InputError(N_("device {device}: unknown; one of {DEVICES}", device=repr(device), DEVICES=", ".join(DEVICES)))


def _names(what: str, names: list[str]) -> str:
    return _looked_for(what, bool(names), f"{len(names)} ({', '.join(names)})" if names else N_("none"))


def _looked_for(what: str, found: bool, detail: str) -> str:
    if found:
        return N_("found      {what}: {detail}", what=what, detail=detail)
    return N_("not found  {what}: {detail}", what=what, detail=detail)
