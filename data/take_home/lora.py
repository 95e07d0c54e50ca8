"""Fine-tune a language model with LoRA. Needs Paddle and PaddleNLP 3.0, nothing else.

    python lora.py config.json
    python lora.py config.json --max_steps 2 --device cpu
    python lora.py config.json --merge_to merged
    python -m paddle.distributed.launch --devices 0,1,2,3,4,5,6,7 lora.py config.json

config.json has the argument names of PaddleNLP's llm/run_finetune.py. An argument after it replaces the one in the file. The
adapter, losses.json and the tokenizer are written into output_dir. --merge_to FOLDER also writes the whole model with the
adapter merged into its weights, which any program can load without LoRA.

Data: dataset_name_or_path is a folder with train.json, a line for each {"question": "...", "answer": "..."}; the names "src"
and "tgt" of run_finetune.py are read too. With several cards each takes its own rows, so a step has more rows in its batch;
with --tensor_parallel_degree N, N cards share a model and its rows.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import paddle
from paddlenlp.data import DataCollatorForSeq2Seq
from paddlenlp.peft import LoRAConfig, LoRAModel
from paddlenlp.trainer import PdArgumentParser, TrainerCallback
from paddlenlp.trainer.trainer_utils import ShardingOption
from paddlenlp.transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from paddlenlp.transformers.configuration_utils import LlmMetaConfig
from paddlenlp.trl import DataConfig, ModelConfig, SFTConfig, SFTTrainer
from paddlenlp.trl.llm_utils import get_lora_target_modules


@dataclass
class Options:
    """What run_finetune.py has no arguments for; give them on the command line, so that config.json stays readable for both."""

    lora_alpha: int = field(default=None, metadata={"help": "default: 2 * lora_rank, or 4 for rsLoRA"})
    lora_dropout: float = field(default=0.0, metadata={"help": "the share of the adapter's inputs that is dropped in training"})
    merge_to: str = field(default=None, metadata={"help": "a folder for the merged model"})


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
    answered = tokenizer(answer, add_special_tokens=False)["input_ids"]
    answered = [*answered, tokenizer.eos_token_id]
    labels = [-100] * (len(asked) - 1) + answered + [-100]
    return {"input_ids": asked + answered, "attention_mask": [1] * len(labels), "labels": labels}


class Examples(paddle.io.Dataset):
    """Rows with a question and an answer, encoded for training; examples longer than `at_most` tokens are cut."""

    def __init__(self, tokenizer, rows, at_most):
        super().__init__()
        encoded = [encode(tokenizer, row) for row in rows]
        self.rows = [{name: values[:at_most] for name, values in row.items()} for row in encoded]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def add_adapter(network, **options):
    """The network with an adapter at each linear layer of attention and feed-forward part; only the adapter trains."""
    targets = get_lora_target_modules(network)
    return LoRAModel(network, LoRAConfig(target_modules=targets, **options))


def load_adapter(network, folder):
    """The network with the adapter of a folder. Raises ValueError when the weights in use are not those of the file."""
    adapted = LoRAModel.from_pretrained(network, str(folder))
    file = Path(folder) / "lora_model_state.pdparams"
    stored = paddle.load(str(file)) if file.exists() else {}
    for name, weight in adapted.get_trainable_state_dict().items():
        if name not in stored or not np.array_equal(weight.numpy(), stored[name].numpy()):
            raise ValueError(f"{name} was not loaded: {file.name} is missing or has another shape")
    return adapted


class Losses(TrainerCallback):
    """Prints the loss of each step that is logged, and keeps it in `values`."""

    def __init__(self):
        self.values = []

    def on_log(self, args, state, control, logs=None, **others):
        if logs and "loss" in logs:
            self.values.append(float(logs["loss"]))
            if args.should_save:
                print(f"step {state.global_step} of {state.max_steps}: loss {self.values[-1]:.6f}", flush=True)


def read_rows(folder):
    """The questions and answers of a folder's train.json."""
    lines = (Path(folder) / "train.json").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines if line.strip()]
    return [{"question": row["src"], "answer": row["tgt"]} if "src" in row else row for row in rows]


