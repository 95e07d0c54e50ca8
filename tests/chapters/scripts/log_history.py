"""Train for three steps; print how many losses the trainer's own history has, and how many that of the workaround."""

from xpulab.chapters.shared import workarounds

workarounds.silence_import_warnings()

import tempfile

from paddlenlp.data import DataCollatorForSeq2Seq
from paddlenlp.trl import SFTConfig, SFTTrainer

from xpulab.chapters.shared import models

workarounds.silence_paddlenlp_log()
tokenizer, history = models.new_tokenizer("tiny-qwen2"), workarounds.log_history()
arguments = SFTConfig(
    output_dir=tempfile.mkdtemp(),
    device="cpu",
    max_steps=3,
    logging_steps=1,
    report_to=[],
    disable_tqdm=True,
    save_strategy="no",
)
trainer = SFTTrainer(
    model=models.new_model("tiny-qwen2", 0),
    args=arguments,
    tokenizer=tokenizer,
    callbacks=[history],
    train_dataset=models.Examples(tokenizer, models.instructions("train")),
    data_collator=DataCollatorForSeq2Seq(tokenizer),
)
trainer.train()
print(f"{len(trainer.state.log_history)} in the trainer, {len(history.losses)} in the callback")
