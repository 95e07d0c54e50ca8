"""The memory and the communication of parallel training, for every legal combination of degrees.

    model = Model(layers=32, hidden=4096, intermediate=11008, heads=32, kv_heads=32, vocabulary=32000)
    training = Training(sequence=4096, batch=64, sharding_stage=1)
    for degrees in legal(model, training, cards=64):
        memory(model, training, degrees).total, communication(model, training, degrees).total

It covers decoder models like Llama and Qwen2: RMS norms without bias, a gated MLP, grouped keys and values. All sizes are
bytes on the card that needs most; all traffic is the bytes that this card sends in one step.

Sources. States: Rajbhandari et al., ZeRO (arXiv 1910.02054), sections 3 and 5. Tensor and pipeline traffic: Narayanan et al.,
Efficient Large-Scale Language Model Training (arXiv 2104.04473), section 3. The tensors that a layer stores were counted in
PaddleNLP 3.0.0b4's transformers/llama/modeling.py, and chapter 11 compares the result with measured memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from xpulab.errors import InputError


@dataclass(frozen=True)
class Model:
    """The size of a decoder model.

    layers: the number of layers.
    hidden: the width of the residual stream.
    intermediate: the width of the gated MLP.
    heads: the number of attention heads.
    kv_heads: the number of heads of keys and values.
    vocabulary: the number of tokens in the vocabulary.
    tied: the head uses the weight of the embedding.
    qkv_bias: queries, keys and values have a bias (Qwen2).
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool = False
    qkv_bias: bool = False

    def parameters(self) -> int:
        """The number of parameters of the whole model."""
        head = 0 if self.tied else self.vocabulary * self.hidden
        return self.vocabulary * self.hidden + self.layers * self.layer_parameters(1) + self.hidden + head

    def layer_parameters(self, mp: int) -> int:
        """The number of parameters of one layer on one card with tensor parallelism of degree `mp`."""
        keys = self.hidden * self.kv_heads // self.heads
        matrices = 2 * self.hidden * self.hidden + 2 * self.hidden * keys + 3 * self.hidden * self.intermediate
        biases = self.hidden + 2 * keys if self.qkv_bias else 0
        return (matrices + biases) // mp + 2 * self.hidden

    def adapter_parameters(self, rank: int, mp: int = 1) -> int:
        """The parameters on one card of a LoRA adapter of this rank on all seven matrices of each layer, with mp cards.

        q, k, v, gate and up are cut by columns, so the adapter's first matrix is whole; the output of attention and down by
        rows, so its second one is whole.
        """
        keys = self.hidden * self.kv_heads // self.heads
        by_columns = 5 * self.hidden + (self.hidden + 2 * keys + 2 * self.intermediate) // mp
        by_rows = (self.hidden + self.intermediate) // mp + 2 * self.hidden
        return self.layers * rank * (by_columns + by_rows)


@dataclass(frozen=True)
class Precision:
    """Bytes for each number.

    weight: of a parameter.
    gradient: of the gradient of a parameter.
    state: of AdamW's state for a parameter, with the float32 copy of the weight where the weight is shorter.
    activation: of a number in an activation.
    logit: of a logit at the peak: itself, its float32 copy where it is shorter, and the softmax.
    """

    weight: int
    gradient: int
    state: int
    activation: int
    logit: int


FLOAT32 = Precision(weight=4, gradient=4, state=8, activation=4, logit=8)
BFLOAT16 = Precision(weight=2, gradient=2, state=12, activation=2, logit=10)
"""bf16 with amp level O2."""


