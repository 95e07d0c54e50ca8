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
from xpulab.chapters.shared.workarounds import log_history
from xpulab.release.trainer.training_options import Examples

ROWS, LENGTH, VOCABULARY = 32, 16, 64

BATCH, STEPS = 8, 3


@dataclass(frozen=True)
class Training:
    """losses, rates: of each step. weights: by name, after the last. places: where the moments were after each step."""

    losses: list[float]
    rates: list[float]
    weights: dict[str, np.ndarray]
    places: list[str]


class _Places(TrainerCallback):
    """places: of the moments after the last step. trainer: to be set."""

    def __init__(self) -> None:
        self.places: list[str] = []
        self.trainer: Any = None

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        moments = {name: each for name, each in self.trainer.optimizer.state_dict().items() if "moment" in name}
        self.places = places(moments)


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
    history, of_moments = log_history(), _Places()
    rows = np.random.default_rng(seed).integers(0, VOCABULARY, (ROWS, LENGTH))
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
        dataset = Examples([{"input_ids": row, "labels": row} for row in rows])
        trainer = Trainer(model=network, args=arguments, train_dataset=dataset, callbacks=[history, of_moments])
        of_moments.trainer = trainer
        trainer.train()
    weights = {name: each.numpy().copy() for name, each in network.named_parameters() if not each.stop_gradient}
    return Training(history.losses, history.rates, weights, of_moments.places)
