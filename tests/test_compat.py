"""Each cure in xpulab.compat: the symptom is there without it, and gone with it. One process each, for they stay cured."""

from __future__ import annotations

import os
import subprocess
import sys

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
        "from xpulab import compat; compat.no_module_named_paddle_distributed_checkpoint()\n"
        "import paddlenlp.trainer.auto_trainer"
    )
    assert cured.returncode == 0, cured.stderr


def test_imports_print_warnings_without_the_cure_and_none_with_it():
    imports = "import paddle; from paddlenlp.trl import SFTTrainer"
    assert "Warning" in ran(imports).stderr
    assert ran(f"from xpulab import compat; compat.imports_print_warnings(); {imports}").stderr == ""


def test_the_log_history_of_a_trainer_is_empty_and_the_callback_has_it():
    trained = ran(TRAIN)
    assert trained.returncode == 0, trained.stderr
    assert trained.stdout.splitlines()[-1] == "0 kept by the trainer, 3 by the callback"


TRAIN = """
from xpulab import compat
compat.imports_print_warnings()
import tempfile
from paddlenlp.data import DataCollatorForSeq2Seq
from paddlenlp.trl import SFTConfig, SFTTrainer
from xpulab.notebook import tiny
compat.log_prints_colours_and_times()
tokenizer, history = tiny.new_tokenizer("tiny-qwen2"), compat.log_history_stays_empty()
arguments = SFTConfig(output_dir=tempfile.mkdtemp(), device="cpu", max_steps=3, logging_steps=1, report_to=[],
                      disable_tqdm=True, save_strategy="no")
trainer = SFTTrainer(model=tiny.new_model("tiny-qwen2", 0), args=arguments, tokenizer=tokenizer, callbacks=[history],
                     train_dataset=tiny.Examples(tokenizer, tiny.instructions("train")),
                     data_collator=DataCollatorForSeq2Seq(tokenizer))
trainer.train()
print(f"{len(trainer.state.log_history)} kept by the trainer, {len(history.losses)} by the callback")
"""
