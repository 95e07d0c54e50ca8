"""Train and evaluate with DPOTrainer in one process; the arguments are the names of the workarounds to apply."""

import sys

from xpulab.chapters.shared import workarounds

for name in sys.argv[1:]:
    getattr(workarounds, name)()
workarounds.silence_import_warnings()

import tempfile
from types import SimpleNamespace

import paddle
from paddlenlp.trainer import TrainingArguments
from paddlenlp.trl import DPOTrainer, preference_collate_fn, preprocess_preference_data

from xpulab.chapters.shared import models

workarounds.silence_paddlenlp_log()
tokenizer = models.new_tokenizer("tiny-qwen2")
record = {"src": ["a"], "tgt": [], "response": ["b", "c"], "sort": [1, 0]}
limits = SimpleNamespace(max_seq_len=16, max_prompt_len=8)
example = preprocess_preference_data(record, tokenizer, limits, SimpleNamespace(flash_mask=False))
example["attention_mask"], example["response_indexs"] = example["attention_mask"][None], [example["response_indexs"]]
config = SimpleNamespace(
    beta=0.1,
    loss_type="sigmoid",
    label_smoothing=0,
    pref_loss_ratio=1,
    sft_loss_ratio=0,
    reference_free=False,
    ref_model_update_steps=-1,
    lora=False,
)


def collate(rows):
    return {name: paddle.to_tensor(value) for name, value in preference_collate_fn(rows, max_seq_len=16).items()}


arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(), device="cpu", max_steps=1, report_to=[], disable_tqdm=True, save_strategy="no"
)
trainer = DPOTrainer(
    model=models.new_model("tiny-qwen2", 0),
    ref_model=models.new_model("tiny-qwen2", 0),
    dpo_config=config,
    args=arguments,
    tokenizer=tokenizer,
    data_collator=collate,
    train_dataset=[example],
    eval_dataset=[example],
)
trainer.train()
trainer.evaluate()
print("trained and evaluated")
