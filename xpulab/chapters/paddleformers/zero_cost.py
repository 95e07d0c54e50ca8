"""Zero-cost checkpointing of PaddleFormers on a host: its manager, worker and callback, with stand-ins for what needs a card.

What runs is PaddleFormers' own: the messages between trainer and worker, its states, the pieces of a copy, the average and the
files. The stand-ins, each in place of one interface of a card:

- a worker is a thread and not a process, because processes share buffers through the memory of a card;
- a buffer is found by its number, where `_new_shared_cuda` or `_new_shared_xpu` opens the memory of another process;
- a copy to pinned memory is a copy on the host. It happens when the worker waits for it, the latest moment that is allowed;
- of several ranks one saves after the other.

EMABuffer, which averages without a worker, computes where the device of this run is: `cuda()` copies to it.

Source: PaddleFormers 1.2.0, trainer/utils/zero_cost_checkpoint.py, and Paddle 3.3.1, optimizer/fusion_utils.py.
"""

from __future__ import annotations

import importlib
import multiprocessing.dummy
import os
import queue
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import paddle
from paddle.base import core
from paddle.optimizer import fusion_utils

from xpulab.checks.table import Table
from xpulab.records.environments import SUCCESSOR

warnings.filterwarnings("ignore", message="The input state dict is empty")  # a rank of these has no part of some states

