"""Small models with the same weights in every process, and their losses and gradients when they are cut over a mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle import nn
from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM
from paddlenlp.transformers.llama.modeling_auto import LlamaForCausalLM3DAuto

from xpulab import ranks
from xpulab.chapters.auto_parallel.resharding import whole
from xpulab.chapters.shared import workarounds
from xpulab.records.refusals import Refusal, refusal
from xpulab.reference.placement import Shape, ranks_of

HEADS, WIDTH, VOCABULARY, BATCH, LENGTH = 4, 16, 64, 4, 8
"""Of the attention block and the Llama; samples of a batch, tokens of a sample."""

LLAMA = dict(
    vocab_size=VOCABULARY,
    hidden_size=WIDTH,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=HEADS,
    num_key_value_heads=HEADS,
    max_position_embeddings=32,
    use_cache=False,
)

LEAST = 4e-3
"""The smallest unit of a gradient, as a share of the largest value of all gradients.

The gradient of the bias of k is zero: a sum over BATCH x LENGTH = 32 rows that cancel, each rounded by 2**-24 of the largest.
Added in another order it differs by about sqrt(32) * 2**-24 = 3.4e-7 of that value. With this unit that is below 1e-4.
"""

Cut = tuple[str, tuple[str, ...], Shape, str]
"""Interface, names of the mesh's axes, its shape, name of the model."""

Result = tuple[float, Mapping[str, np.ndarray], float]
"""The loss, the gradients by the names of the weights, and which part of the weights a rank holds."""


