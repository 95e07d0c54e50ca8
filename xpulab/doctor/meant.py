"""What this machine is meant to have: which accelerator and how many cards, and whether one can see that they are lost.

`auto` takes the device that a machine is meant to have, never a lesser one. This is the one place that decides it, for
`xpulab run`, for use_device in a notebook, for a soak, for each node of a fleet, and for env/make_venv.py, which asks before
anything is installed: standard library only. Whether Paddle computes on what is there is found out later, on the card.
Rules as documented by the vendors; not run on a card.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from itertools import takewhile

from xpulab.devices import SIMULATED
from xpulab.doctor.cards import Reading, format_card_count
from xpulab.doctor.detect import INSTALLATION_STEPS, Detection
from xpulab.doctor.system import COMPUTE_CONTROLLER, DeviceNode, PciCard
from xpulab.errors import InputError
from xpulab.messages import N_

EXPECT = "XPULAB_EXPECT"
"""The variable in which `--expect N` reaches the notebooks of a run; a site may set it itself."""
VISIBILITY_VARIABLES = {
    "xpu": ("XPU_VISIBLE_DEVICES", "XPULINK_VISIBLE_DEVICES", "CXPU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "gpu": ("CUDA_VISIBLE_DEVICES",),
}
"""They hide cards from Paddle. That of CUDA counts for an XPU too: paddle/distributed/launch/context/device.py of 3.3.1."""
THE_CPU_ALL_THE_SAME = N_("to judge the CPU all the same: --device cpu")
"""What every refusal of `auto` ends with; in a notebook it is the parameter `device`."""

_WHEELS = {"paddlepaddle-xpu": "xpu", "paddlepaddle-gpu": "gpu"}
_NAMES = {"xpu": "Kunlun", "gpu": "NVIDIA"}
_KL2_STEP = N_("take a KL3 card (P800), or paddlepaddle-xpu 2.6.1 with Python 3.10 in a separate environment")
_COUNT_STEP = N_(
    "compare lspci, ls /dev/xpu* /dev/nvidia* and the vendor's tool; xpulab doctor shows what each sees. When fewer cards are "
    "right, say so: --expect N"
)


@dataclass(frozen=True)
class Expected:
    """How many cards this machine must have, as somebody said. count: at least 1. source: where, as in "--expect 8"."""

    count: int
    source: str


@dataclass(frozen=True)
class LostAccelerator:
    """An accelerator that this machine is meant to have, and that Paddle cannot use.

    id: "kl2", "no-device-node", "no-driver", "no-card", "too-few" or "wheel".
    device: "xpu", "gpu" or "sim"; "cpu" when cards are expected, and nothing says of which kind.
    since: why it is meant to be there, one sentence each. problem: what is wrong, one sentence. steps: what fixes it, in order.
    expected: how many cards --expect asked for; None when it did not.
    """

    id: str
    device: str
    since: tuple[str, ...]
    problem: str
    steps: tuple[str, ...]
    expected: int | None = None

    @property
    def headline(self) -> str:
        """The problem in one line."""
        return N_(
            "this machine is meant to have {device}, which Paddle cannot use: {problem}",
            device=_named(self.device),
            problem=self.problem,
        )

    def __str__(self) -> str:
        """Several lines: the problem, why the accelerator is meant to be there, how to fix it, and how to judge the CPU."""
        lines = [self.headline]
        lines += [f"  {N_('because: ')}{reason}" for reason in self.since]
        lines += [f"  {N_('fix: ')}{step}" for step in self.steps]
        return "\n".join([*lines, THE_CPU_ALL_THE_SAME])


class AcceleratorLost(InputError):
    """`auto`, or an expected number of cards, on a machine that lacks them: red, not a mistake of the user."""

    def __init__(self, lost: LostAccelerator) -> None:
        self.lost = lost
        super().__init__(str(lost))


def expected() -> Expected | None:
    """What the variable of this process says. Raises InputError when it cannot be read."""
    return expected_count(os.environ[EXPECT], f"{EXPECT}=") if os.environ.get(EXPECT) else None


def expected_count(text: str, source: str = "--expect ") -> Expected:
    """What a number says. Raises InputError, which names the source, for anything but a whole number of at least 1."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        given, example = f"{source}{text}", f"{source}8"
        raise InputError(
            N_(
                "{given}: write the number of cards that this machine must have, 1 or more, as in {example}",
                given=given,
                example=example,
            )
        )
    return Expected(int(text), f"{source}{int(text)}")


