"""PaddleNLP's Trainer as a state: saved at any moment, with options set together, and resumed in new objects.

    check.grid("resume.trainer", trainers.trainers(device), trainers.in_turn(work, device), add_row, ...)

A case trains a tiny Qwen2 for STEPS steps, STEPS_OF_EPOCH an epoch. A copy of its folder, made when the checkpoint of the
moment is complete, is what an interrupted process leaves. There a new model with other weights resumes, and trains to the end.
The order of the data, the random state and the log are those of the chapter's fixes; DEFECTS are what the Trainer does alone.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddlenlp.datasets import MapDataset
from paddlenlp.peft import LoRAConfig, LoRAModel
from paddlenlp.trainer import Trainer, TrainerCallback, TrainingArguments
from paddlenlp.utils.batch_sampler import DistributedBatchSampler as FromConsumedSamples

from xpulab.chapters.shared.precision import supported_types
from xpulab.chapters.shared.run_recorder import draw
from xpulab.chapters.shared.states import digests
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid, Rule, one_by_one
from xpulab.release.tiny_training import FAMILIES, VOCABULARY, new_network, settings

STEPS, STEPS_OF_EPOCH, ROWS, TOKENS, RATE = 6, 2, 2, 6, 1e-2
"""Steps of a training and of an epoch, rows of a batch, tokens of a row, first learning rate."""

AT_END = STEPS + 1

BY_EPOCH, CONSUMED, SEVERAL = "by epoch", "from the consumed samples", "from the consumed samples, several epochs"
"""The order of the data: from the number of the epoch, or of PaddleNLP's own sampler, which has one epoch; DEFECTS has more."""

LEFT_OVER = "one left over"
HISTORY, TRUE, LIMIT = "history", "True", "limit"
"""Of DEFECTS: another number of batches, and what is the Trainer's own."""

MOMENTS = {
    "within the first epoch": (1, "steps"),
    "where an epoch ends": (2, "steps"),
    "within a later epoch": (3, "steps"),
    "where an epoch ends, saved by epoch": (2, "epoch"),
}
"""By name after which step the run is interrupted, and save_strategy."""

SCHEDULES: dict[str, dict[str, Any]] = {
    "linear": {"lr_scheduler_type": "linear"},
    "cosine after a warmup": {"lr_scheduler_type": "cosine", "warmup_steps": 2},
}
PRECISIONS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16 with master weights": {"bf16": True, "fp16_opt_level": "O2"},
    "float16 with a scaler": {"fp16": True, "fp16_opt_level": "O1"},
}
BEST = {"save_total_limit": 1, "load_best_model_at_end": True, "metric_for_best_model": "loss", "greater_is_better": True}
"""By name the options of a schedule, and of types of 16 bits; on a device without these types there is no axis for them. And
those that keep the best checkpoint: the loss falls, so its largest one is early."""

AXES: dict[str, Any] = {
    "order": (BY_EPOCH, CONSUMED),
    "moment": MOMENTS,
    "schedule": SCHEDULES,
    "trained": ("all weights", "LoRA"),
    "evaluation": {"none": "no", "each step": "steps"},
    "keeps": {"all": {}, "the last": {"save_total_limit": 1}, "the best": BEST},
    "batches": ("whole", "a short one"),
    "accumulation": (1, 2),
    "format": ("pdparams", "unified"),
    "length": ("max_steps", "num_train_epochs"),
}


def trainers(device: str) -> Grid:
    """The grid. device: "cpu", "gpu", "xpu" or "sim"."""
    precisions = {"precision": PRECISIONS} if {"float16", "bfloat16"} <= {*supported_types(device)} else {}
    rules: dict[str, Rule] = {
        "one epoch has no later one": lambda order, moment: order != BY_EPOCH and moment[1] == "epoch",
        "the best is evaluated when it is saved": lambda keeps, moment, evaluation: keeps == BEST and evaluation != moment[1],
    }
    return Grid({**AXES, **precisions}, rules)


WITH_DEFECTS = Grid({**AXES, "order": (*AXES["order"], SEVERAL), "batches": (*AXES["batches"], LEFT_OVER)})

DEFECTS: dict[str, tuple[str, dict[str, str]]] = {
    "nothing, with the fixes": ("", {}),
    "a batch left over": ("", {"batches": LEFT_OVER, "accumulation": "2", "moment": "where an epoch ends"}),
    "several epochs of its own sampler": ("", {"order": SEVERAL}),
    "the history of the log": (HISTORY, {}),
    "save_total_limit": (LIMIT, {"keeps": "the last"}),
    "resume_from_checkpoint=True": (TRUE, {}),
}
"""What the Trainer does alone: by name what is its own in place of the fix, and what differs from WITH_DEFECTS's default."""


