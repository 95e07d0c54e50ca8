"""Each workaround of xpulab.notebook.workarounds: the symptom is there without it, and gone with it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SECONDS = 200


def ran(code):
    """Run Python in a process of its own; its return code, output and errors."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment)


def test_auto_trainer_cannot_be_imported_without_the_cure():
    assert "No module named 'paddle.distributed.checkpoint'" in ran("import paddlenlp.trainer.auto_trainer").stderr


def test_auto_trainer_can_be_imported_with_the_cure():
    cured = ran(
        "from xpulab.notebook import workarounds; workarounds.restore_distributed_checkpoint()\n"
        "import paddlenlp.trainer.auto_trainer"
    )
    assert cured.returncode == 0, cured.stderr


def test_imports_print_warnings_without_the_cure_and_none_with_it():
    imports = "import paddle; from paddlenlp.trl import SFTTrainer"
    assert "Warning" in ran(imports).stderr
    assert ran(f"from xpulab.notebook import workarounds; workarounds.silence_import_warnings(); {imports}").stderr == ""


def test_the_log_history_of_a_trainer_is_empty_and_the_callback_has_it():
    trained = ran(TRAIN)
    assert trained.returncode == 0, trained.stderr
    assert trained.stdout.splitlines()[-1] == "0 kept by the trainer, 3 by the callback"


@pytest.mark.parametrize(
    ("cures", "order", "random"),
    [
        ("", False, False),
        ("resume_data_order", True, False),
        ("resume_data_order resume_random_state", True, True),
    ],
)
def test_a_resumed_run_repeats_the_order_and_the_random_numbers_with_its_cures_only(cures, order, random):
    resumed = ran(RESUME.format(cures=cures))
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.splitlines()[-1] == f"{order} {random}"


RESUME = """
from xpulab.notebook import workarounds
workarounds.silence_import_warnings()
import random, tempfile
import numpy as np
import paddle
from paddlenlp.data import DataCollatorForSeq2Seq
from paddlenlp.trainer import TrainerCallback
from paddlenlp.trl import SFTConfig, SFTTrainer
from xpulab.notebook import models
workarounds.silence_paddlenlp_log()
for cure in "{cures}".split():
    SFTTrainer = getattr(workarounds, cure)(SFTTrainer)

class Seen(TrainerCallback):
    def __init__(self):
        self.batch, self.drawn = dict(), dict()
    def on_load_data_end(self, args, state, control, inputs=None, **others):
        self.batch[state.global_step] = inputs["input_ids"].numpy().tobytes()
    def on_step_begin(self, args, state, control, **others):
        self.drawn[state.global_step] = random.random(), np.random.random(), float(paddle.rand([1]))

def train(folder, checkpoint=None):
    seen, tokenizer = Seen(), models.new_tokenizer("tiny-qwen2")
    arguments = SFTConfig(output_dir=folder, device="cpu", max_steps=6, logging_steps=1, report_to=[], disable_tqdm=True,
                          per_device_train_batch_size=8, save_strategy="steps", save_steps=3)
    with paddle.utils.unique_name.guard():
        trainer = SFTTrainer(model=models.new_model("tiny-qwen2", 0), args=arguments, tokenizer=tokenizer, callbacks=[seen],
                             train_dataset=models.Examples(tokenizer, models.instructions("train")[:20]),
                             data_collator=DataCollatorForSeq2Seq(tokenizer))
        trainer.train(checkpoint)
    return seen

folder = tempfile.mkdtemp()
whole, rest = train(folder), train(tempfile.mkdtemp(), folder + "/checkpoint-3")
print(all(rest.batch[step] == whole.batch[step] for step in (3, 4, 5)),
      all(rest.drawn[step] == whole.drawn[step] for step in (3, 4, 5)))
"""


TRAIN = """
from xpulab.notebook import workarounds
workarounds.silence_import_warnings()
import tempfile
from paddlenlp.data import DataCollatorForSeq2Seq
from paddlenlp.trl import SFTConfig, SFTTrainer
from xpulab.notebook import models
workarounds.silence_paddlenlp_log()
tokenizer, history = models.new_tokenizer("tiny-qwen2"), workarounds.log_history()
arguments = SFTConfig(output_dir=tempfile.mkdtemp(), device="cpu", max_steps=3, logging_steps=1, report_to=[],
                      disable_tqdm=True, save_strategy="no")
trainer = SFTTrainer(model=models.new_model("tiny-qwen2", 0), args=arguments, tokenizer=tokenizer, callbacks=[history],
                     train_dataset=models.Examples(tokenizer, models.instructions("train")),
                     data_collator=DataCollatorForSeq2Seq(tokenizer))
trainer.train()
print(f"{len(trainer.state.log_history)} kept by the trainer, {len(history.losses)} by the callback")
"""


