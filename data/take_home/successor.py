"""Train with the successor of PaddleNLP: fine-tuning, LoRA or DPO; and carry a model of PaddleNLP over to it.

    python successor.py config.json                          one card, or a CPU
    python successor.py config.json --max_steps 2            arguments replace those of the file
    python successor.py --convert OLD NEW                    a model that PaddleNLP saved, as transformers stores it

It needs Paddle 3.3.1 and paddleformers 1.2.0, with datasets < 4 and pyarrow < 23, in an environment without paddlenlp.
config.json:

    model_name_or_path      a folder with config.json, weights and tokenizer, as transformers stores them
    train_dataset_path      a file with a line for each {"question": "...", "answer": "..."}; for DPO "chosen" and "rejected"
    stage                   "sft" or "dpo"
    lora_rank               above 0 trains an adapter of this rank; 0 trains all weights
    beta, loss_type         of DPO
    output_dir              where the trained model or the adapter is written

All other arguments are those of TrainingArguments. Give resume_from_checkpoint a folder that was saved with the same
load_checkpoint_format. PACKAGE is the only place that names the package: it has been renamed once.
"""

import json
import shutil
import sys
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import numpy as np
import paddle
from paddle.distributed import fleet, get_world_size
from safetensors.numpy import load_file, save_file

PACKAGE = "paddleformers"
models, trainers, peft = (import_module(f"{PACKAGE}.{name}") for name in ("transformers", "trainer", "peft"))


@dataclass
class Options:
    """What TrainingArguments has no field for."""

    model_name_or_path: str = "model"
    train_dataset_path: str = "train.jsonl"
    stage: str = "sft"
    lora_rank: int = 0
    lora_targets: list = field(default_factory=lambda: [".*_proj"])
    beta: float = 0.1
    loss_type: str = "sigmoid"


def main():
    """Convert, or train with the arguments of the file and the command line; returns the trainer."""
    if sys.argv[1:2] == ["--convert"]:
        return convert(*sys.argv[2:])
    parser = trainers.PdArgumentParser((Options, trainers.TrainingArguments))
    options, args = parser.parse_json_file_and_cmd_lines()
    paddle.seed(args.seed)
    tokenizer = models.AutoTokenizer.from_pretrained(options.model_name_or_path)
    rows = [
        json.loads(line) for line in Path(options.train_dataset_path).read_text(encoding="utf-8").splitlines() if line.strip()
    ]
    trainer = (preference_trainer if options.stage == "dpo" else fine_tuner)(options, args, tokenizer, rows)
    history = Losses()
    trainer.add_callback(history)
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    for number, loss in enumerate(history.losses, start=1):
        print(f"log {number} loss {loss:.6f}")
    trainer.model.save_pretrained(args.output_dir)
    tokenizer.save_pretrained(args.output_dir)
    return trainer


def fine_tuner(options, args, tokenizer, rows):
    """A trainer for questions and answers."""
    network = adapted(new_model(options.model_name_or_path), options)
    data = Examples([encode(tokenizer, row) for row in rows])
    return trainers.Trainer(model=network, args=args, train_dataset=data, data_collator=collate)


def preference_trainer(options, args, tokenizer, rows):
    """A trainer for pairs of answers; with an adapter the model without it is the reference."""
    preferences = import_module(f"{PACKAGE}.cli.train.dpo.dpo_trainer")
    settings = import_module(f"{PACKAGE}.cli.train.dpo.dpo_argument").DPOConfig(
        beta=options.beta, loss_type=options.loss_type, lora=options.lora_rank > 0
    )
    if get_world_size() == 1:
        fleet.distributed_model = lambda model: model  # else DPOTrainer asks fleet, which was not initialised
    whole = new_model(options.model_name_or_path, dpo_config=settings)
    return preferences.DPOTrainer(
        model=adapted(whole, options),
        ref_model=None if settings.lora else new_model(options.model_name_or_path, dpo_config=settings),
        dpo_config=settings,
        args=args,
        train_dataset=Examples([pack(tokenizer, row) for row in rows]),
        data_collator=collate_pairs,
    )


def new_model(folder, **changes):
    """The model of a folder in single precision."""
    config = models.AutoConfig.from_pretrained(folder)
    config.fuse_rms_norm = False  # True by default, and a CPU has no kernel for it
    for name, value in changes.items():
        setattr(config, name, value)
    return models.AutoModelForCausalLM.from_pretrained(folder, config=config, dtype="float32")


