"""Checkpoints of a grid's cases on ranks, all cases of one number of ranks in one start of them."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import paddle.distributed as dist

from xpulab import ranks
from xpulab.chapters.shared import workarounds
from xpulab.chapters.shared.error_of_all import error_of_all
from xpulab.chapters.shared.processes import side_by_side
from xpulab.chapters.shared.states import digests

FORMATS = ("distcp", "safetensors")
"""The formats of dist.save_state_dict."""

Held = dict[str, str]
"""By name the digest of what a rank holds."""


class Plan(Protocol):
    """A case of a grid, as ranks need it."""

    @property
    def name(self) -> str: ...


P = TypeVar("P", bound=Plan)


def text_of(values: Mapping[str, Any]) -> Held:
    """By name a digest of type, shape and bits of each tensor or array."""
    return {name: digest.tobytes().hex()[:16] for name, digest in digests(values).items()}


def on_counts(
    action: Callable[[Path, P], dict[str, Any]],
    plans: Mapping[Path, P],
    count: Callable[[P], int],
    device: str,
    start: Callable[[], Any] = dist.init_parallel_env,
) -> dict[Path, list[dict[str, Any]]]:
    """By path what each rank returns of the action for its plan, or {"error": ...} where all ranks raise one.

    count: the number of ranks of a plan. start: what a rank does first.
    Raises RanksFailed when an error is raised on some ranks only, for which the others would wait.
    """
    of_count = {n: {path: plan for path, plan in plans.items() if count(plan) == n} for n in map(count, plans.values())}
    runs = [
        partial(ranks.run, _one_by_one, n, action, asked, start, device=device, time_limit=300.0)
        for n, asked in of_count.items()
    ]
    found: dict[Path, list[dict[str, Any]]] = {}
    for asked, answers in zip(of_count.values(), side_by_side(runs, device), strict=True):
        found.update({path: [of_rank[number] for of_rank in answers] for number, path in enumerate(asked)})
    return found


def _one_by_one(
    action: Callable[[Path, P], dict[str, Any]], plans: Mapping[Path, P], start: Callable[[], Any]
) -> list[dict[str, Any]]:
    """On a rank: the action for each plan."""
    workarounds.silence_checkpoint_log()
    workarounds.load_checkpoints_on_cpu()
    workarounds.read_each_checkpoint_anew()
    start()
    gc.collect()
    gc.freeze()  # each load collects garbage: what was imported is not looked at again
    found = []
    for path, plan in plans.items():
        ranks.step(plan.name)
        try:
            found.append(action(path, plan))
        except Exception as error:
            found.append({"error": error_of_all(error, f"{action.__name__} {path}", dist.get_world_size())})
            loading: Any = importlib.import_module("paddle.distributed.flex_checkpoint.dcp.load_state_dict")
            loading._metadata_manager.clear()  # else the next case begins with metadata of this one
    if dist.get_world_size() > 1:
        dist.barrier()
    return found
