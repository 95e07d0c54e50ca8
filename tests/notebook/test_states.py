"""State dicts as vectors and text."""

from __future__ import annotations

import numpy as np

from xpulab.notebook.states import described, in_line


class Tensor:
    """What `described` needs of a tensor."""

    def __init__(self, values, dtype):
        self._values = np.asarray(values, dtype=dtype)
        self.dtype, self.shape = dtype, self._values.shape

    def numpy(self):
        return self._values


def test_a_state_in_line_has_the_order_of_its_names():
    assert in_line({"b": np.array([[3, 4]]), "a": np.array([1, 2])}).tolist() == [1, 2, 3, 4]


def test_a_description_tells_types_shapes_and_bits_apart():
    values = [Tensor([0, 0], "int32"), Tensor([[0, 0]], "int32"), Tensor([0, 0], "uint32"), Tensor([0, 1], "int32"), 0, 0.0]
    assert len({described(value) for value in values}) == len(values)


def test_a_description_keeps_nesting():
    assert described({"x": [1, (2, "two")]}) == {"x": {"list": ["int 1", {"tuple": ["int 2", "str 'two'"]}]}}
