"""What a parallel training is: the size of the model, the precision, what is stored, the training and the degrees."""

from __future__ import annotations

from dataclasses import dataclass


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
BFLOAT16_MAIN_GRADIENTS = Precision(weight=2, gradient=4, state=12, activation=2, logit=10)
"""bf16 with float32 gradients: amp_master_grad."""


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
    sequence_parallel: activations that tensor parallelism does not cut are cut along the sequence (needs mp > 1).
    precision: the bytes for each number.
    stored: the activations that a layer stores.
    whole_gradients: stage 2 has buffers for all gradients during the backward pass, as PaddleNLP's hand-written one does
        (paddle/distributed/fleet/meta_parallel/sharding/group_sharded_stage2.py allocates them before each).
    gathered_logits: tensor parallelism gathers the logits before the loss (PaddleNLP's tensor_parallel_output=False); a card
        has its own logits, all of them, and the softmax of all.
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
    gathered_logits: bool = False


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
