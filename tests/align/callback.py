"""PaddleNLP's own Trainer with the log as a callback: python callback.py FOLDER RUNS prints the losses of its own log.

RUNS is JSON: {"name": {"weight_decay": 0.5}, ...}, arguments of SFTConfig. It also runs under paddle.distributed.launch.
"""

import json
import sys
from pathlib import Path

from paddlenlp.data import DataCollatorForSeq2Seq
from paddlenlp.trl import SFTConfig, SFTTrainer

from xpulab.align import Log
from xpulab.chapters.shared import models, workarounds

workarounds.silence_paddlenlp_log()


def train(folder, name, steps=4, **changed):
    """Train, and print the losses of the trainer's own log."""
    tokenizer, history = models.new_tokenizer("tiny-qwen2"), workarounds.log_history()
    usual = {"per_device_train_batch_size": 4, "learning_rate": 1e-3, "seed": 0}
    arguments = SFTConfig(
        output_dir=str(folder / name),
        device="cpu",
        max_steps=steps,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        **{**usual, **changed},
    )
    trainer = SFTTrainer(
        model=models.new_model("tiny-qwen2", 0),
        args=arguments,
        tokenizer=tokenizer,
        callbacks=[history],
        train_dataset=models.Examples(tokenizer, models.instructions("train")),
        data_collator=DataCollatorForSeq2Seq(tokenizer),
    )
    trainer.add_callback(Log(folder / f"{name}.jsonl", stated="by the user").callback(trainer))
    trainer.train()
    print(name, *history.losses)


for name, changed in json.loads(sys.argv[2]).items():
    train(Path(sys.argv[1]), name, **changed)
