"""Train a language model from text on one card or on many, with the degrees of a JSON configuration.

    python parallel.py config.json
    python -m paddle.distributed.launch --devices 0,1,2,3,4,5,6,7 parallel.py config.json
    python -m paddle.distributed.launch --nproc_per_node 2 --backend gloo parallel.py config.json --device cpu

The launch files that were written next to this script have these lines for your device. An argument behind the configuration
replaces the one in the file, for example `--max_steps 10 --output_dir try`.

The names of the arguments are those of PaddleNLP's llm/run_pretrain.py. `input_dir` is a folder of *.jsonl files: each line
{"text": "..."}. `model_name_or_path` is a folder or a name that PaddleNLP knows; with `continue_training` false its weights
are random. The degree of data parallelism is not an argument: PaddleNLP divides the number of cards by the other degrees.

The script refuses, with the reason, what a device without all operations cannot do: the CPU, and the simulated cards of xpulab.
The first process writes the losses to `output_dir`/losses.jsonl; the trained model is in `output_dir` too.
Needs paddle, paddlenlp and numpy.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import paddle
from paddlenlp.trainer import PdArgumentParser, Trainer, TrainerCallback, TrainingArguments
from paddlenlp.transformers import AutoConfig, AutoModelForCausalLM, AutoModelForCausalLMPipe, AutoTokenizer
from paddlenlp.transformers.configuration_utils import LlmMetaConfig, llmmetaclass


@dataclass
class ModelArguments:
    """Which model."""

    model_name_or_path: str = ""
    continue_training: bool = False


@dataclass
class DataArguments:
    """Which text, and how many tokens a sample has."""

    input_dir: str = ""
    max_seq_length: int = 1024


DEGREES = ("tensor_parallel_degree", "pipeline_parallel_degree", "sep_parallel_degree", "sharding_parallel_degree")


@dataclass
@llmmetaclass
class PreTrainingArguments(TrainingArguments):
    """PaddleNLP's own arguments, with those of its language models: sequence_parallel, use_flash_attention, and so on."""

    def __post_init__(self):
        asked = {name: getattr(self, name) for name in DEGREES}
        TrainingArguments.__post_init__(self)  # with one process it silently sets all degrees to -1
        self.degrees = {name: max(asked[name], getattr(self, name), 1) for name in DEGREES}


IMPOSSIBLE = {
    "cpu": {
        "tensor_parallel_degree": "fleet's tensor parallelism needs an all-reduce that gloo does not have",
        "pipeline_parallel_degree": "a stage of fleet's pipeline needs a card",
        "sep_parallel_degree": "gloo has no all-to-all",
    },
    "sim": {
        "sep_parallel_degree": "simulated cards have no all-reduce that averages",
    },
}
"""For devices without some operations: the degrees that must be 1, and why."""

BF16 = "bf16: Paddle's kernels for the CPU, which simulated cards use too, have no bfloat16 triu; give --bf16 false"
"""Llama's attention mask is made with triu."""


def refused(degrees, cards, device, bf16):
    """Why this training cannot run on this many cards of this device, one sentence each. degrees: by argument."""
    product = int(np.prod(list(degrees.values())))
    reasons = []
    if cards % product:
        reasons.append(f"{cards} cards are no multiple of {product}, the product of all degrees")
    for name, why in IMPOSSIBLE.get(device, {}).items():
        if degrees[name] > 1:
            reasons.append(f"{name} {degrees[name]} on {device}: {why}")
    if bf16 and device in IMPOSSIBLE:
        reasons.append(BF16)
    return reasons


class Blocks(paddle.io.Dataset):
    """All texts one after another, cut into samples of `length` tokens; the labels are the tokens that follow."""

    def __init__(self, texts, tokenizer, length):
        super().__init__()
        tokens = np.concatenate([[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in texts])
        samples = (len(tokens) - 1) // length
        self.inputs = tokens[: samples * length].reshape(samples, length)
        self.labels = tokens[1 : samples * length + 1].reshape(samples, length)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, i):
        return {"input_ids": self.inputs[i], "labels": self.labels[i]}


def texts_of(folder):
    """The field "text" of every line of every *.jsonl file of the folder."""
    files = sorted(Path(folder).glob("*.jsonl"))
    return [json.loads(line)["text"] for file in files for line in file.read_text(encoding="utf-8").splitlines()]


class WriteLosses(TrainerCallback):
    """Append the loss of each logged step to losses.jsonl."""

    def on_log(self, args, state, control, logs=None, **others):
        if state.is_world_process_zero and logs and "loss" in logs:
            with open(Path(args.output_dir) / "losses.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps({"step": state.global_step, "loss": float(logs["loss"])}) + "\n")


def stacked(rows):
    """A batch of these rows: each field as one tensor."""
    return {key: paddle.to_tensor(np.stack([row[key] for row in rows])) for key in rows[0]}


def new_model(name, args, length):
    """The model with the degrees of this training; its weights are random without continue_training."""
    config = AutoConfig.from_pretrained(name.model_name_or_path)
    LlmMetaConfig.set_llm_config(config, args)
    config.seq_length = length
    kind = AutoModelForCausalLMPipe if args.pipeline_parallel_degree > 1 else AutoModelForCausalLM
    dtype = "bfloat16" if args.bf16 and args.fp16_opt_level == "O2" else "float32"
    if name.continue_training:
        return kind.from_pretrained(name.model_name_or_path, config=config, dtype=dtype)
    return kind.from_config(config, dtype=dtype)


def main():
    """Read the arguments, refuse what cannot work, train."""
    # rank 0's newer store server can abort while the process ends, when another rank ends at that moment (Paddle 3.3.1)
    if "FLAGS_tcp_store_using_libuv" in paddle.base.core.globals():  # before 3.3 there is no such flag
        paddle.set_flags({"FLAGS_tcp_store_using_libuv": False})
    parser = PdArgumentParser((ModelArguments, DataArguments, PreTrainingArguments))
    model_arguments, data_arguments, args = parser.parse_json_file_and_cmd_lines()
    if reasons := refused(args.degrees, paddle.distributed.get_world_size(), args.device, args.bf16):
        sys.exit("This training is refused. " + ". ".join(reasons) + ".")
    paddle.set_device(args.device)
    if args.device == "sim" and args.tensor_parallel_degree > 1:
        args.tensor_parallel_output = False  # the CPU's kernel, which simulated cards use, fails with cut logits
    Path(args.output_dir).mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(model_arguments.model_name_or_path)
    length = data_arguments.max_seq_length
    trainer = Trainer(
        model=new_model(model_arguments, args, length),
        args=args,
        train_dataset=Blocks(texts_of(data_arguments.input_dir), tokenizer, length),
        data_collator=stacked,
        tokenizer=tokenizer,
        callbacks=[WriteLosses()],
    )
    trainer.train()
    if args.save_strategy.value != "no":
        trainer.save_model(merge_tensor_parallel=args.tensor_parallel_degree > 1)


if __name__ == "__main__":
    main()
