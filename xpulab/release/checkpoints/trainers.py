"""PaddleNLP's Trainer as a state: saved at any moment, with options set together, and resumed in new objects.

    check.grid("resume.trainer", trainers.trainers(device), trainers.in_turn(work, device), trainers.add_row, ...)

A case trains a tiny Qwen2 for STEPS steps, STEPS_OF_EPOCH an epoch. A copy of its folder, made when the checkpoint of the
moment is complete, is what an interrupted process leaves. There a new model with other weights resumes, and trains to the end.
The order of the data, the random state and the log are those of the chapter's fixes; DEFECTS are what the Trainer does alone.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddlenlp.peft import LoRAConfig, LoRAModel
from paddlenlp.trainer import Trainer, TrainerCallback, TrainingArguments
from paddlenlp.transformers import Qwen2Config, Qwen2ForCausalLM
from paddlenlp.utils.batch_sampler import DistributedBatchSampler as FromConsumedSamples

from xpulab.chapters.shared.precision import supported_types
from xpulab.chapters.shared.run_recorder import draw
from xpulab.chapters.shared.states import digests
from xpulab.checks.compare import first_line
from xpulab.checks.grid import Case, Grid, one_by_one
from xpulab.checks.table import Table

STEPS, STEPS_OF_EPOCH, ROWS, TOKENS, VOCABULARY, RATE = 6, 2, 2, 6, 32, 1e-2
"""Steps of a training and of an epoch, rows of a batch, tokens of a row, size of the vocabulary, first learning rate."""

EPOCHS = STEPS // STEPS_OF_EPOCH
AT_END = STEPS + 1

BY_EPOCH, CONSUMED, STREAM = "by epoch", "from the consumed samples", "a stream"
"""The order of the data: from the number of the epoch; of PaddleNLP's own sampler, or of a stream, which have one epoch."""

SEVERAL, LEFT_OVER = "from the consumed samples, several epochs", "one left over"
RANDOM, HISTORY, MEAN, TRUE, LIMIT = "random state", "history", "mean loss", "True", "limit"
"""Of DEFECTS: another order, another number of batches, and what is the Trainer's own."""

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
    "constant after a warmup": {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 4},
}
KEPT: dict[str, dict[str, Any]] = {
    "all": {},
    "the last": {"save_total_limit": 1},
    "the best": {
        "save_total_limit": 1,
        "load_best_model_at_end": True,
        "metric_for_best_model": "loss",
        "greater_is_better": True,
    },
}
"""By name the options of a schedule, and those that say which checkpoints stay; the loss falls, so its largest one is early."""

ELEVEN = "all weights of eleven layers"
TRAINED = {"all weights": (2, False), "LoRA": (2, True), ELEVEN: (11, False)}
"""By name the number of layers, and whether an adapter is trained."""

PRECISIONS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16 with master weights": {"bf16": True, "fp16_opt_level": "O2"},
    "float16 with a scaler": {"fp16": True, "fp16_opt_level": "O1"},
}
"""By name the options of types of 16 bits. On a device without them there is no axis for it."""

AXES: dict[str, Any] = {
    "order": (BY_EPOCH, CONSUMED, STREAM),
    "moment": MOMENTS,
    "schedule": SCHEDULES,
    "trained": TRAINED,
    "evaluation": {"none": "no", "each step": "steps", "each epoch": "epoch"},
    "keeps": KEPT,
    "batches": ("whole", "a short one"),
    "accumulation": (1, 2),
    "format": ("pdparams", "unified"),
    "length": ("max_steps", "num_train_epochs"),
    "ignore_data_skip": (False, True),
    "interruptions": (1, 2),
}


def _is_slow(
    trained: Any, order: str, moment: Any, schedule: Any, evaluation: str, accumulation: int, interruptions: int
) -> bool:
    others = (order, moment[0], schedule, evaluation, accumulation, interruptions)
    return trained == TRAINED[ELEVEN] and others != (BY_EPOCH, 1, SCHEDULES["linear"], "no", 1, 1)


