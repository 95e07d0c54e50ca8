"""Examines the host: all findings, in a few seconds, whatever hangs."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from xpulab import __version__
from xpulab.doctor import driver
from xpulab.doctor.finding import Finding, format_verdict
from xpulab.doctor.host import limits, placement
from xpulab.doctor.host.facts import facts
from xpulab.doctor.host.finding import fine, found
from xpulab.doctor.host.kernel_log import kernel_log
from xpulab.doctor.host.rdma import ports, rdma
from xpulab.doctor.pci import kunlun_cards, nvidia_cards
from xpulab.doctor.tool import run_tool
from xpulab.messages import N_, labelled, shown

TOOLS = (("xpu-smi", "-m"), ("nvidia-smi", "-L"))
SLOW, HANGS = 5.0, 8.0
"""Seconds: a vendor's tool that takes longer is a finding (as in AMD's smoke test of nodes), and one that hangs is killed."""


@dataclass(frozen=True)
class HostRequest:
    """What to look at. checkpoints: the folder that they are written to. rdma_ports: how many are expected, None: any."""

    checkpoints: Path = Path(".")
    rdma_ports: int | None = None
    root: Path = field(default_factory=driver.system_root)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)


@dataclass(frozen=True)
class HostReport:
    """All findings about a host. node: its name. facts: what must be the same on all. seconds: how long it took."""

    node: str
    findings: tuple[Finding, ...]
    facts: dict[str, str]
    seconds: float

    @property
    def outcome(self) -> Literal["ok", "warn", "wrong"]:
        """The worst verdict; what could not be read is no problem."""
        verdicts = {finding.verdict for finding in self.findings}
        return "wrong" if "wrong" in verdicts else "warn" if "warn" in verdicts else "ok"

    def to_json(self) -> dict[str, Any]:
        """As data/schema/host.schema.json describes it."""
        findings = [asdict(finding) for finding in self.findings]
        return {
            "schema": 1,
            "xpulab": __version__,
            "node": self.node,
            "outcome": self.outcome,
            "seconds": round(self.seconds, 3),
            "facts": self.facts,
            "findings": findings,
        }


def examine(request: HostRequest) -> HostReport:
    """Look at the host; the vendors' tools run beside the rest."""
    started = time.monotonic()
    root, environ = request.root, request.environ
    with ThreadPoolExecutor(len(TOOLS)) as pool:
        tools = [pool.submit(_latency, command) for command in TOOLS]
        cards = (*kunlun_cards(root), *nvidia_cards(root))
        used, _ = ports(root, environ)
        findings = list(limits.limits(root, len(cards), bool(used)))
        findings += [limits.disk(request.checkpoints), limits.clock()]
        findings += placement.placement(root, cards, {port.name: port.folder for port in used})
        findings += rdma(root, environ, request.rdma_ports)
        findings.append(placement.foreign_processes(root, os.getpid()))
        findings += kernel_log(root)
        findings += [finding for tool in tools for finding in tool.result()]
    return HostReport(socket.gethostname(), tuple(findings), facts(root, environ), time.monotonic() - started)


def format_host(report: HostReport) -> str:
    """The report for people, in the chosen language: what is not ok with cause and fix, then the rest."""
    problems = [finding for finding in report.findings if finding.verdict in ("wrong", "warn")]
    outcome, node = report.outcome, report.node
    lines = [shown(f"{outcome}: {len(problems)} of {len(report.findings)} findings about host {node} are not ok")]
    for finding in sorted(problems, key=lambda finding: finding.verdict != "wrong"):
        lines += [f"\n{_line(finding)}", f"{'':9}{labelled('cause: ', finding.cause or '')}"]
        lines.append(f"{'':9}{labelled('fix: ', finding.remedy or '')}")
    rest = [f"  {_line(finding)}" for finding in report.findings if finding not in problems]
    return "\n".join([*lines, "\n" + shown("ok, or not known:"), *rest, f"\n{shown(f'looked for {report.seconds:.1f} s')}"])


def _line(finding: Finding) -> str:
    return f"{format_verdict(finding.verdict)} {finding.id}: {shown(finding.seen)}"


def format_reason(report: HostReport) -> str:
    """One line: the first finding that is wrong, as a drain reason. It is not that of a run, which a health check may undo."""
    wrong = [finding for finding in report.findings if finding.verdict == "wrong"]
    if not wrong:
        return f"xpulab: nothing is wrong with host {report.node}"
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return f"[node_problem] host {wrong[0].id}: {wrong[0].seen}{more}; look: xpulab doctor --host"


def _latency(command: Sequence[str]) -> list[Finding]:
    """How long a vendor's tool takes; nothing where there is none."""
    started = time.monotonic()
    ran = run_tool(tuple(command), HANGS)
    seconds = time.monotonic() - started
    if ran.outcome == "missing":
        return []
    if ran.outcome != "ok" or seconds > SLOW:
        seen = ran.detail if ran.outcome != "ok" else N_(f"{command[0]} took {seconds:.1f} s")
        return [found("vendor-tool", "wrong", seen)]
    return [fine("vendor-tool", N_(f"{command[0]} answered in {seconds:.1f} s"))]