@dataclass(frozen=True)
class StoredActivations:
    """How many tensors of each kind a layer stores in its forward pass for its backward pass.

    whole: [batch, sequence, hidden], not cut by tensor parallelism (norms and the residual stream).
    queries: [batch, sequence, hidden], cut by heads.
    keys: as wide as the keys or the values, cut by heads.
    wide: [batch, sequence, intermediate], cut.
    scores: [batch, heads, sequence, sequence], cut by heads.
    last: [batch, sequence, hidden], of the norm before the head; once for the model, not for each layer.
    copies: [batch, sequence, hidden], not cut: what tensor parallelism adds. Each column-parallel matrix copies its input
        (paddle/distributed/fleet/layers/mpu/mp_ops.py, _c_identity), and stores the copy in place of the norm's output.
    """

    whole: int
    queries: int
    keys: int
    wide: int
    scores: int
    last: int
    copies: int = 0


FUSED = StoredActivations(whole=4, queries=2, keys=2, wide=3, scores=0, last=2)
"""With flash attention, fused norms and fused rotary embedding: two norms store input and output; q, k, v; the output of
attention; gate, up and their product."""
PLAIN_NORM = StoredActivations(whole=8, queries=2, keys=2, wide=3, scores=0, last=4)
"""As FUSED, but with a bf16 norm that is not fused: it also stores a float32 copy and the normalized input."""
PLAIN = StoredActivations(whole=6, queries=6, keys=2, wide=3, scores=1, last=3, copies=3)
"""Nothing fused, in one precision, as PaddleNLP runs on the CPU: norms store input, normalized input and output; rotary
embedding stores q and k and both with exchanged halves; the products store q, k and v for all heads; and the softmax. Five
matrices (q, k, v, gate and up) have copies of their own under tensor parallelism, in place of two outputs of norms. In FUSED
and PLAIN_NORM q, k and v are one matrix, gate and up another one: two copies in place of two outputs."""


@dataclass(frozen=True)
class Training:
    """How the model is trained, independent of the degrees.

    sequence: tokens of a sample.
    batch: samples of one step over all cards.
    micro_batch: samples that one card computes at a time.
    sharding_stage: 1 shards the optimizer's state, 2 also the gradients, 3 also the weights; 0 shards nothing.
    recompute: a layer stores only its input, and its forward pass is repeated in the backward pass.
    precision: the bytes for each number.
    stored: the activations that a layer stores.
    whole_gradients: stage 2 has buffers for all gradients during the backward pass, as PaddleNLP's hand-written one does
        (paddle/distributed/fleet/meta_parallel/sharding/group_sharded_stage2.py allocates them before each).
    gathered_logits: tensor parallelism gathers the logits before the loss (PaddleNLP's tensor_parallel_output=False); a card
        has its own logits, all of them, and the softmax of all.
    lora_rank: of an adapter on all matrices of the layers, the only part that trains; 0: all parameters train.
    """

    sequence: int
    batch: int
    micro_batch: int = 1
    sharding_stage: int = 1
    recompute: bool = False
    precision: Precision = BFLOAT16
    stored: StoredActivations = FUSED
    whole_gradients: bool = False
    gathered_logits: bool = False
    lora_rank: int = 0


@dataclass(frozen=True, order=True)
class Degrees:
    """The number of parts for each kind of parallelism; their product is the number of cards.

    dp: data parallelism, cuts the samples.
    sharding: cuts the samples, and the states as Training.sharding_stage says.
    mp: tensor parallelism, cuts the matrices.
    pp: pipeline parallelism, cuts the layers.
    sep: cuts the sequence.
    """

    dp: int = 1
    sharding: int = 1
    mp: int = 1
    pp: int = 1
    sep: int = 1

    @property
    def cards(self) -> int:
        """The number of cards."""
        return self.dp * self.sharding * self.mp * self.pp * self.sep

    def __str__(self) -> str:
        named = {"dp": self.dp, "sharding": self.sharding, "mp": self.mp, "pp": self.pp, "sep": self.sep}
        return " ".join(f"{name}{degree}" for name, degree in named.items() if degree > 1) or "one card"


