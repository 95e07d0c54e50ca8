"""Train without interruption and resumed in the middle of an epoch; print whether data order and random numbers agree.

The arguments are the names of the workarounds that the trainer class gets.
"""

import sys

from xpulab.chapters.shared import workarounds

workarounds.silence_import_warnings()

import random
import tempfile

import numpy as np
import paddle
from paddlenlp.data import DataCollatorForSeq2Seq
from paddlenlp.trainer import TrainerCallback
from paddlenlp.trl import SFTConfig, SFTTrainer

from xpulab.chapters.shared import models

workarounds.silence_paddlenlp_log()
trainer_class = SFTTrainer
for name in sys.argv[1:]:
    trainer_class = getattr(workarounds, name)(trainer_class)


class Recorder(TrainerCallback):
    """Keeps the batch and one random number of each kind for each step."""

    def __init__(self):
        self.batch, self.drawn = {}, {}

    def on_load_data_end(self, args, state, control, inputs=None, **others):
        self.batch[state.global_step] = inputs["input_ids"].numpy().tobytes()

    def on_step_begin(self, args, state, control, **others):
        self.drawn[state.global_step] = random.random(), np.random.random(), float(paddle.rand([1]))


def train(folder, checkpoint=None):
    recorder, tokenizer = Recorder(), models.new_tokenizer("tiny-qwen2")
    arguments = SFTConfig(
        output_dir=folder,
        device="cpu",
        max_steps=6,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        per_device_train_batch_size=8,
        save_strategy="steps",
        save_steps=3,
    )
    with paddle.utils.unique_name.guard():
        trainer = trainer_class(
            model=models.new_model("tiny-qwen2", 0),
            args=arguments,
            tokenizer=tokenizer,
            callbacks=[recorder],
            train_dataset=models.Examples(tokenizer, models.instructions("train")[:20]),
            data_collator=DataCollatorForSeq2Seq(tokenizer),
        )
        trainer.train(checkpoint)
    return recorder


folder = tempfile.mkdtemp()
whole, resumed = train(folder), train(tempfile.mkdtemp(), folder + "/checkpoint-3")
same_order = all(resumed.batch[step] == whole.batch[step] for step in (3, 4, 5))
same_random_numbers = all(resumed.drawn[step] == whole.drawn[step] for step in (3, 4, 5))
print(f"same order {same_order}, same random numbers {same_random_numbers}")
