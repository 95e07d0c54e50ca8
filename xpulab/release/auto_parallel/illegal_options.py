"""Combinations of PaddleNLP's options that are illegal, a part of the error message of each, and one that is legal."""

from __future__ import annotations

from collections.abc import Sequence
from unittest import mock

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
    "an unknown pipeline option": (
        "--pipeline_parallel_degree 2 --gradient_accumulation_steps 2 --pipeline_parallel_config x",
        "Found unknown pipeline mode config x",
    ),
    "experts with plain data parallelism": ("--expert_parallel_degree 2", "not with data_parallel strategy"),
    TOO_MANY: ("--sharding stage1 --sharding_parallel_degree 2 --tensor_parallel_degree 2", "world_size"),
}

LEGAL = {"legal": ("--tensor_parallel_degree 2 --gradient_accumulation_steps 2", "")}


def answers(common: Sequence[str]) -> dict[str, str]:
    """On one of two ranks: by case of ILLEGAL and LEGAL PaddleNLP's error message, or "accepted". common: further options."""
    dist.init_parallel_env()
    workarounds.silence_paddlenlp_log()
    found = {}
    for name, (options, _) in (ILLEGAL | LEGAL).items():
        ranks.step(name)
        with mock.patch("paddle.distributed.fleet.init"):  # legal options would create groups of ranks here
            try:
                parser = PdArgumentParser(AutoTrainingArguments)
                parser.parse_args_into_dataclasses([*common, *options.split()], look_for_args_file=False)
                found[name] = "accepted"
            except (AssertionError, AttributeError, ValueError) as error:
                found[name] = str(error).splitlines()[0]
    return found
