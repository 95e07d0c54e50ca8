"""State dicts as vectors, digests and text."""

from __future__ import annotations

import numpy as np

from xpulab.chapters.shared.states import described, digests


class Tensor:
    """What `described`, `digests` and `distinct` need of a tensor."""

    def __init__(self, values, dtype, address=0):
        self._values = np.asarray(values, dtype=dtype)
        self.dtype, self.shape, self._address = dtype, self._values.shape, address

    def data_ptr(self):
        return self._address

    def numpy(self):
        return self._values


def test_a_description_tells_types_shapes_and_bits_apart():
    values = [Tensor([0, 0], "int32"), Tensor([[0, 0]], "int32"), Tensor([0, 0], "uint32"), Tensor([0, 1], "int32"), 0, 0.0]
    assert len({described(value) for value in values}) == len(values)


def test_a_description_keeps_nesting():
    assert described({"x": [1, (2, "two")]}) == {"x": {"list": ["int 1", {"tuple": ["int 2", "str 'two'"]}]}}


def test_a_digest_tells_types_shapes_and_bits_apart():
    values = [np.zeros(2, "int32"), np.zeros((1, 2), "int32"), np.zeros(2, "uint32"), np.array([0, 1], "int32")]
    values += [np.array([0.0]), np.array([-0.0])]
    assert len({digests({"x": value})["x"].tobytes() for value in values}) == len(values)


def test_a_digest_of_a_tensor_is_that_of_its_array():
    values = np.arange(6, dtype="float32").reshape(2, 3)
    assert digests({"x": Tensor(values, "float32")})["x"].tolist() == digests({"x": values})["x"].tolist()
    assert digests({"x": np.asfortranarray(values)})["x"].tolist() == digests({"x": values})["x"].tolist()
