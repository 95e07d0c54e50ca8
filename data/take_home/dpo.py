"""Train a model with preferences: DPO with PaddleNLP's DPOTrainer, on any device and any number of cards.

    python dpo.py config.json                                                # one card
    python -m paddle.distributed.launch --devices 0,1,2,3 dpo.py config.json # several cards
    python dpo.py config.json --device cpu --max_steps 2                     # the command line replaces arguments of the file

Each line of the two data files is {"question": ..., "chosen": ..., "rejected": ...}: texts, or conversations with a system turn
and several turns in the formats of chat_data.py. The last answers are compared. The arguments have the names of PaddleNLP's own
llm/alignment/dpo/run_dpo.py, and what it has and this script does not honour is refused by name:

    train_dataset_path, dev_dataset_path    the files; they are tokenized once, into output_dir/tokens
    max_seq_len, max_prompt_len             tokens of a prompt with both answers; longer pairs are left out and counted, or cut:
                                            --longer cut, first the beginning of the prompt, to max_prompt_len
    lora, lora_rank, lora_path, ...         train an adapter; the reference model is then the model without it
    beta, loss_type, ...                    of the loss, see DPOConfig

All others are those of PaddleNLP's trainer. --resume_from_checkpoint true goes on, --early_stopping_patience stops, --log FILE
is for `xpulab align`, as in sft.py. history.json in output_dir has each log: rewards, margins and log-probabilities, tokens a
second, mfu with --peak_tflops, and the norm of the gradients. It needs paddle 3, paddlenlp 3.0.0b4, and sft.py, lora.py and
chat_data.py beside it.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import chat_data
import lora
import numpy as np
import paddle
import sft
from paddle.distributed import fleet, get_rank, get_world_size
from paddlenlp.trainer import EarlyStoppingCallback, TrainerCallback, set_seed
from paddlenlp.trainer.trainer_utils import ShardingOption
from paddlenlp.trl import DPOTrainer, SFTConfig, preference_collate_fn

OF_MODELS = {
    *("model_name_or_path", "tokenizer_name_or_path", "continue_training"),
    *("lora_rank", "lora_path", "lora_alpha", "rslora", "lora_plus_scale", "use_quick_lora"),
}
OF_DATA = {
    *("train_dataset_path", "dev_dataset_path", "max_seq_len", "max_prompt_len", "chat_template"),
    "lazy",  # rows are always read lazily
}


@dataclass
class ModelArguments:
    """Where the model is, and its adapter."""

    model_name_or_path: str = ""  # a folder with the model and its tokenizer, or a name that PaddleNLP knows
    tokenizer_name_or_path: str = None
    continue_training: bool = True
    lora_rank: int = 8  # with "lora": true
    lora_path: str = None  # an adapter to go on from
    lora_alpha: int = -1  # 2 * lora_rank, or 4 for rsLoRA
    rslora: bool = False
    lora_plus_scale: float = 1.0
    use_quick_lora: bool = False
    rslora_plus: bool = False
    flash_mask: bool = False
    weight_quantize_algo: str = None


@dataclass
class DataArguments:
    """Where the data are, and how many tokens a pair may have."""

    train_dataset_path: str = "train.jsonl"
    dev_dataset_path: str = "dev.jsonl"
    max_seq_len: int = 4096  # of a prompt and both answers
    max_prompt_len: int = 2048
    chat_template: str = None
    lazy: bool = False
    greedy_zero_padding: bool = False

    @property
    def max_length(self):
        """By the name that sft.py reads."""
        return self.max_seq_len


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
class Arguments(SFTConfig):
    """PaddleNLP's arguments of training, with those of the model's parallelism."""

    # as in run_dpo.py; with several processes PaddleNLP then calls fleet.init, which a reference model needs
    unified_checkpoint: bool = True


def keep_single_process_models():
    """In one process, let fleet.distributed_model return the model unchanged.

    DPOTrainer calls it for its reference model in any case. Paddle 3.3 requires fleet.init before that, and fails with
    "'Fleet' object has no attribute '_user_defined_strategy'".
    """
    if get_world_size() == 1:
        fleet.distributed_model = lambda model: model


def encode(pair):
    """A prompt and both answers, lists of token ids, as one packed sequence."""
    prompt, chosen, rejected = pair["prompt"], pair["chosen"], pair["rejected"]
    start, last = len(prompt) - 1, prompt[-1:]  # from the last token of the prompt the first one of an answer is predicted
    middle, end = start + len(chosen), start + len(chosen) + len(rejected)
    mask = np.tri(end, dtype=bool)
    mask[middle:, start:middle] = False  # the rejected answer does not read the chosen one
    return {
        "input_ids": prompt[:-1] + last + chosen[:-1] + last + rejected[:-1],
        "position_ids": [*range(middle), *range(start, start + len(rejected))],
        "response_0_labels": [0] * start + chosen + [0] * len(rejected),
        "response_1_labels": [0] * middle + rejected,
        "attention_mask": mask[None],  # one for all heads
        "response_indexs": [[start, middle, end, 1]],  # a sequence may hold several pairs; 1: the first answer is preferred
    }


class Pairs(paddle.io.Dataset):
    """Each pair of token ids as a packed sequence."""

    def __init__(self, pairs):
        super().__init__()
        self.pairs = pairs

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        return encode(self.pairs[index])


def collate(examples):
    """A batch: the sequences of the examples, padded to the longest of them."""
    longest = max(len(example["input_ids"]) for example in examples)
    arrays = preference_collate_fn(examples, max_seq_len=longest)
    return {name: paddle.to_tensor(value) for name, value in arrays.items()}


class Trainer(sft.Measured, DPOTrainer):
    """PaddleNLP's trainer, which also logs tokens a second, mfu and the norm of the gradients."""

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.other_operations = 0 if self.dpo_config.reference_free else 2  # the forward pass of the reference model


