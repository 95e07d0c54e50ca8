"""Fine-tune a language model on conversations with PaddleNLP's SFTTrainer.

    python sft.py config.json                                                     one card, or a CPU
    python sft.py config.json --max_steps 2 --device cpu                          arguments replace those of the file
    python -m paddle.distributed.launch --devices 0,1,2,3,4,5,6,7 sft.py config.json          eight cards, one process each
    ... sft.py config.json --tensor_parallel_degree 2 --unified_checkpoint true               each model on two cards

It needs Paddle, PaddleNLP 3.0.0b4 and chat_data.py beside it. config.json uses the argument names of PaddleNLP's
llm/run_finetune.py:

    model_name_or_path      a folder with config.json, weights and tokenizer, or a name that PaddleNLP knows
    continue_training       true: start from these weights; false: from random ones, for tests
    dataset_name_or_path    a folder with train.json and dev.json, or .jsonl, or with folders train and dev of such files;
                            chat_data.py says in which formats
    max_length              tokens; longer examples are left out and counted, or cut: --longer cut
    zero_padding            true: several examples in each row of max_length tokens, which do not see each other;
                            with greedy_zero_padding where they fit best
    output_dir              where the trained model is written, as safetensors, with its tokenizer
    resume_from_checkpoint  a checkpoint, or true: the last one in output_dir, where there is one

All other arguments are those of SFTConfig (device, learning_rate, max_steps or num_train_epochs, bf16, sharding, ...). One that
this script does not honour is refused. The first process tokenizes the files into output_dir/tokens; the others, and the next
training, read them there. With tensor or pipeline parallelism give --unified_checkpoint true: the parts of the model are saved
as one. losses.json in output_dir has the loss of each log. Each log also has tokens_per_second, mfu where --peak_tflops is
given, and grad_norm: before clipping, and with sharding or parts of a model only where max_grad_norm clips.
--log FILE logs each step, to compare this training with the same one elsewhere by `xpulab align`; for it, put a copy of
xpulab/align/log.py beside this script.
"""

import json
import sys
import time
from dataclasses import dataclass, field, fields
from pathlib import Path

import chat_data
import paddle
from paddle.distributed.fleet.meta_optimizers.dygraph_optimizer.hybrid_parallel_optimizer import HybridParallelClipGrad
from paddlenlp.peft import LoRAModel
from paddlenlp.trainer import EarlyStoppingCallback, PdArgumentParser, TrainerCallback
from paddlenlp.trainer.trainer_utils import ShardingOption, get_last_checkpoint
from paddlenlp.transformers import AutoConfig, AutoModelForCausalLM, AutoModelForCausalLMPipe, AutoTokenizer
from paddlenlp.transformers.configuration_utils import LlmMetaConfig
from paddlenlp.trl import DataConfig, ModelConfig, SFTConfig, SFTTrainer

OF_MODELS = {"model_name_or_path", "tokenizer_name_or_path", "continue_training"}
OF_DATA = {
    *("dataset_name_or_path", "max_length", "zero_padding", "greedy_zero_padding", "pad_to_multiple_of", "pad_to_max_length"),
    *("lazy", "chat_template"),  # rows are always read lazily
}
NOT_OF_TRAINING = {
    *("max_seq_length", "dataset_text_field", "dataset_num_proc", "dataset_batch_size", "model_init_kwargs", "dataset_kwargs"),
    *("eval_packing", "use_ssa", "ssa_group_size_ratio", "decay_steps", "benchmark", "autotuner_benchmark"),
}


@dataclass
class Options:
    """What run_finetune.py has no argument for; give it on the command line, so that config.json stays readable for both."""

    log: str = field(default="", metadata={"help": "a new file for `xpulab align`, which compares two trainings"})
    longer: str = field(default="leave out", metadata={"help": 'examples longer than max_length: "leave out" or "cut"'})
    early_stopping_patience: int = field(
        default=0, metadata={"help": "evaluations without a better metric_for_best_model, after which it stops; 0: it does not"}
    )
    peak_tflops: float = field(
        default=0.0, metadata={"help": "of a card in the type that you train in, from its data sheet; for mfu"}
    )


def main():
    """Train with the arguments of the command line; returns the trainer."""
    keep_rank_0()
    model_args, data_args, args, options = arguments((ModelConfig, DataConfig, SFTConfig, Options), OF_MODELS)
    paddle.set_device(args.device)
    paddle.seed(args.seed)
    tokenizer = new_tokenizer(model_args, data_args)
    return train(load(model_args, data_args, args), tokenizer, data_args, args, options)