MODULE = f"{SUCCESSOR}.trainer.utils.zero_cost_checkpoint"
KEEP = 0.75
"""The coefficient of the average."""
MICRO_BATCHES = 3
"""Of a step; the state is copied in as many pieces."""
SHAPES = {"weight": (4, 6), "bias": (6,)}
RANKS = 2
"""That share the state of the optimizer, each with a part of its own."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Saved:
    """What a run of some steps did, each of which saves.

    states: step to the moments and master weights after it.
    files: step to the same, read from the checkpoint.
    averages: step to the averaged master weights, read from the checkpoint.
    messages: the kinds of the messages that the worker received, in order.
    pieces: offset and number of elements of each copy from the buffer of the optimizer, in order.
    signals: step to the names of the files in the checkpoint that say it is complete.
    """

    states: dict[int, Arrays]
    files: dict[int, Arrays]
    averages: dict[int, Arrays]
    messages: list[str]
    pieces: list[tuple[int, int]]
    signals: dict[int, list[str]]


def train_and_save(folder: Path, steps: int, fused_again: Sequence[int] = (), rank: int = 0) -> Saved:
    """Steps as PaddleFormers' trainer makes them, each followed by a save.

    fused_again: the steps after which the optimizer has fused its buffers again, which its `fused_buffer_version` says. The
        first step is always among them. rank: the one of RANKS whose part of the state is saved.
    """
    run = _Run(folder, rank)
    with _stand_ins(run):
        run.begin()
        try:
            for step in range(1, steps + 1):
                run.one_step(step, step == 1 or step in fused_again)
            run.manager.finalize()
        finally:
            run.copies_may_begin.set()
    read = {step: run.read(step) for step in range(1, steps + 1)}
    return Saved(
        run.states,
        {step: found[0] for step, found in read.items()},
        {step: found[1] for step, found in read.items()},
        run.messages,
        run.pieces,
        {step: sorted(path.name for path in run.checkpoint(step).glob("saved_signal*")) for step in read},
    )


def error_of_a_save(folder: Path, writable: bool) -> str:
    """The error of the manager in the step after a save, or "no error". writable: whether the folder can be written."""
    run = _Run(folder)
    if not writable:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.write_text("a file where the folder should be")
    with _stand_ins(run):
        run.begin()
        try:
            run.one_step(1, True)
            run.one_step(2, False)
            run.wait_for_the_worker()
            run.manager.report_error_worker()
            return "no error"
        except RuntimeError as error:
            return str(error)
        finally:
            run.copies_may_begin.set()
            run.manager.terminate_workers()


def rows_of_two_ranks(rows: Table, folder: Path) -> None:
    """Rows: each rank writes its part of the state and a marker of its own, and the first one the settings.

    One rank after the other saves into the same folder. PaddleFormers has no marker that stands for all of them.
    """
    runs: dict[int, Saved] = {}
    markers: list[list[str]] = []
    settings: list[bool] = []
    for rank in reversed(range(RANKS)):
        runs[rank] = train_and_save(folder, 2, fused_again=(2,), rank=rank)
        markers.append(runs[rank].signals[2])
        settings.append((folder / "checkpoint-2" / "config.json").is_file())
    for rank, run in runs.items():
        for step, state in run.states.items():
            rows.bitwise(f"files, rank {rank}, step {step}", run.files[step], state, control=runs[1 - rank].states[step])
    both = ["saved_signal_0", "saved_signal_1"]
    rows.equal("markers, one rank and both", markers, [both[1:], both], control=[both[:1], both[:1]])
    rows.equal("settings of the model, one rank and both", settings, [False, True], control=[True, True])


LOSSES = (0.5, 2.0, 0.5, 0.5)
"""Of the steps after which EMABuffer averages."""
THRESHOLD = 1.0
"""A step whose loss is not below it does not count."""


def rows_of_own_average(rows: Table, folder: Path) -> None:
    """Rows: the average of a training without the zero-cost checkpoint, in its file, and continued after a resume."""
    rng = np.random.default_rng(0)
    states = [{name: rng.normal(size=shape).astype("float32") for name, shape in SHAPES.items()} for _ in LOSSES]
    for title, threshold in (("every step", None), ("steps below the threshold", THRESHOLD)):
        counted = [threshold is None or loss < threshold for loss in LOSSES]
        found, resumed = (_average_of(folder / title / f"from-{begin}", states, threshold, begin) for begin in (0, 2))
        for name in SHAPES:
            exact, stale = states[0][name].astype("float64"), states[0][name]
            for state, counts in list(zip(states, counted, strict=True))[1:]:
                stale, exact = exact, KEEP * exact + (1 - KEEP) * state[name] if counts else exact
            rows.close(f"EMA file, {title}, {name}", found[name], exact, atol=1e-6, control=stale)
            rows.bitwise(f"EMA file after a resume, {title}, {name}", resumed[name], found[name], control=states[-1][name])


def _average_of(folder: Path, states: Sequence[Arrays], threshold: float | None, begin: int) -> Arrays:
    """The averaged master weights in the last checkpoint, of PaddleFormers' callback and EMABuffer.

    Every step saves. begin: after this step the training begins again from its checkpoint; 0: it is not interrupted.
    """
    zcc, suffix = importlib.import_module(MODULE), "shard00"
    args = SimpleNamespace(
        save_checkpoint_format="sharding_io",
        output_dir=str(folder),
        optimizer_name_suffix=suffix,
        zcc_save_ema_coef=KEEP,
        zcc_ema_interval=1,
        zcc_ema_loss_threshold=threshold,
    )
    now: dict[str, Any] = {}
    trainer = SimpleNamespace(
        model=SimpleNamespace(),
        optimizer=SimpleNamespace(state_dict=lambda: {"master_weights": now}),
        manipulate_state_dict_and_config=lambda model, merge_tensor_parallel: ({}, None),
        check_same_strategy=lambda path: (True, ""),
    )
    control = SimpleNamespace(should_save=True, should_save_hf=False)
    with (
        mock.patch.object(paddle.Tensor, "cuda", lambda tensor, *_: tensor.to(paddle.get_device())),
        mock.patch.object(paddle.Tensor, "pin_memory", lambda tensor, *_: tensor.clone()),
    ):
        callback = zcc.NonZCCEMACallback.create_nonzcc_callback(args, None, trainer)
        for step, (state, loss) in enumerate(zip(states, LOSSES, strict=True), 1):
            now.update({name: paddle.to_tensor(value) for name, value in state.items()})
            callback.on_step_end(args, SimpleNamespace(global_step=step, loss=loss), control)
            if step == begin:
                callback = zcc.NonZCCEMACallback.create_nonzcc_callback(args, str(folder / f"checkpoint-{step}"), trainer)
    file = folder / f"checkpoint-{len(states)}" / f"ema.{suffix}.pdopt"
    return paddle.load(str(file), return_numpy=True)["master_weights"]


class _Run:
    """A trainer with one optimizer, whose state is in one buffer, and a buffer of weights."""

    def __init__(self, folder: Path, rank: int = 0) -> None:
        self.folder, self.rank, self.suffix = folder, rank, f"shard{rank:02d}"
        self.zcc = importlib.import_module(MODULE)
        self.messages: list[str] = []
        self.pieces: list[tuple[int, int]] = []
        self.states: dict[int, Arrays] = {}
        self.copies_may_begin, self.pauses = threading.Event(), 0
        self.metas, size = {}, 0
        for kind in ("moment1_0", "moment2_0", "master"):
            self.metas[kind], size = _laid_out(kind, size)
        self.of_weights, count = _laid_out("weight", 0)
        for meta in self.of_weights.values():
            meta["buffer_index"] = "0"
        self.buffers = [paddle.to_tensor(np.zeros(length, "float32"), place="cpu") for length in (size, count)]
        self.rng = np.random.default_rng(rank)

    def begin(self) -> None:
        zcc = self.zcc
        self.args = SimpleNamespace(
            enable_zero_cost_checkpoint=True,
            zcc_save_ema_coef=KEEP,
            zcc_ema_interval=1,
            zcc_ema_loss_threshold=None,
            save_rng_states=False,
            save_steps=1,
            flash_device_save_steps=0,
            output_dir=str(self.folder),
            optimizer_name_suffix=self.suffix,
            pipeline_model_parallel_size=1,
        )
        self.manager = zcc.ZeroCostCheckpointManager(1, MICRO_BATCHES, 1.0, False, ema_coef=KEEP)
        timer = SimpleNamespace(start=lambda name: None, stop=lambda: None)
        self.callback = zcc.ZeroCostCheckpointCallback(self.args, self.manager, timer, None)
        self.callback.maybe_update_zcc_worker = self.update_workers
        self.fused = False

    def update_workers(self, args: Any, model: Any, optimizer: Any, step: int) -> None:
        """As the method that it replaces, with these buffers in place of fleet's."""
        if not self.fused:
            return
        kinds = {kind: self.metas[kind] for kind in ("moment1_0", "moment2_0")}
        model_states = self.of_weights, {"0": (1,) * 7}
        dynamic = {
            "optimizer_states_meta": (kinds, self.metas["master"], None, (0,) * 7),
            "model_states_meta": model_states,
            "optimizer_states_name_path": f"optimizer.{self.suffix}.pdopt",
            "model_states_name_path": f"model.{self.suffix}.pdparams",
        }
        static = {"model_config": "{}", "training_args": args, "model_meta": {}, "user_file": []}
        self.manager.update_zcc_workers(self.manager.cache_version + 1, dynamic, static, step)

    def one_step(self, step: int, fused: bool) -> None:
        """Forward and backward passes, the optimizer's step, and the begin of a save."""
        for _ in range(MICRO_BATCHES - 1):
            self.callback.on_substep_end(self.args, None, None)
        self.callback.on_optimizer_begin(self.args, None, None)
        for buffer in self.buffers:
            paddle.assign(paddle.to_tensor(self.rng.normal(size=buffer.shape).astype("float32"), place="cpu"), buffer)
        self.states[step] = self.parts(self.buffers[0].numpy())
        self.copies_may_begin.set()  # of the step before: they come too late now
        self.wait_for_the_worker()
        self.copies_may_begin.clear()
        self.fused = fused
        state = SimpleNamespace(global_step=step, loss=0.0, save=lambda path: Path(path).write_text("{}"))
        state.save_to_json = state.save
        scheduler, control = SimpleNamespace(state_dict=dict), SimpleNamespace(should_save=True)
        self.callback.on_step_end(self.args, state, control, None, scheduler, None)

    def wait_for_the_worker(self) -> None:
        """Until the worker has nothing to do; the trainer itself has no such call."""
        for worker in self.manager.workers:
            while worker.task_queue.unfinished_tasks:
                self.pause(1)

    def pause(self, seconds: float) -> None:
        """In place of a second between two looks. Raises TimeoutError when the worker never answers."""
        self.pauses += 1
        if self.pauses > 20_000:
            raise TimeoutError("the worker of PaddleFormers does not answer")
        time.sleep(0.001)

    def parts(self, flat: np.ndarray) -> Arrays:
        metas = [meta for kind in self.metas.values() for meta in kind.values()]
        return {meta["name"]: flat[meta["start"] : meta["end"]].reshape(meta["shape"]) for meta in metas}

    def checkpoint(self, step: int) -> Path:
        return self.folder / f"checkpoint-{step}"

    def read(self, step: int) -> tuple[Arrays, Arrays]:
        """Moments and master weights of a checkpoint, and the averaged master weights."""
        optimizer, average = (
            paddle.load(str(self.checkpoint(step) / f"{kind}.{self.suffix}.pdopt"), return_numpy=True)
            for kind in ("optimizer", "ema")
        )
        names = {name: meta["name"] for name, meta in self.metas["master"].items()}
        masters = {names[name]: value for name, value in optimizer.pop("master_weights").items()}
        averaged = {names[name]: value for name, value in average["master_weights"].items()}
        return {**optimizer, **masters}, averaged


