"""Fine-tune a language model on questions and answers with PaddleNLP's SFTTrainer.

    python sft.py config.json                                                     one card, or a CPU
    python sft.py config.json --max_steps 2 --device cpu                          arguments replace those of the file
    python -m paddle.distributed.launch --devices 0,1,2,3,4,5,6,7 sft.py config.json          eight cards, one process each

It needs Paddle and PaddleNLP 3.0.0b4, nothing else. config.json uses the argument names of PaddleNLP's llm/run_finetune.py:

    model_name_or_path      a folder with config.json, weights and tokenizer, or a name that PaddleNLP knows
    continue_training       true: start from these weights; false: from random ones, for tests
    dataset_name_or_path    a folder with train.json and dev.json: a line for each {"question": "...", "answer": "..."}
    max_length              longer examples are left out, in tokens
    output_dir              where the trained model is written, as safetensors, with its tokenizer

All other arguments are those of SFTConfig (device, learning_rate, max_steps or num_train_epochs, bf16, sharding, ...).
llm/run_finetune.py reads the same config.json; its data has the names "src" and "tgt" instead of "question" and "answer".
"""

import json
import sys
from pathlib import Path

import paddle
from paddlenlp.data import DataCollatorForSeq2Seq
from paddlenlp.trainer import PdArgumentParser, TrainerCallback
from paddlenlp.transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from paddlenlp.trl import DataConfig, ModelConfig, SFTConfig, SFTTrainer


def main():
    # rank 0's newer store server can abort while the process ends, when another rank ends at that moment (Paddle 3.3.1)
    paddle.set_flags({"FLAGS_tcp_store_using_libuv": False})
    model_args, data_args, args = arguments()
    paddle.set_device(args.device)
    paddle.seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path, padding_side="left")
    network = load(model_args, args)
    train, heldout = (rows_of(data_args, name, tokenizer) for name in ("train.json", "dev.json"))
    history = Losses()
    trainer = SFTTrainer(
        model=network,
        args=args,
        train_dataset=Examples(tokenizer, train),
        eval_dataset=Examples(tokenizer, heldout),
        tokenizer=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer),
        callbacks=[history],
    )
    trainer.train()
    loss_after = trainer.evaluate()["eval_loss"]
    if paddle.distributed.get_rank() == 0:
        for number, loss in enumerate(history.losses, start=1):
            print(f"log {number} loss {loss:.6f}")
        print(f"held-out loss {loss_after:.6f}")
        for row, answer in zip(heldout[:3], answers(network, tokenizer, heldout[:3]), strict=True):
            print(f"{row['question']}  {answer}")
        network.save_pretrained(args.output_dir, safe_serialization=True)
        tokenizer.save_pretrained(args.output_dir)
        print("saved in", args.output_dir)


def arguments():
    """ModelConfig, DataConfig and SFTConfig, from a JSON file and the command line."""
    parser = PdArgumentParser((ModelConfig, DataConfig, SFTConfig))
    if len(sys.argv) > 1 and sys.argv[1].endswith(".json"):
        return parser.parse_json_file_and_cmd_lines()
    return parser.parse_args_into_dataclasses()


def load(model_args, args):
    """The model with its weights, or with random ones when continue_training is false."""
    half = args.fp16_opt_level == "O2" and (args.bf16 or args.fp16)
    dtype = ("bfloat16" if args.bf16 else "float16") if half else "float32"
    if model_args.continue_training:
        return AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path, dtype=dtype)
    return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model_args.model_name_or_path), dtype=dtype)


def rows_of(data_args, name, tokenizer):
    """The rows of a file whose examples are not longer than max_length."""
    lines = Path(data_args.dataset_name_or_path, name).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines if line.strip()]
    kept = [row for row in rows if len(encode(tokenizer, row)["input_ids"]) <= data_args.max_length]
    if len(kept) < len(rows):
        print(f"{name}: {len(rows) - len(kept)} of {len(rows)} examples are longer than {data_args.max_length} tokens")
    return kept


def prompt(tokenizer, question):
    """The text that the model reads before it answers: by the tokenizer's chat template, or by hand where it has none."""
    if tokenizer.chat_template is None:
        return f"Question: {question}\nAnswer:"
    turns = [{"role": "user", "content": question}]
    return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)


def encode(tokenizer, row):
    """One training example: input_ids, attention_mask and labels, lists of the same length."""
    by_hand = tokenizer.chat_template is None  # a template writes all special tokens, and the line before the answer
    asked = tokenizer(prompt(tokenizer, row["question"]), add_special_tokens=by_hand)["input_ids"]
    answer = " " + row["answer"] if by_hand else row["answer"]
    answered = tokenizer(answer, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    labels = [-100] * (len(asked) - 1) + answered + [-100]
    return {"input_ids": asked + answered, "attention_mask": [1] * len(labels), "labels": labels}


class Examples(paddle.io.Dataset):
    """Rows, encoded for training."""

    def __init__(self, tokenizer, rows):
        super().__init__()
        self.encoded = [encode(tokenizer, row) for row in rows]

    def __len__(self):
        return len(self.encoded)

    def __getitem__(self, index):
        return self.encoded[index]


class Losses(TrainerCallback):
    """Keeps the loss and the learning rate of each log."""

    def __init__(self):
        self.losses, self.rates = [], []

    def on_log(self, args, state, control, logs=None, **others):
        if "loss" in (logs or {}):
            self.losses.append(float(logs["loss"]))
            self.rates.append(float(logs["learning_rate"]))


@paddle.no_grad()
def answers(network, tokenizer, rows, at_most=24):
    """The answer to the question of each row: the most likely token each time, at most 24."""
    network.eval()
    asked = [prompt(tokenizer, row["question"]) for row in rows]
    by_hand = tokenizer.chat_template is None
    batch = tokenizer(asked, padding=True, add_special_tokens=by_hand, return_attention_mask=True, return_tensors="pd")
    tokens, _ = network.generate(
        **batch,
        max_new_tokens=at_most,
        decode_strategy="greedy_search",
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return [tokenizer.decode(line, skip_special_tokens=True).strip() for line in tokens.tolist()]


if __name__ == "__main__":
    main()
