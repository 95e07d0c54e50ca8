"""Checkpoints of a grid's cases on ranks, all cases of one number of ranks in one start of them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import paddle.distributed as dist

from xpulab import ranks
from xpulab.chapters.shared import workarounds
from xpulab.chapters.shared.cases_on_ranks import error_of_all
from xpulab.chapters.shared.processes import side_by_side
from xpulab.chapters.shared.states import digests
from xpulab.checks.grid import Case

FORMATS = ("distcp", "safetensors")
"""The formats of dist.save_state_dict."""

Held = dict[str, str]
"""By name the digest of what a rank holds."""

Action = Callable[[Path, Case], dict[str, Any]]


def text_of(values: Mapping[str, Any]) -> Held:
    """By name a digest of type, shape and bits of each tensor or array."""
    return {name: digest.tobytes().hex()[:16] for name, digest in digests(values).items()}


def on_counts(
    action: Action,
    cases: Mapping[Path, Case],
    count: Callable[[Case], int],
    device: str,
    start: Callable[[], Any] = dist.init_parallel_env,
) -> dict[Path, list[dict[str, Any]]]:
    """By path what each rank returns of the action for its case, or {"error": ...} where all ranks raise one.

    count: the number of ranks of a case. start: what a rank does first.
    Raises RanksFailed when an error is raised on some ranks only, for which the others would wait.
    """
    of_count = {n: {path: case for path, case in cases.items() if count(case) == n} for n in map(count, cases.values())}
    runs = [
        partial(ranks.run, _one_by_one, n, action, asked, start, device=device, time_limit=300.0)
        for n, asked in of_count.items()
    ]
    found: dict[Path, list[dict[str, Any]]] = {}
    for asked, answers in zip(of_count.values(), side_by_side(runs, device), strict=True):
        found.update({path: [of_rank[number] for of_rank in answers] for number, path in enumerate(asked)})
    return found


def start_rank(start: Callable[[], Any] = dist.init_parallel_env) -> None:
    """On a rank, before it saves or loads: the workarounds that checkpoints need. start: what it does then."""
    workarounds.silence_checkpoint_log()
    workarounds.load_checkpoints_on_cpu()  # does nothing on a card
    workarounds.read_each_checkpoint_anew()  # does something on Paddle 3.3.0 only
    start()


def _one_by_one(action: Action, cases: Mapping[Path, Case], start: Callable[[], Any]) -> list[dict[str, Any]]:
    """On a rank: the action for each case."""
    start_rank(start)
    gc.collect()
    gc.freeze()  # each load collects garbage: what was imported is not looked at again
    found = []
    for path, case in cases.items():
        ranks.step(case.name)
        try:
            found.append(action(path, case))
        except Exception as error:
            found.append({"error": error_of_all(error, f"{action.__name__} {path}", dist.get_world_size())})
    if dist.get_world_size() > 1:
        dist.barrier()
    return found
