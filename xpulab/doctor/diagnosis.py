"""Diagnoses this machine: a list of findings, each with what was seen, a verdict and a remedy.

Rules for cards as documented by the vendors; not run on a card.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from xpulab.devices import LAUNCHER_VARIABLES, NODE_VARIABLES, SIMULATED
from xpulab.doctor import meant, system
from xpulab.doctor.cards import Card, Reading, format_card_count
from xpulab.doctor.detect import BEFORE_KL3, Detection, detect, require
from xpulab.doctor.finding import Finding, known_finding
from xpulab.doctor.installation import installation
from xpulab.doctor.matmul_mode import matmul_mode
from xpulab.doctor.meant import of_device
from xpulab.doctor.network import interfaces
from xpulab.doctor.paddle_facts import PaddleFacts
from xpulab.doctor.probe import Probe
from xpulab.doctor.remedies import by_id
from xpulab.doctor.versions import VersionRow, version_rows
from xpulab.messages import N_
from xpulab.records.environments import installed_frameworks

STRIDES = "FLAGS_use_stride_kernel"
WITHOUT_STRIDES = ("0", "f", "false", "n", "no")
"""The variable, and its values, in lower case, with which views are copies: what gflags reads as false."""
X86_64 = ("x86_64", "AMD64")
"""Processors for which there are wheels for Kunlun cards."""
HEALTHY_STATES = ("RUNNING", "NORMAL")
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True)
class Diagnosis:
    """All findings for one device.

    device: the one that was diagnosed, "xpu", "gpu", "cpu" or "sim"
    findings: in the order in which to read them: hardware first, then installation, then environment
    versions: installed versions compared with the supported ones
    detection: what was looked for, with the output of the vendors' tools
    paddle: version and build of Paddle; None when Paddle was not imported
    """

    device: str
    findings: tuple[Finding, ...]
    versions: tuple[VersionRow, ...]
    detection: Detection
    paddle: PaddleFacts | None

    @property
    def outcome(self) -> Literal["ok", "warn", "wrong"]:
        """The worst verdict: "wrong" when anything is wrong or missing, else "warn" when anything is not ok."""
        verdicts = {thing.verdict for thing in self.things}
        if verdicts & {"wrong", "missing"}:
            return "wrong"
        return "ok" if verdicts <= {"ok"} else "warn"

    @property
    def things(self) -> tuple[Finding | VersionRow, ...]:
        """Everything that has a verdict, in the order in which to read it."""
        return (*self.findings, *self.versions)

    def to_json(self) -> dict[str, object]:
        """Plain dicts, lists, strings and numbers."""
        return {"outcome": self.outcome, **asdict(self)}


def diagnose(
    device: str = "auto",
    paddle: PaddleFacts | None = None,
    detection: Detection | None = None,
    probed: Probe | None = None,
) -> Diagnosis:
    """Examines everything that matters for device ("auto", "xpu", "gpu", "cpu" or "sim").

    paddle: the result of paddle_facts(), to compare its number of cards with the others; None leaves Paddle out
    detection: an earlier one of this machine; None detects again
    probed: the result of probe(), which has Paddle's facts too; None leaves imports and computations out
    Raises InputError when the named device is not available.
    """
    root = system.system_root()
    detection = detection or detect(root)
    paddle = probed.facts if probed else paddle
    hardware = [*_kunlun_hardware(detection, root), *_meant(device, detection)]
    if device in ("cpu", "gpu", SIMULATED):
        # A user who names another device knows about the cards; `auto` must never skip a defective one silently.
        hardware = [replace(finding, verdict="warn") if finding.verdict == "wrong" else finding for finding in hardware]
    device = detection.device if device == "auto" else device
    require(device, detection)
    available = ", ".join(detection.available)
    seen = N_("diagnosed for {device}; this machine has {available}", device=device, available=available)
    findings = [Finding("device", "ok", seen), *hardware]
    if device == "xpu" and (detection.has_old_kunlun_cards_only or platform.machine() not in X86_64):
        # No command can install what does not exist, and nothing else matters until there is another machine.
        if not detection.has_old_kunlun_cards_only:
            seen = N_("this machine has a processor of type {machine}", machine=platform.machine())
            findings.append(known_finding("no-wheel", "wrong", seen, "no-xpu-wheel-for-processor"))
        return Diagnosis(device, tuple(findings), (), detection, paddle)
    if device in ("xpu", "gpu"):
        reading = of_device(device, detection)[1]
        findings += [vendor_tool(reading, detection.in_container), *health(reading.cards)]
        findings.append(_card_counts(device, detection, paddle))
    findings += installation(device, paddle, probed)
    findings += _environment(device, root)
    return Diagnosis(
        device=device,
        findings=tuple(findings),
        versions=version_rows(device, detection.xpu_smi),
        detection=detection,
        paddle=paddle,
    )


def _kunlun_hardware(detection: Detection, root: Path) -> Iterator[Finding]:
    """Generation, nodes and states of Kunlun cards."""
    if old := {name for name in detection.kunlun_generations if name in BEFORE_KL3}:
        verdict: Literal["wrong", "warn"] = "wrong" if detection.has_old_kunlun_cards_only else "warn"
        yield known_finding("kl2", verdict, N_("Kunlun cards older than KL3: {old}", old=", ".join(sorted(old))), "kl2")
    if detection.unknown_cards:
        seen = N_("unknown Kunlun cards: {unknown_cards}", unknown_cards=", ".join(detection.unknown_cards))
        yield known_finding("unknown-card", "warn", seen, "unknown-card")
    if detection.nodes:
        yield _node_access(detection, system.control_node(root))
    yield from card_state(detection, root)


def _meant(device: str, detection: Detection) -> Iterator[Finding]:
    """The accelerator that this machine is meant to have and lacks, where no other finding says it."""
    expect = meant.expected()
    try:
        if device in ("xpu", "gpu"):
            if device in detection.available and expect is not None:
                meant.require_cards(device, detection, expect)
        else:
            meant.auto(detection, installed_frameworks(), expect)
    except meant.AcceleratorLost as error:
        lost = error.lost
        counted = lost.id == "too-few" and expect is None  # "card-count" says it
        if not counted and lost.id != "kl2":
            yield Finding(lost.id, "wrong", lost.headline, "; ".join(lost.steps), "; ".join(lost.since) or None)


def _node_access(detection: Detection, control: system.DeviceNode | None) -> Finding:
    if control is None:
        return known_finding("node-permissions", "wrong", N_("there is no /dev/xpuctrl"), "no-device-node")
    nodes = [node for node in detection.nodes if not node.is_hidden]
    inaccessible = [node for node in (*nodes, control) if not node.usable]
    if inaccessible:
        closed = ", ".join(f"{node.path} ({node.permissions})" for node in inaccessible)
        seen = N_("this user cannot read and write {closed}", closed=closed)
        return known_finding("node-permissions", "wrong", seen, "node-permissions")
    return Finding("node-permissions", "ok", N_("{nodes} device nodes and /dev/xpuctrl are accessible", nodes=len(nodes)))


def card_state(detection: Detection, root: Path) -> Iterator[Finding]:
    """From /proc/xpu/devN/state and what the vendor says; no finding when neither shows one."""
    shown = (*detection.xpu_smi.cards, *detection.nvml.cards)
    states = system.card_states(root) if detection.nodes else {}
    states = {**{card.index: card.state.upper() for card in shown if card.state}, **states}
    unhealthy = sorted((index, state) for index, state in states.items() if state not in HEALTHY_STATES)
    if unhealthy:
        seen = ", ".join(N_("card {index} is in state {state}", index=index, state=state or "?") for index, state in unhealthy)
        if any(re.search("ERROR|RESET", state) for _, state in unhealthy):
            yield known_finding("card-error", "wrong", seen, "card-error")
        else:  # another word may be that of a new driver
            yield known_finding("card-error", "unknown", seen, "vendor-tool-unread")
    elif states:
        value = " or ".join(sorted({*states.values()}))
        seen = N_("{states} in state {value}", states=format_card_count(len(states)), value=value)
        yield Finding("card-error", "ok", seen)


def vendor_tool(reading: Reading, in_container: bool) -> Finding:
    """What the vendor's tool did. A warning where it is missing, as in containers whose cards work.

    Only what can be read may be wrong: the errors of NVIDIA's library have names. That another tool fails, hangs or is not
    understood says nothing of the cards, which compute or do not.
    """
    id = reading.tool.lower().replace("_", "-")
    missing = "nvml-missing" if id == "nvml" else "xpu-smi-missing"
    if reading.unread:
        lines = len(reading.unread)
        seen = N_(
            "{detail}; {lines} lines of it are not understood, the first: {unread}",
            detail=reading.detail,
            lines=lines,
            unread=reading.unread[0][:_SHOWN_CHARACTERS],
        )
        return known_finding(id, "unknown", seen, "vendor-tool-unread")
    if reading.outcome == "ok":
        return Finding(id, "ok", reading.detail)
    if reading.outcome == "missing":
        seen = N_("{detail} in this container", detail=reading.detail) if in_container else reading.detail
        return known_finding(id, "warn", seen, missing)
    if reading.outcome == "foreign":
        return known_finding(id, "warn", reading.detail, "xpu-smi-foreign")
    named = (reading.tool, reading.outcome) == ("NVML", "failed")
    return known_finding(id, "wrong" if named else "unknown", reading.detail, "vendor-tool-fails")


def health(cards: Sequence[Card]) -> Iterator[Finding]:
    """Memory and temperature, where the vendor shows them. Errors since the driver was loaded are wrong, older ones are not."""

    def listed(field: str) -> str:
        counts = {card.index: getattr(card, field) for card in cards}
        return ", ".join(N_("card {index}: {count}", index=index, count=count) for index, count in counts.items() if count)

    if now := listed("uncorrectable_errors"):
        seen = N_("uncorrectable errors of memory since the driver was loaded: {now}", now=now)
        yield known_finding("memory", "wrong", seen, "memory")
    elif old := "; ".join(filter(None, (listed("uncorrectable_ever"), listed("retired_pages")))):
        seen = N_("earlier uncorrectable errors of memory, then pages that are no longer used: {old}", old=old)
        yield known_finding("memory", "warn", seen, "memory-retired")
    elif counted := sum(card.uncorrectable_errors is not None for card in cards):
        yield Finding("memory", "ok", N_("no uncorrectable errors of memory on {cards}", cards=format_card_count(counted)))
    if hot := ", ".join(f"{card.index} ({card.temperature_c or 0:.0f} C)" for card in cards if card.is_throttled):
        yield known_finding("temperature", "warn", N_("slowed down by their temperature: cards {hot}", hot=hot), "temperature")


def _card_counts(device: str, detection: Detection, paddle: PaddleFacts | None) -> Finding:
    """PCI bus, device nodes, the vendor's tool and Paddle must show the same number of cards.

    What hides cards is no error: Paddle must see those that are left, and any other difference is a warning. The bus does not
    count where it is hidden or has old cards: a K200 board is one PCI function with two devices. Nor does a tool that is
    not understood.
    """
    on_bus = detection.kunlun_pci if device == "xpu" else detection.nvidia_pci
    counts = {"/dev": len(detection.nodes)} if device == "xpu" else {}
    if on_bus and not any(card.generation in BEFORE_KL3 for card in on_bus):
        counts["PCI bus"] = len(on_bus)
    reading = of_device(device, detection)[1]
    if reading.counts_cards:
        counts[reading.tool] = len(reading.cards)
    if paddle is not None and paddle.error is None:
        counts["Paddle"] = paddle.xpu_cards if device == "xpu" else paddle.gpu_cards

    seen = ", ".join(f"{where}: {count}" for where, count in counts.items())
    limits = meant.limits_of(device, detection)
    visible, there = meant.visible_cards(device, detection)
    if limits and 0 < visible <= counts.get("Paddle", 0) <= there:
        seen = N_("{visible} of {there} visible: {limits}", visible=counts["Paddle"], there=there, limits=", ".join(limits))
        return Finding("card-count", "ok", seen)
    if len(set(counts.values())) == 1 and 0 not in counts.values():
        return Finding("card-count", "ok", N_("cards by {seen}", seen=seen))
    if limits and 0 not in counts.values():
        return known_finding(
            "card-count", "warn", N_("cards by {seen}; limited by {limits}", seen=seen, limits=", ".join(limits)), "card-count"
        )
    return known_finding("card-count", "wrong", N_("cards by {seen}", seen=seen), "card-count")


def _environment(device: str, root: Path) -> Iterator[Finding]:
    if device == "xpu":
        mode = matmul_mode()["float32"]
        exact = mode == "FLOAT"
        remedy = None if exact else by_id("matmul-precision").remedy
        seen = N_("expected mode of fp32 matmul: {mode} (from environment variables and release, not measured)", mode=mode)
        yield Finding("matmul-mode", "ok" if exact else "warn", seen, remedy)
    strides = os.environ.get(STRIDES, "1")
    if strides.lower() in WITHOUT_STRIDES:
        seen = N_(
            "FLAGS_use_stride_kernel={strides}: views are copies, and dist.load_state_dict leaves tensors unchanged",
            strides=strides,
        )
        yield known_finding("stride-kernel", "warn", seen, "stride-kernel")
    still_set = [name for name in LAUNCHER_VARIABLES if name in os.environ]
    still_set += [f"{name}={os.environ[name]}" for name in NODE_VARIABLES if os.environ.get(name, "1") != "1"]
    if still_set:
        seen = N_("variables of a cluster's launcher are set: {still_set}", still_set=", ".join(still_set))
        yield known_finding("launcher-variables", "warn", seen, "launcher-variables")
    for finding in interfaces(root):  # a job on one card does not need them
        yield replace(finding, verdict="warn") if finding.verdict == "wrong" else finding