def train(network, tokenizer, data_args, args, options):
    """Train, evaluate and save; returns the trainer."""
    files = {name: data_file(data_args, name) for name in ("train", "dev")}
    rows = {name: examples(file, tokenizer, data_args, args, options) for name, file in files.items() if file}
    history = Losses()
    trainer = Trainer(
        model=network,
        args=args,
        train_dataset=rows["train"],
        eval_dataset=rows.get("dev"),
        tokenizer=tokenizer,
        data_collator=collator(tokenizer, data_args, args),
        callbacks=[history],
        peak_tflops=options.peak_tflops,
    )
    if options.early_stopping_patience:
        trainer.add_callback(EarlyStoppingCallback(options.early_stopping_patience))
    if options.log:
        log_of(options.log, trainer)
    trainer.train(resume_from_checkpoint=checkpoint(args))
    heldout = trainer.evaluate()["eval_loss"] if "dev" in rows else None
    save(trainer, tokenizer)
    if paddle.distributed.get_rank() == 0:
        for number, loss in enumerate(history.losses, start=1):
            print(f"log {number} loss {loss:.6f}")
        if heldout is not None:
            print(f"held-out loss {heldout:.6f}")
        if not is_cut(args):
            for question, answer in chat_data.samples(network, tokenizer, files.get("dev") or files["train"]):
                print(f"{question}  {answer}")
        Path(args.output_dir, "losses.json").write_text(json.dumps(history.losses), encoding="utf-8")
        print("saved in", args.output_dir)
    return trainer


def keep_rank_0():
    """Rank 0's newer store server can abort while the process ends, when another rank ends at that moment (Paddle 3.3.1)."""
    if "FLAGS_tcp_store_using_libuv" in paddle.base.core.globals():  # before 3.3 there is no such flag
        paddle.set_flags({"FLAGS_tcp_store_using_libuv": False})


def arguments(groups, of_models, of_data=OF_DATA, words=None):
    """What a JSON file and the command line say, by groups. Ends the program at an argument that would have no effect.

    of_models, of_data: the arguments of the first two groups that the script honours. words: of the command line.
    """
    parser, words = PdArgumentParser(groups), sys.argv[1:] if words is None else words
    if words and words[0].endswith(".json"):
        words = [*parser.read_json(words[0]), *words[1:]]
    read = parser.parse_args_into_dataclasses(words, look_for_args_file=False)
    for given, honoured in ((read[0], of_models), (read[1], of_data)):
        for each in fields(given):
            if each.name not in honoured and getattr(given, each.name) != each.default:
                raise SystemExit(f"{each.name}: this script does not honour it; leave it out, or use PaddleNLP's own script")
    for each in fields(SFTConfig):
        if each.name in NOT_OF_TRAINING and getattr(read[2], each.name) != each.default:
            raise SystemExit(f"{each.name}: this script does not honour it; leave it out (the length is max_length)")
    return read


def new_tokenizer(model_args, data_args):
    """The model's tokenizer, which pads on the left, as generation needs."""
    source = model_args.tokenizer_name_or_path or model_args.model_name_or_path
    tokenizer = AutoTokenizer.from_pretrained(source, padding_side="left")
    if data_args.chat_template:
        tokenizer.init_chat_template(data_args.chat_template)
    return tokenizer


def checkpoint(args):
    """The checkpoint to go on from, or None."""
    given = args.resume_from_checkpoint
    if str(given).lower() in ("true", "auto"):
        return get_last_checkpoint(args.output_dir) if Path(args.output_dir).is_dir() else None
    return given


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
    dtype = weight_dtype(args)
    if model_args.continue_training:
        return kind.from_pretrained(model_args.model_name_or_path, config=config, dtype=dtype)
    return kind.from_config(config, dtype=dtype)


def weight_dtype(args):
    """The type of the weights: a half type with level O2 only."""
    half = args.fp16_opt_level == "O2" and (args.bf16 or args.fp16)
    return ("bfloat16" if args.bf16 else "float16") if half else "float32"


def data_file(data_args, name):
    """The file of that name in the folder, or the folder of that name, or None."""
    folder = Path(data_args.dataset_name_or_path)
    files = (folder / f"{name}.json", folder / f"{name}.jsonl")
    found = next((path for path in files if path.is_file()), folder / name if (folder / name).is_dir() else None)
    if found is None and name == "train":
        raise SystemExit(f"{folder}: has neither train.json nor train.jsonl; name a folder with one as dataset_name_or_path")
    return found


def examples(file, tokenizer, data_args, args, options):
    """The examples of a file as rows of token ids, packed where that is asked for."""
    length, cache = data_args.max_length, Path(args.output_dir, "tokens")
    rows = counted(file, length, lambda: chat_data.load(file, tokenizer, length, cache, options.longer), options)
    return chat_data.Packed(rows, length, first_fit=data_args.greedy_zero_padding) if data_args.zero_padding else rows


def counted(file, length, load, options):
    """The examples that load() makes of a file; prints how many there are, and ends the program where the file is wrong."""
    if options.longer not in ("leave out", "cut"):
        raise SystemExit(f'longer: {options.longer!r} is unknown; choose "leave out" or "cut"')
    try:
        rows = load()
    except chat_data.DataError as error:
        raise SystemExit(str(error)) from None
    counts, name = rows.counts, Path(file).name
    if paddle.distributed.get_rank() == 0:
        print(f"{name}: {counts['kept']:,} of {counts['rows']:,} examples, {counts['tokens']:,} tokens")
        if gone := counts["rows"] - counts["kept"]:
            print(f"{name}: {gone:,} examples are left out: longer than {length} tokens, or without a label")
        if counts["cut"]:
            print(f"{name}: {counts['cut']:,} examples are cut at {length} tokens")
    return rows


