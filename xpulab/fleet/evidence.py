"""What a bundle says of its machine besides the run: the diagnosis, outputs of the vendors' tools, versions, kernel messages.

The commands and files are documented by the vendors; not run on a card.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

from xpulab import __version__
from xpulab.doctor.tool import run_tool

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
)
"""Commands that show cards and links, and change nothing."""

KERNEL_LOG = ("dmesg", "--ctime")
ABOUT_CARDS = re.compile(r"xpu|kunlun|kl3|NVRM|nvidia|Xid|pcieport|AER|Out of memory|oom-kill", re.IGNORECASE)
"""Lines of the kernel's log about cards, their links, and processes that were killed for memory."""

KERNEL_LINES = 2000
"""The last of them are kept."""

VARIABLES = re.compile(r"^(FLAGS_|XPU|CXPU|BKCL|XRE|CUDA|NCCL|PADDLE|OMP_|LD_LIBRARY_PATH$|XPULAB_|SLURM_JOB_NUM_NODES$)")
"""Variables that change what Paddle and a card do."""


def evidence(environ: Mapping[str, str] = os.environ) -> Iterator[tuple[str, str]]:
    """The names of files below "machine/" and their texts. A tool that is not installed has no file."""
    yield "doctor.json", json.dumps(_diagnosis(), indent=2)
    yield "versions.json", json.dumps(_versions(), indent=2)
    chosen = {name: value for name, value in sorted(environ.items()) if VARIABLES.match(name)}
    yield "variables.json", json.dumps(chosen, indent=2)
    for command in TOOLS:
        ran = run_tool(command)
        if ran.outcome != "missing":
            yield f"tools/{'_'.join(command)}.txt", f"$ {' '.join(command)}\n# {ran.detail}\n{ran.output}"
    ran = run_tool(KERNEL_LOG)
    lines = [line for line in ran.output.splitlines() if ABOUT_CARDS.search(line)]
    yield "kernel.txt", "\n".join([f"# {ran.detail}; lines about cards:", *lines[-KERNEL_LINES:]]) + "\n"


def _diagnosis() -> dict[str, Any]:
    """The doctor's diagnosis of this machine, without an import of Paddle."""
    from xpulab.doctor.diagnosis import diagnose

    return diagnose().to_json()


def _versions() -> dict[str, Any]:
    packages = {each.metadata["Name"]: each.version for each in metadata.distributions()}
    return {
        "xpulab": __version__,
        "python": sys.version,
        "system": platform.platform(),
        "packages": dict(sorted(packages.items(), key=lambda pair: pair[0].lower())),
    }
