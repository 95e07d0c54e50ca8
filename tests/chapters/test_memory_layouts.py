"""Every copy of every layout has the same elements, and a copy that has not is seen."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from xpulab.chapters.numerics import memory_layouts
from xpulab.chapters.shared.device import Device

CPU = Device("cpu", 1, "cpu")


@pytest.mark.parametrize("dtype", memory_layouts.TYPES)
def test_all_copies_of_a_type_are_equal(dtype, tmp_path):
    views = memory_layouts.views_of(dtype, 0)
    assert len(views) >= len(memory_layouts.LAYOUTS) - 1
    expected = memory_layouts.flat(array for _, array in views)
    for way in memory_layouts.copies(CPU, tmp_path).values():
        assert np.array_equal(memory_layouts.flat(way(view) for view, _ in views), expected)


def test_another_shape_with_the_same_elements_is_different():
    matrix = np.arange(6).reshape(2, 3)
    assert not np.array_equal(memory_layouts.flat([matrix]), memory_layouts.flat([matrix.reshape(3, 2)]))
    assert memory_layouts.flat([paddle.to_tensor(matrix), np.zeros([])]).tolist() == [2, 2, 3, 0, 1, 2, 3, 4, 5, 0, 0]
