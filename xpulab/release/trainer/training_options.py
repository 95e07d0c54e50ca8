"""Options of a training together, on a tiny model: PaddleNLP's trainer beside AdamW and the decoder in double precision.

    run = one_by_one(partial(measure, tokenizer, here.name, bits))
    check.grid("sft.training-options", TRAINING, run, add_row, level=level, seed=seed, means=...)
    check.grid("sft.training-log", LOOP, run, add_row, level=level, seed=seed, means=...)

A case trains some steps from random weights, biases and norms included. Compared are every number but times that the trainer
logs, returns or writes, in its order; what it predicts; whether the model was in training mode; and every weight at the end. An
option that must not change the result (recomputation, an evaluation in between) is not in the reference implementation.
"""

from __future__ import annotations

import copy
import json
import math
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddlenlp.data import DataCollatorForSeq2Seq
from paddlenlp.datasets import MapDataset, ZeroPaddingMapDataset
from paddlenlp.trainer import TrainerCallback
from paddlenlp.trl import SFTConfig, SFTTrainer

from xpulab import reference
from xpulab.chapters.shared.device import places
from xpulab.chapters.shared.models import IGNORED
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid
from xpulab.release.tiny_training import FAMILIES, VOCABULARY, new_network, settings

ROWS, TOKENS, RATE = 2, 8, 2e-2
"""Rows of a batch, tokens of the longest row, the highest rate."""

FROZEN: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "embedding": ("embed_tokens",),
    "embedding and first layer": ("embed_tokens", "layers.0."),
    "norms and biases": ("norm", "bias"),
    "head": ("lm_head",),
}
"""By name the parts of names of weights that are not trained."""

UPDATES = 2
"""Steps of an epoch."""

LENGTHS = {
    "three steps": {"max_steps": 3},
    "one step": {"max_steps": 1},
    "an epoch and a half": {"num_train_epochs": 1.5},
    "two epochs and a step": {"max_steps": 5},
}
"""By name how long a training is."""

SCHEDULES: dict[str, dict[str, Any]] = {
    "linear": {"lr_scheduler_type": "linear"},
    "linear, ended before": {"lr_scheduler_type": "linear", "decay_steps": 2},
    "constant": {"lr_scheduler_type": "constant"},
    "constant after a warmup": {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 2, "warmup_ratio": 0.9},
    "cosines after a warmup": {"lr_scheduler_type": "cosine", "warmup_ratio": 0.5, "num_cycles": 1.25},
    "polynomial": {"lr_scheduler_type": "polynomial", "lr_end": 5e-3, "power": 2.0},
}

LOGGING: dict[str, dict[str, Any]] = {
    "each step": {"logging_steps": 1},
    "each second step": {"logging_steps": 2},
    "the first and each second": {"logging_steps": 2, "logging_first_step": True},
    "each epoch": {"logging_strategy": "epoch"},
    "never": {"logging_steps": 100},
}

BEST = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss"}

EVALUATIONS: dict[str, tuple[Sequence[int], dict[str, Any]]] = {
    "none": ((), {}),
    "each step": ((ROWS,), {}),
    "short last batch, kept on the host": ((5,), {"per_device_eval_batch_size": 3, "eval_accumulation_steps": 1}),
    "of two batches only": ((5,), {"per_device_eval_batch_size": 2, "max_evaluate_steps": 2}),
    "of two sets": ((3, 2), {}),
    "the best is loaded": ((3,), {**BEST, "save_strategy": "steps", "save_steps": 1, "save_total_limit": 1}),
    "each epoch, the worst is loaded": (
        (3,),
        {**BEST, "evaluation_strategy": "epoch", "save_strategy": "epoch", "greater_is_better": True},
    ),
}
"""By name how many rows each set has that is evaluated, and the options of the trainer."""


def _criterion(logits: Any, labels: Any) -> Any:
    """The mean over the labels that count."""
    logits = logits[0] if isinstance(logits, tuple) else logits
    losses = paddle.nn.functional.cross_entropy(logits, labels.unsqueeze(-1), ignore_index=IGNORED, reduction="none")
    return losses.sum() / (labels != IGNORED).sum()