def _has_no_oracle(
    ignore_data_skip: bool, order: str, batches: str, evaluation: str, moment: Any, interruptions: int, trained: Any
) -> bool:
    return ignore_data_skip and (
        (order, batches, interruptions) != (BY_EPOCH, "whole", 1)
        or "epoch" in (evaluation, moment[1])
        or trained == TRAINED[ELEVEN]
    )


def trainers(device: str) -> Grid:
    """The grid. device: "cpu", "gpu", "xpu" or "sim"."""
    precisions = {"precision": PRECISIONS} if {"float16", "bfloat16"} <= {*supported_types(device)} else {}
    return Grid({**AXES, **precisions}, _RULES)


_RULES: dict[str, Callable[..., bool]] = {
    "one epoch has no later one": lambda order, moment: order != BY_EPOCH and moment[1] == "epoch",
    "a stream has no length": lambda order, length: order == STREAM and length != "max_steps",
    "a checkpoint of the last step is written before its epoch is evaluated": lambda moment, evaluation: (
        moment == MOMENTS["where an epoch ends"] and evaluation == "epoch"
    ),
    "the best is evaluated when it is saved": lambda keeps, moment, evaluation: (
        "load_best_model_at_end" in keeps and evaluation != moment[1]
    ),
    "data that are read again are compared with one epoch, in which they are written out": _has_no_oracle,
    "eleven layers take long, so only what reads names of weights differs from the default": _is_slow,
}

_WITH_DEFECTS = Grid({**AXES, "order": (*AXES["order"], SEVERAL), "batches": (*AXES["batches"], LEFT_OVER)})

DEFECTS: dict[str, tuple[str, dict[str, str]]] = {
    "nothing, with the fixes": ("", {}),
    "a batch left over": ("", {"batches": LEFT_OVER, "accumulation": "2", "moment": "where an epoch ends"}),
    "the evaluation where an epoch ends": ("", {"evaluation": "each epoch", "moment": "where an epoch ends"}),
    "several epochs of its own sampler": ("", {"order": SEVERAL}),
    "the random state where data are read again": (RANDOM, {"ignore_data_skip": "True"}),
    "the history of the log": (HISTORY, {}),
    "the mean loss": (MEAN, {}),
    "save_total_limit": (LIMIT, {"keeps": "the last"}),
    "resume_from_checkpoint=True": (TRUE, {}),
}
"""What the Trainer does alone: by name what is its own in place of the fix, and what differs from the default."""


def defect(name: str, seed: int) -> tuple[Case, str]:
    """The case of one of DEFECTS, and what is the Trainer's own in it."""
    own, labels = DEFECTS[name]
    return _WITH_DEFECTS.case(seed, **labels), own


