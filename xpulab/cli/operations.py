"""`xpulab operations`: the recipes of env/operations as a site needs them."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from xpulab import files
from xpulab.cli.app import HEADINGS, app, command
from xpulab.errors import InputError
from xpulab.messages import N_

operations = typer.Typer(no_args_is_help=True, help="The files that a scheduler needs to measure nodes and to drain red ones.")
app.add_typer(operations, name="operations", rich_help_panel=HEADINGS["operations"])

_RECIPES = files.ROOT / "env" / "operations"
_OF_NODE = r'{.metadata.name} xpu:{.status.allocatable.kunlunxin\.com/xpu} gpu:{.status.allocatable.nvidia\.com/gpu}{"\n"}'
_SLURM = ("sinfo", "--noheader", "--Node", "--format=%N %G")
_KUBERNETES = ("kubectl", "get", "nodes", f"--output=jsonpath={{range .items[*]}}{_OF_NODE}{{end}}")


@command(operations)
def init(
    slurm: Annotated[bool, typer.Option("--slurm", help="xpulab.conf, and lines of slurm.conf.")] = False,
    kubernetes: Annotated[bool, typer.Option("--kubernetes", help="The Job and the DaemonSet.")] = False,
    out: Annotated[Path, typer.Option(help="A new folder for the files.")] = Path("xpulab-operations"),
) -> None:
    """Write the files of this site, with the nodes, cards and paths that are found. They begin with a dry run."""
    if slurm == kubernetes:
        raise InputError(N_("name the scheduler: --slurm or --kubernetes"))
    device, cards, nodes = _site(_SLURM if slurm else _KUBERNETES)
    texts = _for_slurm(device, cards) if slurm else _for_kubernetes(device, cards, nodes)
    try:
        out.mkdir(parents=True)
        for name, text in texts.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(N_("{out}: {error}; name a new folder with --out", out=out, error=error.strerror)) from error
    print(f"{out}: {', '.join(texts)}; {nodes} nodes with {cards} {device} each. docs/schedulers.md says where they belong")


def _site(question: tuple[str, ...]) -> tuple[str, int, int]:
    """Device, cards and number of nodes, of the kind that most nodes are. Raises InputError where no node has cards."""
    from xpulab.doctor.tool import run_tool

    ran = run_tool(question, 30.0)
    if ran.outcome != "ok":
        raise InputError(ran.detail)
    nodes = {}
    for name, _, resources in (line.partition(" ") for line in ran.output.splitlines()):
        if found := re.findall(r"\b(xpu|gpu):(?:[\w.-]+:)*([1-9]\d*)(?![\w.:-])", resources):  # several: of different models
            nodes[name] = found[0][0], sum(int(cards) for device, cards in found if device == found[0][0])
    if not nodes:
        raise InputError(N_("{tool} shows no node with cards: a resource xpu or gpu of the nodes", tool=question[0]))
    (kind, count), *others = Counter(nodes.values()).most_common()
    for device, cards in (other for other, _ in others):
        print(f"left out: nodes with {cards} {device}")
    return *kind, count


def _for_slurm(device: str, cards: int) -> dict[str, str]:
    settings = {"HOME": shlex.quote(str(files.ROOT)), "DEVICE": device, "CARDS": cards, "EXPECT": cards, "DRY_RUN": 1}
    lines = (_RECIPES / "slurm" / "slurm.conf").read_text(encoding="utf-8").replace("/opt/xpulab", str(files.ROOT))
    return {"xpulab.conf": "".join(f"XPULAB_{name}={value}\n" for name, value in settings.items()), "slurm.conf": lines}


def _for_kubernetes(device: str, cards: int, nodes: int) -> dict[str, str]:
    changes = {r"(completions|parallelism): \d+": rf"\1: {nodes}", r'(_CARDS, value: )"\d+"': rf'\1"{cards}"'}
    changes |= {r"(kunlunxin.com/xpu): \d+": rf"\1: {cards}", r'(_DRY_RUN, value: )"0"': r'\1"1"'}
    if device == "gpu":
        changes |= {r".*\bxpu-smi\b.*\n": "", "kunlunxin.com/xpu": "nvidia.com/gpu", r"(_DEVICE, value:) xpu": r"\1 gpu"}
        changes |= {'xpu: "on"': 'nvidia.com/gpu.present: "true"', "xpu=on": "nvidia.com/gpu.present=true"}
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted((_RECIPES / "kubernetes").glob("*.yaml"))}
    for pattern, new in changes.items():
        texts = {name: re.sub(pattern, new, text) for name, text in texts.items()}
    return texts
