"""What a bundle says of its machine besides the run: the diagnosis, outputs of the vendors' tools, versions, kernel messages.

The commands and files are documented by the vendors; not run on a card.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

from xpulab import __version__
from xpulab.doctor.tool import run_tool
from xpulab.errors import InputError
from xpulab.records.commit import commit

TOOLS = (
    ("xpu-smi",),
    ("xpu-smi", "-q"),
    ("xpu-smi", "-m"),
    ("xpu-smi", "topo", "-m"),
    ("xpu_smi",),
    ("xpu_smi", "-q"),
    ("xpu_smi", "-m"),
    ("nvidia-smi",),
    ("nvidia-smi", "-q"),
    ("nvidia-smi", "topo", "-m"),
    ("lspci", "-nn"),
    ("lspci", "-vv", "-d", "1d22:"),
)
"""Commands that show cards and links, and change nothing. 1d22 is the vendor's number of Kunlun cards."""

KERNEL_LOG = (("dmesg", "--ctime"), ("journalctl", "--dmesg", "--no-pager", "--quiet"))
"""Commands that show it; the second one is asked when the first one does not answer. Both may need more rights."""

KERNEL_LOG_SECONDS = 20.0
ABOUT_CARDS = re.compile(r"xpu|kunlun|kl3|NVRM|nvidia|\bXid\b|pcieport|\bAER\b|Out of memory|oom-kill", re.IGNORECASE)
"""Lines of the kernel's log about cards, their links, and processes that were killed for memory."""

KERNEL_LINES = 2000
"""The last of them are kept."""

VARIABLES = re.compile(r"^(FLAGS_|XPU|CXPU|BKCL|XRE|CUDA|NCCL|PADDLE|OMP_|LD_LIBRARY_PATH$|XPULAB_|SLURM_JOB_NUM_NODES$)")
"""Variables that change what Paddle and a card do."""


def evidence(environ: Mapping[str, str] = os.environ, device: str = "auto") -> Iterator[tuple[str, str]]:
    """The names of files below "machine/" and their texts. A tool that is not installed has no file.

    device: the one that is diagnosed.
    """
    yield from in_short(environ, device)
    chosen = {name: value for name, value in sorted(environ.items()) if VARIABLES.match(name)}
    yield "variables.json", json.dumps(chosen, indent=2)
    yield from _tools()
    yield "kernel.txt", _kernel_log()


def in_short(environ: Mapping[str, str] = os.environ, device: str = "auto") -> Iterator[tuple[str, str]]:
    """The diagnosis and the versions alone, as `evidence` gives them."""
    yield "doctor.json", json.dumps(_diagnosis(environ, device), indent=2)
    yield "versions.json", json.dumps(_versions(), indent=2)


def _diagnosis(environ: Mapping[str, str], device: str) -> dict[str, Any]:
    """The doctor's diagnosis of this machine, with its probe: an import of Paddle that fails or hangs is in no notebook."""
    from xpulab.doctor.detect import detect, require
    from xpulab.doctor.diagnosis import diagnose
    from xpulab.doctor.probe import TIMEOUT, probe

    detection = detect()
    device = detection.device if device == "auto" else device
    try:
        require(device, detection)
    except InputError as error:  # of a run whose card is gone since
        return {"outcome": "wrong", "error": str(error), **diagnose("cpu", detection=detection, environ=environ).to_json()}
    return diagnose(device, detection=detection, environ=environ, probed=probe(device, TIMEOUT)).to_json()


def _versions() -> dict[str, Any]:
    packages = {each.metadata["Name"]: each.version for each in metadata.distributions()}
    return {
        "xpulab": __version__,
        "commit": commit(),
        "python": sys.version,
        "system": platform.platform(),
        "packages": dict(sorted(packages.items(), key=lambda pair: str(pair[0]).lower())),
    }


def _tools() -> Iterator[tuple[str, str]]:
    """A file for each command of a tool that is installed; none of a tool is called again after one that did not end."""
    hung: set[str] = set()
    for command in TOOLS:
        if command[0] in hung:
            yield _file(command), f"$ {' '.join(command)}\n# not called: {command[0]} did not end before\n"
            continue
        ran = run_tool(command)
        if ran.outcome == "hung":
            hung.add(command[0])
        if ran.outcome != "missing":
            yield _file(command), f"$ {' '.join(command)}\n# {ran.detail}\n{ran.output}"


def _file(command: tuple[str, ...]) -> str:
    return f"tools/{'_'.join(command).replace(':', '')}.txt"


def _kernel_log() -> str:
    """The lines about cards, below a line for each command that says whether it answered."""
    said = []
    for command in KERNEL_LOG:
        shown = " ".join(command)
        try:  # not run_tool, whose limit a log of many cores exceeds
            ran = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=KERNEL_LOG_SECONDS, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            said.append(f"# {shown}: {error}")
            continue
        if ran.returncode == 0 and ran.stdout.strip():
            lines = ran.stdout.splitlines()
            about = [line for line in lines if ABOUT_CARDS.search(line)]
            said.append(f"# {shown}: {len(lines)} lines, of which {len(about)} are about cards or memory; the last of these:")
            return "\n".join([*said, *about[-KERNEL_LINES:]]) + "\n"
        said.append(f"# {shown}: {(ran.stderr.strip().splitlines() or [f'status {ran.returncode}, nothing shown'])[-1]}")
    return "\n".join(said) + "\n"
