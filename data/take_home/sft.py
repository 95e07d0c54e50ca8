"""Fine-tune a language model on questions and answers with PaddleNLP's SFTTrainer.

    python sft.py config.json                                                     one card, or a CPU
    python sft.py config.json --max_steps 2 --device cpu                          arguments replace those of the file
    python -m paddle.distributed.launch --devices 0,1,2,3,4,5,6,7 sft.py config.json          eight cards, one process each
    ... sft.py config.json --tensor_parallel_degree 2 --unified_checkpoint true               each model on two cards

It needs Paddle and PaddleNLP 3.0.0b4, nothing else. config.json uses the argument names of PaddleNLP's llm/run_finetune.py:

    model_name_or_path      a folder with config.json, weights and tokenizer, or a name that PaddleNLP knows
    continue_training       true: start from these weights; false: from random ones, for tests
    dataset_name_or_path    a folder with train.json and dev.json: a line for each {"question": "...", "answer": "..."}
    max_length              longer examples are left out, in tokens
    output_dir              where the trained model is written, as safetensors, with its tokenizer

All other arguments are those of SFTConfig (device, learning_rate, max_steps or num_train_epochs, bf16, sharding, ...). With
tensor or pipeline parallelism give --unified_checkpoint true: the parts of the model are saved as one. For a pipeline
and sequence parallelism all examples are padded to max_length tokens. losses.json in output_dir has the loss of each log.
--log FILE logs each step, to compare this training with the same one elsewhere by `xpulab align`; for it, put a copy of
xpulab/align/log.py beside this script.
llm/run_finetune.py reads the same config.json; its data has the names "src" and "tgt" instead of "question" and "answer".
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import paddle
from paddlenlp.data import DataCollatorForSeq2Seq
from paddlenlp.trainer import PdArgumentParser, TrainerCallback
from paddlenlp.trainer.trainer_utils import ShardingOption
from paddlenlp.transformers import AutoConfig, AutoModelForCausalLM, AutoModelForCausalLMPipe, AutoTokenizer
from paddlenlp.transformers.configuration_utils import LlmMetaConfig
from paddlenlp.trl import DataConfig, ModelConfig, SFTConfig, SFTTrainer


@dataclass
class Options:
    """What run_finetune.py has no argument for; give it on the command line, so that config.json stays readable for both."""

    log: str = field(default="", metadata={"help": "a new file for `xpulab align`, which compares two trainings"})


def main():
    """Train with the arguments of the command line; returns the trainer."""
    # rank 0's newer store server can abort while the process ends, when another rank ends at that moment (Paddle 3.3.1)
    if "FLAGS_tcp_store_using_libuv" in paddle.base.core.globals():  # before 3.3 there is no such flag
        paddle.set_flags({"FLAGS_tcp_store_using_libuv": False})
    model_args, data_args, args, options = arguments()
    paddle.set_device(args.device)
    paddle.seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path, padding_side="left")
    network = load(model_args, data_args, args)
    train, heldout = (rows_of(data_args, name, tokenizer) for name in ("train.json", "dev.json"))
    history = Losses()
    trainer = SFTTrainer(
        model=network,
        args=args,
        train_dataset=Examples(tokenizer, train),
        eval_dataset=Examples(tokenizer, heldout),
        tokenizer=tokenizer,
        data_collator=collator(tokenizer, data_args, args),
        callbacks=[history],
    )
    if options.log:
        log_of(options.log, trainer)
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    loss_after = trainer.evaluate()["eval_loss"]
    is_cut = max(args.tensor_parallel_degree, args.pipeline_parallel_degree) > 1
    is_cut = is_cut or ShardingOption.FULL_SHARD in args.sharding
    if is_cut:
        trainer.save_model()  # every rank has a part
    if paddle.distributed.get_rank() == 0:
        for number, loss in enumerate(history.losses, start=1):
            print(f"log {number} loss {loss:.6f}")
        print(f"held-out loss {loss_after:.6f}")
        if not is_cut:
            for row, answer in zip(heldout[:3], answers(network, tokenizer, heldout[:3]), strict=True):
                print(f"{row['question']}  {answer}")
            network.save_pretrained(args.output_dir, safe_serialization=True)
        tokenizer.save_pretrained(args.output_dir)
        Path(args.output_dir, "losses.json").write_text(json.dumps(history.losses), encoding="utf-8")
        print("saved in", args.output_dir)
    return trainer


def arguments():
    """ModelConfig, DataConfig, SFTConfig and Options, from a JSON file and the command line."""
    parser = PdArgumentParser((ModelConfig, DataConfig, SFTConfig, Options))
    if len(sys.argv) > 1 and sys.argv[1].endswith(".json"):
        return parser.parse_json_file_and_cmd_lines()
    return parser.parse_args_into_dataclasses()


def log_of(path, trainer):
    """Log each step into a file; a restarted job goes on there. Needs a copy of xpulab/align/log.py beside this script."""
    from log import Log

    trainer.add_callback(Log(path, seed=trainer.args.seed).callback(trainer))


def load(model_args, data_args, args):
    """The model, cut as the arguments say; with random weights when continue_training is false."""
    config = AutoConfig.from_pretrained(model_args.model_name_or_path)
    LlmMetaConfig.set_llm_config(config, args)  # the degrees of parallelism
    config.seq_length = data_args.max_length  # for sequence parallelism
    if args.device == "sim":
        config.tensor_parallel_output = False  # simulated cards compute the loss of whole logits only
    kind = AutoModelForCausalLMPipe if args.pipeline_parallel_degree > 1 else AutoModelForCausalLM
    half = args.fp16_opt_level == "O2" and (args.bf16 or args.fp16)
    dtype = ("bfloat16" if args.bf16 else "float16") if half else "float32"
    if model_args.continue_training:
        return kind.from_pretrained(model_args.model_name_or_path, config=config, dtype=dtype)
    return kind.from_config(config, dtype=dtype)


def collator(tokenizer, data_args, args):
    """What makes a batch of examples: padded to the longest of them, or to max_length where cards agree on a shape once."""
    if args.pipeline_parallel_degree > 1 or args.sequence_parallel:
        length = data_args.max_length
        return DataCollatorForSeq2Seq(tokenizer, padding="max_length", max_length=length, max_label_length=length)
    return DataCollatorForSeq2Seq(tokenizer)


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
