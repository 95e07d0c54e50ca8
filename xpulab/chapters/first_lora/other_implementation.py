"""Compute with PaddleNLP what transformers and peft computed on the same weights: logits, and losses of LoRA.

    other = load()                                  # the committed values of transformers, with bounds from measurement
    found = logits_at(model, tokenizer)             # may differ from other.logits by other.bounds["logits"]

model: PaddleNLP's, from the prepared folder, in single precision. Source of the values: tools/compare_with_transformers.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import paddle
from paddlenlp.peft import LoRAConfig, LoRAModel

from xpulab.chapters.first_lora import comparison
from xpulab.chapters.first_lora.comparison import MODEL, PROMPTS, SETTINGS, PromptLogits, load, training_rows

__all__ = ["MODEL", "PROMPTS", "load", "logits_at", "lora_losses", "training_rows"]


@paddle.no_grad()
def logits_at(model: Any, tokenizer: Any, prompts: Sequence[str] = PROMPTS) -> list[PromptLogits]:
    """The logits of each prompt, by one forward pass each."""
    model.eval()
    asked = [prompt_ids(tokenizer, question) for question in prompts]
    return [comparison.summary_of(ids, _first(model(input_ids=paddle.to_tensor([ids])))[0].numpy()) for ids in asked]


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
        loss = _first(adapted(**_batch(tokenizer, comparison.rows_of_step(rows, step))))
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


def prompt_ids(tokenizer: Any, question: str) -> list[int]:
    """The tokens of a conversation that begins with this question and waits for the answer."""
    return tokenizer.apply_chat_template([{"role": "user", "content": question}])["input_ids"]


def _with_adapter(model: Any) -> Any:
    """The model with an adapter at each linear layer, A as in initial_a and B zero; only the adapter trains."""
    targets = [f".*{target}.*" for target in SETTINGS.targets]
    adapted = LoRAModel(model, LoRAConfig(target_modules=targets, r=SETTINGS.rank, lora_alpha=SETTINGS.alpha))
    adapted.mark_only_lora_as_trainable()
    adapted.train()
    for name, layer in adapted.named_sublayers():
        if hasattr(layer, "lora_A"):
            layer.lora_A.set_value(comparison.initial_a(name, layer.weight.shape[0]))
    return adapted


def _batch(tokenizer: Any, rows: Sequence[dict[str, str]]) -> dict[str, Any]:
    """The rows as PaddleNLP's forward pass takes them: each label is the next token, so they move one place to the left."""
    answers = [tokenizer(row["answer"], add_special_tokens=False)["input_ids"] for row in rows]
    examples = [
        (prompt_ids(tokenizer, row["question"]), [*answer, tokenizer.eos_token_id])
        for row, answer in zip(rows, answers, strict=True)
    ]
    batch = comparison.padded_right(examples, tokenizer.pad_token_id)
    batch["labels"] = np.pad(batch["labels"][:, 1:], ((0, 0), (0, 1)), constant_values=comparison.IGNORED)
    return {name: paddle.to_tensor(values) for name, values in batch.items()}


def _first(output: Any) -> Any:
    """The first of a model's outputs: the loss when there are labels, else the logits."""
    return output[0] if isinstance(output, tuple | list) else output
