"""Faults that 01_sft must see."""

from __future__ import annotations

from xpulab.faults.fault import Fault

FAULTS = (
    Fault(
        name="optimizer-does-not-step",
        what="the optimizer's step does nothing",
        notebook="01_sft",
        breaks="import paddle; paddle.optimizer.AdamW.step = lambda self: None",
        seen_by=("sft.loss-falls", "sft.every-weight-moves", "sft.trajectory", "sft.recall"),
    ),
    Fault(
        name="loss-of-nan",
        what="the loss is NaN; PaddleNLP's own Trainer refuses it",
        notebook="01_sft",
        breaks="""
import paddlenlp.transformers.qwen2.modeling as qwen2
forward = qwen2.Qwen2PretrainingCriterion.forward
qwen2.Qwen2PretrainingCriterion.forward = lambda self, *given: forward(self, *given) * float("nan")
""",
        seen_by=("sft.loss-falls", "sft.recall"),
        says="nan",
    ),
    Fault(
        name="logits-of-nan",
        what="the logits are NaN: on the CPU their cross entropy is ln V, as if a healthy model learned nothing",
        notebook="01_sft",
        breaks="""
import paddlenlp.transformers.qwen2.modeling as qwen2
forward = qwen2.Qwen2LMHead.forward
qwen2.Qwen2LMHead.forward = lambda self, *given, **named: forward(self, *given, **named) * float("nan")
""",
        seen_by=("sft.loss-falls", "sft.gradients", "sft.logits"),
    ),
    Fault(
        name="doubled-gradients",
        what="every gradient is twice as large, which AdamW hides from the loss",
        notebook="01_sft",
        breaks="""
import paddle
backward = paddle.Tensor.backward
paddle.Tensor.backward = lambda self, *given, **named: backward(self * 2, *given, **named)
""",
        seen_by=("sft.gradients",),
    ),
    Fault(
        name="labels-not-moved",
        what="the labels are not moved by one, so that the model learns to repeat what it reads",
        notebook="01_sft",
        breaks="""
from xpulab.notebook import models
encode = models.encode
def unmoved(tokenizer, row):
    example = encode(tokenizer, row)
    return {**example, "labels": [-100, *example["labels"][:-1]]}
models.encode = unmoved
""",
        seen_by=("sft.labels-are-the-next-token", "sft.recall"),
    ),
    Fault(
        name="padding-is-visible",
        what="the attention mask is ignored, so that padding is read",
        notebook="01_sft",
        breaks="""
import paddle
from paddlenlp.transformers.qwen2.modeling import Qwen2Model
mask = Qwen2Model._prepare_decoder_attention_mask
def blind(attention_mask, *given):
    return mask(paddle.ones_like(attention_mask), *given)
Qwen2Model._prepare_decoder_attention_mask = staticmethod(blind)
""",
        seen_by=("sft.attention-mask", "sft.logits"),
    ),
    Fault(
        name="examples-left-out",
        what="every second example is never shown",
        notebook="01_sft",
        breaks="""
from xpulab.notebook import models
get = models.Examples.__getitem__
models.Examples.__getitem__ = lambda self, index: get(self, index // 2 * 2)
""",
        seen_by=("sft.every-example-is-seen",),
    ),
    Fault(
        name="learning-rate-does-not-move",
        what="the learning rate stays where it started",
        notebook="01_sft",
        breaks="""
import paddle
rate = paddle.optimizer.lr.LambdaDecay.get_lr
paddle.optimizer.lr.LambdaDecay.get_lr = lambda self: self.base_lr
""",
        seen_by=("sft.schedule",),
    ),
    Fault(
        name="momentum-forgotten",
        what="the optimizer keeps no momentum",
        notebook="01_sft",
        breaks="""
import paddle
start = paddle.optimizer.AdamW.__init__
def without(self, *given, **named):
    start(self, *given, **{**named, "beta1": 0.0})
paddle.optimizer.AdamW.__init__ = without
""",
        seen_by=("sft.trajectory",),
    ),
    Fault(
        name="gradients-not-clipped",
        what="the bound on the gradients' norm is ignored",
        notebook="01_sft",
        breaks="""
import paddle
paddle.nn.ClipGradByGlobalNorm.__call__ = lambda self, pairs: pairs
""",
        seen_by=("sft.trajectory",),
    ),
    Fault(
        name="run-that-does-not-repeat",
        what="gradients differ from run to run by a little",
        notebook="01_sft",
        breaks="""
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
""",
        seen_by=("sft.repeat-losses", "sft.repeat-weights"),
    ),
    Fault(
        name="products-in-half-the-bits-inside",
        what="linear layers round what they multiply to bfloat16",
        notebook="01_sft",
        breaks="""
import paddle
linear = paddle.nn.functional.linear
def coarse(x, weight, bias=None, name=None):
    return linear(*(each.astype("bfloat16").astype(x.dtype) for each in (x, weight)), bias)
paddle.nn.functional.linear = coarse
""",
        seen_by=("sft.gradients", "sft.logits"),
    ),
    Fault(
        name="another-rotation",
        what="rotary positions turn at another speed",
        notebook="01_sft",
        breaks="""
from paddlenlp.transformers.qwen2.modeling import Qwen2RotaryEmbedding
start = Qwen2RotaryEmbedding.__init__
def __init__(self, dim, max_position_embeddings=2048, base=10000):
    start(self, dim, max_position_embeddings, base / 10)
Qwen2RotaryEmbedding.__init__ = __init__
""",
        seen_by=("sft.logits", "sft.gradients"),
    ),
    Fault(
        name="evaluates-what-it-trained-on",
        what="evaluate() is given the training set",
        notebook="01_sft",
        breaks="""
from paddlenlp.trl import SFTTrainer
evaluate = SFTTrainer.evaluate
SFTTrainer.evaluate = lambda self, *given, **named: evaluate(self, self.train_dataset)
""",
        seen_by=("sft.evaluation",),
    ),
    Fault(
        name="saved-in-half-the-bits",
        what="save_pretrained rounds the weights",
        notebook="01_sft",
        breaks="""
from paddlenlp.transformers import PretrainedModel
save = PretrainedModel.save_pretrained
def rounded(self, *given, **named):
    for weight in self.parameters():
        weight.set_value(weight.astype("bfloat16").astype(weight.dtype))
    save(self, *given, **named)
kept = []
def and_back(self, *given, **named):
    before = [weight.clone() for weight in self.parameters()]
    rounded(self, *given, **named)
    for weight, value in zip(self.parameters(), before):
        weight.set_value(value)
PretrainedModel.save_pretrained = and_back
""",
        seen_by=("sft.saved",),
    ),
    Fault(
        name="trains-on-the-cpu",
        what="the model is on the CPU, whatever device was asked for",
        notebook="01_sft",
        device="sim",
        breaks="""
from xpulab.notebook import models
new = models.new_model
models.new_model = lambda *given: new(*given).to("cpu")
""",
        seen_by=("device-proof.sft-places",),
    ),
    Fault(
        name="no-weight-decay",
        what="weight decay is ignored",
        notebook="01_sft",
        breaks="""
import paddle
begin = paddle.optimizer.AdamW.__init__
paddle.optimizer.AdamW.__init__ = lambda self, *given, **named: begin(self, *given, **{**named, "weight_decay": 0.0})
""",
        seen_by=("sft.decay",),
    ),
    Fault(
        name="decay-on-norms",
        what="weight decay reaches norms and biases too",
        notebook="01_sft",
        breaks="""
import paddle
begin = paddle.optimizer.AdamW.__init__
everything = {"apply_decay_param_fun": lambda name: True}
paddle.optimizer.AdamW.__init__ = lambda self, *given, **named: begin(self, *given, **{**named, **everything})
""",
        seen_by=("sft.decay-spares-norms",),
    ),
    Fault(
        name="not-shuffled",
        what="the training data are never shuffled",
        notebook="01_sft",
        breaks="""
import paddle.io
import paddlenlp.utils.batch_sampler as paddlenlp
def never_shuffles(sampler):
    begin = sampler.__init__
    sampler.__init__ = lambda self, *given, **named: begin(self, *given, **{**named, "shuffle": False})
for sampler in (paddle.io.BatchSampler, paddle.io.DistributedBatchSampler, paddlenlp.DistributedBatchSampler):
    never_shuffles(sampler)
""",
        seen_by=("sft.shuffled",),
    ),
    Fault(
        name="moments-in-half-the-bits",
        what="the optimizer's moments are rounded to bfloat16",
        notebook="01_sft",
        breaks="""
import paddle
step = paddle.optimizer.AdamW.step
def rounding(self):
    step(self)
    for kind, of_each in self._accumulators.items():
        for value in of_each.values() if "moment" in kind else ():
            value.set_value(value.astype("bfloat16").astype("float32"))
paddle.optimizer.AdamW.step = rounding
""",
        seen_by=("device-proof.sft-bits",),
    ),
    Fault(
        name="same-order-in-every-epoch",
        what="every epoch has the order of the first",
        notebook="01_sft",
        breaks="""
from paddle.io import RandomSampler
draw = RandomSampler.__iter__
def as_before(self):
    self.drawn = getattr(self, "drawn", None) or list(draw(self))
    return iter(self.drawn)
RandomSampler.__iter__ = as_before
""",
        seen_by=("sft.shuffled",),
    ),
)
