"""Fine-tuning configurations for real models: the degrees that fit on a node or two, and the arguments of sft.py and lora.py.

    fit = chosen(JOBS["Qwen2.5-7B, full"], MACHINES["8 cards of 96 GiB"])
    fit.degrees, fit.gib, fit.arguments()

Everything is computed by reference.cost, from the models' sizes. tools/make_configurations.py writes the files in
data/take_home/configurations and the table of docs/choose.md from it. No card has run one of them yet.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xpulab import files
from xpulab.chapters.shared import take_home
from xpulab.errors import InputError
from xpulab.reference import cost
from xpulab.reference.cost import Degrees, Model, Training

MODELS = {
    "Qwen2.5-7B": Model(28, 3584, 18944, heads=28, kv_heads=4, vocabulary=152064, qkv_bias=True),
    "Qwen2.5-14B": Model(48, 5120, 13824, heads=40, kv_heads=8, vocabulary=152064, qkv_bias=True),
    "Qwen2.5-32B": Model(64, 5120, 27648, heads=40, kv_heads=8, vocabulary=152064, qkv_bias=True),
    "Qwen2.5-72B": Model(80, 8192, 29568, heads=64, kv_heads=8, vocabulary=152064, qkv_bias=True),
}
"""The sizes of the config.json of each release; chapter 11 compares their number of parameters with the published one."""
SHARE = 0.9
"""Of a card's memory, which a configuration stays below: kernels, the allocator and messages need some."""
LONGEST_WAIT = 0.1
"""The share of a step that the stages of a pipeline may wait."""
ROWS = 32
"""Rows of a step, each of 4,096 tokens with several examples where these are shorter: about 128 of 1,000 tokens, the batch of
Alpaca and Tülu 3 (chapter 02)."""
RANK = 32
"""Of an adapter: the range for 1,000 to 100,000 rows is 16 to 64 (chapter 03)."""
RATES = {"full": 1e-5, "LoRA": 1e-4}
"""In the ranges of chapters 02 and 03: 5e-6 to 2e-5, and about ten times that with LoRA, 1e-4 to 5e-4."""
SCHEDULE = {
    "lr_scheduler_type": "cosine",
    "warmup_ratio": 0.03,
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "num_train_epochs": 2,
}
"""Schedule, warm-up and decay are Alpaca's, the epochs those of Tülu 3."""

_FOLDER = files.DATA / "take_home" / "configurations"
_PAGE = files.ROOT / "docs" / "choose.md"


@dataclass(frozen=True)
class Machine:
    """cards: of all nodes, each node with eight. card_gib: of one card. device: the one that has such cards."""

    cards: int
    card_gib: int
    device: str

    @property
    def label(self) -> str:
        """For file names: "8x96", "2x8x96"."""
        return f"{f'{self.cards // 8}x' if self.cards > 8 else ''}8x{self.card_gib}"


@dataclass(frozen=True)
class Job:
    """A model and a method, "full" or "LoRA"."""

    model: str
    method: str

    @property
    def script(self) -> str:
        """The script of data/take_home."""
        return "lora" if self.method == "LoRA" else "sft"

    def training(self, recompute: bool = True) -> Training:
        """A step of this job, for reference.cost."""
        rank = RANK if self.method == "LoRA" else 0
        # stage 1: see docs/choose.md. PLAIN_NORM: the fused norm of PaddleNLP is an operator that must be compiled
        return Training(4096, ROWS, recompute=recompute, sharding_stage=1, stored=cost.PLAIN_NORM, lora_rank=rank)


MACHINES = {
    "8 cards of 96 GiB": Machine(8, 96, "xpu"),
    "8 cards of 80 GiB": Machine(8, 80, "gpu"),
    "2 nodes of 8 cards of 96 GiB": Machine(16, 96, "xpu"),
}
JOBS = {
    f"{model}, {method}": Job(model, method)
    for model, method in (
        ("Qwen2.5-7B", "LoRA"),
        ("Qwen2.5-7B", "full"),
        ("Qwen2.5-14B", "LoRA"),
        ("Qwen2.5-14B", "full"),
        ("Qwen2.5-32B", "LoRA"),
        ("Qwen2.5-72B", "LoRA"),
    )
}


