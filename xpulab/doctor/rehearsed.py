"""The machine that a rehearsal shows: PCI functions, device nodes, driver and vendor's tool of eight cards, as files.

data/rehearsal.yaml says what they are. The doctor's readers see them in place of this machine's own.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from xpulab import files
from xpulab.doctor.system import SYSTEM_ROOT


def machine(device: str, folder: Path) -> dict[str, str]:
    """Write the machine of a "gpu" or "xpu" below the folder; returns the variables with which a process sees it."""
    shown = files.load_yaml(files.data("rehearsal.yaml"), files.data("schema", "rehearsal.schema.json"))[device]
    root, tools = folder / "root", folder / "tools"
    (root / "dev").mkdir(parents=True)
    tools.mkdir()
    for name in shown["nodes"]:
        (root / "dev" / name).touch(mode=0o666)
    for bus in shown["buses"]:
        values = {name: f"0x{shown[name]}" for name in ("vendor", "device", "class")}
        for name, value in values.items():
            _write(root / "sys/bus/pci/devices" / f"0000:{bus}:00.0" / name, value)
    _write(root / "proc/modules", f"{shown['module']} 0 0 - Live 0x0")
    cards = (
        shown["card"].format(bus=bus, minor=number, serial=f"REHEARSED{number:06d}")
        for number, bus in enumerate(shown["buses"])
    )
    _write(tools / "said", "".join([shown["head"], *cards, shown["tail"]]))
    tool = tools / shown["tool"]
    refuses = f"echo {shown['tool']}: only {shown['options']} is rehearsed >&2; exit 2"
    _write(tool, f'#!/bin/sh\n[ "$*" = "{shown["options"]}" ] || {{ {refuses}; }}\nexec cat {shlex.quote(str(tools / "said"))}')
    tool.chmod(0o755)
    return {SYSTEM_ROOT: str(root), "PATH": os.pathsep.join([str(tools), os.environ.get("PATH", os.defpath)])}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")
