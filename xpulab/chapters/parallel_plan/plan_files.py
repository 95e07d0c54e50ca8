"""The memory of a card, and the files of a parallel plan: one configuration and one launch file for each number of cards."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from paddle.distributed.launch.context.args_envs import parse_args
from paddle.distributed.launch.controllers.controller import Controller

from xpulab.chapters.shared import take_home, workarounds
from xpulab.devices import REAL
from xpulab.doctor.nvml import read_nvml
from xpulab.doctor.xpu_smi import read_xpu_smi
from xpulab.errors import InputError

SCRIPT = "parallel"
MIB_IN_A_GIB = 1024
_LAUNCHER = "paddle.distributed.launch"


def card_memory(device: str, otherwise_gib: float) -> tuple[float, str]:
    """GiB of the smallest card that the vendor's tool shows, and where the number is from.

    otherwise_gib: the number for a device without such a tool (the CPU, simulated cards), or when it shows no memory.
    """
    tool = {"gpu": read_nvml, "xpu": read_xpu_smi}.get(device)
    reading = tool() if tool else None
    sizes = [card.memory_total_mib for card in reading.cards if card.memory_total_mib] if reading else []
    if reading and sizes:
        return min(sizes) / MIB_IN_A_GIB, reading.tool
    return otherwise_gib, "the parameter card_gib"


def device_of_the_files(asked: str, here: str) -> str:
    """ "auto": the device in use if it is a GPU or an XPU, else "xpu". Raises InputError for an unknown device."""
    if asked == "auto":
        return here if here in ("gpu", "xpu") else "xpu"
    if asked not in REAL:
        raise InputError(f"files_for = {asked!r}: choose auto, {', '.join(REAL)}")
    return asked


def write(folder: str | Path, configurations: Mapping[str, Mapping[str, Any]], device: str) -> list[Path]:
    """Write the script, and for each launch file its configuration. Returns the paths.

    configurations: by the name in the launch file's: "1-card", "8-cards", "2-nodes". device: "cpu", "gpu" or "xpu".
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    source = take_home.script_path(SCRIPT)
    written = [Path(shutil.copyfile(source, folder / source.name))]
    launch_files = take_home.launch_files(source.name, device)
    for name, config in configurations.items():
        written.append(folder / f"config-{name}.json")
        written[-1].write_text(json.dumps({**config, "device": device}, indent=2) + "\n", encoding="utf-8")
        written.append(folder / f"launch-{name}.sh")
        written[-1].write_text(
            launch_files[f"launch-{name}.sh"].replace("config.json", f"config-{name}.json"), encoding="utf-8"
        )
    return written


def launched_cards(text: str) -> int:
    """How many processes a launch file starts on all of its nodes, as Paddle's launcher counts them."""
    words = shlex.split(next(line for line in text.splitlines() if line.startswith("python ")))
    if _LAUNCHER not in words:
        return 1
    with mock.patch.object(sys, "argv", words[words.index(_LAUNCHER) :]):
        arguments, _ = parse_args()
    launcher: Any = SimpleNamespace(ctx=SimpleNamespace(args=arguments))
    return Controller.pod_replicas(launcher) * int(arguments.nnodes)


load_script = partial(take_home.load_script, SCRIPT)
"""Gives the training script as a module."""


def parsed(files_and_cards: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """On a rank: what the script reads from each configuration, given as JSON text, when there are this many cards.

    It uses PaddleNLP's parser and arguments; the number of ranks is replaced, and no groups of ranks are created.
    """
    workarounds.silence_paddlenlp_log()
    script, found = load_script(), []
    for text, cards in files_and_cards:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "config.json"
            file.write_text(text)
            count = mock.patch("paddle.distributed.get_world_size", return_value=cards)
            with count, mock.patch("paddle.distributed.fleet.init"):
                parser = script.PdArgumentParser((script.ModelArguments, script.DataArguments, script.PreTrainingArguments))
                _, data, args = parser.parse_json_file(str(file))
        found.append(
            {
                "dp": args.data_parallel_degree,
                "sharding": args.sharding_parallel_degree,
                "mp": args.tensor_parallel_degree,
                "pp": args.pipeline_parallel_degree,
                "sep": args.sep_parallel_degree,
                "samples": args.per_device_train_batch_size * args.gradient_accumulation_steps,
                "stage": " ".join(option.value for option in args.sharding) or "none",
                "sequence": data.max_seq_length,
            }
        )
    return found
