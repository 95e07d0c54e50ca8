"""Which kernels an XPU has: the list that Paddle's XPU build asks, from the best source that is there.

1. This wheel, where it is built for XPU: exact.
2. A file that `xpulab shapes --save-kernels FILE` wrote on an XPU machine: exact for its release.
3. A checkout of Paddle's source: the list of that commit.
4. data/p800_kernels.yaml: the kernels of training steps of language models, each with its sources.

Paddle computes a kernel on the XPU when its name or its old name ("matmul", "matmul_v2") is on the list with the type.
Otherwise it takes the CPU's kernel, and raises where the CPU has none of that type.
Source: phi/core/kernel_factory.cc, SelectKernelOrThrowError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from xpulab import files
from xpulab.errors import InputError

FORMAT = "xpulab.kernels/1"
LIST = Path("paddle", "phi", "backends", "xpu", "xpu3_op_list.cc")
"""The list of the P800, which is XPU3, in Paddle's source."""

_ENTRY = re.compile(r'\{\s*"(\w+)",\s*XPUKernelSet\(\{(.*?)\}\)\}', re.DOTALL)
_TYPE = re.compile(r"phi::DataType::(\w+)")
_FFT = re.compile(r"#ifdef PADDLE_WITH_XPU_FFT.*?#endif", re.DOTALL)

CARD, MAYBE, CPU, ERROR, UNKNOWN = "card", "card?", "CPU", "error", "unknown"
"""Where a kernel is computed: on the card; there in a later release only; on the CPU; nowhere; in no table that we have."""


@dataclass(frozen=True)
class KernelTable:
    """The kernels of an XPU.

    source: what they were read from, with its date or release, for a person. listed: by name, old ones too, the types.
    later: the same of a newer list, where there are two. is_whole: whether what is not in it has no kernel.
    instead: by name of a kernel what to write instead of the operator.
    """

    source: str
    listed: Mapping[str, frozenset[str]]
    later: Mapping[str, frozenset[str]]
    is_whole: bool
    instead: Mapping[str, str]

    def where(self, kernel: str, old_name: str, dtype: str, cpu_types: frozenset[str]) -> str:
        """Where a kernel of this type is computed. cpu_types: those of which the CPU has this kernel."""
        names = (kernel, old_name)
        if any(dtype in self.listed.get(name, ()) for name in names):
            return CARD
        if any(dtype in self.later.get(name, ()) for name in names):
            return MAYBE
        if not self.is_whole and not any(name in self.listed or name in self.later for name in names):
            return UNKNOWN
        return CPU if dtype in cpu_types else ERROR


def own_table() -> KernelTable:
    """The table that the project carries."""
    stored = _stored()
    listed, later = (
        {name: _types(entry.get(key, "")) for name, entry in stored["kernels"].items()} for key in ("listed", "later")
    )
    return KernelTable(stored["source"], listed, later, False, instead())


def instead() -> dict[str, str]:
    """By kernel what to write instead of its operator."""
    return {name: entry["instead"] for name, entry in _stored()["kernels"].items() if "instead" in entry}


def _stored() -> dict[str, Any]:
    return files.load_yaml(files.data("p800_kernels.yaml"), files.data("schema", "p800_kernels.schema.json"))


def of_wheel(core: Any, version: str) -> dict[str, Any]:
    """What --save-kernels stores. core: paddle.base.core. version: of Paddle. Raises InputError for another wheel."""
    if not hasattr(core, "get_xpu_device_op_list"):
        raise InputError(
            "this Paddle is not built for XPU, so it has no list of kernels: run --save-kernels on a machine with an XPU wheel"
        )
    listed = core.get_xpu_device_op_list(core.XPUVersion.XPU3)
    kernels = {name: sorted({_name_of(each) for each in types}) for name, types in sorted(listed.items())}
    return {"format": FORMAT, "paddle": version, "date": date.today().isoformat(), "kernels": kernels}


def from_stored(stored: Mapping[str, Any], source: str) -> KernelTable:
    """The table of what `of_wheel` returned."""
    listed = {name: frozenset(types) for name, types in stored["kernels"].items()}
    return KernelTable(f"{source}: Paddle {stored['paddle']}, saved {stored['date']}", listed, {}, True, instead())


def from_file(path: Path) -> KernelTable:
    """The table of a file that --save-kernels wrote. Raises InputError for another file."""
    return from_stored(files.load_json(path, files.data("schema", "kernels.schema.json")), str(path))


def from_source(folder: Path) -> KernelTable:
    """The list of a checkout of Paddle's source. Raises InputError for a folder that holds none."""
    path = folder / LIST
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; name the root of a checkout of Paddle's source") from error
    listed = {name: _types_of_source(types) for name, types in _ENTRY.findall(_FFT.sub("", text))}
    if not listed:
        raise InputError(
            f'{path}: holds no entry {{"name", XPUKernelSet(...)}}: this version of xpulab cannot read it; use --kernels'
        )
    return KernelTable(f"{path}, {_commit_of(folder)}", listed, {}, True, instead())


def _types(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _types_of_source(text: str) -> frozenset[str]:
    return frozenset(each.lower() for each in _TYPE.findall(text))


def _name_of(dtype: Any) -> str:
    """ "float32" of what Paddle's bindings call VarType.FP32, DataType.FLOAT32 or paddle.float32."""
    name = str(dtype).rsplit(".", maxsplit=1)[-1].lower()
    return {"fp16": "float16", "fp32": "float32", "fp64": "float64", "bf16": "bfloat16"}.get(name, name)


def _commit_of(folder: Path) -> str:
    """The commit of a checkout in short, with its date, where git says so."""
    from xpulab import child

    try:
        ran = child.run(["git", "-C", str(folder), "log", "-1", "--format=commit %h of %cs"], 20.0)
    except OSError:
        return "commit unknown"
    return ran.output.strip() if ran.status == 0 and ran.output.strip() else "commit unknown"