@dataclass(frozen=True)
class Memory:
    """Bytes on the card that needs most.

    parameters: the weights, and the adapter.
    gradients: the gradients of the weights; with data parallelism alone also the buffers in which they are sent.
    optimizer: the state of AdamW, with float32 copies of shorter weights.
    activations: what layers store for the backward pass, and the logits.
    """

    parameters: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> float:
        """The sum: with gradient accumulation, gradients and activations exist at the same time."""
        return self.parameters + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True)
class Communication:
    """Bytes that a card sends in one step.

    tensor: tensor parallelism, over mp.
    pipeline: pipeline parallelism, over pp.
    sequence: over sep.
    data: gradients and weights, over dp, sharding and sep.
    """

    tensor: float
    pipeline: float
    sequence: float
    data: float

    @property
    def total(self) -> float:
        """The sum."""
        return self.tensor + self.pipeline + self.sequence + self.data


def legal(model: Model, training: Training, cards: int) -> list[Degrees]:
    """The degrees that use exactly this many cards and violate no constraint, sorted. Raises InputError when there are none."""
    found = sorted(each for each in _factorizations(cards) if not constraint_violations(model, training, each))
    if not found:
        raise InputError(f"{cards} cards cannot be used for this training: change the batch or the number of cards")
    return found


def constraint_violations(model: Model, training: Training, degrees: Degrees, cards_a_node: int = 8) -> list[str]:
    """The constraints that these degrees violate, one sentence each; empty when the degrees are legal."""
    samples = degrees.dp * degrees.sharding * training.micro_batch
    micro_batches = _micro_batches(training, degrees)
    divisions = [
        ("heads", model.heads, "mp x sep", degrees.mp * degrees.sep),
        ("key and value heads", model.kv_heads, "mp x sep", degrees.mp * degrees.sep),
        ("intermediate size", model.intermediate, "mp", degrees.mp),
        ("vocabulary", model.vocabulary, "mp", degrees.mp),
        ("layers", model.layers, "pp", degrees.pp),
        ("sequence", training.sequence, "sep", degrees.sep),
        ("batch", training.batch, "dp x sharding x micro-batch", samples),
    ]
    violations = [f"{what} {size} is not divisible by {by} = {parts}" for what, size, by, parts in divisions if size % parts]
    if degrees.mp > cards_a_node:
        violations.append(f"mp {degrees.mp} does not fit in a node of {cards_a_node} cards")
    if degrees.pp > 1 and training.sharding_stage > 1 and degrees.sharding > 1:
        violations.append("pipeline parallel is not compatible for sharding stage2 or stage3")  # PaddleNLP's own message
    if degrees.pp > 1 and micro_batches < degrees.pp:
        violations.append(f"{micro_batches} micro-batches are too few for {degrees.pp} stages")
    return violations


def memory(model: Model, training: Training, degrees: Degrees) -> Memory:
    """The memory of a card of the pipeline stage that needs most."""
    return max((_memory_of_stage(model, training, degrees, stage) for stage in range(degrees.pp)), key=lambda each: each.total)


def communication(model: Model, training: Training, degrees: Degrees) -> Communication:
    """What a card sends in one step with ring algorithms, without the embedding and the head.

    tensor: two all-reduces of the hidden state for each layer and direction, and two more with recomputation.
    pipeline: the hidden state in the forward direction, its gradient in the backward direction.
    sequence: all-to-all of queries, keys, values and the output of attention.
    data: gradients are reduced and new weights gathered; at stage 3 the weights are gathered for each pass of each
        micro-batch.
    """
    precision, sharding = training.precision, degrees.sharding
    micro_batches = _micro_batches(training, degrees)
    layers = model.layers // degrees.pp
    hidden = training.micro_batch * training.sequence // degrees.sep * model.hidden * precision.activation
    directions = 3 if training.recompute else 2
    held = max(_parameters(model, degrees, stage) for stage in range(degrees.pp))
    trained = _trained(model, training, degrees, held)
    gradients = trained * precision.gradient
    weights = (held if training.sharding_stage == 3 else trained) * precision.weight
    replicas = degrees.dp * degrees.sep
    exchanged = (2 + 2 * model.kv_heads / model.heads) * hidden / degrees.mp
    gathers = 2 * micro_batches if training.sharding_stage == 3 else 1
    scatters = micro_batches if training.sharding_stage >= 2 else 1
    return Communication(
        tensor=micro_batches * layers * directions * 2 * _all_reduce(degrees.mp) * hidden,
        pipeline=micro_batches * min(degrees.pp - 1, 2) * hidden,
        sequence=micro_batches * layers * directions * _ring(degrees.sep) * exchanged,
        data=_ring(sharding) * (scatters * gradients + gathers * weights) + _all_reduce(replicas) * gradients / sharding,
    )