FURTHER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({}, {}),
    "release_grads": ({"release_grads": True}, {}),
    "a criterion": ({}, {"criterion": _criterion}),
    "predictions plus one": ({}, {"preprocess_logits_for_metrics": lambda predictions, labels: predictions + 1}),
}
"""By name more options of SFTConfig and of SFTTrainer: only the last one changes something, what is predicted."""

SHARED: dict[str, Any] = {
    "family": FAMILIES,
    "rows": ("of one length", "padded left", "padded right", "packed"),
    "accumulation": (1, 2),
    "decay": (0.0, 0.5),
    "clip": (0.0, 0.5, 1e3),
}

TRAINING = Grid(
    {
        **SHARED,
        "layers": (2, 11),
        "key_heads": (2, 4, 1),
        "tied": (False, True),
        "frozen": FROZEN,
        "epoch": ("whole batches", "a short batch", "a batch left over"),
        "recompute": ("none", "full", "full_attn", "core_attn"),
        "evaluation": {name: EVALUATIONS[name] for name in ("none", "each step")},
        "offload": (False, True),
    },
    {
        "a step of one batch leaves none over": lambda accumulation, epoch: accumulation == 1 and epoch == "a batch left over",
        "a tied head is the embedding": lambda tied, frozen: tied and frozen == FROZEN["head"],
    },
    uninformative={"epoch": ["a batch left over"]},
)
"""Models and settings. clip: the largest global norm, of which 0 stands for none and 1e3 is never reached."""

LOOP = Grid(
    {
        **SHARED,
        "epoch": ("whole batches", "a short batch", "a short batch that is dropped"),
        "length": LENGTHS,
        "schedule": SCHEDULES,
        "logging": LOGGING,
        "evaluation": EVALUATIONS,
        "moments": {"usual": (0.8, 0.9, 1e-2), "other": (0.0, 0.5, 0.1)},
        "calls": (1, 2),
        "further": FURTHER,
    },
    uninformative={"epoch": ["a short batch that is dropped"]},
)
"""What a training does when. moments: beta1, beta2 and epsilon of AdamW, none of them its default; epsilon is so large that a
gradient of another size makes another step. calls: how often train() is called; a second call goes on with weights, moments and
schedule, and counts its steps anew."""

PLAIN = {axis: next(iter(values.values())) for axis, values in {**TRAINING.axes, **LOOP.axes}.items()} | {"layers": 1}
"""By axis of either grid its value in the other one."""

GAP = 1e-2
"""How far the likeliest token's logit must be above the second one's to be the only right prediction."""

Example = dict[str, list[int]]
"""input_ids, attention_mask and labels of one row; no token is 0."""


Values = dict[str, np.ndarray]
"""By name what a training gave: "modes" (how many forward passes were in evaluation mode, [1]), "on the card" (whether the
moments were there after the last step, [1]), the weights at the end, and what was logged, each number in the order of time."""

Entry = dict[str, tuple[float, float]]
"""What one line of the log must have, by name: the number and by how much it may differ."""

COUNTED = 0.01
"""By how much a count, or a number that is logged with four digits, may differ."""


class _Kept(TrainerCallback):
    """By call the tokens of each batch, [rows, length]; what was logged; where the moments were after the last step."""

    def __init__(self) -> None:
        self.batches: list[list[np.ndarray]] = []
        self.entries: list[dict[str, float]] = []
        self.places: list[str] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.batches.append([])

    def on_load_data_end(self, args: Any, state: Any, control: Any, inputs: Any = None, **others: Any) -> None:
        self.batches[-1].append(inputs["input_ids"].numpy())

    def on_step_end(self, args: Any, state: Any, control: Any, optimizer: Any = None, **others: Any) -> None:
        self.places = places({name: each for name, each in optimizer.state_dict().items() if "moment" in name})

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        self.entries.append(dict(logs))