def _laid_out(kind: str, start: int) -> tuple[dict[str, dict[str, Any]], int]:
    """Where a buffer holds the tensors of this kind, and where they end."""
    found = {}
    for name, shape in SHAPES.items():
        end = start + int(np.prod(shape))
        found[name] = {"start": start, "end": end, "name": f"{name}_{kind}", "shape": list(shape)}
        start = end
    return found, start


class _HostCopies:
    """In place of AsyncLoad, and of the task that it returns: copies when it is waited for."""

    def __init__(self, run: _Run) -> None:
        self.run, self.waiting = run, []  # type: ignore[var-annotated]

    def offload_with_offset(self, to: Any, source: Any, to_offset: int, offset: int, count: int) -> _HostCopies:
        if source.shape == self.run.buffers[0].shape:
            self.run.pieces.append((offset, count))
        self.waiting.append((to._slice(to_offset, to_offset + count), source._slice(offset, offset + count)))
        return self

    def cuda_wait(self) -> None:
        """Orders work on a stream; the host has none."""

    xpu_wait = cuda_wait

    def cpu_wait(self) -> None:
        self.run.copies_may_begin.wait(0.3)  # a trainer that waits for the copies is seen by the time that this takes
        while self.waiting:
            to, source = self.waiting.pop(0)
            paddle.assign(source, to)


