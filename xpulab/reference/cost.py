"""How many cards to use in which way: what each way of cutting a training needs in memory and in communication.

    model = Model(layers=32, hidden=4096, intermediate=11008, heads=32, kv_heads=32, vocabulary=32000)
    training = Training(sequence=4096, batch=64, sharding_stage=1)
    for degrees in legal(model, training, cards=64):
        memory(model, training, degrees).total, communication(model, training, degrees).total

It is for decoder models of Llama's and Qwen2's shape: RMS norms without bias, a gated MLP, grouped keys and values. All
sizes are bytes on the card that needs most, all traffic is bytes that this card sends in one step.

Sources: for the states Rajbhandari et al., ZeRO (arXiv 1910.02054), section 3 and 5; for tensor and pipeline traffic
Narayanan et al., Efficient Large-Scale Language Model Training (arXiv 2104.04473), section 3; for what sequence parallelism
cuts Korthikanti et al. (arXiv 2205.05198), section 4. Which tensors a layer keeps was counted in PaddleNLP 3.0.0b4's
transformers/llama/modeling.py, and is held against measured memory in notebook 06.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from xpulab.errors import InputError


@dataclass(frozen=True)
class Model:
    """A decoder model's size.

    hidden: the width of the residual stream. intermediate: of the gated MLP. heads, kv_heads: attention heads, and those of
    keys and values. tied: the head is the embedding's weight. qkv_bias: queries, keys and values have a bias (Qwen2).
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
        """How many parameters the whole model has."""
        head = 0 if self.tied else self.vocabulary * self.hidden
        return self.vocabulary * self.hidden + self.layers * self.of_a_layer(1) + self.hidden + head

    def of_a_layer(self, mp: int) -> int:
        """How many parameters of one layer are on a card when tensor parallelism cuts it in `mp`."""
        keys = self.hidden * self.kv_heads // self.heads
        matrices = 2 * self.hidden * self.hidden + 2 * self.hidden * keys + 3 * self.hidden * self.intermediate
        biases = self.hidden + 2 * keys if self.qkv_bias else 0
        return (matrices + biases) // mp + 2 * self.hidden


@dataclass(frozen=True)
class Precision:
    """Bytes a parameter. state: what AdamW keeps, with the float32 copy of the weights where they are shorter.

    activation: bytes of a number in an activation. logit: bytes that each logit needs at the peak: itself, its float32
    copy where it is shorter, and the softmax.
    """

    weight: int
    gradient: int
    state: int
    activation: int
    logit: int


FLOAT32 = Precision(weight=4, gradient=4, state=8, activation=4, logit=8)
BFLOAT16 = Precision(weight=2, gradient=2, state=12, activation=2, logit=10)
"""bf16 with amp level O2."""
BFLOAT16_MAIN_GRADIENTS = Precision(weight=2, gradient=4, state=12, activation=2, logit=10)
"""bf16 with float32 gradients: amp_master_grad."""


@dataclass(frozen=True)
class StoredActivations:
    """How many tensors of each kind a layer keeps from its forward pass for its backward pass.

    whole: [batch, sequence, hidden] that tensor parallelism does not cut (norms and the residual stream); queries: as wide,
    cut by heads; keys: as wide as keys or values, cut too; wide: [batch, sequence, intermediate]; scores: [batch, heads,
    sequence, sequence]. last: [batch, sequence, hidden] of the norm before the head.
    """

    whole: int
    queries: int
    keys: int
    wide: int
    scores: int
    last: int


FUSED = StoredActivations(whole=4, queries=2, keys=2, wide=3, scores=0, last=2)
"""With flash attention and fused norms and rotary embedding: two norms keep input and output; q, k, v; what attention
gives; gate, up and their product."""
PLAIN_NORM = StoredActivations(whole=8, queries=2, keys=2, wide=3, scores=0, last=4)
"""As FUSED, but with a norm in bf16 that is written out: it keeps a float32 copy and the normalized input, too."""
PLAIN = StoredActivations(whole=6, queries=6, keys=2, wide=3, scores=1, last=3)
"""Everything written out, in one precision, as PaddleNLP runs on the CPU: norms keep input, normalized input and output;
rotary embedding keeps q and k and both turned by a quarter; the products keep q, k and v for all heads; and the softmax."""


@dataclass(frozen=True)
class Training:
    """How the model is trained, whatever the cards do.

    sequence: tokens of a sample. batch: samples of one step over all cards. micro_batch: samples that go through a card at
    once. sharding_stage: 1 shards the optimizer's state, 2 also the gradients, 3 also the weights. recompute: a layer keeps
    only its input. sequence_parallel: what tensor parallelism leaves whole is cut along the sequence (needs mp > 1).
    whole_gradients: stage 2 holds buffers for all gradients during the backward pass, as PaddleNLP's hand-written one does
    (paddle/distributed/fleet/meta_parallel/sharding/group_sharded_stage2.py rebuilds them before each).
    """

    sequence: int
    batch: int
    micro_batch: int = 1
    sharding_stage: int = 1
    recompute: bool = False
    sequence_parallel: bool = False
    precision: Precision = BFLOAT16
    stored: StoredActivations = FUSED
    whole_gradients: bool = False