class Linears(nn.Layer):
    """Two linear layers with biases."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.narrow(F.gelu(self.wide(x)))


class Attention(nn.Layer):
    """Self-attention with four heads."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Any) -> Any:
        split = [-1, LENGTH, HEADS, WIDTH // HEADS]
        q, k, v = (layer(x).reshape(split).transpose([0, 2, 1, 3]) for layer in (self.q, self.k, self.v))
        scores = F.softmax(q @ k.transpose([0, 1, 3, 2]) / 2, axis=-1)
        return self.o((scores @ v).transpose([0, 2, 1, 3]).reshape([-1, LENGTH, WIDTH]))


def new_llama() -> Any:
    """PaddleNLP's Llama with two layers of width 16."""
    return LlamaForCausalLM._from_config(LlamaConfig(**LLAMA), dtype="float32")


MODELS: dict[str, Callable[[], Any]] = {"linears": Linears, "attention": Attention, "Llama": new_llama}


def new_model(name: str, seed: int = 0) -> Any:
    """One of MODELS with the same weights in every process, of standard deviation 0.5: small ones hide a wrong cut."""
    model, rng = MODELS[name](), np.random.default_rng(seed)
    for weight in model.parameters():
        weight.set_value(rng.normal(0, 0.5, weight.shape).astype("float32"))
    return model


def new_auto_llama(args: Any, seed: int = 0) -> tuple[Any, Any]:
    """The Llama of new_model as AutoTrainer needs it, with the same weights, and its configuration."""
    config = LlamaConfig(**LLAMA, tensor_parallel_degree=args.tensor_parallel_degree, pipeline_parallel_degree=1)
    config.seq_length, config.sequence_parallel = LENGTH, False
    model, rng = LlamaForCausalLM3DAuto(config), np.random.default_rng(seed)
    for weight in model.parameters():
        value = paddle.to_tensor(rng.normal(0, 0.5, weight.shape).astype("float32"))
        weight._local_value().set_value(dist.shard_tensor(value, weight.process_mesh, weight.placements)._local_value())
    return model, config


def ordered_auto_trainer() -> type:
    """PaddleNLP's AutoTrainer, but it reads the rows in their order, so that a plain loop can be compared with it.

    It takes `optimizers` with a sharded optimizer too: the stock one refuses them, and asks for the method that is here.
    """
    workarounds.silence_paddlenlp_log()
    workarounds.restore_distributed_checkpoint()  # on Paddle 3.2 and later the next line fails without it
    workarounds.reduce_before_scattering()
    from paddlenlp.trainer.auto_trainer import AutoTrainer

    class InOrder(AutoTrainer):
        def __init__(self, *given: Any, optimizers: tuple[Any, None], **named: Any) -> None:
            self._given_optimizer = optimizers[0]
            super().__init__(*given, **named)

        def create_optimizer_and_scheduler(self, num_training_steps: int) -> None:
            self.optimizer = self._given_optimizer
            self.create_scheduler(num_training_steps)

        def _get_train_sampler(self) -> Any:
            return paddle.io.BatchSampler(self.train_dataset, batch_size=BATCH)

    return InOrder


def count_forward_passes(model: Any) -> list[int]:
    """A list whose only item counts the forward passes of the model from now on."""
    passes = [0]
    model.register_forward_pre_hook(lambda *_: passes.__setitem__(0, passes[0] + 1))
    return passes


def new_batch(name: str, seed: int = 0) -> list[Any]:
    """The input of a model, and the target."""
    rng = np.random.default_rng(seed + 1)
    if name == "Llama":
        tokens = rng.integers(0, VOCABULARY, [BATCH, LENGTH + 1])
        return [paddle.to_tensor(tokens[:, :-1]), paddle.to_tensor(tokens[:, 1:])]
    return [paddle.to_tensor(rng.normal(0, 1, [BATCH, LENGTH, WIDTH]).astype("float32")) for _ in range(2)]


def loss_of(name: str, model: Any, inputs: Any, target: Any) -> Any:
    """Cross entropy of the Llama, mean squared error of the others."""
    out = model(inputs)
    if name == "Llama":
        logits = out[0] if isinstance(out, tuple) else out
        return F.cross_entropy(logits.reshape([-1, VOCABULARY]), target.reshape([-1]))
    return ((out - target) ** 2).mean()


def uncut_gradients(seed: int = 0) -> dict[str, tuple[float, dict[str, np.ndarray]]]:
    """In one process: the loss and the gradients of each model, by its name."""
    found = {}
    for name in MODELS:
        model = new_model(name, seed)
        loss = loss_of(name, model, *new_batch(name, seed))
        loss.backward()
        found[name] = float(loss), {key: weight.grad.numpy() for key, weight in model.named_parameters()}
    return found


def plan(name: str, sequence_parallel: bool = False) -> dict[str, Any]:
    """The plan of dist.parallelize: which layers are cut by columns and which by rows, by their names."""
    if name != "Llama":
        column, row = (("wide",), ("narrow",)) if name == "linears" else (("q", "k", "v"), ("o",))
        return {key: dist.ColWiseParallel() for key in column} | {key: dist.RowWiseParallel() for key in row}
    layer = "llama.layers.*."
    found: dict[str, Any] = {f"{layer}self_attn.{key}_proj": dist.ColWiseParallel() for key in "qkv"}
    found |= {f"{layer}mlp.{key}_proj": dist.ColWiseParallel() for key in ("gate", "up")}
    found |= {f"{layer}self_attn.o_proj": dist.RowWiseParallel(), f"{layer}mlp.down_proj": dist.RowWiseParallel()}
    found["lm_head.weight"] = dist.ColWiseParallel()
    if sequence_parallel:  # between the cut matrices the hidden state is cut along the sequence
        found["llama.embed_tokens"] = [dist.ColWiseParallel(), dist.SequenceParallelBegin()]
        found[f"{layer}self_attn"] = dist.SequenceParallelDisable()
        found[f"{layer}mlp"] = dist.SequenceParallelDisable(need_transpose=False)
        return found | {"lm_head": dist.SequenceParallelEnd()}
    return found | {"llama.embed_tokens": dist.ColWiseParallel(gather_output=True)}


def cut_gradients(cuts: Sequence[Cut], place: Callable[..., None], seed: int = 0) -> dict[tuple, Result | str]:
    """On a rank: (interface, axes, model) to what Result says, or Paddle's error message.

    place: the function for dist.shard_layer, which the interface "shard_layer" uses; the others use dist.parallelize.
    """
    dist.init_parallel_env()
    found: dict[tuple, Result | str] = {}
    for interface, axes, shape, name in cuts:
        ranks.step(f"{interface}, {axes}, {name}")
        mesh = dist.ProcessMesh(ranks_of(shape), dim_names=list(axes))
        dist.auto_parallel.set_mesh(mesh)
        model = new_model(name, seed)
        size = sum(weight.size for weight in model.parameters())
        if interface == "shard_layer":
            model = dist.shard_layer(model, mesh, place)
        else:
            config: Any = {"mp_config": {"parallelize_plan": plan(name, interface == "sequence parallel")}}
            model = dist.parallelize(model, mesh=mesh, config=config)[0]
        by_samples = [dist.Shard(0) if axis == "dp" else dist.Replicate() for axis in axes]
        try:
            batch = [dist.shard_tensor(each, mesh, by_samples) for each in new_batch(name, seed)]
            loss = loss_of(name, model, *batch)
            loss.backward()
        except NotImplementedError as error:
            found[interface, axes, name] = str(error).split(" (at")[0]
            continue
        gradients = {key: whole(weight.grad) for key, weight in model.named_parameters()}
        held = sum((each._local_value() if each.is_dist() else each).size for each in model.parameters())
        found[interface, axes, name] = float(whole(loss)), gradients, held / size
    return found


def lacking(device: str, stage: int, micro_batches: int = 1, by_samples: bool = False, divided: bool = True) -> Refusal | None:
    """The entry of data/refusals.yaml for what a training at a stage of the sharded optimizer needs and the device lacks.

    Stage 3, and own rows at stages 1 and 2, need reduce_scatter; micro-batches need a second gradient of a placed tensor.
    """
    needed = [("reduce_scatter", "")] if stage == 3 or (stage and by_samples) else []
    needed += [("backward", "second gradient of a placed tensor")] if micro_batches > 1 else []
    return next((found for call, form in needed if (found := refusal(device, call, form=form))), None)


def train_linears(
    model: Any,
    optimizer: Any,
    mesh: Any = None,
    *,
    steps: int,
    seed: int = 0,
    micro_batches: int = 1,
    divided: bool = True,
    by_samples: bool = False,
) -> tuple[dict[str, np.ndarray], int]:
    """Train; returns the whole weights and moments by name, the losses of the steps as "losses", and the bytes of moments held.

    mesh: of the model, None without one. divided: whether each loss is divided by the number of micro-batches.
    by_samples: each rank reads its own rows.
    """
    rng, losses = np.random.default_rng(seed + 2), []
    for _ in range(steps):
        losses.append(0.0)
        batch = rng.normal(0, 1, [micro_batches, BATCH // micro_batches, LENGTH, WIDTH]).astype("float32")
        for rows in map(paddle.to_tensor, batch):
            if mesh is not None:
                rows = dist.shard_tensor(rows, mesh, [dist.Shard(0) if by_samples else dist.Replicate()])
            loss = loss_of("linears", model, rows, rows)
            (loss / micro_batches if divided else loss).backward()
            losses[-1] += float(whole(loss)) / micro_batches
        optimizer.step()
        optimizer.clear_grad()
    names = {weight.name: key for key, weight in model.named_parameters()}
    found, held = {key: whole(weight) for key, weight in model.named_parameters()}, 0
    for moment in ("moment1", "moment2"):
        for name, state in getattr(optimizer, "_inner_opt", optimizer)._accumulators[moment].items():
            found[f"{names[name]} {moment}"] = whole(state)
            held += (state._local_value() if state.is_dist() else state).size * 4
    return found | {"losses": np.array(losses)}, held


def data_parallel_gradients(seed: int = 0) -> dict[tuple, Result]:
    """On a rank: as cut_gradients, with paddle.DataParallel, which averages the gradients; each rank reads its own rows."""
    dist.init_parallel_env()
    rank, n = dist.get_rank(), dist.get_world_size()
    found: dict[tuple, Result] = {}
    for name in MODELS:
        model = new_model(name, seed)
        parallel = paddle.DataParallel(model)
        batch = [each[rank * BATCH // n : (rank + 1) * BATCH // n] for each in new_batch(name, seed)]
        loss = loss_of(name, parallel, *batch)
        loss.backward()
        dist.all_reduce(loss)
        gradients = {key: weight.grad.numpy() for key, weight in model.named_parameters()}
        found["DataParallel", ("dp",), name] = float(loss) / n, gradients, 1.0
    return found


def in_units_of(gradients: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], least: float = LEAST) -> np.ndarray:
    """All gradients in one array, each divided by the largest value that is expected of it.

    least: the smallest divisor, as a share of the largest value of all.
    """
    largest = {key: np.abs(value).max() for key, value in expected.items()}
    smallest = least * max(largest.values())
    return np.concatenate([(gradients[key] / max(size, smallest)).ravel() for key, size in largest.items()])
