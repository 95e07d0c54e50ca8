"""Fine-tune a language model with LoRA. Needs Paddle and PaddleNLP 3.0.0b4, and sft.py and chat_data.py beside it.

    python lora.py config.json
    python lora.py config.json --max_steps 2 --device cpu
    python lora.py config.json --merge_to merged
    python -m paddle.distributed.launch --devices 0,1,2,3,4,5,6,7 lora.py config.json

config.json has the argument names of PaddleNLP's llm/run_finetune.py, as in sft.py, which also says what the data are. An
argument after it replaces the one in the file. The adapter, losses.json and the tokenizer are written into output_dir.
--merge_to FOLDER also writes the whole model with the adapter merged into its weights, which any program can load without LoRA.

With several cards each takes its own rows, so a step has more rows in its batch; with --tensor_parallel_degree N, N cards share
a model and its rows.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import paddle
import sft
from paddlenlp.peft import LoRAConfig, LoRAModel
from paddlenlp.trainer.trainer_utils import ShardingOption
from paddlenlp.trl import DataConfig, ModelConfig, SFTConfig
from paddlenlp.trl.llm_utils import get_lora_target_modules

OF_MODELS = sft.OF_MODELS | {
    *("lora", "lora_path", "lora_rank", "rslora", "lora_plus_scale", "pissa", "use_quick_lora", "lora_use_mixer", "use_mora"),
}


@dataclass
class Options(sft.Options):
    """What run_finetune.py has no arguments for; give them on the command line, so that config.json stays readable for both."""

    lora_alpha: int = field(default=None, metadata={"help": "default: 2 * lora_rank, or 4 for rsLoRA"})
    lora_dropout: float = field(default=0.0, metadata={"help": "the share of the adapter's inputs that is dropped in training"})
    merge_to: str = field(default=None, metadata={"help": "a folder for the merged model"})


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
    sft.keep_rank_0()
    model, data, training, options = sft.arguments((ModelConfig, DataConfig, SFTConfig, Options), OF_MODELS)
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
    tokenizer = sft.new_tokenizer(model, data)
    network = sft.load(model, data, training)
    adapted = new_adapter(network, model, options, sft.weight_dtype(training))
    trainer = sft.train(adapted, tokenizer, data, training, options)
    if training.should_save and options.merge_to:
        save_merged(adapted, tokenizer, options.merge_to)
    return trainer


if __name__ == "__main__":
    main()