class _Kept(TrainerCallback):
    """What a run did, by step from 1; each step draws a number from every generator, as a data augmentation would.

    trainer: set before the run. place, left: after which step a copy of the run's folder is made, 0 for none, and where.
    saved: the steps after which the run is saved, and the last one. checkpoint: whose random state is loaded when training
    begins; "" for none. states: what `held` returned at the beginning and at the end. losses, batches: of each batch of a step.
    logged: every entry of the log.
    """

    trainer: Any

    def __init__(self, saved: int, place: int, left: Path, checkpoint: str = "") -> None:
        self.saved, self.place, self.left, self.checkpoint = saved, place, left, checkpoint
        self.states: list[dict[str, np.ndarray]] = []
        self.losses: dict[int, list[float]] = {}
        self.batches: dict[int, list[Any]] = {}
        self.drawn: dict[int, list[float]] = {}
        self.logged: list[dict[str, float]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self.checkpoint:
            self.trainer._load_rng_state(self.checkpoint)
        if state.global_step:
            self.states.append(self.held())

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.drawn[state.global_step + 1] = draw()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if state.global_step == self.place:
            self.states.append(self.held())
        control.should_save = control.should_save and state.global_step in (self.saved, STEPS)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        self.logged.append(logs)

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.states.append(self.held())
        self.drawn[AT_END] = draw()

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if state.global_step == self.place:
            shutil.copytree(args.output_dir, self.left)

    def held(self) -> dict[str, np.ndarray]:
        """Digests of the weights and of the optimizer's state, and its schedule as text."""
        optimizer = self.trainer.optimizer.state_dict()
        tensors = {f"weights {name}": value for name, value in self.trainer.model.state_dict().items()}
        tensors |= {f"optimizer {name}": value for name, value in optimizer.items() if isinstance(value, paddle.Tensor)}
        return {**digests(tensors), "schedule": _text(optimizer.get("LR_Scheduler"))}


class History(TrainerCallback):
    """Keeps the log in the trainer's state, which the Trainer empties before each entry; so it is in the checkpoint, too."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.entries = list(state.log_history)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        self.entries.append(dict(logs))
        state.log_history = list(self.entries)


class Limit(TrainerCallback):
    """Deletes checkpoints as save_total_limit says; on one card the Trainer deletes none."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.trainer._rotate_checkpoints(use_mtime=True, output_dir=args.output_dir)


class _Trainer(Trainer):
    """PaddleNLP's, with the order of a case; it notes what each batch was and gave."""

    def __init__(self, kept: _Kept, order: str, **given: Any) -> None:
        super().__init__(**given)
        self.kept, self.order = kept, order
        kept.trainer = self

    def _get_train_sampler(self) -> Any:
        if self.order == BY_EPOCH:
            return paddle.io.DistributedBatchSampler(self.train_dataset, ROWS, num_replicas=1, rank=0, shuffle=True)
        return FromConsumedSamples(self.train_dataset, ROWS, num_replicas=1, rank=0)

    def training_step(self, model: Any, inputs: Any, *given: Any, **named: Any) -> Any:
        step = self.state.global_step + 1
        loss = super().training_step(model, inputs, *given, **named)
        self.kept.losses.setdefault(step, []).append(float(loss))
        self.kept.batches.setdefault(step, []).append(inputs["input_ids"].numpy())
        return loss


def in_turn(work: Path, device: str, own: str = "") -> Callable[[Sequence[Case]], list[Any]]:
    """What check.grid takes as `run`. work, device, own: as in measure."""

    def run(cases: Sequence[Case]) -> list[Any]:
        gc.collect()
        gc.freeze()  # PaddleNLP collects garbage when it loads: what was imported is not looked at again
        try:
            return one_by_one(partial(measure, work, device, own))(cases)
        finally:
            gc.unfreeze()

    return run


def measure(work: Path, device: str, own: str, case: Case) -> Compared:
    """Train without an interruption, and again from what was left at its moment. Right is what the first run did after it.

    work: a folder. device: of the trainer. own: what is the Trainer's own in place of a fix, as in DEFECTS; "" for nothing.
    """
    folder, left = work / "trainer", work / "trainer left"
    for each in (folder, left):
        shutil.rmtree(each, ignore_errors=True)
    place = case.moment[0]
    trainer = _train(case, device, folder, _Kept(place, place, left), own)
    of_whole = _checkpoints(folder) if case.keeps == BEST else _saved(case)
    shutil.rmtree(folder)
    shutil.move(left, folder)
    checkpoint = folder / f"checkpoint-{place}"
    in_file = json.loads((checkpoint / "trainer_state.json").read_text())
    kept = _Kept(place, 0, left, str(checkpoint) if place % STEPS_OF_EPOCH == 0 else "")  # within an epoch the Trainer loads it
    resumed = _train(case, device, folder, kept, own, True if own == TRUE else str(checkpoint))
    right, found = _evidence(trainer, place), _evidence(resumed, place)
    right |= {"file": _text(_counts(case, place)), "counts": _text(_counts(case, STEPS))}
    found |= {"file": _text(_of_counts(in_file)), "counts": _text(_of_counts(dataclasses.asdict(resumed.state)))}
    right |= {"checkpoints": _text(of_whole), "log": _text([*map(_of_log, trainer.kept.logged)])}
    found |= {"checkpoints": _text(_checkpoints(folder)), "log": _text([*map(_of_log, resumed.state.log_history)])}
    return Compared(found, right)


def _train(case: Case, device: str, folder: Path, kept: _Kept, own: str, start: str | bool | None = None) -> _Trainer:
    """Train to the end. start: resume_from_checkpoint."""
    rng, count = case.rng(), ROWS * _batches_of_an_epoch(case) - (case.batches == "a short one")
    rows = [
        {"input_ids": tokens[:-1], "labels": tokens[1:]} for tokens in rng.integers(1, VOCABULARY, [count + ROWS, TOKENS + 1])
    ]
    epochs = STEPS * case.accumulation // _batches_of_an_epoch(case)
    options = settings(
        folder,
        device,
        case.seed,
        **({"max_steps": STEPS} if case.length == "max_steps" else {"num_train_epochs": epochs}),
        learning_rate=RATE,
        per_device_train_batch_size=ROWS,
        gradient_accumulation_steps=case.accumulation,
        save_strategy=case.moment[1],
        save_steps=1,
        evaluation_strategy=case.evaluation,
        eval_steps=1,
        unified_checkpoint=case.format == "unified",
        **case.schedule,
        **case.keeps,
        **PRECISIONS[case.labels.get("precision", "float32")],
    )
    with paddle.utils.unique_name.guard():
        network = _network(case, rng, is_other=start is not None)
        of_trainer = {"model": network, "args": TrainingArguments(**options)}
        trainer = _Trainer(
            kept, case.order, **of_trainer, train_dataset=MapDataset(rows[ROWS:]), eval_dataset=MapDataset(rows[:ROWS])
        )
        if own != HISTORY:
            trainer.add_callback(History())
        if own != LIMIT:
            trainer.add_callback(Limit(trainer))
        trainer.add_callback(kept)
        trainer.train(resume_from_checkpoint=start)
    return trainer


def _batches_of_an_epoch(case: Case) -> int:
    """How many batches an epoch has; the run has one epoch where the order is that of consumed samples."""
    steps = STEPS if case.order == CONSUMED else STEPS_OF_EPOCH
    return steps * case.accumulation + (case.batches == LEFT_OVER)


def _network(case: Case, rng: np.random.Generator, is_other: bool) -> Any:
    """A model with weights from the generator. is_other: whether those that are trained are others, until they are loaded."""
    network, _, _ = new_network(FAMILIES["qwen2"], rng, attention_dropout=0.2)
    if case.trained == "LoRA":
        adapter = LoRAConfig(target_modules=[".*q_proj.*", ".*down_proj.*"], r=2, lora_alpha=4, lora_dropout=0.2)
        network = LoRAModel(network, adapter)
        network.mark_only_lora_as_trainable()
    for name, weight in network.named_parameters():
        if not weight.stop_gradient:
            values = 0.5 * rng.standard_normal(weight.shape) if "lora_" in name else weight.numpy()
            weight.set_value((values + is_other).astype("float32"))
    return network


def _evidence(trainer: _Trainer, after: int) -> dict[str, np.ndarray]:
    """What a run did after a step, and was then and at its end."""
    kept, steps = trainer.kept, range(after + 1, STEPS + 1)
    begin, end = kept.states
    return {
        "losses": np.array([loss for step in steps for loss in kept.losses.get(step, [])]),
        "batches": np.array([token for step in steps for batch in kept.batches.get(step, []) for token in batch.ravel()]),
        "random numbers": np.array([kept.drawn[step] for step in [*steps, AT_END] if step in kept.drawn]),
        **{f"begins with {name}": value for name, value in begin.items()},
        **{f"ends with {name}": value for name, value in end.items()},
    }


def _counts(case: Case, step: int) -> dict[str, Any]:
    """What the trainer's state counts after a step, by formula."""
    of_epoch = _batches_of_an_epoch(case)
    steps = of_epoch // case.accumulation
    epochs, further = divmod(step - 1, steps)
    return {
        "global_step": step,
        "epoch": epochs + (further + 1) * case.accumulation / of_epoch,
        "max_steps": STEPS,
        "num_train_epochs": STEPS // steps,
        "consumed_samples": step * ROWS * case.accumulation,
    }


def _of_counts(state: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a state that was read."""
    return {name: state[name] for name in ("global_step", "epoch", "max_steps", "num_train_epochs", "consumed_samples")}


def _of_log(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What an entry of the log says, without times, memory and the epoch."""
    return {name: entry[name] for name in ("loss", "eval_loss", "learning_rate", "global_step") if name in entry}


def _saved(case: Case) -> list[str]:
    """The names of the checkpoints that stay."""
    steps = range(STEPS_OF_EPOCH, STEPS + 1, STEPS_OF_EPOCH) if case.moment[1] == "epoch" else (case.moment[0], STEPS)
    return [f"checkpoint-{step}" for step in steps if not case.keeps or step == STEPS]


def _checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("checkpoint-*"))


def _text(value: Any) -> np.ndarray:
    """A value as bytes, which can be compared like digests."""
    return np.frombuffer(repr(value).encode(), np.uint8)
