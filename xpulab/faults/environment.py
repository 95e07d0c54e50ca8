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
)