def adapted(network, options):
    """The model with an adapter, where one is asked for; targets that match nothing are an error here."""
    if options.lora_rank == 0:
        return network
    config = peft.LoRAConfig(r=options.lora_rank, lora_alpha=2 * options.lora_rank, target_modules=options.lora_targets)
    network = peft.LoRAModel(network, config)
    network.mark_only_lora_as_trainable()
    if all(weight.stop_gradient for weight in network.parameters()):
        sys.exit(f"lora_targets {options.lora_targets}: match no layer of the model")
    return network


def encode(tokenizer, row):
    """One training example: the label of a position is the next token; those of the question do not count."""
    asked = tokenizer(f"Question: {row['question']}\nAnswer:")["input_ids"]
    answered = tokenizer(" " + row["answer"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    labels = [-100] * (len(asked) - 1) + answered
    return {"input_ids": asked + answered[:-1], "attention_mask": [1] * len(labels), "labels": labels}


def collate(examples):
    """A batch of examples, padded to the longest of them."""
    longest = max(len(example["input_ids"]) for example in examples)
    fills = {"input_ids": 0, "attention_mask": 0, "labels": -100}
    return {
        name: paddle.to_tensor([example[name] + [fill] * (longest - len(example[name])) for example in examples])
        for name, fill in fills.items()
    }


def pack(tokenizer, row):
    """The question and both answers as one sequence; both continue the last token of the question."""
    asked = tokenizer(f"Question: {row['question']}\nAnswer:")["input_ids"]
    end, before = [tokenizer.eos_token_id], len(asked) - 1
    good, bad = (tokenizer(row[key], add_special_tokens=False)["input_ids"] + end for key in ("chosen", "rejected"))
    bounds = [before, before + len(good), before + len(good) + len(bad)]
    mask = np.tril(np.ones((bounds[2], bounds[2]), bool))
    mask[bounds[1] :, before : bounds[1]] = False  # the rejected answer must not see the chosen one
    return {
        "input_ids": asked + good[:-1] + asked[-1:] + bad[:-1],
        "response_labels": [-100] * before + good + bad,
        "position_ids": [*range(bounds[1]), *range(before, before + len(bad))],
        "mask": mask,
        "bounds": bounds,
    }


def collate_pairs(examples):
    """A batch of packed pairs; response_indexs has for each its row and where its answers begin and end."""
    longest = max(len(example["input_ids"]) for example in examples)
    fills = {"input_ids": 0, "response_labels": -100, "position_ids": 0}
    batch = {
        name: paddle.to_tensor([example[name] + [fill] * (longest - len(example[name])) for example in examples])
        for name, fill in fills.items()
    }
    mask = np.tile(np.eye(longest, dtype=bool), (len(examples), 1, 1, 1))
    for row, example in enumerate(examples):
        mask[row, 0, : len(example["mask"]), : len(example["mask"])] = example["mask"]
    indices = [[row, *example["bounds"]] for row, example in enumerate(examples)]
    return {**batch, "attention_mask": paddle.to_tensor(mask), "response_indexs": paddle.to_tensor(indices)}


class Examples(paddle.io.Dataset):
    """A list of examples as a data set."""

    def __init__(self, examples):
        super().__init__()
        self.examples = examples

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, index):
        return self.examples[index]


class Losses(trainers.TrainerCallback):
    """Keeps the loss of each log; trainer.state.log_history stays empty."""

    def __init__(self):
        self.losses = []

    def on_log(self, args, state, control, logs=None, **others):
        if "loss" in (logs or {}) and logs["loss"] is not None:
            self.losses.append(float(logs["loss"]))


def to_hugging_face(stored):
    """The weights of a Llama that PaddleNLP saved, by the names of transformers and with linear weights as [out, in]."""
    linear = ("_proj.weight", "lm_head.weight")
    renamed = {f"model.{name[6:]}" if name.startswith("llama.") else name: value for name, value in stored.items()}
    return {name: np.ascontiguousarray(value.T) if name.endswith(linear) else value for name, value in renamed.items()}


def convert(old, new):
    """Write the folder `new` from a folder with the weights of a Llama that PaddleNLP saved as safetensors."""
    stored = {name: value for path in sorted(Path(old).glob("*.safetensors")) for name, value in load_file(path).items()}
    if not any(name.startswith("llama.") for name in stored):
        raise SystemExit(f"{old}: holds no safetensors with the weights of a Llama that PaddleNLP saved")
    shutil.copytree(old, new, ignore=shutil.ignore_patterns("*.safetensors", "*.pdparams", "*.index.json"))
    save_file(to_hugging_face(stored), Path(new, "model.safetensors"), metadata={"format": "pt"})
    print("written", new)


if __name__ == "__main__":
    main()
