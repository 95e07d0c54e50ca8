"""A training state that n ranks of tensor parallelism save and m ranks load: each tensor by name, the next steps to the bit.

    check.grid("distributed-checkpoint.training", trainings(counts), on_ranks(folder, device), add_row, ...)

The layers are fleet's, cut along an axis, and what they and AdamW hold is what their sharded_state_dict lists. All values are
drawn by name and set; new objects with other values and later automatic names load the file. Beside them are objects whose
values were set and not loaded.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist

from xpulab.chapters.shared.missing_kernels import lacked
from xpulab.checks.compared import add_error
from xpulab.checks.grid import Case, Grid
from xpulab.checks.table import Table
from xpulab.release.checkpoints.on_ranks import FORMATS, Held, on_counts, text_of

VOCABULARY, WIDTH, INNER, STEPS = 16, 8, 12, 2

AXES = {"embed.weight": 0, "head.weight": 0, "up.weight": 1, "up.bias": 0, "down.weight": 0}
"""By the end of a name the axis along which tensor parallelism cuts a weight; what is not here is whole on every rank."""

KINDS = ("moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc")
"""What AdamW keeps of a weight; of one of 16 bits also a copy in float32, "w"."""


def trainings(counts: Sequence[int]) -> Grid:
    """The grid. counts: the numbers of ranks that save, and that load, the default first."""
    return Grid(
        {
            "saved_on": counts,
            "loaded_on": counts,
            "dtype": ("float32", "bfloat16", "float64"),
            "layers": (2, 11),
            "head": ("its own", "the embedding"),
            "format": FORMATS,
            "offload": (False, True),
        }
    )


def on_ranks(folder: Path, device: str) -> Callable[[Sequence[Case]], list[list[dict[str, Held]]]]:
    """What check.grid takes as `run`: for each case what each rank that loads has, as `_load` says."""

    def run(cases: Sequence[Case]) -> list[list[dict[str, Held]]]:
        own = Path(tempfile.mkdtemp(dir=folder))  # Paddle must not save twice in a folder
        by_path = {own / f"case-{number}": case for number, case in enumerate(cases)}
        on_counts(_save, by_path, lambda case: case.saved_on, device, _with_fleet)
        found = on_counts(_load, by_path, lambda case: case.loaded_on, device, _with_fleet)
        return [found[path] for path in by_path]

    return run


def add_row(rows: Table, case: Case, found: Sequence[dict[str, Any]]) -> None:
    """Add a row: on each rank what was loaded, and what it became; in the control one tensor is another."""
    if errors := [of_rank["error"] for of_rank in found if "error" in of_rank]:
        add_error(rows, case.name, errors[0])
        return
    loaded, right = ([of_rank[which] for of_rank in found] for which in ("loaded", "right"))
    last = {**right[-1], max(right[-1]): "another digest"}
    rows.equal(case.name, loaded, right, control=[*right[:-1], last])


# ----------------------------------------------------------------------------------------------------------------- on ranks


def _with_fleet() -> None:
    """Start fleet with all ranks as tensor parallelism."""
    from paddle.distributed import fleet

    dist.init_parallel_env()
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": dist.get_world_size(), "pp_degree": 1}
    fleet.init(is_collective=True, strategy=strategy)


class _Net(paddle.nn.Layer):
    def __init__(self, case: Case) -> None:
        from paddle.distributed.fleet import meta_parallel as cut

        super().__init__()
        self.embed = cut.VocabParallelEmbedding(VOCABULARY, WIDTH)
        self.layers = paddle.nn.LayerList()
        for _ in range(case.layers):
            up = cut.ColumnParallelLinear(WIDTH, INNER, has_bias=True, gather_output=False)
            down = cut.RowParallelLinear(INNER, WIDTH, has_bias=True, input_is_parallel=True)
            self.layers.append(paddle.nn.LayerDict({"norm": paddle.nn.LayerNorm(WIDTH), "up": up, "down": down}))
        self.head = self.embed if case.head == "the embedding" else cut.VocabParallelEmbedding(VOCABULARY, WIDTH)
        self.to(dtype=case.dtype)


class _Run:
    """Layers and AdamW of a case, whose values are drawn for `which`."""

    def __init__(self, case: Case, which: str) -> None:
        self.case, self.network = case, _Net(case)
        self.optimizer = paddle.optimizer.AdamW(0.01, parameters=self.network.parameters(), multi_precision=True)
        block = paddle.static.default_main_program().global_block()
        self.optimizer._create_accumulators(
            block, self.network.parameters()
        )  # as the first step does, which not every type has
        for name, tensor in self.tensors().items():
            tensor.set_value(paddle.to_tensor(_own_part(case, which, name, tensor.shape)).astype(tensor.dtype))

    def tensors(self) -> dict[str, Any]:
        """By name every tensor of the state, found without Paddle's list of them."""
        copies, found = self.optimizer._master_weights, {}
        for name, weight in self.network.named_parameters():
            found[name] = weight
            if weight.name in copies:
                found[f"{name}.w_0"] = copies[weight.name]
            key = copies.get(weight.name, weight).name
            found |= {f"{name}.{kind}_0": self.optimizer._accumulators[kind][key] for kind in KINDS}
        return found

    def state(self) -> dict[str, Any]:
        """What Paddle lists for a checkpoint."""
        weights = self.network.sharded_state_dict()
        return {**weights, **self.optimizer.sharded_state_dict(weights)}

    def step(self) -> None:
        """Take STEPS steps with drawn gradients, where this device has the kernel."""
        if lacked("adamw", self.case.dtype):
            return
        names = {weight.name: name for name, weight in self.network.named_parameters()}
        for number in range(STEPS):
            for weight in self.network.parameters():
                drawn = _drawn(self.case, f"gradient {number}", names[weight.name], weight.shape)
                weight.grad = paddle.to_tensor(drawn).astype(weight.dtype)
            self.optimizer.step()


def _drawn(case: Case, which: str, name: str, shape: Sequence[int]) -> np.ndarray:
    """The values of a name: between 0.1 and 0.9, as powers of betas and second moments must be."""
    draw = np.random.default_rng([case.seed, zlib.crc32(f"{which} {name}".encode())])
    return draw.uniform(0.1, 0.9, tuple(shape))


def _own_part(case: Case, which: str, name: str, shape: Sequence[int]) -> np.ndarray:
    """What this rank holds of the values of a name. shape: of its part. Moments and copies are cut as their weight."""
    rank, n = dist.get_rank(), dist.get_world_size()
    for end, axis in AXES.items():
        if f"{end}." in f"{name}." and not name.endswith("_pow_acc_0"):
            whole = [size * n if number == axis else size for number, size in enumerate(shape)]
            return np.split(_drawn(case, which, name, whole), n, axis=axis)[rank]
    return _drawn(case, which, name, shape)


def _save(path: Path, case: Case) -> Held:
    with paddle.utils.unique_name.guard():
        run = _Run(case, "saved")
    dist.save_state_dict(run.state(), str(path), safetensors=case.format == FORMATS[1])
    return {}


def _load(path: Path, case: Case) -> dict[str, Held]:
    """On a rank "loaded" and "right", by name before and after the steps: of objects that load, and whose values are set."""
    found = {}
    for how in ("loaded", "right"):
        run = _Run(case, "saved" if how == "right" else "before")
        if how == "loaded":
            dist.load_state_dict(run.state(), str(path), safetensors=case.format == FORMATS[1], offload=case.offload)
        before = text_of(run.tensors())
        run.step()
        found[how] = {**before, **{f"{name}, later": text for name, text in text_of(run.tensors()).items()}}
    return found
