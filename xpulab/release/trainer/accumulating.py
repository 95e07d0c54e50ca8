"""The same training with large batches and with small ones that are added up, through PaddleNLP's Trainer."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddlenlp.peft import LoRAConfig, LoRAModel
from paddlenlp.trainer import Trainer, TrainerCallback, TrainingArguments
from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM

from xpulab.chapters.shared.device import places

ROWS, LENGTH, VOCABULARY = 32, 16, 64

BATCH, STEPS = 8, 3


@dataclass(frozen=True)
class Training:
    """losses, rates: of each step. weights: by name, after the last. places: where the moments were after each step."""

    losses: list[float]
    rates: list[float]
    weights: dict[str, np.ndarray]
    places: list[str]


class _Recorder(TrainerCallback):
    def __init__(self) -> None:
        self.losses: list[float] = []
        self.rates: list[float] = []
        self.places: list[str] = []
        self.trainer: Any = None

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        if "loss" in logs:
            self.losses.append(logs["loss"])
            self.rates.append(logs["learning_rate"])

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        moments = {name: each for name, each in self.trainer.optimizer.state_dict().items() if "moment" in name}
        self.places = places(moments)


class _Rows(paddle.io.Dataset):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rows = np.random.default_rng(seed).integers(0, VOCABULARY, (ROWS, LENGTH))

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return {"input_ids": self._rows[index], "labels": self._rows[index]}


def trained(model: str, seed: int, parts: int = 1, **options: Any) -> Training:
    """Three steps of eight rows each.

    model: "Llama", or "LoRA", of which an adapter is trained. parts: the small batches of a step.
    options: of TrainingArguments.
    """
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        use_cache=False,
    )
    recorder = _Recorder()
    with paddle.utils.unique_name.guard(), tempfile.TemporaryDirectory() as folder:
        paddle.seed(seed)
        network: Any = LlamaForCausalLM(config)
        if model == "LoRA":
            network = LoRAModel(network, LoRAConfig(target_modules=[".*q_proj.*", ".*v_proj.*"], r=4, lora_alpha=8))
            network.mark_only_lora_as_trainable()
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=BATCH // parts,
            gradient_accumulation_steps=parts,
            learning_rate=1e-2,
            warmup_steps=2,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            seed=seed,
            device=paddle.get_device().partition(":")[0],
            **options,
        )
        trainer = Trainer(model=network, args=arguments, train_dataset=_Rows(seed), callbacks=[recorder])
        recorder.trainer = trainer
        trainer.train()
    weights = {name: each.numpy().copy() for name, each in network.named_parameters() if not each.stop_gradient}
    return Training(recorder.losses, recorder.rates, weights, recorder.places)
