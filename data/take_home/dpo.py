"""Train a model with preferences: DPO with PaddleNLP's DPOTrainer, on any device and any number of cards.

    python dpo.py config.json                                                # one card
    python -m paddle.distributed.launch --devices 0,1,2,3 dpo.py config.json # several cards
    python dpo.py config.json --device cpu --max_steps 2                     # the command line replaces arguments of the file

Each line of the two data files is {"question": "...", "chosen": "...", "rejected": "..."}. A question is written by the chat
template of the model's tokenizer; by prompt(), where it has none. The arguments have the names of
PaddleNLP's own llm/alignment/dpo/run_dpo.py. It needs paddle 3 and paddlenlp 3.0.0b4, whose wheel contains the trainer but not
the classes of its arguments; these are below.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import paddle
from paddle.distributed import fleet, get_rank, get_world_size
from paddlenlp.peft import LoRAConfig, LoRAModel
from paddlenlp.trainer import PdArgumentParser, TrainerCallback, TrainingArguments, set_seed
from paddlenlp.trainer.trainer_utils import ShardingOption
from paddlenlp.transformers import AutoModelForCausalLM, AutoTokenizer
from paddlenlp.trl import DPOTrainer, preference_collate_fn, preprocess_preference_data
from paddlenlp.trl.llm_utils import get_lora_target_modules


@dataclass
class ModelArguments:
    """Where the model is."""

    model_name_or_path: str = ""  # a folder with the model and its tokenizer, or a name that PaddleNLP knows
    lora_rank: int = 8  # with "lora": true


@dataclass
class DataArguments:
    """Where the data are, and how many tokens a pair may have."""

    train_dataset_path: str = "train.jsonl"
    dev_dataset_path: str = "dev.jsonl"
    max_seq_len: int = 4096  # of a question and both answers
    max_prompt_len: int = 2048


@dataclass
class DPOConfig:
    """The settings of the loss, by the names that DPOTrainer reads; PaddleNLP's wheel does not contain the class."""

    beta: float = 0.1
    loss_type: str = "sigmoid"
    label_smoothing: float = 0.0
    simpo_gamma: float = 0.5
    dpop_lambda: float = 50.0
    pref_loss_ratio: float = 1.0
    sft_loss_ratio: float = 0.0
    reference_free: bool = False
    ref_model_update_steps: int = -1  # never
    lora: bool = False


@dataclass
class Arguments(TrainingArguments):
    """PaddleNLP's arguments of training."""

    # as in run_dpo.py; with several processes PaddleNLP then calls fleet.init, which a reference model needs
    unified_checkpoint: bool = True


def keep_single_process_models():
    """In one process, let fleet.distributed_model return the model unchanged.

    DPOTrainer calls it for its reference model in any case. Paddle 3.3 requires fleet.init before that, and fails with
    "'Fleet' object has no attribute '_user_defined_strategy'".
    """
    if get_world_size() == 1:
        fleet.distributed_model = lambda model: model


def read_rows(path):
    """The rows of a JSONL file: dicts with "question", "chosen" and "rejected"."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def prompt(tokenizer, question):
    """What the model reads before it answers: by the tokenizer's chat template, or by hand where it has none."""
    if tokenizer.chat_template is None:
        return f"Question: {question}\nAnswer:"
    turns = [{"role": "user", "content": question}]
    return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)


def encode(row, tokenizer, limits):
    """The question and both answers as one packed sequence."""
    answers = [row["chosen"], row["rejected"]]
    source = row["question"] if tokenizer.chat_template else prompt(tokenizer, row["question"])
    record = {"src": [source], "tgt": [], "response": answers, "sort": [1, 0]}
    example = preprocess_preference_data(record, tokenizer, limits, SimpleNamespace(flash_mask=False))
    example["attention_mask"] = example["attention_mask"][None]  # one for all heads
    example["response_indexs"] = [example["response_indexs"]]  # a sequence may hold several records
    return example


class Pairs(paddle.io.Dataset):
    """Each row as a packed sequence."""

    def __init__(self, rows, tokenizer, limits):
        super().__init__()
        self.encoded = [encode(row, tokenizer, limits) for row in rows]

    def __len__(self):
        return len(self.encoded)

    def __getitem__(self, index):
        return self.encoded[index]


def collate(examples):
    """A batch: the sequences of the examples, padded to the longest of them."""
    longest = max(len(example["input_ids"]) for example in examples)
    arrays = preference_collate_fn(examples, max_seq_len=longest)
    return {name: paddle.to_tensor(value) for name, value in arrays.items()}


