"""Writes data/comparison/successor.json: what PaddleNLP and transformers compute on the model of chapter 19.

    .venv/bin/python tools/successor_numbers.py paddlenlp     # in this project's environment
    python tools/successor_numbers.py transformers            # in one with torch, transformers, numpy and safetensors

Chapter 19 runs in an environment that has neither, and compares with this file. Maintainers run both commands when the model,
the rows or the settings in xpulab/chapters/paddleformers/same_model.py change. Each writes its own part of the file.
Exit codes: 0 when it was written, 2 when a package is missing.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from collections.abc import Callable
from datetime import datetime, timezone
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # xpulab is not installed where torch is

from xpulab import files
from xpulab.chapters.paddleformers import same_model

PAGE = files.DATA / "comparison" / "successor.json"
DIGITS = 8
"""Significant digits of a stored number; float32 has seven and a half."""


def main(arguments: list[str]) -> int:
    """Compute one part and write it."""
    if len(arguments) != 1 or arguments[0] not in PARTS:
        print(f"name one of {', '.join(PARTS)}", file=sys.stderr)
        return 2
    (part,) = arguments
    compute, packages = PARTS[part]
    modules = {"paddlepaddle": "paddle"}
    if missing := [package for package in packages if not find_spec(modules.get(package, package))]:
        print(f"{', '.join(missing)}: not installed here; the docstring names the environment", file=sys.stderr)
        return 2
    stored = json.loads(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {"schema": 1}
    with tempfile.TemporaryDirectory() as folder:
        found = compute(same_model.write(Path(folder, "model")))
    provenance = {
        "command": f"tools/successor_numbers.py {part}",
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": {package: metadata.version(package) for package in packages},
    }
    digest = same_model.digest(same_model.weights())
    if stored.get("weights_sha256") != digest:
        stored = {"schema": 1, "weights_sha256": digest}  # the other part was computed with other weights
    stored[part] = {"provenance": provenance, **found}
    PAGE.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    print(f"{PAGE.relative_to(files.ROOT)}: {part}")
    return 0


def of_paddlenlp(folder: Path) -> dict[str, Any]:
    """Logits, losses, the layout of a saved model, and the names of the arguments."""
    import paddle
    from paddlenlp.trainer import Trainer, TrainingArguments
    from paddlenlp.transformers import AutoModelForCausalLM, AutoTokenizer
    from paddlenlp.trl import DPOTrainer, preference_collate_fn, preprocess_preference_data
    from paddlenlp.utils.log import logger

    from xpulab.chapters.shared import workarounds

    logger.set_level("CRITICAL")
    paddle.set_device("cpu")
    workarounds.unwrap_single_process_models()
    tokenizer = AutoTokenizer.from_pretrained(str(folder))

    def new() -> Any:
        return AutoModelForCausalLM.from_pretrained(str(folder), dtype="float32", convert_from_torch=True)

    def tensors(rows: list[dict[str, list[int]]]) -> dict[str, Any]:
        return {name: paddle.to_tensor(value) for name, value in same_model.batch(rows).items()}

    network = new()
    network.eval()
    logits = [network(input_ids=paddle.to_tensor([ids]))[0].numpy()[0, -1] for ids in prompts(tokenizer)]
    network.save_pretrained(str(folder / "saved"), safe_serialization=True)

    rows = data_set(same_model.examples(tokenizer, same_model.instructions()))
    losses = kept_losses()
    arguments = TrainingArguments(output_dir=str(folder / "out"), device="cpu", **same_model.SFT)
    Trainer(model=new(), args=arguments, train_dataset=rows, data_collator=tensors, callbacks=[losses]).train()

    limits = SimpleNamespace(max_seq_len=512, max_prompt_len=256)
    pairs = data_set([packed(preprocess_preference_data, row, tokenizer, limits) for row in same_model.preferences()])

    def collate(examples: list[dict[str, Any]]) -> dict[str, Any]:
        longest = max(len(example["input_ids"]) for example in examples)
        return {key: paddle.to_tensor(value) for key, value in preference_collate_fn(examples, max_seq_len=longest).items()}

    settings = SimpleNamespace(
        beta=0.1, loss_type="sigmoid", label_smoothing=0.0, simpo_gamma=0.5, dpop_lambda=50.0, pref_loss_ratio=1.0,
        sft_loss_ratio=0.0, reference_free=False, ref_model_update_steps=-1, lora=False,
    )  # fmt: skip
    preferred = kept_losses()
    trainer = DPOTrainer(
        model=new(), ref_model=new(), dpo_config=settings, train_dataset=pairs, data_collator=collate, callbacks=[preferred],
        args=TrainingArguments(output_dir=str(folder / "dpo"), device="cpu", **same_model.DPO),
    )  # fmt: skip
    trainer.train()
    return {
        "logits": rounded(logits),
        "sft_losses": losses.kept,
        "dpo_losses": preferred.kept,
        "layout": layout(folder / "saved" / "model.safetensors"),
        "arguments": sorted(TrainingArguments.__dataclass_fields__),
    }


def of_transformers(folder: Path) -> dict[str, Any]:
    """Logits, and the loss of all rows before any step."""
    import torch  # type: ignore[import-not-found]
    from transformers import AutoModelForCausalLM, AutoTokenizer  # type: ignore[import-not-found]

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    batch = same_model.batch(same_model.examples(tokenizer, same_model.instructions()))
    with torch.no_grad():
        logits = [network(input_ids=torch.tensor([ids])).logits[0, -1].numpy() for ids in prompts(tokenizer)]
        ids, mask = (torch.tensor(batch[name]) for name in ("input_ids", "attention_mask"))
        scores = network(input_ids=ids, attention_mask=mask).logits
        labels = torch.tensor(batch["labels"])  # shifted already: transformers would shift them once more
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=same_model.IGNORED)
    return {
        "logits": rounded(logits),
        "loss": float(f"{float(loss):.{DIGITS}g}"),
    }


def prompts(tokenizer: Any) -> list[list[int]]:
    """The tokens of the questions whose logits are compared."""
    return [list(tokenizer(same_model.prompt(question))["input_ids"]) for question in same_model.PROMPTS]


def packed(preprocess: Callable[..., dict[str, Any]], row: dict[str, str], tokenizer: Any, limits: Any) -> dict[str, Any]:
    """The question and both answers as PaddleNLP packs them, as in chapter 04."""
    record = {
        "src": [same_model.prompt(row["question"])],
        "tgt": [],
        "response": [row["chosen"], row["rejected"]],
        "sort": [1, 0],
    }
    example = preprocess(record, tokenizer, limits, SimpleNamespace(flash_mask=False))
    example["attention_mask"] = example["attention_mask"][None]
    example["response_indexs"] = [example["response_indexs"]]
    return example


def layout(path: Path) -> dict[str, Any]:
    """By name the shape of each tensor of a file of safetensors; and the digest of all."""
    from safetensors.numpy import load_file

    stored = load_file(path)
    return {"shapes": {name: list(value.shape) for name, value in stored.items()}, "sha256": same_model.digest(stored)}


def rounded(logits: list[np.ndarray]) -> list[list[float]]:
    """Numbers that a file can hold, with as many digits as float32 has."""
    return [[float(f"{value:.{DIGITS}g}") for value in each] for each in logits]


def data_set(rows: list[Any]) -> Any:
    """A list as a data set of Paddle."""
    import paddle

    class Rows(paddle.io.Dataset):
        def __len__(self) -> int:
            return len(rows)

        def __getitem__(self, index: int) -> Any:
            return rows[index]

    return Rows()


def kept_losses() -> Any:
    """A callback of PaddleNLP that keeps the loss of each step."""
    from paddlenlp.trainer import TrainerCallback

    class Losses(TrainerCallback):
        def __init__(self) -> None:
            self.kept: list[float] = []

        def on_log(self, args: Any, state: Any, control: Any, logs: dict | None = None, **others: Any) -> None:
            if logs and "loss" in logs:
                self.kept.append(float(logs["loss"]))

    return Losses()


PARTS: dict[str, tuple[Callable[[Path], dict[str, Any]], tuple[str, ...]]] = {
    "paddlenlp": (of_paddlenlp, ("paddlepaddle", "paddlenlp", "numpy")),
    "transformers": (of_transformers, ("torch", "transformers", "numpy")),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