class History(TrainerCallback):
    """Keeps what the trainer logs; trainer.state.log_history is empty after training."""

    def __init__(self):
        self.training, self.evaluation = [], []

    def on_log(self, args, state, control, logs=None, **others):
        for key, kept in (("loss", self.training), ("eval_loss", self.evaluation)):
            if key in logs:
                kept.append(dict(logs))


def without_dropout(model):
    """The model with every dropout layer switched off, however deep it is."""
    for layer in model.sublayers():
        if isinstance(layer, paddle.nn.Dropout):
            layer.p = 0.0
    return model


def with_adapter(network, model, training):
    """The network with the adapter that the arguments ask for, or the one in lora_path; only it trains."""
    if model.lora_path:
        return lora.load_adapter(network, model.lora_path)
    return lora.add_adapter(
        network,
        r=model.lora_rank,
        lora_alpha=model.lora_alpha if model.lora_alpha > 0 else 4 if model.rslora else 2 * model.lora_rank,
        rslora=model.rslora,
        lora_plus_scale=model.lora_plus_scale,
        use_quick_lora=model.use_quick_lora,
        tensor_parallel_degree=network.config.tensor_parallel_degree,
        base_model_name_or_path=model.model_name_or_path,
        dtype=sft.weight_dtype(training),
    )


def main(words=None):
    """Train with the arguments of a JSON file and of the command line; returns the trainer and what it logged."""
    sft.keep_rank_0()
    groups = (ModelArguments, DataArguments, Arguments, DPOConfig, sft.Options)
    model, data, training, settings, options = sft.arguments(groups, OF_MODELS, OF_DATA, words)
    if ShardingOption.FULL_SHARD in training.sharding:
        raise SystemExit("sharding stage3: each card has a part of the weights, and one card makes the answers; use stage1")
    if training.pipeline_parallel_degree > 1:
        raise SystemExit("pipeline_parallel_degree: this script has no pipeline; for one use llm/alignment/dpo/run_dpo.py")
    paddle.set_device(training.device)
    set_seed(training.seed)
    keep_single_process_models()

    tokenizer = sft.new_tokenizer(model, data)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    policy, reference = without_dropout(sft.load(model, data, training)), None
    settings.reference_free = settings.reference_free or settings.loss_type in ("or", "simpo")
    if settings.lora:  # the reference model is the policy without its adapter
        policy = with_adapter(policy, model, training)
    elif not settings.reference_free:
        reference = sft.load(model, data, training)
        reference.set_state_dict(policy.state_dict())  # the same, also where continue_training is false

    history = History()
    trainer = Trainer(
        model=policy,
        ref_model=reference,
        dpo_config=settings,
        args=training,
        train_dataset=Pairs(pairs_of(data.train_dataset_path, tokenizer, data, training, options)),
        eval_dataset=Pairs(pairs_of(data.dev_dataset_path, tokenizer, data, training, options)),
        tokenizer=tokenizer,
        data_collator=collate,
        callbacks=[history],
        peak_tflops=options.peak_tflops,
    )
    if options.early_stopping_patience:
        trainer.add_callback(EarlyStoppingCallback(options.early_stopping_patience))
    if options.log:
        sft.log_of(options.log, trainer)
    trainer.train(resume_from_checkpoint=sft.checkpoint(training))
    trainer.save_model(merge_tensor_parallel=training.tensor_parallel_degree > 1)
    trainer.evaluate()
    if get_rank() == 0:
        report(trainer, tokenizer, data.dev_dataset_path, history)
    return trainer, history


def pairs_of(file, tokenizer, data, training, options):
    """The pairs of a file as token ids."""
    cache = Path(training.output_dir, "tokens")
    given = (file, tokenizer, data.max_seq_len, data.max_prompt_len, cache, options.longer)
    return sft.counted(file, data.max_seq_len, lambda: chat_data.load_pairs(*given), options)


def report(trainer, tokenizer, file, history):
    """Write the log, and print the last numbers and some answers: read them, because the numbers do not show nonsense."""
    log = {"training": history.training, "evaluation": history.evaluation}
    Path(trainer.args.output_dir, "history.json").write_text(json.dumps(log, indent=2) + "\n", encoding="utf-8")
    last = history.evaluation[-1]
    print(f"held out: accuracy {last['eval_rewards/accuracies']:.2f}, margin {last['eval_rewards/margins']:.2f}")
    if not sft.is_cut(trainer.args):
        for question, answer in chat_data.samples(trainer.model, tokenizer, file):
            print(f"{question:<32}{answer[:60]}")


if __name__ == "__main__":
    main()
