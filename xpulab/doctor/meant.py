"""What this machine is meant to have: which accelerator and how many cards, and whether one can see that they are lost.

`auto` takes the device that a machine is meant to have, never a lesser one. This is the one place that decides it, for
`xpulab run`, for use_device in a notebook, for a soak, for each node of a fleet, and for env/make_venv.py, which asks before
anything is installed: standard library only. Whether Paddle computes on what is there is found out later, on the card.
Rules as documented by the vendors; not run on a card.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from xpulab.devices import SIMULATED
from xpulab.doctor.cards import format_card_count
from xpulab.doctor.detect import INSTALLATION_STEPS, KL2_NOTE, NO_NODE_NOTE, Detection
from xpulab.doctor.label import Label, compare, parse, usable_cards
from xpulab.doctor.pci import COMPUTE_CONTROLLER
from xpulab.errors import InputError
from xpulab.messages import N_

EXPECT = "XPULAB_EXPECT"
"""The variable in which `--expect N` reaches the notebooks of a run; a site may set it itself."""
LABEL = "XPULAB_LABEL"
"""The variable with the label of this machine, as "xpu-p800-8"; `--expect` counts more."""
VISIBILITY_VARIABLES = ("XPU_VISIBLE_DEVICES", "XPULINK_VISIBLE_DEVICES", "CXPU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""They hide cards from Paddle."""
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
    """How many cards this machine must have, as somebody said.

    count: at least 1. source: where it was said, "--expect 8" or "XPULAB_LABEL=xpu-p800-8". label: with device and model,
    None for a number alone.
    """

    count: int
    source: str
    label: Label | None = None

    def concerns(self, device: str) -> bool:
        """Whether it says something of this device: a number of each but the CPU, a label of its own."""
        return device == self.label.device if self.label else device != "cpu"


@dataclass(frozen=True)
class Lost:
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
        return N_(f"this machine is meant to have {_named(self.device)}, which Paddle cannot use: {self.problem}")

    def __str__(self) -> str:
        """Several lines: the problem, why the accelerator is meant to be there, how to fix it, and how to judge the CPU."""
        lines = [self.headline]
        lines += [f"  {N_('because: ')}{reason}" for reason in self.since]
        lines += [f"  {N_('fix: ')}{step}" for step in self.steps]
        return "\n".join([*lines, THE_CPU_ALL_THE_SAME])


class AcceleratorLost(InputError):
    """`auto`, or an expected number of cards, on a machine that lacks them: red, not a mistake of the user."""

    def __init__(self, lost: Lost) -> None:
        self.lost = lost
        super().__init__(str(lost))


def expected(environ: Mapping[str, str] = os.environ) -> Expected | None:
    """What the variables of this process say, EXPECT before LABEL. Raises InputError when it cannot be read."""
    if environ.get(EXPECT):
        return expected_count(environ[EXPECT], f"{EXPECT}=")
    if environ.get(LABEL):
        label = parse(environ[LABEL])
        return Expected(label.count, f"{LABEL}={label}", label)
    return None


