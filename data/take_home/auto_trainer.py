"""Train a small Llama with PaddleNLP's AutoTrainer, on one card or on many: it learns to recite the alphabet.

    python auto_trainer.py config.json                                                                  # one process
    python -m paddle.distributed.launch --nproc_per_node 2 --backend gloo auto_trainer.py config.json   # two, on a CPU
    python -m paddle.distributed.launch --devices 0,1 auto_trainer.py config.json                       # two cards

The launch files that were written next to this script have these lines for your device. An argument behind the configuration
replaces the one in the file: `--tensor_parallel_degree 1 --sharding stage1 --sharding_parallel_degree 2
--per_device_train_batch_size 2` lets two ranks read different samples and share the state of the optimizer.

config.json has the names of PaddleNLP's AutoTrainingArguments. The first process writes the losses to
`output_dir`/losses.jsonl, and each says what it holds. To make it yours, replace LLAMA, with_weights and samples. The degree of
data parallelism is not an argument: PaddleNLP divides the number of processes by the other degrees. Each part reads
per_device_train_batch_size samples.

Three workarounds for PaddleNLP 3.0.0b4 on Paddle 3.3 are in here, each with its reason; a fourth for the CPU. Needs paddle,
paddlenlp and numpy. The authors have run it on CPUs and on simulated cards only.
"""

import importlib
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import paddle
import paddle.distributed as dist
from paddle.distributed.auto_parallel import api
from paddlenlp.trainer import AutoTrainingArguments, PdArgumentParser, TrainerCallback
from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM
from paddlenlp.transformers.llama.modeling_auto import LlamaForCausalLM3DAuto, LlamaPretrainingCriterion3DAuto

# ---------------------------------------------------------------------------------------------- yours: the data and the model

seed = 0
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
LENGTH = 8  # letters of a sample
BATCH = 4  # samples of a step, of all ranks together
STEPS = 24
starts = 7 * np.arange(STEPS * BATCH)  # every letter is the first one of some sample
tokens = (starts[:, None] + np.arange(LENGTH + 1)) % len(ALPHABET)
samples = [{"input_ids": row[:-1], "labels": row[1:]} for row in tokens]

LLAMA = {"vocab_size": 26, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
LLAMA |= {"num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": LENGTH, "use_cache": False}


def with_weights(model):
    """The model with random weights that are the same in every process; large ones, because small ones hide a wrong cut."""
    rng = np.random.default_rng(seed)
    for weight in model.parameters():
        weight.set_value(rng.normal(0, 0.5, weight.shape).astype("float32"))
    return model


def new_llama():
    """PaddleNLP's Llama with two layers."""
    return with_weights(LlamaForCausalLM(LlamaConfig(**LLAMA)))


def new_auto_llama(args):
    """The same Llama with the same weights, in the class that AutoTrainer can cut."""
    config = LlamaConfig(**LLAMA, tensor_parallel_degree=args.tensor_parallel_degree)
    config.seq_length = LENGTH
    config.sequence_parallel = False
    model = LlamaForCausalLM3DAuto(config)
    values = new_llama().state_dict()
    for name, weight in model.named_parameters():
        value = dist.shard_tensor(values[name], weight.process_mesh, weight.placements)
        if weight._is_initialized():  # it is on this rank
            weight._local_value().set_value(value._local_value())
    return model


# ------------------------------------------------------------------------------------------------------------- the workarounds


def restore_moved_names():
    """Paddle 3.2 moved a package that PaddleNLP imports; its old names become names of the new one."""
    old = "paddle.distributed.checkpoint"
    new = "paddle.distributed.flex_checkpoint.dcp"
    if importlib.util.find_spec(old) is None:
        for module in ("", ".load_state_dict", ".save_state_dict", ".metadata", ".utils"):
            sys.modules[old + module] = importlib.import_module(new + module)


def sum_before_cut():
    """On a CPU, where gloo has no reduce-scatter: a summand becomes the sum on every rank, and is cut then."""
    real = api.reshard

    def reshard(tensor, mesh, placements):
        held = tensor.placements or []
        if any(each.is_partial() for each in held) and any(each.is_shard() for each in placements):
            summed = [dist.Replicate() if each.is_partial() else each for each in held]
            tensor = real(tensor, tensor.process_mesh, summed)
        return real(tensor, mesh, placements)

    if paddle.get_device() == "cpu":
        api.reshard = dist.reshard = reshard


def ordered_trainer(optimizer):
    """AutoTrainer, with this class of optimizer, which it refuses as an argument, and with samples that are not shuffled."""
    from paddlenlp.trainer.auto_trainer import AutoTrainer

    class OrderedTrainer(AutoTrainer):
        def create_optimizer_and_scheduler(self, num_training_steps):
            self.create_scheduler(num_training_steps)
            self.optimizer = optimizer(self.lr_scheduler, parameters=self.model.parameters())

        def _get_train_sampler(self):
            on_each = self.args.per_device_train_batch_size * self.args.gradient_accumulation_steps
            return paddle.io.BatchSampler(self.train_dataset, batch_size=on_each * self.args.dataset_world_size)

    return OrderedTrainer


# ------------------------------------------------------------------------------------------------------------------ training


def moments_here(optimizer):
    # how many numbers of both moments of AdamW are on this rank
    state = getattr(optimizer, "_inner_opt", optimizer)._accumulators
    moments = [*state["moment1"].values(), *state["moment2"].values()]
    return sum((each._local_value() if each.is_dist() else each).size for each in moments)


class WriteLosses(TrainerCallback):
    """Append the loss of each logged step to losses.jsonl."""

    def on_log(self, args, state, control, logs=None, **others):
        if state.is_world_process_zero and logs and "loss" in logs:
            with open(Path(args.output_dir) / "losses.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps({"step": state.global_step, "loss": float(logs["loss"])}) + "\n")


def main():
    """Read the arguments and train."""
    # rank 0's newer store server can abort while the process ends, when another rank ends at that moment (Paddle 3.3.1)
    if "FLAGS_tcp_store_using_libuv" in paddle.base.core.globals():  # before 3.3 there is no such flag
        paddle.set_flags({"FLAGS_tcp_store_using_libuv": False})
    dist.init_parallel_env()
    restore_moved_names()
    (args,) = PdArgumentParser(AutoTrainingArguments).parse_json_file_and_cmd_lines()
    sum_before_cut()
    model = new_auto_llama(args)
    criterion = LlamaPretrainingCriterion3DAuto(model.config)
    trainer_class = ordered_trainer(paddle.optimizer.AdamW)
    trainer = trainer_class(model=model, args=args, criterion=criterion, train_dataset=samples, callbacks=[WriteLosses()])
    trainer.train()
    query = next(weight for name, weight in model.named_parameters() if name.endswith("q_proj.weight"))
    held = f"{list(query._local_value().shape)} of a query weight {list(query.shape)}"
    moments = moments_here(trainer.optimizer)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} holds {held}, {moments} numbers of the moments", flush=True)


if __name__ == "__main__":
    main()