def auto(detection: Detection, wheels: Collection[str], expect: Expected | None = None) -> str:
    """The device that `auto` stands for: "xpu", "gpu" or "cpu".

    wheels: the distributions of Paddle in the environment; the one of an accelerator means it.
    Raises AcceleratorLost when this machine is meant to have an accelerator, and one can see that Paddle cannot use it.
    """
    device, since = _meant(detection, wheels)
    if device != "cpu":
        require_cards(device, detection, expect, since)
    elif expect is not None:
        problem = N_(
            "{source}, and neither bus, driver, device nodes nor a vendor's tool show an accelerator", source=expect.source
        )
        raise AcceleratorLost(LostAccelerator("no-card", "cpu", (_says_so(expect),), problem, (_COUNT_STEP,), expect.count))
    return device


def require_cards(device: str, detection: Detection, expect: Expected | None = None, since: tuple[str, ...] = ()) -> None:
    """Raises AcceleratorLost when the cards of "xpu" or "gpu" are not there, are too old, or are too few.

    Too few: less than expected; without an expectation less than the bus shows, unless a container or a variable limits them.
    """
    since = since or tuple(_evidence(detection)[device])
    if lost := _missing(device, detection, since) or _too_few(device, detection, expect, since):
        raise AcceleratorLost(lost)


def require_simulated(cards: int, expect: Expected | None) -> None:
    """Raises AcceleratorLost when fewer cards are simulated than expected."""
    if expect is not None and cards < expect.count:
        problem = f"{cards} of {format_card_count(expect.count)}"
        step = N_("simulate as many: --cards {count}", count=expect.count)
        raise AcceleratorLost(LostAccelerator("too-few", SIMULATED, (_says_so(expect),), problem, (step,), expect.count))


def wrong_wheel(device: str, detection: Detection, wheels: Collection[str], wanted: str) -> AcceleratorLost:
    """The error for an accelerator that is there, in an environment without the wheel that `wanted` names."""
    problem = N_(
        "{wanted} is not installed here, but {wheels}", wanted=wanted, wheels=" and ".join(wheels) or N_("no wheel of Paddle")
    )
    step = N_("make the environment for it: bash env/validate.sh")
    return AcceleratorLost(LostAccelerator("wheel", device, tuple(_evidence(detection)[device]), problem, (step,)))


def limits_of(device: str, detection: Detection) -> list[str]:
    """Why this process may see fewer cards of "xpu" or "gpu" than the machine has: a variable, a container, a scheduler."""
    limits = [f"{name}={os.environ[name]}" for name in VISIBILITY_VARIABLES[device] if name in os.environ]
    limits += [N_("a container")] if detection.in_container else []
    hidden = [node.path for node in of_device(device, detection)[0] if node.is_hidden]
    return limits + ([N_("a scheduler keeps {hidden}", hidden=", ".join(hidden))] if hidden else [])


def visible_cards(device: str, detection: Detection) -> tuple[int, int]:
    """How many cards of "xpu" or "gpu" this process must see, and how many the machine shows; 0 of 0 where nothing is known.

    Where nothing limits the process it must see all. Of a list of cards in a variable those before the first one that is not
    there count, as for CUDA; that Kunlun's runtime reads its variables in the same way is not known.
    """
    nodes, reading = of_device(device, detection)
    tool = [len(reading.cards)] if reading.counts_cards else []
    on_bus = sum(card.generation in ("KL3", "cuda") and not card.is_virtual for card in _on_bus(device, detection))
    there = max(len(nodes), *tool, on_bus)
    if not limits_of(device, detection):
        return there, there
    named = [_named_cards(os.environ[name], there) for name in VISIBILITY_VARIABLES[device] if name in os.environ]
    return min([there, *tool, *named, *([sum(node.usable for node in nodes)] if nodes else [])]), there


def _named_cards(value: str, there: int) -> int:
    """How many cards the value of a variable of visible devices names, by number or by id."""
    names = (name.strip() for name in value.split(","))
    return len([*takewhile(lambda name: int(name) < there if name.isdigit() else name[:1].isalpha(), names)])


def of_device(device: str, detection: Detection) -> tuple[tuple[DeviceNode, ...], Reading]:
    """The device nodes of "xpu" or "gpu", and what the vendor says of its cards."""
    if device == "xpu":
        return detection.nodes, detection.xpu_smi
    return detection.nvidia_nodes, detection.nvml


