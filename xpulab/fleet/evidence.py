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

from xpulab import __version__, child
from xpulab.doctor.tool import run_tool
from xpulab.records.origin import commit

TOOLS = (
    *("xpu-smi", "xpu-smi -q", "xpu-smi -m", "xpu-smi topo -m", "xpu_smi", "xpu_smi -q", "xpu_smi -m"),
    *("nvidia-smi", "nvidia-smi -q", "nvidia-smi topo -m", "lspci -nn", "lspci -vv -d 1d22:"),
)
"""Commands that show cards and links, and change nothing. 1d22 is the vendor's number of Kunlun cards."""

KERNEL_LOG = ("dmesg --ctime", "journalctl --dmesg --no-pager --quiet")
"""Commands that show it; the second one is asked when the first one does not answer. Both may need more rights."""

KERNEL_LOG_SECONDS = 20.0
KERNEL_LOG_LIMIT = 64 * 2**20
"""Bytes: a log of many cores is long."""

ABOUT_CARDS = re.compile(r"xpu|kunlun|kl3|NVRM|nvidia|\bXid\b|pcieport|\bAER\b|Out of memory|oom-kill", re.IGNORECASE)
"""Lines of the kernel's log about cards, their links, and processes that were killed for memory; the last of them are kept."""
KERNEL_LINES = 2000

VARIABLES = re.compile(
    r"LD_LIBRARY_PATH|(?:BKCL|NCCL|GLOO)_SOCKET_IFNAME|BKCL_RDMA_NICS|NCCL_(?:IB_HCA|ALGO|PROTO|DEBUG)|CUDA_(?:HOME|DEVICE_ORDER)"
    r"|(?:XPU|XPULINK|CXPU|CUDA)_VISIBLE_DEVICES|PADDLE_(?:MASTER|DISTRI_BACKEND|XCCL_BACKEND|TRAINER_ENDPOINTS|CURRENT_ENDPOINT)"
    r"|XPULAB_(?:AS|DEVICE|LEVEL|LANG|NODE|REQUIRE|SIM_FAULTS)"
)
"""Variables that change what Paddle, a card or a run does."""
SWITCHES = re.compile(
    r"(?:FLAGS|XPU|XPUAPI|XPULINK|CXPU|BKCL|XRE|CUDA|CUBLAS|CUDNN|NCCL|GLOO|OMP|MKL|PADDLE|XPULAB|SLURM_JOB)_\w+"
    r"=(?:[-+]?\d{1,12}(?:[.,]\d{1,6}){0,16}|(?i:true|false|on|off|yes|no)|)"
)
"""Others of their families, where the value is a switch or numbers: else it may be a key of the site's own."""

DOCTOR_SECONDS = 300.0
"""For the doctor, whose import of Paddle and computation on each card may take 120 s each."""


def evidence(environ: Mapping[str, str] = os.environ, device: str = "auto") -> Iterator[tuple[str, str]]:
    """The names of files below "machine/" and their texts. A tool that is not installed has no file.

    device: the one that is diagnosed.
    """
    yield "doctor.json", _diagnosis(device)
    yield "versions.json", json.dumps(_versions(), indent=2)
    taken = (name for name in environ if VARIABLES.fullmatch(name) or SWITCHES.fullmatch(f"{name}={environ[name]}"))
    chosen = {name: environ[name] for name in taken}
    yield "variables.json", json.dumps(chosen, indent=2, sort_keys=True)
    yield from _tools()
    yield "kernel.txt", _kernel_log()


def _diagnosis(device: str) -> str:
    """What `xpulab doctor --json` prints, in another process: an import of Paddle that fails or hangs is in no notebook."""
    ran = child.run(child.python_module("xpulab", "doctor", "--json", "--device", device), DOCTOR_SECONDS)
    if ran.output.startswith("{"):
        return ran.output
    return json.dumps({"error": ran.errors.strip() or f"xpulab doctor did not end within {DOCTOR_SECONDS:.0f} s"})


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
        name, tool = f"tools/{command.replace(' ', '_').replace(':', '')}.txt", command.split()[0]
        if tool in hung:
            yield name, f"$ {command}\n# not called: {tool} did not end before\n"
            continue
        ran = run_tool(tuple(command.split()))
        if ran.outcome == "hung":
            hung.add(tool)
        if ran.outcome != "missing":
            yield name, f"$ {command}\n# {ran.detail}\n{ran.output}"


def _kernel_log() -> str:
    """The lines about cards, below a line for each command that says whether it answered."""
    said = []
    for command in KERNEL_LOG:
        try:
            ran = child.run(command.split(), KERNEL_LOG_SECONDS, KERNEL_LOG_LIMIT)
        except OSError as error:
            said.append(f"# {command}: {error}")
            continue
        if ran.status == 0 and ran.output.strip():
            lines = ran.output.splitlines()
            about = [line for line in lines if ABOUT_CARDS.search(line)]
            said.append(f"# {command}: {len(lines)} lines, of which {len(about)} are about cards or memory; the last of these:")
            return "\n".join([*said, *about[-KERNEL_LINES:]]) + "\n"
        said.append(f"# {command}: {(ran.errors.strip().splitlines() or [f'status {ran.status}, nothing shown'])[-1]}")
    return "\n".join(said) + "\n"
