"""Write the files that a reader takes home: a training script, its configuration, and the lines that launch it.

The scripts are in data/take_home. They need Paddle and PaddleNLP, not xpulab. One that imports another is written with it.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from xpulab import files
from xpulab.checks.ledger import ledger
from xpulab.devices import LAUNCHER_VARIABLES, SIMULATED
from xpulab.errors import InputError

CARDS = 8
"""The cards of one node in the launch files."""

_VISIBLE = {"xpu": "XPU_VISIBLE_DEVICES", "gpu": "CUDA_VISIBLE_DEVICES"}
_INTERFACE = {"xpu": "BKCL_SOCKET_IFNAME", "gpu": "NCCL_SOCKET_IFNAME", "cpu": "GLOO_SOCKET_IFNAME"}


def write(folder: str | Path, *, script: str, config: Mapping[str, Any], device: str) -> list[Path]:
    """Write the script, config.json, three launch files and the scripts that it imports into a folder. Returns their paths.

    The folder is made if needed.

    script: the name of a file in data/take_home, without ".py".
    config: the arguments of the script, by the names that PaddleNLP gives them; "device" is added.
    device: "cpu", "gpu" or "xpu"; for "sim" the files are those for "xpu", because simulated cards exist only in xpulab.
    Raises InputError when there is no such script.
    """
    target = "xpu" if device == SIMULATED else device
    source, *imported = copy_script(folder, script)
    written = [source, source.with_name("config.json")]
    written[1].write_text(json.dumps({**config, "device": target}, indent=2) + "\n", encoding="utf-8")
    for name, lines in launch_files(source.name, target).items():
        written.append(source.with_name(name))
        written[-1].write_text(lines, encoding="utf-8")
    return written + imported


def copy_script(folder: str | Path, script: str) -> list[Path]:
    """Copy a script, and those that it imports, into a folder, which is made if needed. Returns the paths, the script's first.

    Raises InputError when there is no such script.
    """
    sources = [script_path(name) for name in (script, *_imported(script))]
    Path(folder).mkdir(parents=True, exist_ok=True)
    copies = [Path(folder) / source.name for source in sources]
    for source, copied in zip(sources, copies, strict=True):  # as texts, which a fault of the catalogue can change
        copied.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    return copies


def launch_files(script: str, device: str) -> dict[str, str]:
    """The launch files for one card, for all cards of a node and for two nodes: file name to text."""
    launch = "python -m paddle.distributed.launch"
    if device == "cpu":
        one, all_cards = f"python {script} config.json", f"{launch} --nproc_per_node {CARDS} --backend gloo"
    else:
        cards = ",".join(map(str, range(CARDS)))
        one, all_cards = f"{_visible(device, '0')}python {script} config.json", f"{launch} --devices {cards}"
        all_cards = _visible(device, cards) + all_cards
    two_nodes = f"# export {_INTERFACE[device]}=eth0  # the interface of the node's address, where the start hangs\n{all_cards}"
    two_nodes += " --master $MASTER:8090 --nnodes 2"
    return {
        "launch-1-card.sh": _file(device, one),
        f"launch-{CARDS}-cards.sh": _file(device, f"{all_cards} {script} config.json"),
        "launch-2-nodes.sh": _file(
            device, "# Run this on both nodes. MASTER: the address of one of them.\n" + f"{two_nodes} {script} config.json"
        ),
    }


def script_path(script: str) -> Path:
    """The path of a script in data/take_home. Raises InputError when it is not there."""
    path = files.DATA / "take_home" / f"{script}.py"
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in path.parent.glob("*.py")))
        raise InputError(f"no script {script!r} in data/take_home: choose one of {known}")
    return path


def load_script(script: str) -> Any:
    """A script as a module, which a pickle of its classes finds again. Raises InputError when it is not there."""
    for name in reversed(_imported(script)):
        if name not in sys.modules:
            load_script(name)
    path = script_path(script)
    module = ModuleType(script)
    module.__file__ = str(path)
    sys.modules[script] = module  # dataclasses look their types up there
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    return module


def _imported(script: str) -> list[str]:
    """The scripts that a script imports, and those that they import, in this order, each once."""
    found: list[str] = []
    for node in ast.parse(script_path(script).read_text(encoding="utf-8")).body:
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            if (files.DATA / "take_home" / f"{name}.py").is_file():
                found += [each for each in [name, *_imported(name)] if each not in found]
    return found


def source_of(script: str, name: str) -> str:
    """The source of a function or class of a script, to show it. Raises InputError when the script does not define it."""
    path = script_path(script)
    text = path.read_text(encoding="utf-8")
    node = _definition(text, name, path.name)
    return ast.get_source_segment(text, node) or ""


def same_code(defined: Callable[..., Any] | type, script: str, name: str | None = None) -> bool:
    """Whether a function or class of this notebook has the same code as the one of that name in a script.

    Comments and layout do not count, docstrings do. name: the name in the script where it is another one.
    Raises InputError when the notebook or the script does not define it.
    """
    here = _definition("\n".join(_definitions_of_cells(defined.__name__)), defined.__name__, "this notebook")
    there = _definition(script_path(script).read_text(encoding="utf-8"), name or defined.__name__, f"{script}.py")
    return ast.dump(here) == ast.dump(there)


def _definitions_of_cells(name: str) -> list[str]:
    """The source of the last definition of a name among the cells that ran; inspect cannot find a class of a cell."""
    found = []
    for source in ledger.sources:
        try:
            nodes = ast.parse(source).body
        except SyntaxError:  # a cell with a magic
            continue
        found += [ast.unparse(node) for node in nodes if getattr(node, "name", None) == name]
    return found[-1:]


def _definition(source: str, name: str, where: str) -> ast.AST:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node
    raise InputError(f"{where} defines no function or class {name!r}")


def _visible(device: str, cards: str) -> str:
    return f"export {_VISIBLE[device]}={cards}\n"


def _file(device: str, lines: str) -> str:
    head = f"#!/usr/bin/env bash\n# Written for {device} by xpulab."
    if device != "cpu":
        head += f" The authors have not run it on {'an XPU' if device == 'xpu' else 'a GPU'}."
    return f"{head}\nset -eu\nunset {' '.join(LAUNCHER_VARIABLES)}\n{lines}\n"
