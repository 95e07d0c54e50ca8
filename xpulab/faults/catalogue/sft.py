"""Faults that 01_sft must detect."""

from __future__ import annotations

from xpulab.faults.fault import fault


@fault("01_sft", detected_by=("sft.loss-falls", "sft.every-weight-moves", "sft.trajectory", "sft.recall"))
def optimizer_does_not_step() -> None:
    """The optimizer's step does nothing."""
    import paddle

    paddle.optimizer.AdamW.step = lambda self: None


@fault("01_sft", reason_contains="nan", detected_by=("sft.loss-falls", "sft.recall"))
def loss_of_nan() -> None:
    """The loss is NaN; PaddleNLP's own Trainer refuses it."""
    import paddlenlp.transformers.qwen2.modeling as qwen2

    forward = qwen2.Qwen2PretrainingCriterion.forward
    qwen2.Qwen2PretrainingCriterion.forward = lambda self, *given: forward(self, *given) * float("nan")


@fault("01_sft", detected_by=("sft.loss-falls", "sft.gradients", "sft.logits"))
def logits_of_nan() -> None:
    """The logits are NaN: on the CPU their cross entropy is ln V, as if a healthy model learned nothing."""
    import paddlenlp.transformers.qwen2.modeling as qwen2

    forward = qwen2.Qwen2LMHead.forward
    qwen2.Qwen2LMHead.forward = lambda self, *given, **named: forward(self, *given, **named) * float("nan")


@fault("01_sft", detected_by=("sft.gradients",))
def doubled_gradients() -> None:
    """Every gradient is twice as large, which AdamW hides from the loss."""
    import paddle

    backward = paddle.Tensor.backward
    paddle.Tensor.backward = lambda self, *given, **named: backward(self * 2, *given, **named)


@fault("01_sft", detected_by=("sft.labels-are-the-next-token", "sft.recall"))
def labels_not_moved() -> None:
    """The labels are not moved by one, so that the model learns to repeat what it reads."""
    from xpulab.notebook import models

    encode = models.encode

    def unmoved(tokenizer, row):
        example = encode(tokenizer, row)
        return {**example, "labels": [-100, *example["labels"][:-1]]}

    models.encode = unmoved


@fault("01_sft", detected_by=("sft.attention-mask", "sft.logits"))
def padding_is_visible() -> None:
    """The attention mask is ignored, so that padding is read."""
    import paddle
    from paddlenlp.transformers.qwen2.modeling import Qwen2Model

    mask = Qwen2Model._prepare_decoder_attention_mask

    def blind(attention_mask, *given):
        return mask(paddle.ones_like(attention_mask), *given)

    Qwen2Model._prepare_decoder_attention_mask = staticmethod(blind)


