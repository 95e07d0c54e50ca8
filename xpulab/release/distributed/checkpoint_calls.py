"""Arguments of dist.save_state_dict, load_state_dict and load_merged_state_dict as a grid: what each rank has loaded.

of_calls = checkpoint_calls.grid(here.name)
check.grid("distributed-checkpoint.call-options", of_calls, checkpoint_calls.run(here.name, folder), add_row, ...)
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle.distributed as dist

from xpulab.chapters.shared import workarounds
from xpulab.chapters.shared.cases_on_ranks import on_ranks
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid, Rule
from xpulab.records.refusals import refusal

RANKS, ROWS, COLUMNS = 2, 4, 6
METHODS = ("broadcast", "send_recv", "multi_group_broadcast", "grouped_send_recv")
PREFIXES = {"all": None, "model": "model"}


def grid(device: str) -> Grid:
    """The grid; what data/refusals.yaml declares is a rule."""
    rules: dict[str, Rule] = {}
    if lacks := refusal(device, "load_state_dict", form="send_recv"):
        rules[lacks.format_reason()] = lambda method: method != METHODS[0]
    return Grid(
        {
            "loaded_by": ("load_state_dict", "load_merged_state_dict"),
            "method": METHODS,
            "placed": {"other axis": 1, "as saved": 0},
            "group": ("none", "of both ranks"),
            "workers": ("none", "two groups"),
            "coordinator": (0, 1),
            "number": (None, 2),
            "replicas": ("one", "all"),
            "format": {"distcp": False, "safetensors": True},
            "names": {"made compatible": True, "as they are": False},
            "prefix": PREFIXES,
            "offload": (False, True),
        },
        {
            "the merged state has no method, group or placement": lambda loaded_by, method, placed, workers, names: (
                loaded_by != "load_state_dict" and (method != METHODS[0] or placed == 0 or workers != "none" or not names)
            ),
            "only the merged state has a prefix": lambda loaded_by, prefix, offload: (
                loaded_by == "load_state_dict" and (prefix is not None or offload)
            ),
            "only one method has groups of workers": lambda method, workers: (
                (method == "multi_group_broadcast") != (workers != "none")
            ),
            **rules,
        },
    )


def run(device: str, folder: str) -> Callable[[Sequence[Case]], list[Any]]:
    """What check.grid takes as `run`: what each rank has loaded. folder: an empty one."""

    def compared(case: Case, of_ranks: list[Any]) -> Compared:
        right = {f"{name} {rank}": value for rank in range(RANKS) for name, value in _right(case, rank).items()}
        found = {f"{name} {rank}": value for rank in range(RANKS) for name, value in of_ranks[rank].items()}
        return Compared(found, right)

    return on_ranks(partial(_loaded, folder), RANKS, device, compared, lambda _: range(RANKS), lambda _: _start())


def _start() -> None:
    workarounds.silence_checkpoint_log()
    workarounds.load_checkpoints_on_cpu()  # does nothing on a card
    workarounds.read_each_checkpoint_anew()  # does something on Paddle 3.3.0 only
    dist.init_parallel_env()


def _values(case: Case) -> dict[str, Any]:
    rng = case.rng()
    return {"model.weight": rng.standard_normal([ROWS, COLUMNS]), "step": np.arange(3.0) + case.seed}


def _state(case: Case, axis: int, values: dict[str, Any]) -> dict[str, Any]:
    mesh = dist.ProcessMesh([0, 1], dim_names=["x"])
    placements: Any = {"model.weight": [dist.Shard(axis)], "step": [dist.Replicate()]}
    return {name: dist.shard_tensor(value.astype("float32"), mesh, placements[name]) for name, value in values.items()}


def _loaded(folder: str, case: Case) -> dict[str, Any]:
    path, values = str(Path(folder, f"{zlib.crc32(case.name.encode()):x}")), _values(case)
    group = None if case.group == "none" else dist.new_group([0, 1])
    both: dict[str, Any] = {"process_group": group, "coordinator_rank": case.coordinator, "unique_id": case.number}
    both["safetensors"] = case.format
    dist.save_state_dict(_state(case, 0, values), path, save_replicas=case.replicas == "all", **both)
    dist.barrier()
    if case.loaded_by == "load_merged_state_dict":
        given = {"prefix": case.prefix, "unique_id": case.number, "offload": case.offload, "safetensors": case.format}
        return {name: value.numpy() for name, value in dist.load_merged_state_dict(path, **given).items()}
    state = _state(case, case.placed, {name: np.zeros_like(value) for name, value in values.items()})
    workers = None if case.workers == "none" else [dist.new_group([0, 1]) for _ in range(2)]
    dist.load_state_dict(state, path, worker_groups=workers, comm_method=case.method, mw_name_compatibility=case.names, **both)
    return {name: value._local_value().numpy() for name, value in state.items()}


def _right(case: Case, rank: int) -> dict[str, Any]:
    values = {name: value.astype("float32") for name, value in _values(case).items()}
    if case.loaded_by == "load_merged_state_dict":
        return values if case.prefix is None else {"weight": values["model.weight"]}
    return values | {"model.weight": np.split(values["model.weight"], RANKS, case.placed)[rank]}


def numbered(folder: str) -> dict[str, str]:
    """On a rank: by row what is loaded from a folder with the checkpoints 1 and 2, that hold their number."""
    _start()
    mesh = dist.ProcessMesh([0, 1], dim_names=["x"])

    def state(number: float) -> dict[str, Any]:
        return {"weight": dist.shard_tensor(np.full([4], number, "float32"), mesh, [dist.Shard(0)])}

    for number in (1, 2):
        dist.save_state_dict(state(number), folder, unique_id=number)
    dist.barrier()
    found = {}
    for row, given in CALLS.items():
        loaded = state(0)
        dist.load_state_dict(loaded, folder, unique_id=given)
        found[row] = str(loaded["weight"]._local_value().numpy().tolist())
    return found


CALLS = {"the first": 1, "the second after it": 2, "the newest": None}
"""By row the unique_id that load_state_dict is given, one call after the other in a process."""

HELD = {row: str([float(number or 2)] * 2) for row, number in CALLS.items()}
"""By row what each rank must have."""