@dataclass(frozen=True, order=True)
class Degrees:
    """Into how many parts what is cut: dp and sharding the samples (sharding the states, too), mp the matrices, pp the
    layers, sep the sequence."""

    dp: int = 1
    sharding: int = 1
    mp: int = 1
    pp: int = 1
    sep: int = 1

    @property
    def cards(self) -> int:
        """How many cards it takes."""
        return self.dp * self.sharding * self.mp * self.pp * self.sep

    def __str__(self) -> str:
        named = {"dp": self.dp, "sharding": self.sharding, "mp": self.mp, "pp": self.pp, "sep": self.sep}
        return " ".join(f"{name}{degree}" for name, degree in named.items() if degree > 1) or "one card"


@dataclass(frozen=True)
class Memory:
    """Bytes on the card that needs most."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> float:
        """All of them: with gradient accumulation gradients are there while activations are."""
        return self.parameters + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True)
class Communication:
    """Bytes that a card sends in one step. data: gradients and weights, over dp, sharding and sep."""

    tensor: float
    pipeline: float
    sequence: float
    data: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.tensor + self.pipeline + self.sequence + self.data


def legal(model: Model, training: Training, cards: int, cards_a_node: int = 8) -> list[Degrees]:
    """Every way to use exactly this many cards, sorted. Raises InputError when there is none."""
    found = sorted(each for each in _factored(cards) if not constraint_violations(model, training, each, cards_a_node))
    if not found:
        raise InputError(f"{cards} cards cannot be used for this training: give another batch or another number of cards")
    return found


def constraint_violations(model: Model, training: Training, degrees: Degrees, cards_a_node: int = 8) -> list[str]:
    """All that forbids these degrees, a sentence each; empty when they are legal."""
    samples = degrees.dp * degrees.sharding * training.micro_batch
    micro_batches = _micro_batches(training, degrees)
    divisions = [
        ("heads", model.heads, "mp x sep", degrees.mp * degrees.sep),
        ("key and value heads", model.kv_heads, "mp x sep", degrees.mp * degrees.sep),
        ("intermediate size", model.intermediate, "mp", degrees.mp),
        ("vocabulary", model.vocabulary, "mp", degrees.mp),
        ("layers", model.layers, "pp", degrees.pp),
        ("sequence", training.sequence, "mp x sep" if training.sequence_parallel else "sep", _cuts(training, degrees)),
        ("batch", training.batch, "dp x sharding x micro-batch", samples),
    ]
    reasons = [f"{what} {size} cannot be cut in {by} = {parts}" for what, size, by, parts in divisions if size % parts]
    if degrees.mp > cards_a_node:
        reasons.append(f"mp {degrees.mp} leaves the node of {cards_a_node} cards")
    if degrees.pp > 1 and training.sharding_stage > 1 and degrees.sharding > 1:
        reasons.append("pipeline parallel is not compatible for sharding stage2 or stage3")  # PaddleNLP's own words
    if degrees.pp > 1 and micro_batches < degrees.pp:
        reasons.append(f"{micro_batches} micro-batches do not fill {degrees.pp} stages")
    return reasons


def memory(model: Model, training: Training, degrees: Degrees) -> Memory:
    """What each kind of data needs on the card of the stage that needs most."""
    return max((_of_stage(model, training, degrees, stage) for stage in range(degrees.pp)), key=lambda each: each.total)


def communication(model: Model, training: Training, degrees: Degrees) -> Communication:
    """What a card sends in one step, with ring algorithms; without what the embedding and the head need.

    Tensor: two all-reduces of the hidden state a layer and direction (with sequence parallelism a reduce-scatter and an
    all-gather each, which is as much), two more with recomputation. Pipeline: the hidden state forward, its gradient back.
    Sequence: all-to-all of queries, keys, values and what attention gives. Data: gradients are reduced and new weights
    gathered; at stage 3 the weights are gathered for each pass of each micro-batch.
    """
    precision, sharding = training.precision, degrees.sharding
    micro_batches = _micro_batches(training, degrees)
    layers = model.layers // degrees.pp
    hidden = training.micro_batch * training.sequence // degrees.sep * model.hidden * precision.activation
    directions = 3 if training.recompute else 2
    weights = max(_parameters(model, degrees, stage) for stage in range(degrees.pp))
    gradients, weights = weights * precision.gradient, weights * precision.weight
    copies = degrees.dp * degrees.sep
    exchanged = (2 + 2 * model.kv_heads / model.heads) * hidden / degrees.mp
    gathers = 2 * micro_batches if training.sharding_stage == 3 else 1
    scatters = micro_batches if training.sharding_stage >= 2 else 1
    return Communication(
        tensor=micro_batches * layers * directions * 2 * _all_reduce(degrees.mp) * hidden,
        pipeline=micro_batches * min(degrees.pp - 1, 2) * hidden,
        sequence=micro_batches * layers * directions * _ring(degrees.sep) * exchanged,
        data=_ring(sharding) * (scatters * gradients + gathers * weights) + _all_reduce(copies) * gradients / sharding,
    )


def bubble(training: Training, degrees: Degrees) -> float:
    """The part of a step in which a stage of the pipeline has nothing to do, under 1F1B."""
    return (degrees.pp - 1) / (_micro_batches(training, degrees) + degrees.pp - 1)


def frontier(points: Iterable[tuple[float, float]]) -> list[int]:
    """The indices of the points (memory, communication) that no other point beats or equals in both, by rising memory."""
    ordered = sorted((point, index) for index, point in enumerate(points))
    best, kept = float("inf"), []
    for (_, traffic), index in ordered:
        if traffic < best:
            best = traffic
            kept.append(index)
    return kept


def as_arguments(model: Model, training: Training, degrees: Degrees) -> dict[str, Any]:
    """The part of a configuration for PaddleNLP's run_pretrain.py that these degrees decide, as JSON holds it.

    dp is what is left of the cards: PaddleNLP takes no argument for it.
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
        "sequence_parallel": training.sequence_parallel and degrees.mp > 1,
        "recompute": training.recompute,
        "max_seq_length": training.sequence,
        "bf16": training.precision.weight == 2,
        **({"fp16_opt_level": "O2"} if training.precision.weight == 2 else {}),
        "amp_master_grad": training.precision.weight == 2 and training.precision.gradient == 4,
        "use_flash_attention": training.stored.scores == 0,
    }