def expected_count(text: str, source: str = "--expect ") -> Expected:
    """What a number says. Raises InputError, which names the source, for anything but a whole number of at least 1."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        given, example = f"{source}{text}", f"{source}8"
        raise InputError(N_(f"{given}: write the number of cards that this machine must have, 1 or more, as in {example}"))
    return Expected(int(text), f"{source}{int(text)}")


def auto(detection: Detection, wheels: Collection[str], expect: Expected | None = None) -> str:
    """The device that `auto` stands for: "xpu", "gpu" or "cpu".

    wheels: the distributions of Paddle in the environment; the one of an accelerator means it.
    Raises AcceleratorLost when this machine is meant to have an accelerator, and one can see that Paddle cannot use it.
    """
    device, since = _meant(detection, wheels, expect)
    if device != "cpu":
        require_cards(device, detection, expect, since)
    elif expect is not None and expect.concerns("xpu") and expect.label is None:
        problem = N_(f"{expect.source}, and neither bus, driver, device nodes nor a vendor's tool show an accelerator")
        raise AcceleratorLost(Lost("no-card", "cpu", (N_(f"{expect.source} says so"),), problem, (_COUNT_STEP,), expect.count))
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
    if expect is not None and expect.concerns(SIMULATED) and cards < expect.count:
        problem = f"{cards} of {format_card_count(expect.count)}"
        step = N_(f"simulate as many: --cards {expect.count}")
        raise AcceleratorLost(Lost("too-few", SIMULATED, (N_(f"{expect.source} says so"),), problem, (step,), expect.count))


def wrong_wheel(device: str, detection: Detection, wheels: Collection[str], wanted: str) -> AcceleratorLost:
    """The error for an accelerator that is there, in an environment without the wheel that `wanted` names."""
    problem = N_(f"{wanted} is not installed here, but {' and '.join(wheels) or N_('no wheel of Paddle')}")
    since = tuple(_evidence(detection)[device])
    return AcceleratorLost(Lost("wheel", device, since, problem, (N_("make the environment for it: bash env/validate.sh"),)))


def _meant(detection: Detection, wheels: Collection[str], expect: Expected | None) -> tuple[str, tuple[str, ...]]:
    """The device that this machine is meant to have, and why: by its label, by what it shows, by its wheel."""
    evidence = _evidence(detection)
    if expect is not None and expect.label is not None and expect.label.device in evidence:
        evidence = {expect.label.device: [N_(f"{expect.source} says so"), *evidence[expect.label.device]]}
    for name, device in _WHEELS.items():
        if name in wheels and not any(evidence.values()):
            evidence[device].append(N_(f"the environment contains {name}"))
    device = next((device for device, reasons in evidence.items() if reasons), "cpu")
    return device, tuple(evidence.get(device, ()))


def _evidence(detection: Detection) -> dict[str, list[str]]:
    """By accelerator, the best first, what of it this machine shows."""
    bus = {
        "xpu": detection.kunlun_pci,
        "gpu": [card for card in detection.nvidia_pci if card.kind == COMPUTE_CONTROLLER],
    }
    nodes = {"xpu": detection.nodes, "gpu": detection.nvidia_nodes}
    tools = {"xpu": detection.xpu_smi, "gpu": detection.nvidia_smi}
    found: dict[str, list[str]] = {}
    for device, name in _NAMES.items():
        found[device] = [N_(f"{name} card on the PCI bus: {card}") for card in bus[device]]
        if nodes[device]:
            found[device].append(N_(f"device nodes: {', '.join(node.path for node in nodes[device])}"))
        if tools[device].cards:
            found[device].append(tools[device].detail)
    if detection.nvidia_driver:
        found["gpu"].append(N_("NVIDIA's driver is loaded"))
    return found


def _missing(device: str, detection: Detection, since: tuple[str, ...]) -> Lost | None:
    """Why not one card of the device can be used; None when one may be."""
    if device == "xpu" and detection.has_old_kunlun_cards_only:
        return Lost("kl2", device, since, KL2_NOTE, (_KL2_STEP,))
    if _nodes_and_cards(device, detection):
        return None
    if device == "xpu" and detection.kunlun_pci:
        module = detection.kunlun_module
        seen = N_(f"kernel module {module} is loaded") if module else N_("no kernel module kunlun or xpu_driver is loaded")
        return Lost("no-device-node", device, since, N_(f"{NO_NODE_NOTE} Here {seen}."), INSTALLATION_STEPS[device])
    if device == "gpu" and (detection.nvidia_driver or detection.nvidia_pci):
        problem = N_(f"there is no /dev/nvidia0, and nvidia-smi lists no card: {detection.nvidia_smi.detail}")
        return Lost("no-driver", device, since, problem, INSTALLATION_STEPS[device])
    problem = N_("neither bus, driver, device nodes nor the vendor's tool show a card")
    return Lost("no-card", device, since, problem, INSTALLATION_STEPS[device])


def _nodes_and_cards(device: str, detection: Detection) -> bool:
    """Whether a device node or the vendor's tool shows a card, in whatever state."""
    if device == "xpu":
        return bool(detection.nodes or detection.xpu_smi.cards)
    return bool(detection.nvidia_nodes or detection.nvidia_smi.cards)


def _too_few(device: str, detection: Detection, expect: Expected | None, since: tuple[str, ...]) -> Lost | None:
    """The cards that are there, when they are fewer than expected, or others than the label says."""
    if expect is not None and expect.concerns(device):
        since = tuple(dict.fromkeys((N_(f"{expect.source} says so"), *since)))
        if expect.label is not None:
            comparison = compare(expect.label, detection)
            return None if comparison.fits else Lost("too-few", device, since, comparison.line, (_COUNT_STEP,))
        wanted = expect.count
    else:
        wanted = _cards_on_bus(device, detection)
    usable = usable_cards(device, detection)
    if usable.count >= wanted:
        return None
    notes = "; ".join(("", *usable.notes))
    asked = expect.count if expect is not None and expect.concerns(device) else None
    return Lost("too-few", device, since, f"{usable.count} of {format_card_count(wanted)}{notes}", (_COUNT_STEP,), asked)


def _cards_on_bus(device: str, detection: Detection) -> int:
    """How many cards the bus shows that this process must be able to use; 0 where it does not say."""
    if detection.in_container or any(name in os.environ for name in VISIBILITY_VARIABLES):
        return 0
    if device == "xpu":
        return sum(card.generation == "KL3" and not card.is_virtual for card in detection.kunlun_pci)
    return sum(card.kind == COMPUTE_CONTROLLER and not card.is_virtual for card in detection.nvidia_pci)


def _named(device: str) -> str:
    return {"xpu": N_("an XPU"), "gpu": N_("a GPU"), SIMULATED: N_("simulated cards")}.get(device, N_("an accelerator"))


def warnings(detection: Detection) -> Iterator[str]:
    """What is worth a line where `auto` goes on."""
    if detection.display_chips:
        yield N_(f"{', '.join(map(str, detection.display_chips))}: an NVIDIA display chip without a driver is no accelerator")