def measure(tokenizer: Any, device: str, bits: int, case: Case) -> Compared:
    """Train with a case's options. In the control every weight has gone nine tenths of its way, and the losses are larger.

    tokenizer: its padding token is 0. device: of the trainer. bits: that products in float32 keep of their factors.
    """
    rng, kept = case.rng(), _Kept()
    case = replace(case, by_axis={**PLAIN, **case.by_axis})
    evaluating: list[bool] = []
    recompute = {"recompute": case.recompute != "none"}
    recompute |= {"recompute_granularity": case.recompute if case.recompute != "none" else "full"}
    sizes = {"num_hidden_layers": case.layers, "num_key_value_heads": case.key_heads, "tie_word_embeddings": case.tied}
    network, config, start = new_network(case.family, rng, **sizes, **recompute)
    trained = [name for name in start if not any(part in name for part in case.frozen)]
    for name, weight in network.named_parameters():
        weight.stop_gradient = name not in trained
    network.register_forward_pre_hook(lambda layer, given: evaluating.append(not layer.training))
    padded = copy.copy(tokenizer)
    padded.padding_side = "left" if case.rows == "padded left" else "right"
    batches = UPDATES * case.accumulation + (case.epoch == "a batch left over")
    counts, options = case.evaluation
    odd = {"a short batch": -1, "a short batch that is dropped": 1}.get(case.epoch, 0)
    examples, *held_out = (_examples(rng, count, case.rows) for count in (ROWS * batches + odd, *counts))
    sets = [_in_rows(each, padded, case.rows) for each in held_out]
    with tempfile.TemporaryDirectory(prefix="xpulab-") as folder:
        usual: dict[str, Any] = {
            "per_device_train_batch_size": ROWS,
            "per_device_eval_batch_size": ROWS,
            "gradient_accumulation_steps": case.accumulation,
            "learning_rate": RATE,
            "weight_decay": case.decay,
            "max_grad_norm": case.clip,
            **dict(zip(("adam_beta1", "adam_beta2", "adam_epsilon"), case.moments, strict=True)),
            "evaluation_strategy": "steps" if counts else "no",
            "eval_steps": 1,
            "recompute": case.recompute != "none",
            "offload_optim": case.offload,
            "dataloader_drop_last": odd > 0,
        }
        given = {**usual, **case.length, **case.schedule, **case.logging, **options, **case.further[0]}
        trainer = SFTTrainer(
            model=network,
            args=SFTConfig(**settings(folder, device, case.seed, **given)),
            train_dataset=_in_rows(examples, padded, case.rows),
            eval_dataset=sets[0] if len(sets) == 1 else {f"set_{number}": each for number, each in enumerate(sets)},
            tokenizer=padded,
            data_collator=DataCollatorForSeq2Seq(padded),
            callbacks=[kept],
            compute_metrics=_counted if options else None,
            **case.further[1],
        )
        for _ in range(case.calls):
            result = trainer.train()
            trainer.save_metrics("train", result.metrics)
            kept.entries.append({"steps": result.global_step, "train_loss": result.training_loss, **_in_files(trainer)})
        predicted = trainer.predict(sets[0], metric_key_prefix="held_out") if options else None
    if predicted:
        kept.entries += [predicted.metrics, trainer.evaluate(sets[0], metric_key_prefix="after")]
    found = {name: weight.numpy() for name, weight in network.named_parameters()} | _series(kept.entries)
    found |= {"modes": np.array([sum(evaluating)]), "on the card": np.array([kept.places == [device]], float)}
    plan = _Plan(case, batches, len(examples), held_out)
    calls = [plan.steps_of([_batch(each, examples) for each in of_call]) for of_call in kept.batches]
    right, bounds, logits = _reference(plan, config, start, trained, calls, bits)
    right["on the card"] = np.array([device == "cpu" or not case.offload], float)
    bounds["on the card"] = np.array([0.25])
    less = {name: weight + 0.9 * (right[name] - weight) for name, weight in start.items()}
    if predicted:
        labels = _filled(_flat(plan.evaluated(held_out[0])))["labels"]
        second, best = np.sort(logits[labels != IGNORED])[:, -2:].T
        is_clear, counted = best - second > GAP, predicted.label_ids != IGNORED
        found |= {"labels": predicted.label_ids[counted], "predictions": predicted.predictions[counted][is_clear]}
        right |= {"labels": labels[labels != IGNORED], "predictions": logits[labels != IGNORED][is_clear].argmax(-1)[:, None]}
        right["predictions"] += "preprocess_logits_for_metrics" in case.further[1]
        bounds |= {"labels": np.array(0.25), "predictions": np.array(0.25)}
    return Compared(found, right, bounds, {**right, **less, "train_loss": 1.25 * right["train_loss"]})


def _counted(predicted: Any) -> dict[str, float]:
    """The metrics: how many rows and labels there are."""
    return {"rows": len(predicted.predictions), "labels": int((predicted.label_ids != IGNORED).sum())}


