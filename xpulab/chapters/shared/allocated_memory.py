"""Count what PaddleNLP's models hold: parameters, the tensors of a training step, and the memory that a card allocates."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import paddle
from paddle.distributed import fleet, get_rank, init_parallel_env
from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM, LlamaForCausalLMPipe, Qwen2Config, Qwen2ForCausalLM
from paddlenlp.transformers.model_utils import no_init_weights

from xpulab.reference.cost import Degrees, Model

MICRO_BATCHES = 2


def allocated_memory(trainings: Mapping[str, tuple[Model, Mapping[str, Any]]]) -> dict[str, tuple[int, int]]:
    """On a rank: name to (bytes between steps, peak in a step), each without what was allocated before.

    trainings: the model, and how it is trained: micro_batch, sequence and perhaps recompute, as in cost.Training.
    """
    place, found = paddle.get_device(), {}
    for name, (model, how) in trainings.items():
        gc.collect()
        before = paddle.device.memory_allocated(place)
        network = _new_network(model, how["sequence"], Degrees())
        if how.get("recompute"):
            network.recompute_enable()
        optimizer = paddle.optimizer.AdamW(1e-3, parameters=network.parameters())
        tokens = paddle.randint(0, model.vocabulary, [how["micro_batch"], how["sequence"]])
        for _ in range(2):
            paddle.device.reset_max_memory_allocated(place)
            _accumulate(network, tokens)
            peak = paddle.device.max_memory_allocated(place) - before
            optimizer.step()
            optimizer.clear_grad(set_to_zero=False)
        found[name] = paddle.device.memory_allocated(place) - before, peak
        del network, optimizer, tokens
    return found


def allocated_in_parallel(trainings: Mapping[str, tuple[Model, Mapping[str, Any]]], degrees: Degrees) -> dict[str, int]:
    """On a rank: name to the peak in a step with these degrees (dp, mp or pp), without what was allocated before.

    trainings: as for allocated_memory. With mp the logits are gathered (Training.gathered_logits): simulated cards have no loss
        of cut logits.
    """
    init_parallel_env()
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": degrees.dp, "mp_degree": degrees.mp, "pp_degree": degrees.pp}
    place, found = paddle.get_device(), {}
    for name, (model, how) in trainings.items():
        strategy.pipeline_configs = {"accumulate_steps": MICRO_BATCHES, "micro_batch_size": how["micro_batch"]}
        fleet.init(is_collective=True, strategy=strategy)
        gc.collect()
        before = paddle.device.memory_allocated(place)
        network = fleet.distributed_model(_new_network(model, how["sequence"], degrees))
        optimizer = fleet.distributed_optimizer(paddle.optimizer.AdamW(1e-3, parameters=network.parameters()))
        tokens = paddle.randint(0, model.vocabulary, [how["micro_batch"], how["sequence"]])
        for _ in range(2):
            paddle.device.reset_max_memory_allocated(place)
            if degrees.pp > 1:
                batch = tokens.tile([MICRO_BATCHES, 1])
                network.train_batch([batch, batch], optimizer)
            else:
                _accumulate(network, tokens)
                optimizer.step()
                optimizer.clear_grad()
        found[name] = paddle.device.max_memory_allocated(place) - before
        del network, optimizer, tokens
    return found


def count_in_paddlenlp(model: Model) -> int:
    """The number of parameters of PaddleNLP's model of this size: Qwen2 with biases, else Llama. It takes no memory."""
    kind, config_class = (Qwen2ForCausalLM, Qwen2Config) if model.qkv_bias else (LlamaForCausalLM, LlamaConfig)
    config = config_class(**_sizes(model), tie_word_embeddings=model.tied)
    with no_init_weights(), paddle.LazyGuard():
        return sum(prod(weight.shape) for weight in kind(config).parameters())


def bytes_of_a_step(model: Model, sequence: int) -> dict[str, int]:
    """The bytes of weights, gradients and AdamW's moments that exist after a step in float32 on one sample.

    AdamW's powers of beta, one number each for a tensor, are left out.
    """
    network = _new_network(model, sequence, Degrees())
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=network.parameters())
    tokens = paddle.randint(0, model.vocabulary, [1, sequence])
    _accumulate(network, tokens)
    optimizer.step()
    moments = [state for state in optimizer.state_dict().values() if isinstance(state, paddle.Tensor) and state.size > 1]
    gradients = [weight.grad for weight in network.parameters()]
    return {"weights": _bytes(network.parameters()), "gradients": _bytes(gradients), "moments": _bytes(moments)}


def _bytes(tensors: Iterable[Any]) -> int:
    return sum(tensor.size * tensor.element_size() for tensor in tensors)


def llama_config(model: Model, length: int, **options: Any) -> LlamaConfig:
    """The configuration of a Llama of this size, for sequences of at most this length. options: as of LlamaConfig."""
    return LlamaConfig(**_sizes(model), max_position_embeddings=length, use_cache=False, **options)


def _sizes(model: Model) -> dict[str, int]:
    return {
        "vocab_size": model.vocabulary,
        "hidden_size": model.hidden,
        "intermediate_size": model.intermediate,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
    }


def _new_network(model: Model, sequence: int, degrees: Degrees) -> Any:
    config = llama_config(
        model,
        sequence,
        tensor_parallel_degree=degrees.mp,
        tensor_parallel_rank=get_rank() if degrees.mp > 1 else 0,
        tensor_parallel_output=degrees.mp == 1,
    )
    kind = LlamaForCausalLMPipe if degrees.pp > 1 else LlamaForCausalLM
    network = kind._from_config(config, dtype="float32")
    network.train()
    return network


def _accumulate(network: Any, tokens: Any) -> None:
    """The gradients of two micro-batches."""
    for _ in range(MICRO_BATCHES):
        loss = network(tokens, labels=tokens)
        loss = loss[0] if isinstance(loss, tuple) else loss
        loss.backward()
        del loss