def test_dpo_fails_in_one_process_without_the_cure_and_trains_with_it():
    assert "'Fleet' object has no attribute '_user_defined_strategy'" in ran(PREFER).stderr
    cured = ran("from xpulab.notebook import workarounds; workarounds.unwrap_single_process_models()\n" + PREFER)
    assert cured.stdout.splitlines()[-1:] == ["evaluated and trained"], cured.stderr


PREFER = """
from xpulab.notebook import workarounds
workarounds.silence_import_warnings()
import tempfile
from types import SimpleNamespace
import paddle
from paddlenlp.trainer import TrainingArguments
from paddlenlp.trl import DPOTrainer, preference_collate_fn, preprocess_preference_data
from xpulab.notebook import models
workarounds.silence_paddlenlp_log()
tokenizer = models.new_tokenizer("tiny-qwen2")
record = {"src": ["a"], "tgt": [], "response": ["b", "c"], "sort": [1, 0]}
limits = SimpleNamespace(max_seq_len=16, max_prompt_len=8)
example = preprocess_preference_data(record, tokenizer, limits, SimpleNamespace(flash_mask=False))
example["attention_mask"], example["response_indexs"] = example["attention_mask"][None], [example["response_indexs"]]
config = SimpleNamespace(beta=0.1, loss_type="sigmoid", label_smoothing=0, pref_loss_ratio=1, sft_loss_ratio=0,
                         reference_free=False, ref_model_update_steps=-1, lora=False)
def collate(rows):
    return {name: paddle.to_tensor(value) for name, value in preference_collate_fn(rows, max_seq_len=16).items()}
arguments = TrainingArguments(output_dir=tempfile.mkdtemp(), device="cpu", max_steps=1, report_to=[], disable_tqdm=True,
                              save_strategy="no")
trainer = DPOTrainer(model=models.new_model("tiny-qwen2", 0), ref_model=models.new_model("tiny-qwen2", 0), dpo_config=config,
                     args=arguments, tokenizer=tokenizer, data_collator=collate, train_dataset=[example],
                     eval_dataset=[example])
trainer.train()
trainer.evaluate()
print("evaluated and trained")
"""


def test_loading_on_two_ranks_of_a_cpu_finds_no_device_without_the_cure_and_loads_with_it():
    cures = ("pass", "workarounds.load_checkpoints_on_cpu()")
    uncured, cured = (ran(LOAD_ON_TWO_RANKS.replace("CURE", cure)) for cure in cures)
    assert "No available device found" in uncured.stderr
    assert "[True, True]" in cured.stdout.splitlines(), cured.stderr


def test_loading_writes_a_log_without_the_cure_and_none_with_it():
    cures = ("pass", "workarounds.silence_checkpoint_log()")
    uncured, cured = (ran(LOAD_ALONE.replace("CURE", cure)) for cure in cures)
    assert "INFO" in uncured.stdout + uncured.stderr
    assert cured.stdout + cured.stderr == ""


LOAD_ON_TWO_RANKS = """
from xpulab.notebook import workarounds
workarounds.silence_import_warnings()
import tempfile, paddle, paddle.distributed as dist
from xpulab import ranks

def load(path):
    CURE
    dist.init_parallel_env()
    state = {"w": paddle.zeros([4, 6])}
    dist.load_state_dict(state, path)
    return bool((state["w"] == paddle.arange(24, dtype="float32").reshape([4, 6])).all())

def save(path):
    dist.init_parallel_env()
    rank = dist.get_rank()
    part = paddle.arange(24, dtype="float32").reshape([4, 6])[2 * rank : 2 * rank + 2]
    dist.save_state_dict({"w": dist.ShardedWeight("w", part, (2, 6), (4, 6), (2 * rank, 0))}, path)
    dist.barrier()

if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    ranks.run(save, 2, folder)
    print(list(ranks.run(load, 2, folder)))
"""

LOAD_ALONE = """
from xpulab.notebook import workarounds
workarounds.silence_import_warnings()
import tempfile, paddle, paddle.distributed as dist
CURE
folder = tempfile.mkdtemp()
dist.save_state_dict({"w": paddle.ones([2])}, folder)
dist.load_state_dict({"w": paddle.zeros([2])}, folder)
"""