def _in_files(trainer: Any) -> dict[str, Any]:
    """What the trainer writes about the training: all_results.json and trainer_state.json."""
    trainer.save_state()
    folder = Path(trainer.args.output_dir)
    state, results = (json.loads((folder / f"{name}.json").read_text()) for name in ("trainer_state", "all_results"))
    kept = {name: state[name] for name in ("epoch", "global_step", "max_steps", "num_train_epochs", "consumed_samples")}
    if state["best_model_checkpoint"]:
        kept |= {"best_metric": state["best_metric"], "best_step": int(state["best_model_checkpoint"].rpartition("-")[2])}
    return {**kept, "written_loss": results["train_loss"]}


def _series(entries: Iterable[Mapping[str, float]]) -> Values:
    """By name each number that was logged and is no time; samples and steps of a second as samples of a step."""
    series = defaultdict(list)
    for entry in entries:
        for name, value in entry.items():
            if name.endswith("samples_per_second"):
                series[name.replace("samples_per_second", "samples")].append(value / entry[name.replace("samples", "steps")])
            elif not any(part in name for part in ("runtime", "steps_per_second", "mem")):
                series[name].append(value)
    return {name: np.array(values, float) for name, values in series.items()}


def _examples(rng: np.random.Generator, count: int, rows: str) -> list[list[Example]]:
    """Examples of random tokens, of which the first labels may not count: for each row of a batch one, or two to pack.

    Their lengths are so near TOKENS that two fill a packed row of 2 * TOKENS, and never three.
    """

    def example() -> Example:
        length = TOKENS if rows == "of one length" else int(rng.integers(TOKENS - 2, TOKENS + 1))
        tokens, ignored = rng.integers(1, VOCABULARY, length + 1).tolist(), int(rng.integers(0, 4))
        labels = [IGNORED] * ignored + tokens[ignored + 1 :]
        return {"input_ids": tokens[:-1], "attention_mask": [1] * length, "labels": labels}

    return [[example() for _ in range(2 if rows == "packed" else 1)] for _ in range(count)]


def _in_rows(examples: Sequence[Sequence[Example]], tokenizer: Any, rows: str) -> Any:
    """The dataset for the trainer."""
    if rows != "packed":
        return MapDataset([each for (each,) in examples])
    own = [
        {"input_ids": each["input_ids"], "labels": each["labels"], "position_ids": list(range(len(each["labels"])))}
        for of_row in examples
        for each in of_row
    ]
    return ZeroPaddingMapDataset(own, tokenizer, max_length=2 * TOKENS)


def _batch(given: np.ndarray, examples: Sequence[Sequence[Example]]) -> dict[str, np.ndarray]:
    """The examples that the trainer got in a batch of tokens [rows, length], found by their tokens."""
    by_tokens = {tuple(token for each in of_row for token in each["input_ids"]): of_row for of_row in examples}
    return _filled([each for row in given for each in by_tokens[tuple(row[row != 0].tolist())]])


def _filled(examples: Sequence[Example]) -> dict[str, np.ndarray]:
    """A batch, filled up to TOKENS on the right: input_ids, attention_mask and labels, [examples, TOKENS]."""
    filler = {"input_ids": 0, "attention_mask": 0, "labels": IGNORED}
    return {
        name: np.array([each[name] + [value] * (TOKENS - len(each[name])) for each in examples])
        for name, value in filler.items()
    }


def _flat(rows: Sequence[Sequence[Example]]) -> list[Example]:
    return [each for of_row in rows for each in of_row]


