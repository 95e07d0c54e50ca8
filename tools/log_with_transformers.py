"""Logs one training of SmolLM2-135M with transformers and peft, or with PaddleNLP, for `xpulab align`.

    python tools/log_with_transformers.py torch FILE               # in an environment with torch, transformers, peft and gguf
    .venv/bin/python tools/log_with_transformers.py paddle FILE    # in this project's environment
    ... --perturb 1                                                # from weights that one unit in the last place moved
    ... --weight-decay 0.1 --bf16                                  # a setting that differs; bf16: autocast, with torch only

The training is that of chapter 01's comparison: LoRA of rank 8 on the same rows in the same order, from the same initial
weights. Run `xpulab model smollm2-135m` first. data/alignment has logs that it wrote. Exit code 2 when something is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # xpulab is not installed where torch is

from xpulab.align.log import Log, perturb
from xpulab.chapters.first_lora.comparison import MODEL, SETTINGS, initial_a, padded_right, rows_of_step, training_rows
from xpulab.pretrained.prepare import find

BETAS = (SETTINGS.beta1, SETTINGS.beta2)


def main(arguments: list[str]) -> int:
    """Train and log; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("side", choices=("torch", "paddle"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--perturb", type=int, default=0)
    parser.add_argument("--weight-decay", type=float, default=0.0)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--steps", type=int, default=SETTINGS.steps)
    chosen = parser.parse_args(arguments)
    prepared = find(MODEL)
    if prepared is None:
        print(f"model {MODEL!r} is not prepared; run: xpulab model {MODEL}", file=sys.stderr)
        return 2
    start = with_torch if chosen.side == "torch" else with_paddle
    model, optimizer, loss_of, tokens_of = start(prepared.folder, chosen)
    if chosen.perturb:
        perturb(model, chosen.perturb)
    log = Log(chosen.file, model, optimizer, seed=SETTINGS.seed, dtype="bfloat16" if chosen.bf16 else "float32")
    rows, clear = training_rows(), optimizer.clear_grad if chosen.side == "paddle" else optimizer.zero_grad
    for step in range(chosen.steps):
        examples = [tokens_of(row) for row in rows_of_step(rows, step)]
        batch = padded_right(examples, pad=2)
        loss = loss_of(batch)
        loss.backward()
        log.step(loss, batch=batch["input_ids"])
        optimizer.step()
        clear()
        print(step + 1, float(loss), flush=True)
    return 0


def with_torch(folder: Path, chosen: argparse.Namespace) -> tuple[Any, Any, Callable[..., Any], Callable[..., Any]]:
    """Model, optimizer, the loss of a batch, and the tokens of a row, with transformers and peft."""
    import torch  # type: ignore[import-not-found]
    from peft import LoraConfig, get_peft_model  # type: ignore[import-not-found]

    from xpulab.chapters.first_lora.with_transformers import new_model, new_tokenizer, prompt_ids

    tokenizer = new_tokenizer(folder)
    config = LoraConfig(r=SETTINGS.rank, lora_alpha=SETTINGS.alpha, target_modules=[*SETTINGS.targets])
    model = get_peft_model(new_model(folder), config)
    with torch.no_grad():
        for name, layer in model.named_modules():
            if hasattr(layer, "lora_A") and "default" in layer.lora_A:
                layer.lora_A["default"].weight.copy_(torch.from_numpy(initial_a(name, layer.in_features).T))
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, SETTINGS.learning_rate, BETAS, SETTINGS.epsilon, chosen.weight_decay)
    model.train()

    def loss_of(batch: dict[str, Any]) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=chosen.bf16):
            return model(**{name: torch.from_numpy(values) for name, values in batch.items()}).loss

    def tokens_of(row: dict[str, str]) -> tuple[list[int], list[int]]:
        answer = tokenizer(row["answer"], add_special_tokens=False)["input_ids"]
        return prompt_ids(tokenizer, row["question"]), [*answer, tokenizer.eos_token_id]

    return model, optimizer, loss_of, tokens_of


def with_paddle(folder: Path, chosen: argparse.Namespace) -> tuple[Any, Any, Callable[..., Any], Callable[..., Any]]:
    """The same with PaddleNLP, whose models do not move the labels."""
    from xpulab.chapters.shared.workarounds import silence_import_warnings, silence_paddlenlp_log

    silence_import_warnings()
    import numpy as np
    import paddle
    from paddlenlp.peft import LoRAConfig, LoRAModel

    from xpulab.chapters.first_lora.other_implementation import prompt_ids
    from xpulab.chapters.shared import models

    silence_paddlenlp_log()
    paddle.set_device("cpu")
    tokenizer = models.new_tokenizer(str(folder))
    targets = [f".*{target}.*" for target in SETTINGS.targets]
    config = LoRAConfig(target_modules=targets, r=SETTINGS.rank, lora_alpha=SETTINGS.alpha)
    model = LoRAModel(models.new_model(str(folder), 0), config)
    model.mark_only_lora_as_trainable()
    model.train()
    for name, layer in model.named_sublayers():
        if hasattr(layer, "lora_A"):
            layer.lora_A.set_value(initial_a(name, layer.weight.shape[0]))
    trained = [weight for weight in model.parameters() if not weight.stop_gradient]
    optimizer = paddle.optimizer.AdamW(
        SETTINGS.learning_rate, *BETAS, SETTINGS.epsilon, parameters=trained, weight_decay=chosen.weight_decay
    )

    def loss_of(batch: dict[str, Any]) -> Any:
        labels = np.pad(batch["labels"][:, 1:], ((0, 0), (0, 1)), constant_values=-100)
        output = model(**{name: paddle.to_tensor(values) for name, values in {**batch, "labels": labels}.items()})
        return output[0] if isinstance(output, tuple | list) else output

    def tokens_of(row: dict[str, str]) -> tuple[list[int], list[int]]:
        answer = tokenizer(row["answer"], add_special_tokens=False)["input_ids"]
        return prompt_ids(tokenizer, row["question"]), [*answer, tokenizer.eos_token_id]

    return model, optimizer, loss_of, tokens_of


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