def bubble(training: Training, degrees: Degrees) -> float:
    """The fraction of a step in which a pipeline stage is idle, under 1F1B."""
    return (degrees.pp - 1) / (_micro_batches(training, degrees) + degrees.pp - 1)


def frontier(points: Iterable[tuple[float, float]]) -> list[int]:
    """The indices of the Pareto-optimal points (memory, communication), in the order of increasing memory.

    A point is left out when another one needs no more of both. Of equal points the first is taken.
    """
    ordered = sorted((point, index) for index, point in enumerate(points))
    best, optimal = float("inf"), []
    for (_, traffic), index in ordered:
        if traffic < best:
            best = traffic
            optimal.append(index)
    return optimal


def as_arguments(model: Model, training: Training, degrees: Degrees) -> dict[str, Any]:
    """The arguments of PaddleNLP's run_pretrain.py that follow from these degrees, as JSON values by name.

    There is no argument for dp: PaddleNLP divides the number of cards by the other degrees.
    """
    micro_batches = _micro_batches(training, degrees)
    sharded = {"sharding": f"stage{training.sharding_stage}", "sharding_parallel_degree": degrees.sharding}
    return {
        "per_device_train_batch_size": training.micro_batch,
        "gradient_accumulation_steps": micro_batches,
        "tensor_parallel_degree": degrees.mp,
        "pipeline_parallel_degree": degrees.pp,
        "sep_parallel_degree": degrees.sep,
        **(sharded if degrees.sharding > 1 else {}),
        "sequence_parallel": False,
        "recompute": training.recompute,
        "max_seq_length": training.sequence,
        "bf16": training.precision.weight == 2,
        **({"fp16_opt_level": "O2"} if training.precision.weight == 2 else {}),
        "amp_master_grad": False,
        "use_flash_attention": training.stored.scores == 0,
    }


# --------------------------------------------------------------------------------------------------- memory of a stage


def _memory_of_stage(model: Model, training: Training, degrees: Degrees, stage: int) -> Memory:
    precision, shards = training.precision, degrees.sharding
    count = _parameters(model, degrees, stage)
    trained = _trained(model, training, degrees, count)
    adapter = trained if training.lora_rank else 0
    shards_gradients = training.sharding_stage >= 2 and not (training.whole_gradients and training.sharding_stage == 2)
    return Memory(
        parameters=(count + adapter) * precision.weight / (shards if training.sharding_stage >= 3 else 1),
        gradients=trained * precision.gradient * _copies_of_gradients(degrees) / (shards if shards_gradients else 1),
        optimizer=trained * precision.state / (shards if training.sharding_stage >= 1 else 1),
        activations=_activations(model, training, degrees, stage),
    )


def _copies_of_gradients(degrees: Degrees) -> int:
    """How many times a card holds the gradients.

    With data parallelism alone fleet.distributed_model and PaddleNLP's Trainer take paddle.DataParallel, whose reducer sends
    gradients in buffers that it keeps. With another degree fleet joins gradients after the backward pass, when activations are
    freed.
    """
    return 2 if degrees.dp == degrees.cards > 1 else 1


