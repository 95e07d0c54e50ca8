"""Faults that 00_environment must see."""

from __future__ import annotations

from xpulab.faults.fault import Fault

FAULTS = (
    Fault(
        name="products-in-half-the-bits",
        what="matrix products are computed in bfloat16 where float32 was asked for",
        notebook="00_environment",
        breaks="""
import paddle
product = paddle.Tensor.__matmul__
def coarse(tensor):
    return tensor.astype("bfloat16").astype(tensor.dtype)
paddle.Tensor.__matmul__ = lambda self, other: product(coarse(self), coarse(other))
""",
        seen_by=("numerics.matmul", "numerics.gradients"),
    ),
    Fault(
        name="softmax-in-half-the-bits",
        what="softmax is computed in bfloat16 where float32 was asked for",
        notebook="00_environment",
        breaks="""
import paddle
softmax = paddle.nn.functional.softmax
paddle.nn.functional.softmax = lambda x, *given: softmax(x.astype("bfloat16"), *given).astype(x.dtype)
""",
        seen_by=("numerics.softmax",),
    ),
    Fault(
        name="norm-with-another-epsilon",
        what="layer norm takes an epsilon of its own",
        notebook="00_environment",
        breaks="""
import paddle
norm = paddle.nn.functional.layer_norm
paddle.nn.functional.layer_norm = lambda x, shape, epsilon=1e-5, **named: norm(x, shape, epsilon=1e-3, **named)
""",
        seen_by=("numerics.layer-norm",),
    ),
    Fault(
        name="mean-over-one-less",
        what="a mean divides by one less than the number of its terms",
        notebook="00_environment",
        breaks="""
import paddle
mean = paddle.Tensor.mean
def biased(self, axis=None, **named):
    count = self.shape[axis] if isinstance(axis, int) else self.size
    return mean(self, axis=axis, **named) * (count / max(1, count - 1))
paddle.Tensor.mean = biased
""",
        seen_by=("numerics.reductions",),
    ),
    Fault(
        name="coin-with-the-sides-exchanged",
        what="bernoulli_(p) is 1 with probability 1 - p, as in Paddle 3.0.0",
        notebook="00_environment",
        breaks="""
import paddle
toss = paddle.Tensor.bernoulli_
paddle.Tensor.bernoulli_ = lambda self, p=0.5, **named: toss(self, 1 - p, **named)
""",
        seen_by=("numerics.random",),
    ),
    Fault(
        name="seed-without-effect",
        what="the seed is ignored",
        notebook="00_environment",
        breaks="""
import paddle
paddle.seed = lambda seed: None
""",
        seen_by=("numerics.random",),
    ),
    Fault(
        name="maximum-drops-nan",
        what="maximum drops NaN, as in Paddle 3.0.0",
        notebook="00_environment",
        breaks="""
import paddle; paddle.maximum = paddle.fmax
""",
        seen_by=("numerics.edges",),
    ),
    Fault(
        name="gather-sends-gradients-elsewhere",
        what="the gradient of gather lands in other rows, as in Paddle 3.0.0",
        notebook="00_environment",
        breaks="""
import paddle
gather = paddle.gather
def astray(x, index, axis=0):
    right = gather(x, index, axis)
    return right.detach() + (right - right.detach()).flip(0)
paddle.gather = astray
""",
        seen_by=("numerics.gradients",),
    ),
    Fault(
        name="exp-by-a-short-series",
        what="exp is computed with too few terms",
        notebook="00_environment",
        breaks="""
import paddle
exp = paddle.exp
paddle.exp = lambda x: exp(x) * (1 + 1e-4)
""",
        seen_by=("numerics.functions",),
    ),
    Fault(
        name="two-frameworks",
        what="a second distribution that brings paddle is installed",
        notebook="00_environment",
        breaks="""
import pathlib, sys, tempfile
folder = pathlib.Path(tempfile.mkdtemp()) / "paddlepaddle_gpu-3.3.1.dist-info"
folder.mkdir()
(folder / "METADATA").write_text("Metadata-Version: 2.1\\nName: paddlepaddle-gpu\\nVersion: 3.3.1\\n")
sys.path.append(str(folder.parent))
""",
        seen_by=("install.one-framework",),
    ),
    Fault(
        name="numpy-too-new",
        what="a numpy is installed with which PaddleNLP does not work",
        notebook="00_environment",
        breaks="""
import pathlib, sys, tempfile
folder = pathlib.Path(tempfile.mkdtemp()) / "numpy-2.4.0.dist-info"
folder.mkdir()
(folder / "METADATA").write_text("Metadata-Version: 2.1\\nName: numpy\\nVersion: 2.4.0\\n")
sys.path.insert(0, str(folder.parent))
""",
        seen_by=("install.versions",),
    ),
    Fault(
        name="copies-lose-a-bit",
        what="a bit is inverted in every other large copy from the card",
        notebook="00_environment",
        device="sim",
        sim_faults="flip copy kind=d2h bytes>=60000 from=1 every=2 bit=3",
        seen_by=("bandwidth.round-trip",),
    ),
    Fault(
        name="stays-on-the-cpu",
        what="tensors are made on the CPU, whatever device was asked for",
        notebook="00_environment",
        device="sim",
        breaks="""
import paddle
to_tensor = paddle.to_tensor
def on_the_cpu(data, dtype=None, place=None, stop_gradient=True):
    return to_tensor(data, dtype=dtype, place=paddle.CPUPlace(), stop_gradient=stop_gradient)
paddle.to_tensor = on_the_cpu
""",
        seen_by=("numerics.place",),
    ),
    Fault(
        name="value-set-without-gradient",
        what="the gradient of the values that are set under a mask is 0, as in Paddle 3.1.0",
        notebook="00_environment",
        breaks="""
import paddle
put = paddle.Tensor.__setitem__
def without(self, where, value):
    if isinstance(value, paddle.Tensor) and not value.stop_gradient:
        value = value.detach() + 0 * value
    put(self, where, value)
paddle.Tensor.__setitem__ = without
""",
        seen_by=("numerics.gradients",),
    ),
    Fault(
        name="card-that-the-tool-does-not-see",
        what="the vendor's tool lists one card less than Paddle sees",
        notebook="00_environment",
        device="sim",
        breaks="""
from xpulab import sim
count = sim.loaded_cards
sim.loaded_cards = lambda: max(0, count() - 1)
""",
        seen_by=("hardware.cards",),
    ),
    Fault(
        name="wheel-of-another-device",
        what="the wheel that is installed was built for another device",
        notebook="00_environment",
        device="sim",
        breaks="""
from dataclasses import replace
from xpulab.doctor import paddle_facts
facts = paddle_facts.paddle_facts
paddle_facts.paddle_facts = lambda: replace(facts(), built_for="gpu")
""",
        seen_by=("hardware.diagnosis",),
    ),
    Fault(
        name="softmax-overflows",
        what="softmax does not subtract the largest score, so large ones overflow",
        notebook="00_environment",
        breaks="""
import paddle
def softmax(x, axis=-1, *given):
    powers = paddle.exp(x)
    return powers / powers.sum(axis=-1, keepdim=True)
paddle.nn.functional.softmax = softmax
""",
        seen_by=("numerics.edges",),
    ),
    Fault(
        name="activations-in-half-the-bits",
        what="silu, sigmoid, gelu and erf are computed in bfloat16 where float32 was asked for",
        notebook="00_environment",
        breaks="""
import paddle
def coarse(function):
    return lambda x, *given, **named: function(x.astype("bfloat16"), *given, **named).astype(x.dtype)
for room in (paddle, paddle.nn.functional):
    for name in ("silu", "sigmoid", "gelu", "erf"):
        if hasattr(room, name):
            setattr(room, name, coarse(getattr(room, name)))
""",
        seen_by=("numerics.functions",),
    ),
    Fault(
        name="norm-gradient-without-mean",
        what="the gradient of layer norm leaves the mean's part out",
        notebook="00_environment",
        breaks="""
import paddle
def layer_norm(x, shape, weight=None, bias=None, epsilon=1e-5, name=None):
    mean = x.mean(axis=-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdim=True)
    normal = (x - mean.detach()) / paddle.sqrt(variance + epsilon)
    normal = normal if weight is None else normal * weight
    return normal if bias is None else normal + bias
paddle.nn.functional.layer_norm = layer_norm
""",
        seen_by=("numerics.gradients",),
    ),
    Fault(
        name="bfloat16-cuts-off",
        what="a cast to bfloat16 cuts bits off instead of rounding",
        notebook="00_environment",
        breaks="""
import paddle
cast = paddle.Tensor.astype
def astype(self, dtype):
    if str(dtype).endswith("bfloat16") and str(self.dtype).endswith("float32"):
        return cast(paddle.to_tensor((self.numpy().view("uint32") & 0xFFFF0000).view("float32")), dtype)
    return cast(self, dtype)
paddle.Tensor.astype = astype
""",
        seen_by=("numerics.edges",),
    ),
    Fault(
        name="transposed-copy-in-memory-order",
        what="a transposed tensor is copied to the host in the order in which it lies in memory",
        notebook="00_environment",
        breaks="""
import paddle
real = paddle.Tensor.numpy
def numpy(self, *given):
    if self.is_contiguous():
        return real(self, *given)
    return real(self.contiguous()).reshape(-1, order="F").reshape(self.shape)
paddle.Tensor.numpy = numpy
""",
        seen_by=("bandwidth.round-trip",),
    ),
    Fault(
        name="places-in-another-order",
        what="topk and argsort give the right places in the wrong order",
        notebook="00_environment",
        breaks="""
import paddle
topk, argsort = paddle.topk, paddle.argsort
paddle.topk = lambda *given, **named: tuple(part.flip(-1) for part in topk(*given, **named))
paddle.argsort = lambda *given, **named: argsort(*given, **named).flip(-1)
""",
        seen_by=("numerics.edges",),
    ),
    Fault(
        name="embedding-gradient-of-the-last",
        what="of a token that comes several times only the last adds to the embedding's gradient",
        notebook="00_environment",
        breaks="""
import paddle
class Embedding(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, tokens, weight):
        ctx.save_for_backward(tokens, weight)
        return paddle.gather(weight, tokens.reshape([-1])).reshape([*tokens.shape, weight.shape[1]])
    @staticmethod
    def backward(ctx, slope):
        tokens, weight = ctx.saved_tensor()
        rows = slope.reshape([-1, weight.shape[1]])
        return None, paddle.scatter(paddle.zeros_like(weight), tokens.reshape([-1]), rows, overwrite=True)
paddle.nn.functional.embedding = lambda tokens, weight, *given, **named: Embedding.apply(tokens, weight)
""",
        seen_by=("numerics.gradients",),
    ),
    Fault(
        name="transpose-ignored",
        what="matmul ignores transpose_y where the shapes allow it",
        notebook="00_environment",
        breaks="""
import paddle
matmul = paddle.matmul
def careless(x, y, transpose_x=False, transpose_y=False, name=None):
    return matmul(x, y, transpose_x, transpose_y and y.shape[-1] != y.shape[-2])
paddle.matmul = paddle.Tensor.matmul = careless
""",
        seen_by=("numerics.matmul",),
    ),
    Fault(
        name="running-sum-without-its-own",
        what="cumsum leaves the element itself out",
        notebook="00_environment",
        breaks="""
import paddle
cumsum = paddle.cumsum
paddle.cumsum = lambda x, *given, **named: cumsum(x, *given, **named) - x
""",
        seen_by=("numerics.edges",),
    ),
    Fault(
        name="hidden-values-get-gradients",
        what="masked_fill passes on the gradient of what it hides",
        notebook="00_environment",
        breaks="""
import paddle
fill = paddle.masked_fill
paddle.masked_fill = lambda x, mask, value: fill(x, mask, value).detach() + (x - x.detach())
""",
        seen_by=("numerics.gradients",),
    ),
)