# ------------------------------------------------------------------------------------------------------- a stage's bytes


def _of_stage(model: Model, training: Training, degrees: Degrees, stage: int) -> Memory:
    precision, shards = training.precision, degrees.sharding
    count = _parameters(model, degrees, stage)
    shards_gradients = training.sharding_stage >= 2 and not (training.whole_gradients and training.sharding_stage == 2)
    return Memory(
        parameters=count * precision.weight / (shards if training.sharding_stage >= 3 else 1),
        gradients=count * precision.gradient / (shards if shards_gradients else 1),
        optimizer=count * precision.state / (shards if training.sharding_stage >= 1 else 1),
        activations=_activations(model, training, degrees, stage),
    )


def _parameters(model: Model, degrees: Degrees, stage: int) -> int:
    """How many parameters a card of this stage holds before any sharding."""
    table = model.vocabulary // degrees.mp * model.hidden
    first, last = stage == 0, stage == degrees.pp - 1
    head = 0 if not last or (model.tied and first) else table
    return model.layers // degrees.pp * model.of_a_layer(degrees.mp) + (table if first else 0) + head + model.hidden * last


def _activations(model: Model, training: Training, degrees: Degrees, stage: int) -> float:
    """1F1B keeps as many micro-batches as there are stages from this one on, or all of them when they are fewer.

    With recomputation one layer at a time has its own again, after the logits are gone.
    """
    precision, kept, last = training.precision, training.stored, stage == degrees.pp - 1
    alive = min(_micro_batches(training, degrees), degrees.pp - stage)
    layers = alive * model.layers // degrees.pp
    tokens = training.micro_batch * training.sequence / degrees.sep
    stream = tokens * model.hidden / (degrees.mp if training.sequence_parallel else 1) * precision.activation
    layer = _of_a_layer(model, training, degrees, tokens, stream)
    norm = kept.last * stream if last else 0.0
    logits = tokens * model.vocabulary / degrees.mp * precision.logit if last else 0.0
    if training.recompute:
        return layers * stream + norm + max(layer, logits)
    return layers * layer + norm + logits


def _of_a_layer(model: Model, training: Training, degrees: Degrees, tokens: float, stream: float) -> float:
    """Bytes that one layer keeps of one micro-batch. Attention works on whole sequences: sep cuts its heads."""
    kept = training.stored
    by_heads = (kept.queries + kept.keys * model.kv_heads / model.heads) * model.hidden
    scores = kept.scores * training.sequence * model.heads
    cut = tokens * (by_heads + kept.wide * model.intermediate + scores) / degrees.mp
    return kept.whole * stream + cut * training.precision.activation


def _micro_batches(training: Training, degrees: Degrees) -> int:
    """How many micro-batches a card works off in one step."""
    return training.batch // (degrees.dp * degrees.sharding * training.micro_batch)


def _cuts(training: Training, degrees: Degrees) -> int:
    return degrees.sep * (degrees.mp if training.sequence_parallel else 1)


def _ring(ranks: int) -> float:
    """The part of a message that each rank sends in an all-gather, a reduce-scatter or an all-to-all."""
    return (ranks - 1) / ranks


def _all_reduce(ranks: int) -> float:
    return 2 * _ring(ranks)


def _factored(cards: int) -> Iterator[Degrees]:
    """All ordered factorings of `cards` into five degrees."""
    for dp in _divisors(cards):
        for sharding in _divisors(cards // dp):
            for mp in _divisors(cards // dp // sharding):
                for pp in _divisors(cards // dp // sharding // mp):
                    yield Degrees(dp, sharding, mp, pp, cards // dp // sharding // mp // pp)


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]
