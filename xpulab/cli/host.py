"""`xpulab host`: whether this host, with its cards, is what a job needs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli.app import command


@command()
def host(
    expect: Annotated[str | None, typer.Option(help="As for xpulab run: fewer cards are wrong.")] = None,
    label: Annotated[
        str | None, typer.Option(help="The node's name of a kind, as xpu-p800-8: its device, model and number of cards.")
    ] = None,
    device: Annotated[str, typer.Option(help="xpu or gpu: look at these cards only; cpu: at none.")] = "auto",
    checkpoints: Annotated[Path | None, typer.Option(help="Where checkpoints go; without it no disk is judged.")] = None,
    beside_jobs: Annotated[
        bool, typer.Option("--beside-jobs", help="Jobs may run: what they hold of cards and shared memory is not wrong.")
    ] = False,
    reason: Annotated[
        bool, typer.Option("--reason", help="One line, which is the text of a drain reason when something is wrong.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="All findings as JSON.")] = False,
) -> None:
    """Look at limits, memory, disk, cards and interfaces of this host. Exit code 1 when something is wrong.

    It reads, imports no Paddle and computes nothing: for prologs and health checks.
    """
    from xpulab.devices import DEVICES
    from xpulab.doctor.host import HostRequest, examine, format_reason, of_label
    from xpulab.doctor.meant import expected_count
    from xpulab.doctor.render import format_host
    from xpulab.errors import InputError

    if device not in ("auto", *DEVICES):
        raise InputError(f"--device {device}: no such device; choose auto, {', '.join(DEVICES)}")
    if reason and as_json:
        raise InputError("--reason and --json: choose one of them")
    if label is not None and (device, expect) != ("auto", None):
        raise InputError("--label names device and number of cards: leave --device and --expect out")
    asked = HostRequest(device=device, expect=None if expect is None else expected_count(expect))
    asked = asked if label is None else of_label(label)
    report = examine(replace(asked, checkpoints=checkpoints, beside_jobs=beside_jobs))
    text = format_reason(report) if reason else format_host(report)
    print(json.dumps(report.to_json(), indent=2) if as_json else text)
    raise typer.Exit(1 if report.outcome == "wrong" else 0)