@fault("01_sft", detected_by=("sft.every-example-is-seen",))
def examples_left_out() -> None:
    """Every second example is never shown."""
    from xpulab.notebook import models

    get = models.Examples.__getitem__
    models.Examples.__getitem__ = lambda self, index: get(self, index // 2 * 2)


@fault("01_sft", detected_by=("sft.schedule",))
def learning_rate_does_not_move() -> None:
    """The learning rate stays where it started."""
    import paddle

    paddle.optimizer.lr.LambdaDecay.get_lr = lambda self: self.base_lr


@fault("01_sft", detected_by=("sft.trajectory",))
def momentum_forgotten() -> None:
    """The optimizer keeps no momentum."""
    import paddle

    start = paddle.optimizer.AdamW.__init__

    def without(self, *given, **named):
        start(self, *given, **{**named, "beta1": 0.0})

    paddle.optimizer.AdamW.__init__ = without


@fault("01_sft", detected_by=("sft.trajectory",))
def gradients_not_clipped() -> None:
    """The bound on the gradients' norm is ignored."""
    import paddle

    paddle.nn.ClipGradByGlobalNorm.__call__ = lambda self, pairs: pairs


@fault("01_sft", detected_by=("sft.repeat-losses", "sft.repeat-weights"))
def run_that_does_not_repeat() -> None:
    """Gradients differ from run to run by a little."""
    import random

    import paddle

    step = paddle.optimizer.AdamW.step
    noise = random.Random()

    def shaken(self):
        for weight in self._parameter_list:
            if weight.grad is not None:
                weight.grad.set_value(weight.grad * (1 + 1e-4 * noise.random()))
        step(self)

    paddle.optimizer.AdamW.step = shaken


@fault("01_sft", detected_by=("sft.gradients", "sft.logits"))
def products_in_half_the_bits_inside() -> None:
    """Linear layers round what they multiply to bfloat16."""
    import paddle

    linear = paddle.nn.functional.linear

    def coarse(x, weight, bias=None, name=None):
        return linear(*(each.astype("bfloat16").astype(x.dtype) for each in (x, weight)), bias)

    paddle.nn.functional.linear = coarse


@fault("01_sft", detected_by=("sft.logits", "sft.gradients"))
def another_rotation() -> None:
    """Rotary positions turn at another speed."""
    from paddlenlp.transformers.qwen2.modeling import Qwen2RotaryEmbedding

    start = Qwen2RotaryEmbedding.__init__

    def __init__(self, dim, max_position_embeddings=2048, base=10000):
        start(self, dim, max_position_embeddings, base / 10)

    Qwen2RotaryEmbedding.__init__ = __init__


@fault("01_sft", detected_by=("sft.evaluation",))
def evaluates_what_it_trained_on() -> None:
    """Evaluate() is given the training set."""
    from paddlenlp.trl import SFTTrainer

    evaluate = SFTTrainer.evaluate
    SFTTrainer.evaluate = lambda self, *given, **named: evaluate(self, self.train_dataset)


@fault("01_sft", detected_by=("sft.saved",))
def saved_in_half_the_bits() -> None:
    """save_pretrained rounds the weights."""
    from paddlenlp.transformers import PretrainedModel

    save = PretrainedModel.save_pretrained

    def rounded(self, *given, **named):
        for weight in self.parameters():
            weight.set_value(weight.astype("bfloat16").astype(weight.dtype))
        save(self, *given, **named)

    def and_back(self, *given, **named):
        before = [weight.clone() for weight in self.parameters()]
        rounded(self, *given, **named)
        for weight, value in zip(self.parameters(), before, strict=True):
            weight.set_value(value)

    PretrainedModel.save_pretrained = and_back


@fault("01_sft", device="sim", detected_by=("device-proof.sft-places",))
def trains_on_the_cpu() -> None:
    """The model is on the CPU, whatever device was asked for."""
    from xpulab.notebook import models

    new = models.new_model
    models.new_model = lambda *given: new(*given).to("cpu")


@fault("01_sft", detected_by=("sft.decay",))
def no_weight_decay() -> None:
    """Weight decay is ignored."""
    import paddle

    begin = paddle.optimizer.AdamW.__init__
    paddle.optimizer.AdamW.__init__ = lambda self, *given, **named: begin(self, *given, **{**named, "weight_decay": 0.0})


@fault("01_sft", detected_by=("sft.decay-spares-norms",))
def decay_on_norms() -> None:
    """Weight decay reaches norms and biases too."""
    import paddle

    begin = paddle.optimizer.AdamW.__init__
    everything = {"apply_decay_param_fun": lambda name: True}
    paddle.optimizer.AdamW.__init__ = lambda self, *given, **named: begin(self, *given, **{**named, **everything})


@fault("01_sft", detected_by=("sft.shuffled",))
def not_shuffled() -> None:
    """The training data are never shuffled."""
    import paddle.io
    import paddlenlp.utils.batch_sampler as paddlenlp

    def never_shuffles(sampler):
        begin = sampler.__init__
        sampler.__init__ = lambda self, *given, **named: begin(self, *given, **{**named, "shuffle": False})

    for sampler in (paddle.io.BatchSampler, paddle.io.DistributedBatchSampler, paddlenlp.DistributedBatchSampler):
        never_shuffles(sampler)


@fault("01_sft", detected_by=("device-proof.sft-bits",))
def moments_in_half_the_bits() -> None:
    """The optimizer's moments are rounded to bfloat16."""
    import paddle

    step = paddle.optimizer.AdamW.step

    def rounding(self):
        step(self)
        for kind, of_each in self._accumulators.items():
            for value in of_each.values() if "moment" in kind else ():
                value.set_value(value.astype("bfloat16").astype("float32"))

    paddle.optimizer.AdamW.step = rounding


@fault("01_sft", detected_by=("sft.shuffled",))
def same_order_in_every_epoch() -> None:
    """Every epoch has the order of the first."""
    from paddle.io import RandomSampler

    draw = RandomSampler.__iter__

    def as_before(self):
        self.drawn = getattr(self, "drawn", None) or list(draw(self))
        return iter(self.drawn)

    RandomSampler.__iter__ = as_before