def collator(tokenizer, data_args, args):
    """What makes a batch of examples: padded to the longest of them, or to max_length where cards agree on a shape once."""
    fixed = args.pipeline_parallel_degree > 1 or args.sequence_parallel or data_args.pad_to_max_length
    return chat_data.Collator(tokenizer, data_args.max_length if fixed else None, data_args.pad_to_multiple_of or 1)


def is_cut(args):
    """Whether each process has only a part of the weights."""
    return max(args.tensor_parallel_degree, args.pipeline_parallel_degree) > 1 or ShardingOption.FULL_SHARD in args.sharding


def save(trainer, tokenizer):
    """Write the model, or its adapter, and the tokenizer into output_dir."""
    folder, is_adapter = trainer.args.output_dir, isinstance(trainer.model, LoRAModel)
    if is_adapter or is_cut(trainer.args):  # of a cut model every rank has a part
        trainer.save_model(merge_tensor_parallel=is_adapter and trainer.args.tensor_parallel_degree > 1)
    elif trainer.args.should_save:
        trainer.model.save_pretrained(folder, safe_serialization=True)
    if trainer.args.should_save:
        tokenizer.save_pretrained(folder)


class Measured:
    """Adds to each log of a trainer tokens_per_second of all cards, mfu and grad_norm, of the last step before clipping.

    mfu: 6 operations for each weight that trains and token, 4 for a frozen one, as a share of the peak of all cards. The
    operations of attention itself are left out.
    """

    other_operations = 0  # of a token for each weight: those of other passes

    def __init__(self, *given, peak_tflops=0.0, **named):
        super().__init__(*given, **named)
        self.peak_tflops, self.tokens, self.since = peak_tflops, 0, None
        self.norms = Norms(not self.args.sharding and not is_cut(self.args))
        self.add_callback(self.norms)

    def training_step(self, model, inputs, *given, **named):
        self.count(inputs["attention_mask"])
        return super().training_step(model, inputs, *given, **named)

    def training_pipeline_step(self, model, inputs):
        self.count(inputs["attention_mask"])
        return super().training_pipeline_step(model, inputs)

    def count(self, mask):
        """The tokens of a batch that are no padding."""
        self.since = self.since or time.monotonic()
        self.tokens += int((mask if mask.ndim == 2 else paddle.diagonal(mask, axis1=-2, axis2=-1)).astype("int64").sum())

    def log(self, logs, **named):
        if "loss" in logs and self.since:
            rate = self.tokens * self.args.dataset_world_size / (time.monotonic() - self.since)
            logs["tokens_per_second"] = round(rate, 1)
            if self.peak_tflops:
                cards = paddle.distributed.get_world_size()
                of_each = [(6 - 2 * each.stop_gradient + self.other_operations) * each.size for each in self.model.parameters()]
                operations = sum(of_each) * cards / self.args.dataset_world_size  # a card may have a part of the weights
                logs["mfu"] = round(operations * rate / (self.peak_tflops * 1e12 * cards), 4)
            if self.norms.last is not None:
                logs["grad_norm"] = self.norms.last
            self.tokens, self.since = 0, time.monotonic()
        super().log(logs, **named)


class Trainer(Measured, SFTTrainer):
    """PaddleNLP's trainer, which also logs what Measured says."""


class Norms(TrainerCallback):
    """Keeps the 2-norm of all gradients before clipping.

    has_all: whether each process has all of them; otherwise it is the norm by which Paddle clips.
    """

    def __init__(self, has_all):
        self.has_all, self.last, self.clip = has_all, None, None

    def on_optimizer_begin(self, args, state, control, **named):
        if not self.has_all:
            self.listen_to(named["optimizer"])
            return
        held = [(each.grad, getattr(each, "main_grad", None)) for each in named["model"].parameters()]
        gradients = [each if main is None else main for each, main in held]
        squares = [paddle.square(each.astype("float32")).sum() for each in gradients if each is not None]
        scale = named["scaler"]._scale.item() if named.get("scaler") else 1.0
        self.last = float(paddle.add_n(squares).sqrt()) / scale if squares else None

    def listen_to(self, optimizer):
        while hasattr(optimizer, "_inner_opt"):
            optimizer = optimizer._inner_opt
        clip = optimizer._grad_clip
        if clip is self.clip or not isinstance(clip, HybridParallelClipGrad):
            return
        self.clip, add_up = clip, clip._global_norm

        def global_norm(squares_of_parts, squares):
            add_up(squares_of_parts, squares)  # over all processes, in place
            self.last = float((squares_of_parts + squares).sqrt())

        clip._global_norm = global_norm


class Losses(TrainerCallback):
    """Keeps the loss and the learning rate of each log."""

    def __init__(self):
        self.losses, self.rates = [], []

    def on_log(self, args, state, control, logs=None, **others):
        if "loss" in (logs or {}):
            self.losses.append(float(logs["loss"]))
            self.rates.append(float(logs["learning_rate"]))


if __name__ == "__main__":
    main()
