"""Options of a training together, on a tiny model: PaddleNLP's trainer beside AdamW and the decoder in double precision.

    run = one_by_one(partial(measure, tokenizer, here.name, bits))
    check.grid("sft.training-options", TRAINING, run, add_row, level=level, seed=seed, means=...)

A case trains STEPS steps from random weights, biases and norms included. Compared are the loss of each step, the loss of each
evaluation, whether the model was in training mode, and every weight at the end. An option that must not change the result
(recomputation, an evaluation in between) is simply not in the reference implementation.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
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

STEPS, ROWS, TOKENS, RATE = 3, 2, 8, 2e-2
"""Optimizer steps, rows of a batch, tokens of the longest row, first rate, which falls to 0."""

BETA1, BETA2, EPSILON = 0.8, 0.9, 1e-2
"""Of AdamW, none of them its default; epsilon is so large that a gradient of another size makes another step."""

FROZEN: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "embedding": ("embed_tokens",),
    "embedding and first layer": ("embed_tokens", "layers.0."),
    "norms and biases": ("norm", "bias"),
    "head": ("lm_head",),
}
"""By name the parts of names of weights that are not trained."""

TRAINING = Grid(
    {
        "family": FAMILIES,
        "layers": (2, 11),
        "key_heads": (2, 4, 1),
        "tied": (False, True),
        "frozen": FROZEN,
        "rows": ("of one length", "padded left", "padded right", "packed"),
        "accumulation": (1, 2),
        "epoch": ("whole batches", "a short batch", "a batch left over"),
        "recompute": ("none", "full", "full_attn", "core_attn"),
        "evaluation": (False, True),
        "decay": (0.0, 0.5),
        "clip": (0.0, 0.5, 1e3),
        "offload": (False, True),
    },
    {
        "a step of one batch leaves none over": lambda accumulation, epoch: accumulation == 1 and epoch == "a batch left over",
        "a tied head is the embedding": lambda tied, frozen: tied and frozen == FROZEN["head"],
    },
    uninformative={"epoch": ["a batch left over"]},
)
"""Models and settings. clip: the largest global norm, of which 0 stands for none and 1e3 is never reached."""


Example = dict[str, list[int]]
"""input_ids, attention_mask and labels of one row; no token is 0."""


Values = dict[str, np.ndarray]
"""What a training gave: "losses" of each step, "evaluations", "modes" (how many forward passes were in evaluation mode, [1]),
"on the card" (whether the moments were there after the last step, [1]), and the weights at the end by name."""


class _Kept(TrainerCallback):
    """The tokens of each batch, [rows, length], the logged losses, and where the moments were after the last step."""

    def __init__(self) -> None:
        self.batches: list[np.ndarray] = []
        self.losses: list[float] = []
        self.evaluations: list[float] = []
        self.places: list[str] = []

    def on_load_data_end(self, args: Any, state: Any, control: Any, inputs: Any = None, **others: Any) -> None:
        self.batches.append(inputs["input_ids"].numpy())

    def on_step_end(self, args: Any, state: Any, control: Any, optimizer: Any = None, **others: Any) -> None:
        self.places = places({name: each for name, each in optimizer.state_dict().items() if "moment" in name})

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        if "eval_loss" in logs:
            self.evaluations.append(logs["eval_loss"])
        elif "loss" in logs:
            self.losses.append(logs["loss"])


def measure(tokenizer: Any, device: str, bits: int, case: Case) -> Compared:
    """Train with a case's options. In the control every weight has gone nine tenths of its way.

    tokenizer: its padding token is 0. device: of the trainer. bits: that products in float32 keep of their factors.
    """
    rng, kept = case.rng(), _Kept()
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
    batches = 2 * case.accumulation + (case.epoch == "a batch left over")
    examples, evaluated = (
        _examples(rng, count, case.rows) for count in (ROWS * batches - (case.epoch == "a short batch"), ROWS)
    )
    with tempfile.TemporaryDirectory(prefix="xpulab-") as folder:
        options = settings(
            folder,
            device,
            case.seed,
            max_steps=STEPS,
            per_device_train_batch_size=ROWS,
            per_device_eval_batch_size=ROWS,
            gradient_accumulation_steps=case.accumulation,
            learning_rate=RATE,
            lr_scheduler_type="linear",
            weight_decay=case.decay,
            max_grad_norm=case.clip,
            adam_beta1=BETA1,
            adam_beta2=BETA2,
            adam_epsilon=EPSILON,
            evaluation_strategy="steps" if case.evaluation else "no",
            eval_steps=1,
            recompute=case.recompute != "none",
            offload_optim=case.offload,
        )
        SFTTrainer(
            model=network,
            args=SFTConfig(**options),
            train_dataset=_in_rows(examples, padded, case.rows),
            eval_dataset=_in_rows(evaluated, padded, case.rows),
            tokenizer=padded,
            data_collator=DataCollatorForSeq2Seq(padded),
            callbacks=[kept],
        ).train()
    found = {name: weight.numpy() for name, weight in network.named_parameters()}
    found |= {"losses": np.array(kept.losses), "evaluations": np.array(kept.evaluations), "modes": np.array([sum(evaluating)])}
    found["on the card"] = np.array([kept.places == [device]], float)
    parts = [_batch(kept.batches[count], examples) for count in _used(case, batches)]
    steps = [parts[first : first + case.accumulation] for first in range(0, len(parts), case.accumulation)]
    held_out = _filled([row for rows in evaluated for row in rows])
    right, bounds = _reference(case, config, start, trained, steps, held_out if case.evaluation else None, bits)
    right["on the card"] = np.array([device == "cpu" or not case.offload], float)
    less = {name: weight + 0.9 * (right[name] - weight) for name, weight in start.items()}
    return Compared(found, right, bounds, {**right, **less})


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


def _used(case: Case, batches: int) -> list[int]:
    """The numbers of the micro-batches that steps are made of: in each epoch, those that make whole steps."""
    whole = batches // case.accumulation * case.accumulation
    return [count for count in range((STEPS + 1) // 2 * batches) if count % batches < whole][: STEPS * case.accumulation]


def _reference(
    case: Case,
    config: Any,
    start: Mapping[str, np.ndarray],
    trained: Sequence[str],
    steps: Sequence[Sequence[Mapping[str, np.ndarray]]],
    held_out: Mapping[str, np.ndarray] | None,
    bits: int,
) -> tuple[Values, Values]:
    """The training by the reference implementation. steps: the micro-batches of each. held_out: evaluated after each, or None.

    Also by how much each number may differ.

    Bounds: an update of AdamW is rate * mean / (root + EPSILON). With an error of delta in all gradients so far neither changes
    by more, and mean is not much larger than root: the update changes by 2 * delta / (root + EPSILON) times the rate, twice
    that when both sides round, and by 2 times the rate at most. A loss changes by its gradient times the bounds of the weights.
    """
    decayed = frozenset(name for name in trained if "norm" not in name and not name.endswith("bias"))
    optimizer = reference.AdamW(BETA1, BETA2, EPSILON, case.decay, case.clip or np.inf, decayed)
    relative = reference.bound_of_gradients(case.layers, bits=bits)
    weights, losses, evaluations = dict(start), [], []
    deltas = dict.fromkeys(start, 0.0)
    bounds = {name: 2.0**-22 * STEPS * np.maximum(1.0, np.abs(weight)) for name, weight in start.items()}
    of_losses, of_evaluations = [], []

    def bound_of(loss: float, gradients: Mapping[str, np.ndarray]) -> float:
        moved = sum(float((np.abs(gradient) * bounds[name]).sum()) for name, gradient in gradients.items())
        return reference.bound_of_loss(case.layers, loss, bits) + moved

    for number, parts in enumerate(steps):
        rate = RATE * (1 - number / STEPS)
        each = [reference.loss_and_gradients(weights, config, part, IGNORED) for part in parts]
        losses.append(float(np.mean([loss for loss, _ in each])))
        mean = {name: np.mean([gradients[name] for _, gradients in each], axis=0) for name in start}
        of_losses.append(bound_of(losses[-1], mean))
        gradients = {name: mean[name] for name in trained}
        norm = np.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))
        scale = min(1.0, (case.clip or np.inf) / norm)
        weights = optimizer.step(weights, gradients, rate)
        for name, gradient in gradients.items():
            deltas[name] = max(deltas[name], relative * scale * float(np.abs(gradient).max()))
            root = np.sqrt(optimizer.second_moments[name] / (1 - BETA2 ** (number + 1)))
            bounds[name] = bounds[name] + rate * np.minimum(2.0, 4 * deltas[name] / (root + EPSILON))
        if held_out is not None:
            loss, slopes = reference.loss_and_gradients(weights, config, held_out, IGNORED)
            evaluations.append(loss)
            of_evaluations.append(bound_of(loss, slopes))
    series = {"losses": np.array(of_losses), "evaluations": np.array(of_evaluations)}
    series |= {"modes": np.array([0.25]), "on the card": np.array([0.25])}
    found = {"losses": np.array(losses), "evaluations": np.array(evaluations), "modes": np.array([len(evaluations)])}
    return {**weights, **found}, {**bounds, **series}
