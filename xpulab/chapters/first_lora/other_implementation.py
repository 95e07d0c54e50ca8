"""Compute with PaddleNLP what transformers and peft computed on the same weights: logits, losses of LoRA, answers, tokens.

    other = load()                                  # the committed values of transformers, with bounds from measurement
    found = logits_at(model, tokenizer)
    difference_of(found, other.logits)["logits"]    # must be at most other.bounds["logits"]

model: PaddleNLP's, from the prepared folder, in single precision. Source of the values: tools/compare_with_transformers.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from importlib.util import find_spec
from typing import Any

import numpy as np
import paddle
from paddlenlp.peft import LoRAConfig, LoRAModel

from xpulab.chapters.first_lora.comparison import (
    IGNORED,
    LONGEST_ANSWER,
    MODEL,
    PROMPTS,
    SETTINGS,
    OtherImplementation,
    PromptLogits,
    content_of,
    difference_of,
    digest_of,
    from_json,
    initial_a,
    load,
    padded_right,
    rows_of_step,
    same_argmax,
    summary_of,
    texts,
    training_rows,
    up_to_end,
)
from xpulab.errors import InputError

__all__ = [
    "difference_of",
    "digest_of",
    "greedy_tokens",
    "load",
    "logits_at",
    "lora_losses",
    "recomputed",
    "same_argmax",
    "texts",
    "token_ids",
    "training_rows",
]

NEEDED = ("torch", "transformers", "peft")
"""What recomputed() needs besides the packages of this project."""


@paddle.no_grad()
def logits_at(model: Any, tokenizer: Any, prompts: Sequence[str] = PROMPTS) -> list[PromptLogits]:
    """The logits of each prompt, by one forward pass each."""
    model.eval()
    asked = [prompt_ids(tokenizer, question) for question in prompts]
    return [summary_of(ids, _first(model(input_ids=paddle.to_tensor([ids])))[0].numpy()) for ids in asked]


def lora_losses(model: Any, tokenizer: Any, rows: Sequence[dict[str, str]], steps: int = SETTINGS.steps) -> list[float]:
    """The loss of each training step of an adapter, which starts as peft's did. Afterwards the model is as it was before."""
    trained_before = [weight for weight in model.parameters() if not weight.stop_gradient]
    replaced = {name: layer for name, layer in model.named_sublayers() if name.endswith(SETTINGS.targets)}
    adapted = _with_adapter(model)
    optimizer = paddle.optimizer.AdamW(
        learning_rate=SETTINGS.learning_rate,
        beta1=SETTINGS.beta1,
        beta2=SETTINGS.beta2,
        epsilon=SETTINGS.epsilon,
        weight_decay=0.0,
        parameters=[weight for weight in adapted.parameters() if not weight.stop_gradient],
    )
    losses = []
    for step in range(steps):
        loss = _first(adapted(**_batch(tokenizer, rows_of_step(rows, step))))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    for name, layer in replaced.items():  # LoRAModel.restore_original_model would add a bias to each
        *parents, last = name.split(".")
        setattr(reduce(getattr, parents, model), last, layer)
    for weight in trained_before:
        weight.stop_gradient = False
    return losses


@paddle.no_grad()
def greedy_tokens(
    model: Any, tokenizer: Any, prompts: Sequence[str] = PROMPTS, at_most: int = LONGEST_ANSWER
) -> list[list[int]]:
    """The tokens of the answers to the prompts, as one batch that is padded on the left, up to and with the end token.

    Give one prompt for an answer without padding.
    """
    model.eval()
    asked = [prompt_ids(tokenizer, question) for question in prompts]
    batch = tokenizer.pad({"input_ids": asked}, return_attention_mask=True, return_tensors="pd")
    tokens, _ = model.generate(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        max_new_tokens=at_most,
        decode_strategy="greedy_search",
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return [up_to_end(line, tokenizer.eos_token_id) for line in tokens.tolist()]


def token_ids(tokenizer: Any, lines: Sequence[str]) -> list[list[int]]:
    """The tokens of each text, nothing added."""
    return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in lines]


def prompt_ids(tokenizer: Any, question: str) -> list[int]:
    """The tokens of a conversation that begins with this question and waits for the answer."""
    return tokenizer.apply_chat_template([{"role": "user", "content": question}])["input_ids"]


def recomputed(name: str = MODEL) -> OtherImplementation:
    """The values of transformers, computed now instead of read; the bounds stay those of the committed file.

    Raises InputError when torch, transformers or peft is missing or refuses the other packages' versions, and when the model
    is not prepared.
    """
    if missing := [package for package in NEEDED if find_spec(package) is None]:
        raise InputError(f"{', '.join(missing)} is not installed here; read the committed values with load()")
    try:
        from xpulab.chapters.first_lora import with_transformers
    except ImportError as error:  # transformers 4.56 and newer refuse the tokenizers that PaddleNLP is pinned with
        raise InputError(f"{str(error).splitlines()[0]}; read the committed values with load()") from error
    return from_json({**content_of(name), **with_transformers.computed_release(name, training_rows())})


def _with_adapter(model: Any) -> Any:
    """The model with an adapter at each linear layer, A as in initial_a and B zero; only the adapter trains."""
    targets = [f".*{target}.*" for target in SETTINGS.targets]
    adapted = LoRAModel(model, LoRAConfig(target_modules=targets, r=SETTINGS.rank, lora_alpha=SETTINGS.alpha))
    adapted.mark_only_lora_as_trainable()
    adapted.train()
    for name, layer in adapted.named_sublayers():
        if hasattr(layer, "lora_A"):
            layer.lora_A.set_value(initial_a(name, layer.weight.shape[0]))
    return adapted


def _batch(tokenizer: Any, rows: Sequence[dict[str, str]]) -> dict[str, Any]:
    """The rows as PaddleNLP's forward pass takes them: each label is the next token, so they move one place to the left."""
    answers = token_ids(tokenizer, [row["answer"] for row in rows])
    examples = [
        (prompt_ids(tokenizer, row["question"]), [*answer, tokenizer.eos_token_id])
        for row, answer in zip(rows, answers, strict=True)
    ]
    batch = padded_right(examples, tokenizer.pad_token_id)
    batch["labels"] = np.pad(batch["labels"][:, 1:], ((0, 0), (0, 1)), constant_values=IGNORED)
    return {name: paddle.to_tensor(values) for name, values in batch.items()}


def _first(output: Any) -> Any:
    """The first of a model's outputs: the loss when there are labels, else the logits."""
    return output[0] if isinstance(output, tuple | list) else output