class _Rows(paddle.io.Dataset):
    """Rows of random tokens; the labels are the next tokens."""

    def __init__(self, count: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.tokens = rng.integers(1, VOCABULARY, [count, TOKENS + 1])

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return {"input_ids": self.tokens[index, :-1], "labels": self.tokens[index, 1:]}


class _Stream(paddle.io.IterableDataset):
    """The same without a length."""

    def __init__(self, rows: _Rows) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return (self.rows[index] for index in range(len(self.rows)))


class _Written(paddle.io.BatchSampler):
    """Batches of row numbers, written out."""

    def __init__(self, batches: list[list[int]]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class _Kept(TrainerCallback):
    """What a run did, by step from 1; each step draws a number from every generator, as a data augmentation would.

    trainer: set before the run. places: the steps after which runs are interrupted, which are saved, and the last one.
    place, left: after which of them a copy of the run's folder is made, 0 for none, and where.
    checkpoint: whose random state is loaded when training begins; "" for none.
    states: by step what `held` returned, first of the step at which it begins. losses, batches: of each batch of a step.
    logged: every entry of the log.
    """

    trainer: Any

    def __init__(self, places: Sequence[int], place: int, left: Path, checkpoint: str = "") -> None:
        self.places, self.place, self.left, self.checkpoint = places, place, left, checkpoint
        self.states: dict[int, dict[str, np.ndarray]] = {}
        self.losses: dict[int, list[float]] = {}
        self.batches: dict[int, list[Any]] = {}
        self.rates: dict[int, float] = {}
        self.drawn: dict[int, list[float]] = {}
        self.logged: list[dict[str, float]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self.checkpoint:
            self.trainer._load_rng_state(self.checkpoint)
        self.states[state.global_step] = self.held()

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.rates[state.global_step + 1] = self.trainer.optimizer.get_lr()
        self.drawn[state.global_step + 1] = draw()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if state.global_step in (self.places[-1], STEPS - 1):
            self.states[state.global_step] = self.held()
        control.should_save = control.should_save and state.global_step in (*self.places, STEPS)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        self.logged.append(logs)

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.states[AT_END], self.drawn[AT_END] = self.held(), draw()

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if state.global_step == self.place and not self.left.exists():
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

    def __init__(self, kept: _Kept, sampler: Callable[[], Any] | None, **given: Any) -> None:
        super().__init__(**given)
        self.kept, self.sampler = kept, sampler
        kept.trainer = self

    def _get_train_sampler(self) -> Any:
        return self.sampler() if self.sampler else super()._get_train_sampler()

    def training_step(self, model: Any, inputs: Any, *given: Any, **named: Any) -> Any:
        step = self.state.global_step + 1
        loss = super().training_step(model, inputs, *given, **named)
        self.kept.losses.setdefault(step, []).append(float(loss))
        self.kept.batches.setdefault(step, []).append(inputs["input_ids"].numpy())
        return loss


@dataclass(frozen=True)
class Compared:
    """What the uninterrupted run did after the last interruption, and was then and at the end: arrays and digests by name.

    resumed: the same of the run in new objects. control: of the uninterrupted run one step earlier, with other states.
    """

    whole: Mapping[str, np.ndarray]
    resumed: Mapping[str, np.ndarray]
    control: Mapping[str, np.ndarray]


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
    """Train without an interruption, and again from what was left at each of them.

    work: a folder. device: of the trainer. own: what is the Trainer's own in place of a fix, as in DEFECTS; "" for nothing.
    """
    folder, left, once = (work / name for name in ("trainer", "trainer left", "trainer once"))
    for each in (folder, left, once):
        shutil.rmtree(each, ignore_errors=True)
    places = [case.moment[0] + number * STEPS_OF_EPOCH for number in range(case.interruptions)]
    trainer, mean = _train(case, device, folder, _Kept(places, places[0], left), own)
    if case.ignore_data_skip:  # the uninterrupted run that reads the same data has one epoch, in which they are written out
        trainer, mean = _train(case, device, once, _Kept(places, 0, left), own, reads_again=True)
    keeps_best = "load_best_model_at_end" in case.keeps
    checkpoints = _checkpoints(Path(trainer.args.output_dir)) if keeps_best else _saved(case, places)
    whole, control = _evidence(trainer, places[-1]), _evidence(trainer, places[-1], early=1)
    for place, next_place in zip(places, [*places[1:], 0], strict=True):
        shutil.rmtree(folder)
        shutil.move(left, folder)
        checkpoint = folder / f"checkpoint-{place}"
        in_file = json.loads((checkpoint / "trainer_state.json").read_text())
        loads = own != RANDOM and (case.ignore_data_skip or place % STEPS_OF_EPOCH == 0)  # else the Trainer does
        kept = _Kept(places, next_place, left, str(checkpoint) if loads else "")
        resumed, its_mean = _train(case, device, folder, kept, own, True if own == TRUE else str(checkpoint))
    again = _evidence(resumed, places[-1])
    read_again = places[-1] if case.ignore_data_skip else 0
    whole |= {"file": _text(_counts(case, places[-1])), "counts": _text(_counts(case, STEPS, read_again))}
    again |= {"file": _text(_of_counts(in_file)), "counts": _text(_of_counts(dataclasses.asdict(resumed.state)))}
    whole |= {"checkpoints": _text(checkpoints), "log": _text([*map(_of_log, trainer.kept.logged)])}
    again |= {"checkpoints": _text(_checkpoints(folder)), "log": _text([*map(_of_log, resumed.state.log_history)])}
    if own == MEAN:
        whole["mean"], again["mean"] = (np.array(round(value, 6)) for value in (mean, its_mean))
    return Compared(whole, again, {**whole, **control})


def add_row(rows: Table, case: Case, found: Compared | Exception, name: str = "") -> None:
    """Add a row: what the resumed run began with, did and ended with; the control is one step behind."""
    if isinstance(found, Exception):
        rows.equal(name or case.name, first_line(found), "no error", control="another error")
        return
    rows.bitwise(name or case.name, found.resumed, found.whole, control=found.control)


def _train(
    case: Case, device: str, folder: Path, kept: _Kept, own: str, start: str | bool | None = None, reads_again: bool = False
) -> tuple[_Trainer, float]:
    """Train to the end; returns the trainer, and the mean loss that it reports.

    start: resume_from_checkpoint. reads_again: as in _sampler.
    """
    rng, count = case.rng(), ROWS * _batches_of_an_epoch(case) - (case.batches == "a short one")
    rows, held_out = _Rows(count, rng), _Rows(ROWS, rng)
    length = {"max_steps": STEPS} if case.length == "max_steps" or reads_again else {}
    length = length or {"num_train_epochs": STEPS * case.accumulation // _batches_of_an_epoch(case)}
    arguments = TrainingArguments(
        output_dir=str(folder),
        device=device,
        seed=case.seed,
        learning_rate=RATE,
        per_device_train_batch_size=ROWS,
        gradient_accumulation_steps=case.accumulation,
        save_strategy=case.moment[1],
        save_steps=1,
        evaluation_strategy=case.evaluation,
        eval_steps=1,
        logging_steps=1,
        unified_checkpoint=case.format == "unified",
        ignore_data_skip=case.ignore_data_skip,
        report_to=[],
        disable_tqdm=True,
        **case.schedule,
        **case.keeps,
        **length,
        **PRECISIONS[case.labels.get("precision", "float32")],
    )
    with paddle.utils.unique_name.guard():
        trainer = _Trainer(
            kept,
            _sampler(case, rows, reads_again),
            model=_network(case, rng, is_other=start is not None),
            args=arguments,
            train_dataset=_Stream(rows) if case.order == STREAM else rows,
            eval_dataset=held_out,
        )
        if own != HISTORY:
            trainer.add_callback(History())
        if own != LIMIT:
            trainer.add_callback(Limit(trainer))
        trainer.add_callback(kept)
        return trainer, trainer.train(resume_from_checkpoint=start).training_loss


def _batches_of_an_epoch(case: Case) -> int:
    """How many batches an epoch has; the run has one epoch where the order is that of consumed samples, or of a stream."""
    steps = STEPS if case.order in (CONSUMED, STREAM) else STEPS_OF_EPOCH
    return steps * case.accumulation + (case.batches == LEFT_OVER)


def _network(case: Case, rng: np.random.Generator, is_other: bool) -> Any:
    """A model with weights from the generator. is_other: whether those that are trained are others, until they are loaded."""
    layers, has_adapter = case.trained
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=TOKENS,
        attention_dropout=0.2,
    )
    network: Any = Qwen2ForCausalLM(config)
    if has_adapter:
        adapter = LoRAConfig(target_modules=[".*q_proj.*", ".*down_proj.*"], r=2, lora_alpha=4, lora_dropout=0.2)
        network = LoRAModel(network, adapter)
        network.mark_only_lora_as_trainable()
    for weight in network.parameters():
        values = 0.5 * rng.standard_normal(weight.shape)
        weight.set_value((values + (is_other and not weight.stop_gradient)).astype("float32"))
    return network


def _sampler(case: Case, rows: _Rows, reads_again: bool) -> Callable[[], Any] | None:
    """What makes the sampler of a case; None for a stream, which has none.

    reads_again: one epoch in which everything is written out that is read when the epoch of the moment is read again.
    """
    if case.order == STREAM:
        return None
    if case.order in (CONSUMED, SEVERAL):
        return lambda: FromConsumedSamples(rows, ROWS, num_replicas=1, rank=0)

    def by_epoch() -> Any:
        return paddle.io.DistributedBatchSampler(rows, ROWS, num_replicas=1, rank=0, shuffle=True)

    if not reads_again:
        return by_epoch
    batches = []
    for epoch in range(EPOCHS):
        sampler = by_epoch()
        sampler.set_epoch(epoch)
        of_epoch = list(sampler)
        if epoch == case.moment[0] // STEPS_OF_EPOCH:
            batches += of_epoch[: case.moment[0] % STEPS_OF_EPOCH * case.accumulation]
        batches += of_epoch
    return lambda: _Written(batches)


def _evidence(trainer: _Trainer, after: int, early: int = 0) -> dict[str, np.ndarray]:
    """What a run did after a step, and was then and at its end. early: the same so many steps earlier, 0 or 1."""
    kept, steps = trainer.kept, range(after + 1 - early, STEPS + 1 - early)
    begin, end = (STEPS - 1, after) if early else (after, AT_END)
    return {
        "losses": np.array([loss for step in steps for loss in kept.losses.get(step, [])]),
        "batches": np.array([token for step in steps for batch in kept.batches.get(step, []) for token in batch.ravel()]),
        "rates": np.array([kept.rates[step] for step in steps if step in kept.rates]),
        "random numbers": np.array([kept.drawn[step] for step in [*steps, AT_END - early] if step in kept.drawn]),
        **{f"begins with {name}": value for name, value in kept.states.get(begin, {}).items()},
        **{f"ends with {name}": value for name, value in kept.states.get(end, {}).items()},
    }


def _counts(case: Case, step: int, read_again_after: int = 0) -> dict[str, Any]:
    """What the trainer's state counts after a step, by formula.

    read_again_after: the step after which an epoch began again, 0 for none.
    """
    of_epoch = _batches_of_an_epoch(case)
    steps = of_epoch // case.accumulation
    first, of_first = 0, 0  # an epoch, and the step at which it began
    if read_again_after:
        first, of_first = read_again_after // steps, read_again_after
    epochs, further = divmod(step - of_first - 1, steps)
    return {
        "global_step": step,
        "epoch": first + epochs + (further + 1) * case.accumulation / of_epoch,
        "max_steps": STEPS,
        "num_train_epochs": sys.maxsize if case.order == STREAM else STEPS // steps,
        "consumed_samples": step * ROWS * case.accumulation,
    }


def _of_counts(state: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a state that was read."""
    return {name: state[name] for name in ("global_step", "epoch", "max_steps", "num_train_epochs", "consumed_samples")}


def _of_log(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What an entry of the log says, without times, memory and the epoch, which data that are read again change."""
    return {name: entry[name] for name in ("loss", "eval_loss", "learning_rate", "global_step") if name in entry}


def _saved(case: Case, places: Sequence[int]) -> list[str]:
    """The names of the checkpoints that stay, where it is not the best one."""
    steps = range(STEPS_OF_EPOCH, STEPS + 1, STEPS_OF_EPOCH) if case.moment[1] == "epoch" else (*places, STEPS)
    return [f"checkpoint-{step}" for step in steps if "save_total_limit" not in case.keeps or step == STEPS]


def _checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("checkpoint-*"))


def _text(value: Any) -> np.ndarray:
    """A value as bytes, which can be compared like digests."""
    return np.frombuffer(repr(value).encode(), np.uint8)