@dataclass(frozen=True)
class _Plan:
    """What a training of a case must do when. batches: of an epoch. rows: of the dataset. held_out: the sets to evaluate."""

    case: Case
    batches: int
    rows: int
    held_out: Sequence[Sequence[Sequence[Example]]]

    @property
    def total(self) -> int:
        """The steps of a call."""
        return int(self.case.length.get("max_steps") or UPDATES * self.case.length["num_train_epochs"])

    def steps_of(self, parts: Sequence[Any]) -> list[Sequence[Any]]:
        """The micro-batches of each step: in each epoch those that make whole steps."""
        size = self.case.accumulation
        used = [part for count, part in enumerate(parts) if count % self.batches < UPDATES * size][: self.total * size]
        return [used[first : first + size] for first in range(0, len(used), size)]

    def epoch(self, step: int) -> float:
        """After so many steps of a call."""
        whole, part = divmod(step - 1, UPDATES)
        return whole + (part + 1) * self.case.accumulation / self.batches

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        options = self.case.schedule
        kind, total = options["lr_scheduler_type"], options.get("decay_steps", self.total)
        warmup = options.get("warmup_steps") or int(options.get("warmup_ratio", 0.0) * self.total)
        if step < warmup:
            return RATE * step / warmup
        past = (step - warmup) / max(1, total - warmup)
        if kind == "linear":
            return RATE * max(0.0, 1 - past)
        if kind == "cosine":
            return RATE * 0.5 * (1 + math.cos(2 * math.pi * options.get("num_cycles", 0.5) * past))
        if kind == "polynomial":
            return options["lr_end"] + (RATE - options["lr_end"]) * max(0.0, 1 - past) ** options["power"]
        return RATE

    def is_due(self, step: int, options: Mapping[str, Any], what: str, each: int) -> bool:
        """Whether something happens after this step of a call. what: "logging" or "evaluation"; each: after so many steps."""
        if options.get(f"{what}_strategy") == "epoch":
            return step % UPDATES == 0 or step == self.total
        return step % each == 0 or (step == 1 and options.get("logging_first_step", False))

    def evaluated(self, rows: Sequence[Sequence[Example]]) -> Sequence[Sequence[Example]]:
        """The rows of a set that an evaluation reads."""
        options = self.case.evaluation[1]
        return rows[: options.get("max_evaluate_steps", len(rows)) * options.get("per_device_eval_batch_size", ROWS)]