def _meant(detection: Detection, wheels: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """The device that this machine is meant to have, and why: by what it shows, by its wheel."""
    evidence = _evidence(detection)
    for name, device in _WHEELS.items():
        if name in wheels and not any(evidence.values()):
            evidence[device].append(N_("the environment contains {name}", name=name))
    device = next((device for device, reasons in evidence.items() if reasons), "cpu")
    return device, tuple(evidence.get(device, ()))


def _evidence(detection: Detection) -> dict[str, list[str]]:
    """By accelerator, the best first, what of it this machine shows."""
    shown: dict[str, list[str]] = {}
    for device, name in _NAMES.items():
        nodes, reading = of_device(device, detection)
        shown[device] = [N_("{name} card on the PCI bus: {card}", name=name, card=card) for card in _on_bus(device, detection)]
        shown[device] += [N_("device nodes: {value}", value=", ".join(node.path for node in nodes))] if nodes else []
        shown[device] += [reading.detail] if reading.cards else []
    if detection.nvidia_driver:
        shown["gpu"].append(N_("NVIDIA's driver is loaded"))
    return shown


def _missing(device: str, detection: Detection, since: tuple[str, ...]) -> LostAccelerator | None:
    """Why not one card of the device can be used; None when one may be."""
    nodes, reading = of_device(device, detection)
    steps = INSTALLATION_STEPS[device]
    if device == "xpu" and detection.has_old_kunlun_cards_only:
        problem = N_("its Kunlun cards are older than KL3 (K100, K200, R200, R300), which Paddle 3 does not support")
        return LostAccelerator("kl2", device, since, problem, (_KL2_STEP,))
    if nodes or reading.cards:  # in whatever state
        return None
    if device == "xpu" and detection.kunlun_pci:
        module = detection.kunlun_module
        seen = (
            N_("kernel module {module} is loaded", module=module)
            if module
            else N_("no kernel module kunlun or xpu_driver is loaded")
        )
        problem = N_("a Kunlun card is on the PCI bus, but there is no /dev/xpu0; {seen}", seen=seen)
        return LostAccelerator("no-device-node", device, since, problem, steps)
    if device == "gpu" and (detection.nvidia_driver or detection.nvidia_pci):
        problem = N_("there is no /dev/nvidia0, and NVIDIA's library lists no card: {detail}", detail=reading.detail)
        return LostAccelerator("no-driver", device, since, problem, steps)
    problem = N_("neither bus, driver, device nodes nor the vendor's tool show a card")
    return LostAccelerator("no-card", device, since, problem, steps)


def _too_few(device: str, detection: Detection, expect: Expected | None, since: tuple[str, ...]) -> LostAccelerator | None:
    """The cards that are there, when they are fewer than expected."""
    if expect is not None:
        since = tuple(dict.fromkeys((_says_so(expect), *since)))
    wanted = expect.count if expect is not None else visible_cards(device, detection)[0]
    usable, why = _usable(device, detection)
    if usable >= wanted:
        return None
    problem = "; ".join((f"{usable} of {format_card_count(wanted)}", *why))
    return LostAccelerator("too-few", device, since, problem, (_COUNT_STEP,), expect.count if expect is not None else None)


def _usable(device: str, detection: Detection) -> tuple[int, list[str]]:
    """How many cards of "xpu" or "gpu" this process can use, as far as driver and vendor show it, and why there are not more.

    A tool that is missing, as in a container, or that is not understood leaves the device nodes; hidden nodes leave the tool.
    """
    nodes, reading = of_device(device, detection)
    closed = [node.path for node in nodes if not node.usable]
    broken = [str(card.index) for card in reading.cards if card.state]
    counts = [len(nodes) - len(closed)] if nodes else []
    counts += [len(reading.cards) - len(broken)] if reading.counts_cards else []
    visible, there = visible_cards(device, detection)
    counts += [visible] if visible < there else []
    why = [N_("this user cannot open {closed}", closed=", ".join(closed))] if closed else []
    why += [N_("in state error: {broken}", broken=", ".join(broken))] if broken else []
    why += [N_("limited by {limits}", limits=", ".join(limits_of(device, detection)))] if visible < there else []
    return min(counts, default=0), why


def _on_bus(device: str, detection: Detection) -> list[PciCard]:
    """The cards on the bus, without NVIDIA's that also drive a display."""
    if device == "xpu":
        return list(detection.kunlun_pci)
    return [card for card in detection.nvidia_pci if card.kind == COMPUTE_CONTROLLER]


def _says_so(expect: Expected) -> str:
    return N_("{source} says so", source=expect.source)


def _named(device: str) -> str:
    return {"xpu": N_("an XPU"), "gpu": N_("a GPU"), SIMULATED: N_("simulated cards")}.get(device, N_("an accelerator"))