class History(TrainerCallback):
    """Keeps what the trainer logs; trainer.state.log_history is empty after training."""

    def __init__(self):
        self.training, self.evaluation = [], []

    def on_log(self, args, state, control, logs=None, **others):
        for key, kept in (("loss", self.training), ("eval_loss", self.evaluation)):
            if key in logs:
                kept.append(dict(logs))


@paddle.no_grad()
def answers(model, tokenizer, questions, at_most=24):
    """The model's answer to each question: greedy search, at most `at_most` tokens."""
    model.eval()
    prompts = [prompt(tokenizer, question) for question in questions]
    by_hand = tokenizer.chat_template is None  # a template writes all special tokens itself
    batch = tokenizer(prompts, padding=True, add_special_tokens=by_hand, return_attention_mask=True, return_tensors="pd")
    tokens, _ = model.generate(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        max_new_tokens=at_most,
        decode_strategy="greedy_search",
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return [tokenizer.decode(line, skip_special_tokens=True).strip() for line in tokens.tolist()]


def load(source, dtype):
    """A model and its tokenizer, which pads on the left, as generation needs."""
    model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype)
    tokenizer = AutoTokenizer.from_pretrained(source, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return model, tokenizer


def with_adapter(model, rank, dtype):
    """The model with a LoRA adapter, the only part that is trained."""
    adapter = LoRAConfig(
        target_modules=get_lora_target_modules(model),
        r=rank,
        lora_alpha=2 * rank,
        tensor_parallel_degree=1,
        dtype=dtype,
    )
    adapted = LoRAModel(model, adapter)
    adapted.mark_only_lora_as_trainable()
    return adapted


def without_dropout(model):
    """The model with every dropout layer switched off, however deep it is."""
    for layer in model.sublayers():
        if isinstance(layer, paddle.nn.Dropout):
            layer.p = 0.0
    return model


def main(given):
    """Train with the arguments of a JSON file and of the command line; returns the trainer and what it logged."""
    # rank 0's newer store server can abort while the process ends, when another rank ends at that moment (Paddle 3.3.1)
    if "FLAGS_tcp_store_using_libuv" in paddle.base.core.globals():  # before 3.3 there is no such flag
        paddle.set_flags({"FLAGS_tcp_store_using_libuv": False})
    parser = PdArgumentParser((ModelArguments, DataArguments, DPOConfig, Arguments))
    given = [*parser.read_json(given[0]), *given[1:]]
    source, data, settings, arguments = parser.parse_args_into_dataclasses(given, look_for_args_file=False)
    if ShardingOption.FULL_SHARD in arguments.sharding:
        raise SystemExit("sharding stage3: each card has a part of the weights, and one card makes the answers; use stage1")
    paddle.set_device(arguments.device)
    set_seed(arguments.seed)
    keep_single_process_models()

    dtype = "bfloat16" if arguments.bf16 and arguments.fp16_opt_level == "O2" else "float32"
    policy, tokenizer = load(source.model_name_or_path, dtype)
    settings.reference_free = settings.reference_free or settings.loss_type in ("or", "simpo")
    policy, reference = without_dropout(policy), None
    if settings.lora:  # the reference model is the policy without its adapter
        policy = with_adapter(policy, source.lora_rank, dtype)
    elif not settings.reference_free:
        reference, _ = load(source.model_name_or_path, dtype)

    train, heldout = read_rows(data.train_dataset_path), read_rows(data.dev_dataset_path)
    history = History()
    trainer = DPOTrainer(
        model=policy,
        ref_model=reference,
        dpo_config=settings,
        args=arguments,
        train_dataset=Pairs(train, tokenizer, data),
        eval_dataset=Pairs(heldout, tokenizer, data),
        tokenizer=tokenizer,
        data_collator=collate,
        callbacks=[history],
    )
    trainer.train()
    trainer.save_model()
    trainer.evaluate()
    if get_rank() == 0:
        report(policy, tokenizer, heldout[:3], history, Path(arguments.output_dir))
    return trainer, history


def report(policy, tokenizer, rows, history, folder):
    """Write the log, and print the last numbers and some answers: read them, because the numbers do not show nonsense."""
    log = {"training": history.training, "evaluation": history.evaluation}
    (folder / "history.json").write_text(json.dumps(log, indent=2) + "\n", encoding="utf-8")
    last = history.evaluation[-1]
    print(f"held out: accuracy {last['eval_rewards/accuracies']:.2f}, margin {last['eval_rewards/margins']:.2f}")
    for row, answer in zip(rows, answers(policy, tokenizer, [row["question"] for row in rows]), strict=True):
        print(f"{row['question']:<32}{answer[:60]}")


if __name__ == "__main__":
    main(sys.argv[1:])