@contextmanager
def _stand_ins(run: _Run) -> Iterator[None]:
    """Replace what needs a card while a run lasts."""
    zcc = run.zcc
    group = SimpleNamespace(
        get_data_parallel_rank=lambda: 0,
        get_model_parallel_rank=lambda: 0,
        _get_pipe_parallel_id=lambda: 0,
        get_sharding_parallel_rank=lambda: run.rank,
    )
    fleet = SimpleNamespace(_hcg=group, get_hybrid_communicate_group=lambda: group)

    def opened(meta: Sequence[int]) -> Any:
        return run.buffers[meta[0]].value().get_tensor()

    class Queue(queue.Queue):
        """Notes each message, and counts one as done when the worker asks for the next one."""

        taken = False

        def get(self, *given: Any) -> Any:
            if self.taken:
                self.task_done()
            task = super().get(*given)
            self.taken = True
            run.messages.append(task[0].name)
            return task

    with ExitStack() as patches:
        use = patches.enter_context
        use(mock.patch.dict(os.environ, {f"FLAGS_selected_{each}s": str(run.rank) for each in ("gpu", "xpu")}))
        use(mock.patch.object(paddle.distributed, "get_rank", lambda *_: run.rank))
        use(mock.patch.object(zcc, "fleet", fleet))
        use(mock.patch.object(zcc, "time", SimpleNamespace(sleep=run.pause, time=time.time)))
        context = SimpleNamespace(**{name: getattr(multiprocessing.dummy, name) for name in ("Value", "Event", "Process")})
        context.Queue = Queue
        use(mock.patch.object(zcc, "multiprocessing", SimpleNamespace(get_context=lambda kind: context)))
        for opener in ("_new_shared_cuda", "_new_shared_xpu"):
            use(mock.patch.object(core.DenseTensor, opener, staticmethod(opened), create=True))
        for module in (zcc, fusion_utils):
            use(mock.patch.object(module, "create_async_load", lambda: _HostCopies(run)))
        use(mock.patch.object(paddle.Tensor, "pin_memory", lambda tensor, *_: tensor.clone()))
        use(mock.patch.object(core, "set_cuda_current_device_id", lambda number: None, create=True))
        patches.callback(paddle.set_device, paddle.get_device())
        set_device = paddle.set_device
        use(mock.patch.object(paddle, "set_device", lambda name: set_device("cpu")))
        set_device("cpu")  # on another device paddle.to_tensor would copy a buffer instead of opening it
        yield