@dataclass(frozen=True)
class Fit:
    """A job with the degrees that were chosen for a machine."""

    job: Job
    machine: Machine
    degrees: Degrees

    def gib(self, recompute: bool = True) -> float:
        """GiB on the card that needs most, by chapter 11's formula."""
        return cost.memory(MODELS[self.job.model], self.job.training(recompute), self.degrees).total / 2**30

    @property
    def name(self) -> str:
        """Of its file, without the ending: "qwen2.5-7b-full-8x96"."""
        return f"{self.job.model}-{self.job.method}-{self.machine.label}".lower()

    def arguments(self) -> dict[str, Any]:
        """All arguments of the script, as JSON values by name."""
        degrees, adapter = self.degrees, self.job.method == "LoRA"
        return {
            "model_name_or_path": f"Qwen/{self.job.model}-Instruct",
            "dataset_name_or_path": "data",
            "output_dir": "trained",
            "do_train": True,
            "max_length": 4096,
            "zero_padding": True,
            **({"lora": True, "lora_rank": RANK} if adapter else {}),
            "bf16": True,
            "fp16_opt_level": "O2",
            "use_flash_attention": True,
            "recompute": True,
            "sharding": "stage1",
            "sharding_parallel_degree": degrees.sharding,
            "tensor_parallel_degree": degrees.mp,
            "pipeline_parallel_degree": degrees.pp,
            "per_device_train_batch_size": 1,
            "per_device_eval_batch_size": 1,
            "gradient_accumulation_steps": ROWS // degrees.sharding,
            "learning_rate": RATES[self.job.method],
            **SCHEDULE,
            "logging_steps": 10,
            "evaluation_strategy": "steps",
            "eval_steps": 100,
            "save_strategy": "steps",
            "save_steps": 100,
            "save_total_limit": 2,
            "unified_checkpoint": True,
            "report_to": "visualdl",
            "device": self.machine.device,
        }


def chosen(job: Job, machine: Machine) -> Fit:
    """The degrees for this job: of those that fit the ones that send least, a pipeline only where nothing else fits.

    sft.py and lora.py do not cut sequences; a pipeline needs one length of all rows, and lora.py has none. Data parallelism is
    sharding that keeps more. Raises InputError when nothing fits.
    """
    model, training = MODELS[job.model], job.training()
    fits = []
    for degrees in cost.legal(model, training, machine.cards):
        fit = Fit(job, machine, degrees)
        if degrees.sep > 1 or degrees.dp > 1 or cost.bubble(training, degrees) > LONGEST_WAIT:
            continue
        if fit.gib() < SHARE * machine.card_gib:
            fits.append((degrees.pp, cost.communication(model, training, degrees).total, degrees))
    if not fits:
        raise InputError(f"{job.model}, {job.method}: no degrees fit on {machine.cards} cards of {machine.card_gib} GiB")
    return Fit(job, machine, min(fits)[2])


def all_fits() -> list[Fit]:
    """A configuration for each job on each machine, in the order of the tables."""
    return [chosen(job, machine) for job in JOBS.values() for machine in MACHINES.values()]


def stored() -> dict[str, dict[str, Any]]:
    """The committed configurations by name."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(_FOLDER.glob("*.json"))}


@dataclass(frozen=True)
class Row:
    """A row of docs/choose.md: the degrees as text, and GiB on a card with recomputation and without."""

    degrees: str
    gib: float
    gib_without: float


def page() -> dict[tuple[str, str], Row]:
    """The rows of docs/choose.md, as they stand there, by job and machine."""
    found = {}
    for line in _PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) > 4 and cells[0] in JOBS and cells[1] in MACHINES:
            found[cells[0], cells[1]] = Row(cells[2], *(float(re.sub(r"[^\d.]", "", cell)) for cell in cells[3:5]))
    return found


def format_table() -> str:
    """The table of docs/choose.md."""
    lines = [
        "| job | cards | degrees | GiB a card | GiB without recomputation | GiB sent in a step | configuration |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, job in JOBS.items():
        for of_machine, machine in MACHINES.items():
            fit = chosen(job, machine)
            without = fit.gib(recompute=False)
            mark = "" if without < SHARE * machine.card_gib else " (too much)"
            sent = cost.communication(MODELS[job.model], job.training(), fit.degrees).total / 2**30
            cells = [name, of_machine, str(fit.degrees), f"{fit.gib():.1f}", f"{without:.1f}{mark}", f"{sent:,.1f}"]
            lines.append("| " + " | ".join([*cells, f"`{fit.name}.json`"]) + " |")
    return "\n".join(lines) + "\n"


def write(folder: str | Path, job: str, device: str) -> list[Path]:
    """Write all that a job needs: its script, its configurations, and launch files for a node and for two. Returns the paths.

    device: "xpu" or "gpu"; a P800 has 96 GiB, so the launch files of both name the configurations of such cards.
    """
    folder, script = Path(folder), JOBS[job].script
    written = take_home.copy_script(folder, script)
    configurations: Mapping[str, Fit] = {
        "8-cards": chosen(JOBS[job], MACHINES["8 cards of 96 GiB"]),
        "2-nodes": chosen(JOBS[job], MACHINES["2 nodes of 8 cards of 96 GiB"]),
    }
    launch_files = take_home.launch_files(f"{script}.py", device)
    for name, fit in configurations.items():
        written.append(folder / f"config-{name}.json")
        written[-1].write_text(json.dumps({**stored()[fit.name], "device": device}, indent=2) + "\n", encoding="utf-8")
        written.append(folder / f"launch-{name}.sh")
        lines = launch_files[f"launch-{name}.sh"].replace("config.json", f"config-{name}.json")
        written[-1].write_text(lines, encoding="utf-8")
    shutil.copytree(_FOLDER, folder / "configurations", dirs_exist_ok=True)
    return written
