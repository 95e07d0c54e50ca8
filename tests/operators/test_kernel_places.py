"""Where the kernels of a step are computed: what a chapter prints, counts and leaves as it was."""

from __future__ import annotations

import paddle
import pytest

from xpulab import ranks
from xpulab.operators import kernel_places

FLAG = "FLAGS_use_stride_kernel"


def step():
    """Kernels that a P800 has, and the log-sigmoid that it has not."""
    x = paddle.ones([4, 4])
    return paddle.nn.functional.log_sigmoid(x @ x)


def test_a_step_that_raises_leaves_the_flag_and_standard_error_as_they_were(capfd):
    before = paddle.get_flags(FLAG)
    with pytest.raises(ZeroDivisionError):
        kernel_places.launches_of(lambda: 1 / 0)
    assert paddle.get_flags(FLAG) == before
    import os

    os.write(2, b"still there")
    assert "still there" in capfd.readouterr().err


def test_the_print_names_what_is_not_on_the_card_with_its_remedy(capsys):
    kernel_places.shown(step)
    printed = capsys.readouterr().out
    assert "logsigmoid float32, 1 calls, tests/operators/test_kernel_places.py" in printed
    assert "instead: -F.cross_entropy" in printed
    assert printed.rstrip().endswith("not run on a card")


def fallbacks_on_simulated_cards():
    """On a rank: what fell back where a card has the kernel, and where it has none."""
    x = paddle.ones([4, 4])
    steps = (lambda: paddle.assign(x), lambda: x @ x)
    counted = [kernel_places.fell_back(kernel_places.launches_of(each)) for each in steps]
    return [*counted, kernel_places.fell_back(kernel_places.known_fallback())]


@pytest.mark.integration
def test_a_kernel_that_a_card_lacks_is_counted_as_is_the_control_and_one_that_it_has_is_not():
    assert ranks.run(fallbacks_on_simulated_cards, 1, device="sim") == [[0, 1, 1]]