def _parameters(model: Model, degrees: Degrees, stage: int) -> int:
    """The number of parameters on a card of this stage before any sharding."""
    embedding = model.vocabulary // degrees.mp * model.hidden
    first, last = stage == 0, stage == degrees.pp - 1
    head = 0 if not last or (model.tied and first) else embedding
    layers = model.layers // degrees.pp * model.layer_parameters(degrees.mp)
    return layers + (embedding if first else 0) + head + model.hidden * last


def _trained(model: Model, training: Training, degrees: Degrees, held: int) -> int:
    """The number of parameters on a card that train. held: all of the model on that card."""
    return model.adapter_parameters(training.lora_rank, degrees.mp) // degrees.pp if training.lora_rank else held


def _activations(model: Model, training: Training, degrees: Degrees, stage: int) -> float:
    """The bytes of the activations of this stage.

    1F1B stores as many micro-batches as there are stages from this one to the last, or all of them when there are fewer. With
    recomputation one layer at a time stores its activations again, after the logits are freed.
    """
    precision, last = training.precision, stage == degrees.pp - 1
    stored_micro_batches = min(_micro_batches(training, degrees), degrees.pp - stage)
    layers = stored_micro_batches * model.layers // degrees.pp
    tokens = training.micro_batch * training.sequence / degrees.sep
    stream = tokens * model.hidden * precision.activation
    layer = _activations_of_layer(model, training, degrees, tokens, stream)
    copies = 1 if degrees.mp > 1 and training.stored.copies else 0  # of the input of the head
    norm = (training.stored.last + copies) * stream if last else 0.0
    logits = tokens * model.vocabulary * _bytes_of_logit(training, degrees) if last else 0.0
    if training.recompute:
        return layers * stream + norm + max(layer, logits)
    return layers * layer + norm + (logits if last else _gradients_of_mlp(model, training, degrees, tokens, stream))


def _activations_of_layer(model: Model, training: Training, degrees: Degrees, tokens: float, stream: float) -> float:
    """The bytes that one layer stores for one micro-batch. Attention needs whole sequences, so sep cuts its heads.

    tokens: of the micro-batch on this card. stream: the bytes of one tensor of the residual stream.
    """
    stored = training.stored
    by_heads = (stored.queries + stored.keys * model.kv_heads / model.heads) * model.hidden
    scores = stored.scores * training.sequence * model.heads
    cut = tokens * (by_heads + stored.wide * model.intermediate + scores) / degrees.mp
    whole = stored.whole + (stored.copies if degrees.mp > 1 else 0)
    return whole * stream + cut * training.precision.activation


def _gradients_of_mlp(model: Model, training: Training, degrees: Degrees, tokens: float, stream: float) -> float:
    """The bytes of the gradients of gate and up, and of what goes into the MLP and comes out of it.

    They exist while the last layer of a stage still stores everything. On the last stage the logits need more.
    """
    return 2 * (tokens * model.intermediate / degrees.mp * training.precision.activation + stream)


def _bytes_of_logit(training: Training, degrees: Degrees) -> float:
    """The bytes on a card for each logit of the whole vocabulary."""
    precision = training.precision
    if training.gathered_logits and degrees.mp > 1:
        return precision.logit + precision.activation / degrees.mp
    return precision.logit / degrees.mp


def _micro_batches(training: Training, degrees: Degrees) -> int:
    """The number of micro-batches that a card computes in one step."""
    return training.batch // (degrees.dp * degrees.sharding * training.micro_batch)


def _ring(ranks: int) -> float:
    """The fraction of a message that each rank sends in an all-gather, a reduce-scatter or an all-to-all."""
    return (ranks - 1) / ranks


def _all_reduce(ranks: int) -> float:
    """The fraction of a message that each rank sends in an all-reduce: a reduce-scatter and an all-gather."""
    return 2 * _ring(ranks)


def _factorizations(cards: int) -> list[Degrees]:
    """All degrees whose product is `cards`."""
    divisors = [each for each in range(1, cards + 1) if cards % each == 0]
    return [Degrees(*parts) for parts in product(divisors, repeat=5) if prod(parts) == cards]
