"""An exact kernel is never called wrong: Paddle's own on the CPU, at sizes up to ten million elements, with zeros and ties."""

from __future__ import annotations

import math
import os
from functools import partial

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from xpulab.operators import recorder
from xpulab.operators.replay import RANDOM, replay
from xpulab.reference.operators import AXES, FUNCTIONS, PAIRS

SIZES = [int(size) for size in np.geomspace(2, 1e7, 20)]
ROUNDS = int(os.environ.get("XPULAB_TEST_ROUNDS", "1"))
"""A hundred try everything at every size, and take a night."""
NOT_EXACT = ("prod", "binary_cross_entropy_with_logits")
"""At 0 their gradients on the CPU are wrong in Paddle 3.3.1: NaN, and off by 1."""
ACTIVATIONS = (
    *("relu6", "hardswish", "hardsigmoid", "leaky_relu", "elu", "selu", "celu", "hardtanh", "hardshrink", "softshrink"),
    *("tanhshrink", "mish", "softsign"),
)


class Drawn:
    """Tensors of about so many elements; some hold zeros, some equal numbers."""

    def __init__(self, size, seed):
        self.size, self.generator = size, np.random.default_rng([size, seed])
        last, self.shape = size, []
        for _ in range(self.generator.integers(0, 3)):
            self.shape.append(int(self.generator.integers(1, max(2, int(last**0.4) + 1))))
            last = max(1, last // self.shape[-1])
        self.shape.append(last)

    def tensor(self, shape=None, positive=False, nonzero=False):
        numbers = self.generator.standard_normal(self.shape if shape is None else shape) * self.generator.choice(
            [0.1, 1.0, 5.0]
        )
        kind = self.generator.integers(0, 4)
        numbers = np.maximum(numbers, 0) if kind == 0 else np.round(numbers, 1) if kind == 1 else numbers
        if positive:
            numbers = np.abs(numbers) + 1e-3
        elif nonzero:
            numbers = np.where(numbers == 0, 0.5, numbers)
        return paddle.to_tensor(numbers.astype("float32"), stop_gradient=False)

    def whole(self):
        return paddle.to_tensor(self.generator.integers(-(2**31), 2**31, self.shape).astype("int32"))

    def picture(self):
        channels = int(self.generator.integers(1, 9))
        side = max(4, math.isqrt(self.size // channels // 2))
        return self.tensor([2, channels, side, side])

    def rows(self):
        return self.tensor([max(1, self.size // 20), 20])

    def axis(self):
        return int(self.generator.integers(0, len(self.shape)))


def public(name):
    return getattr(F, name, None) or getattr(paddle, name)


def function(name, drawn):
    own = {
        "pow 2": lambda x: x**2,
        "pow 3": lambda x: x**3,
        "scale": lambda x: paddle.scale(x, 0.5, 3.0),
        "clip": lambda x: paddle.clip(x, -0.75, 1.25),
        "gelu, approximate": lambda x: F.gelu(x, approximate=True),
    }
    (own.get(name) or public(name))(drawn.tensor(positive=FUNCTIONS[name].is_of_positives))


def pair(name, drawn):
    signs = {"==": "equal", "!=": "not_equal", "<": "less_than", "<=": "less_equal", ">": "greater_than", ">=": "greater_equal"}
    called = public(signs.get(name, PAIRS[name].kernel))
    if PAIRS[name].takes == "bits":
        called(*(drawn.whole() for _ in range(1 if called is paddle.bitwise_not else 2)))
        return
    shape = [1] if PAIRS[name].is_broadcast and drawn.generator.random() < 0.3 else None
    called(drawn.tensor(), drawn.tensor(shape, positive=PAIRS[name].kernel in ("divide", "floor_divide", "remainder")))


def along_axis(name, drawn):
    if name == "log_softmax":  # on the CPU it takes the square of the axis
        F.log_softmax(drawn.rows(), axis=1)
    else:
        public(name)(drawn.tensor(nonzero=name in NOT_EXACT), axis=drawn.axis())


def normalized(drawn):
    picture = drawn.picture()
    width = picture.shape[1]
    F.batch_norm(
        picture, paddle.zeros([width]), paddle.ones([width]), drawn.tensor([width]), drawn.tensor([width]), training=True
    )


def classified(drawn):
    width = int(drawn.generator.integers(2, 50))
    rows = max(1, drawn.size // width)
    F.cross_entropy(drawn.tensor([rows, width]), paddle.to_tensor(drawn.generator.integers(0, width, rows)))


def coins(drawn):
    return paddle.to_tensor((drawn.generator.random(drawn.shape) < 0.5).astype("float32"))


OPERATORS = {
    **{name: partial(function, name) for name in FUNCTIONS},
    **{name: partial(pair, name) for name in PAIRS if name != "swiglu"},
    **{f"{name} along an axis": partial(along_axis, name) for name in AXES if name != "norm"},
    **{name: lambda drawn, name=name: public(name)(drawn.tensor()) for name in ACTIVATIONS},
    "max_pool2d": lambda drawn: F.max_pool2d(drawn.picture(), 2),
    "avg_pool2d": lambda drawn: F.avg_pool2d(drawn.picture(), 2),
    "interpolate": lambda drawn: F.interpolate(drawn.picture(), scale_factor=2, mode="bilinear"),
    "batch_norm": normalized,
    "cross_entropy": classified,
    "sort": lambda drawn: paddle.sort(drawn.tensor()),
    "argmax": lambda drawn: paddle.argmax(drawn.tensor(), -1),
    "topk": lambda drawn: paddle.topk(drawn.tensor(), max(1, drawn.shape[-1] // 2)),
    "smooth_l1_loss": lambda drawn: F.smooth_l1_loss(drawn.tensor(), drawn.tensor()),
    "binary_cross_entropy": lambda drawn: F.binary_cross_entropy(F.sigmoid(drawn.tensor()), coins(drawn)),
    NOT_EXACT[1]: lambda drawn: F.binary_cross_entropy_with_logits(drawn.tensor(nonzero=True), coins(drawn)),
    "kl_div": lambda drawn: F.kl_div(F.log_softmax(drawn.rows()), F.softmax(drawn.rows())),
}


def chosen(size, seed):
    """The operators of this round: all at small sizes, a few at large ones."""
    count = len(OPERATORS) if size < 1000 else 6 if size < 1e5 else 1
    return np.random.default_rng([size, seed]).permutation(list(OPERATORS))[:count]


@pytest.mark.integration
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_an_exact_kernel_is_never_wrong(size, seed):
    found = []
    for name in chosen(size, seed):
        with recorder.recording(recorder.BUDGET) as calls:
            OPERATORS[name](Drawn(size, seed))
        results = [replay(call, seed) for call in calls if call.operator not in RANDOM]
        found += [(name, each.call, each.value, each.gradient, each.error) for each in results if each.outcome == "wrong"]
    assert found == []


def test_what_was_not_kept_is_drawn_as_its_operator_needs_it():
    labels = F.softmax(paddle.randn([8, 5]))
    borders = paddle.sort(paddle.rand([9]))
    with recorder.recording() as calls:  # keeps no real number
        F.cross_entropy(paddle.randn([8, 5]).detach() * paddle.ones([1]), labels, soft_label=True)
        paddle.searchsorted(borders, paddle.rand([4]))
    from xpulab.operators.inputs import arrays_of

    drawn = {call.operator: arrays_of(call, 3) for call in calls}
    assert np.allclose(drawn["cross_entropy_with_softmax"][1].sum(-1), 1)
    assert (np.diff(drawn["searchsorted"][0]) >= 0).all()