def new_adapter(network, model, options, dtype):
    """The adapter that the arguments ask for, or the one in lora_path."""
    if model.lora_path:
        return load_adapter(network, model.lora_path)
    return add_adapter(
        network,
        r=model.lora_rank,
        lora_alpha=options.lora_alpha or (4 if model.rslora else 2 * model.lora_rank),
        lora_dropout=options.lora_dropout,
        rslora=model.rslora,
        lora_plus_scale=model.lora_plus_scale,
        pissa=model.pissa,
        use_quick_lora=model.use_quick_lora,
        lora_use_mixer=model.lora_use_mixer,
        use_mora=model.use_mora,
        tensor_parallel_degree=network.config.tensor_parallel_degree,
        base_model_name_or_path=model.model_name_or_path,
        dtype=dtype,
    )


def save_merged(adapted, tokenizer, folder):
    """Add the adapter to the weights and save the whole model, without any LoRA layer."""
    adapted.merge()
    weights = {name: weight for name, weight in adapted.model.state_dict().items() if "lora_" not in name}
    adapted.model.save_pretrained(folder, state_dict=weights, safe_serialization=True)
    tokenizer.save_pretrained(folder)


def main():
    """Train with the arguments of the command line; returns the trainer."""
    # rank 0's newer store server can abort while the process ends, when another rank ends at that moment (Paddle 3.3.1)
    if "FLAGS_tcp_store_using_libuv" in paddle.base.core.globals():  # before 3.3 there is no such flag
        paddle.set_flags({"FLAGS_tcp_store_using_libuv": False})
    parser = PdArgumentParser((ModelConfig, DataConfig, SFTConfig, Options))
    model, data, training, options = parser.parse_json_file_and_cmd_lines()
    if training.pipeline_parallel_degree > 1:
        raise SystemExit("this script has no pipeline; for one use llm/run_finetune.py")
    if options.merge_to and (training.tensor_parallel_degree > 1 or ShardingOption.FULL_SHARD in training.sharding):
        raise SystemExit("--merge_to: each card has a part of the weights; load the adapter on one card and merge it there")
    if options.merge_to and model.use_mora:
        raise SystemExit("--merge_to: PaddleNLP 3.0.0b4 merges MoRA wrongly; use the adapter unmerged")
    if model.pissa and not options.merge_to:
        raise SystemExit("pissa: PaddleNLP 3.0.0b4 cannot load a PiSSA adapter again; give --merge_to FOLDER as well")
    paddle.set_device(training.device)
    paddle.seed(training.seed)

    half = "bfloat16" if training.bf16 else "float16" if training.fp16 else "float32"
    dtype = half if training.fp16_opt_level == "O2" else "float32"
    tokenizer = AutoTokenizer.from_pretrained(model.model_name_or_path, padding_side="left")
    config = AutoConfig.from_pretrained(model.model_name_or_path)
    LlmMetaConfig.set_llm_config(config, training)  # the degrees of parallelism
    if training.device == "sim":
        config.tensor_parallel_output = False  # simulated cards compute the loss of whole logits only
    network = AutoModelForCausalLM.from_pretrained(model.model_name_or_path, config=config, dtype=dtype)
    adapted = new_adapter(network, model, options, dtype)

    losses = Losses()
    trainer = SFTTrainer(
        model=adapted,
        args=training,
        train_dataset=Examples(tokenizer, read_rows(data.dataset_name_or_path), data.max_length),
        tokenizer=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer),
        callbacks=[losses],
    )
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)
    trainer.save_model(merge_tensor_parallel=training.tensor_parallel_degree > 1)
    if training.should_save:
        Path(training.output_dir, "losses.json").write_text(json.dumps(losses.values), encoding="utf-8")
        if options.merge_to:
            save_merged(adapted, tokenizer, options.merge_to)
    return trainer


if __name__ == "__main__":
    main()
