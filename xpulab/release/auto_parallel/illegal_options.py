"""Combinations of PaddleNLP's options that are illegal, a part of the error message of each, and some that are legal; and what
a pipeline under AutoTrainer needs: a tensor that goes from one mesh to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from unittest import mock

import numpy as np
import paddle
import paddle.distributed as dist
from paddlenlp.trainer import AutoTrainingArguments, PdArgumentParser

from xpulab import ranks
from xpulab.chapters.shared import workarounds

TOO_MANY = "more degrees than ranks"

ILLEGAL: dict[str, tuple[str, str]] = {
    "a degree that does not divide the ranks": (
        "--tensor_parallel_degree 3",
        "shoule be devided by tensor_parallel_degree: 3",
    ),
    "sequence and context together": (
        "--sep_parallel_degree 2 --context_parallel_degree 2",
        "cannot be used together",
    ),
    "an unknown sharding stage": ("--sharding stage4", "stage4 is not a valid ShardingOption"),
    "offload without a stage": ("--sharding offload", "can't work on its own"),
    "bf16 and fp16 together": ("--bf16 1 --fp16 1", "At most one of fp16 and bf16 can be True"),
    "an unknown tensor option": (
        "--tensor_parallel_degree 2 --tensor_parallel_config x",
        "Found unknown tensor parallell config x",
    ),
    "a sharding option of fleet": (
        "--sharding stage1 --sharding_parallel_config enable_stage1_overlap",
        "use enable_overlap instead",
    ),
    "a fusion option of fleet": (
        "--sharding stage1 --sharding_parallel_config enable_stage1_tensor_fusion",
        "use enable_tensor_fusion instead",
    ),
    "an unknown data option": ("--data_parallel_config x", "Found unknown data parallel config x"),
    "an unknown sequence option": ("--sequence_parallel_config x", "Found unknown sequence parallel config x"),
    "an unknown pipeline option": (
        "--pipeline_parallel_degree 2 --gradient_accumulation_steps 2 --pipeline_parallel_config x",
        "Found unknown pipeline mode config x",
    ),
    "AdamW Mini with cut matrices": (
        "--tensor_parallel_degree 2 --optim adamw_mini",
        "doesn't support tensor parallelism",
    ),
    "experts with plain data parallelism": ("--expert_parallel_degree 2", "not with data_parallel strategy"),
    "experts that do not divide": (
        "--sharding stage1 --sharding_parallel_degree 2 --expert_parallel_degree 4",
        "should be divided by expert_parallel_degree",
    ),
    "cut experts": ("--expert_tensor_parallel_degree 2", "Currently only support expert_tensor_parallel_degree=1"),
    TOO_MANY: ("--sharding stage1 --sharding_parallel_degree 2 --tensor_parallel_degree 2", "world_size"),
}

LEGAL = {"legal": ("--tensor_parallel_degree 2 --gradient_accumulation_steps 2", "")}

_STAGES = "--pipeline_parallel_degree 2 --gradient_accumulation_steps 2"
PIPELINE = {"pipeline": (_STAGES, ""), "unknown option": (f"{_STAGES} --pipeline_parallel_config x", "")}


@dataclass
class WithSchedule(AutoTrainingArguments):
    """AutoTrainingArguments with the field that its __post_init__ reads for a pipeline, and that it does not declare."""

    pipeline_schedule_mode: str = "FThenB"


def answers_to(
    cases: Mapping[str, tuple[str, str]], common: Sequence[str], kind: type[AutoTrainingArguments] = AutoTrainingArguments
) -> dict[str, str]:
    """On one of two ranks: case to PaddleNLP's error message for these options, or "accepted".

    common: further options. kind: the class of arguments.
    """
    dist.init_parallel_env()
    workarounds.silence_paddlenlp_log()
    answers = {}
    for name, (options, _) in cases.items():
        ranks.step(name)
        with mock.patch("paddle.distributed.fleet.init"):  # legal options would create groups of ranks here
            try:
                parser = PdArgumentParser(kind)
                parser.parse_args_into_dataclasses([*common, *options.split()], look_for_args_file=False)
                answers[name] = "accepted"
            except (AssertionError, AttributeError, ValueError) as error:
                answers[name] = str(error).splitlines()[0]
    return answers


def answers_of_kinds(
    kinds: Sequence[type[AutoTrainingArguments]], common: Sequence[str]
) -> tuple[dict[str, str], list[dict[str, str]]]:
    """On one of two ranks: the answers to ILLEGAL and LEGAL, and those of each class of arguments to PIPELINE."""
    return answers_to(ILLEGAL | LEGAL, common), [answers_to(PIPELINE, common, kind) for kind in kinds]


def to_the_next_mesh(x: np.ndarray) -> np.ndarray | None:
    """On one of two ranks: what it holds of x after a reshard from a mesh of rank 0 to a mesh of rank 1; None on rank 0."""
    dist.init_parallel_env()
    first, second = (dist.ProcessMesh([rank], dim_names=["x"]) for rank in (0, 1))
    sent = dist.reshard(dist.shard_tensor(paddle.to_tensor(x), first, [dist.Replicate()]), second, [dist.Replicate()])
    return sent._local_value().numpy() if dist.get_rank() == 1 else None


def received_or_zeros(x: np.ndarray, device: str) -> np.ndarray:
    """What rank 1 holds after a reshard from a mesh of rank 0 to one of rank 1, or zeros when a rank crashed."""
    try:
        return ranks.run(to_the_next_mesh, 2, x, device=device, time_limit=30)[1]
    except ranks.RanksFailed:
        return np.zeros_like(x)