def _reference(
    plan: _Plan,
    config: Any,
    start: Mapping[str, np.ndarray],
    trained: Sequence[str],
    calls: Sequence[Sequence[Sequence[Mapping[str, np.ndarray]]]],
    bits: int,
) -> tuple[Values, Values, np.ndarray]:
    """The training by the reference implementation. calls: by call the micro-batches of each step.

    Also by how much each number may differ, and the logits of the first set at the end, [examples, TOKENS, words].

    Bounds: an update of AdamW is rate * mean / (root + epsilon). With an error of delta in all gradients so far neither changes
    by more, and mean is not much larger than root: the update changes by 2 * delta / (root + epsilon) times the rate, twice
    that when both sides round, and by 2 times the rate at most. A loss changes by its gradient times the bounds of the weights.
    """
    case, (_, options) = plan.case, plan.case.evaluation
    decayed = frozenset(name for name in trained if "norm" not in name and not name.endswith("bias"))
    beta1, beta2, epsilon = case.moments
    optimizer = reference.AdamW(beta1, beta2, epsilon, case.decay, case.clip or np.inf, decayed)
    relative = reference.bound_of_gradients(case.layers, bits=bits)
    weights, entries, passes, done = dict(start), list[Entry](), 0, 0
    deltas = dict.fromkeys(start, 0.0)
    bounds = {name: 2.0**-22 * sum(map(len, calls)) * np.maximum(1.0, np.abs(weight)) for name, weight in start.items()}
    size, sign = options.get("per_device_eval_batch_size", ROWS), -1 if options.get("greater_is_better") else 1

    def bound_of(loss: float, gradients: Mapping[str, np.ndarray]) -> float:
        moved = sum(float((np.abs(gradient) * bounds[name]).sum()) for name, gradient in gradients.items())
        return reference.bound_of_loss(case.layers, loss, bits) + moved

    def evaluation(rows: Sequence[Sequence[Example]], prefix: str = "eval") -> Entry:
        """The loss counts each batch's mean as often as the batch has rows."""
        nonlocal passes
        rows = plan.evaluated(rows)
        parts = [rows[first : first + size] for first in range(0, len(rows), size)]
        passes += len(parts)
        losses = [reference.loss_and_gradients(weights, config, _filled(_flat(part)), IGNORED) for part in parts]
        shares = [len(part) / len(rows) for part in parts]
        loss = sum(share * loss for share, (loss, _) in zip(shares, losses, strict=True))
        bound = sum(share * bound_of(*each) for share, each in zip(shares, losses, strict=True))
        entry = {f"{prefix}_loss": (loss, bound), f"{prefix}_samples": (len(rows) / len(parts), COUNTED)}
        if options:
            labels = sum(label != IGNORED for each in _flat(rows) for label in each["labels"])
            entry |= {f"{prefix}_rows": (len(rows), COUNTED), f"{prefix}_labels": (labels, COUNTED)}
        return entry

    def logged(entry: Entry, step: int) -> Entry:
        """As SFTTrainer logs it: with the epoch, and for a loss its exponential."""
        found = entry | {"progress_or_epoch": (plan.epoch(step), COUNTED)}
        for name in {"loss", "eval_loss"} & set(entry):
            value = math.exp(entry[name][0])
            found[name.replace("loss", "ppl")] = (value, value * math.expm1(entry[name][1]))
        return found

    for steps in calls:
        window, losses, best = list[tuple[float, float]](), list[tuple[float, float]](), None
        for step, parts in enumerate(steps, 1):
            rate = plan.rate(done)
            done += 1
            each = [reference.loss_and_gradients(weights, config, part, IGNORED) for part in parts]
            mean = {name: np.mean([gradients[name] for _, gradients in each], axis=0) for name in start}
            loss = float(np.mean([loss for loss, _ in each]))
            window.append((loss, bound_of(loss, mean)))
            losses.append(window[-1])
            gradients = {name: mean[name] for name in trained}
            norm = np.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))
            scale = min(1.0, (case.clip or np.inf) / norm)
            weights, bounds = optimizer.step(weights, gradients, rate), dict(bounds)
            for name, gradient in gradients.items():
                deltas[name] = max(deltas[name], relative * scale * float(np.abs(gradient).max()))
                root = np.sqrt(optimizer.second_moments[name] / (1 - beta2**done))
                bounds[name] = bounds[name] + rate * np.minimum(2.0, 4 * deltas[name] / (root + epsilon))
            if plan.is_due(step, case.logging, "logging", case.logging.get("logging_steps", 1)):
                line: Entry = {"loss": _mean(window), "learning_rate": (plan.rate(done), 1e-3 * RATE)}
                line |= {"global_step": (step, COUNTED), "interval_samples": (ROWS * case.accumulation, COUNTED)}
                entries.append(logged(line, step))
                window = []
            if plan.held_out and plan.is_due(step, options, "evaluation", 1):
                for number, rows in enumerate(plan.held_out):
                    line = evaluation(rows, "eval" if len(plan.held_out) == 1 else f"eval_set_{number}")
                    entries.append(logged(line, step))
                if "load_best_model_at_end" in options and (best is None or sign * line["eval_loss"][0] < sign * best[0][0]):
                    best = line["eval_loss"], step, weights, bounds
        of_dataset = plan.rows * case.length.get("num_train_epochs", 0) // 1 / plan.total
        line = {"train_loss": _mean(losses), "train_samples": (of_dataset or ROWS * case.accumulation, COUNTED)}
        entries.append(logged(line, plan.total))
        line = {"train_loss": _mean(losses), "written_loss": _mean(losses), "epoch": (plan.epoch(plan.total), COUNTED)}
        counts = {"steps": plan.total, "global_step": plan.total, "max_steps": plan.total}
        counts |= {"num_train_epochs": math.ceil(plan.total / UPDATES)}
        counts |= {"consumed_samples": plan.total * ROWS * case.accumulation}
        if best:
            line["best_metric"], counts["best_step"], weights, bounds = best
        entries.append(line | {name: (count, COUNTED) for name, count in counts.items()})
    logits = np.zeros([0])
    if options:
        entries.append(evaluation(plan.held_out[0], "held_out"))
        again = logged(evaluation(plan.held_out[0], "after"), plan.total)
        entries += [again, again]  # logged and returned
        logits = reference.logits(weights, config, _filled(_flat(plan.evaluated(plan.held_out[0]))))
    found, right = (_series({name: pair[side] for name, pair in each.items()} for each in entries) for side in (0, 1))
    found["modes"], right["modes"] = np.array([passes]), np.array([0.25])
    return {**weights, **found}, {**bounds, **right}, logits


def _mean(losses: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Of the losses of steps and of their bounds; a mean is logged with eight digits."""
    loss, bound = np.mean(losses, axis=0)
    return float(loss), float(bound) + 1e-8
