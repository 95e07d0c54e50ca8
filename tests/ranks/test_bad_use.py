"""Invalid arguments: one clear line, before anything is started."""

from __future__ import annotations

import sys
import threading

import cloudpickle
import pytest

from xpulab import ranks
from xpulab.errors import InputError

pytestmark = pytest.mark.integration

cloudpickle.register_pickle_by_value(sys.modules[__name__])

LOCK = threading.Lock()


@pytest.mark.parametrize("n", [0, -1, 17, 2.0, True, "2"])
def test_an_invalid_number_of_ranks(n: object):
    with pytest.raises(InputError, match=r"ranks: give a whole number from 1 to 16"):
        ranks.run(int, n)


def test_an_unknown_device():
    with pytest.raises(InputError, match=r"no device 'npu': choose xpu, gpu, cpu, sim"):
        ranks.run(int, 2, device="npu")


@pytest.mark.parametrize("device", ["gpu", "xpu"])
def test_a_device_that_is_not_here(device: str):
    with pytest.raises(InputError, match=rf"2 ranks on {device}: Paddle sees 0 cards here"):
        ranks.run(int, 2, device=device)


def test_a_card_cannot_be_shared_with_a_forked_process():
    with pytest.raises(InputError, match="ranks on gpu cannot be forked"):
        ranks.run(int, 2, device="gpu", launch=False)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_an_invalid_time_limit(seconds: float):
    with pytest.raises(InputError, match="give a number of seconds above 0"):
        ranks.run(int, 2, time_limit=seconds)


def test_a_call_in_place_of_a_function():
    with pytest.raises(InputError, match="3 is no function: give the function itself"):
        ranks.run(3, 2)


def test_an_argument_that_cannot_be_sent_is_named():
    with pytest.raises(InputError, match=r"argument 2 of work\(\), a lock: make it inside the function; .*cannot pickle"):

        def work(number: int, lock: object) -> None: ...

        ranks.run(work, 2, 1, threading.Lock())


def test_a_name_of_the_notebook_that_cannot_be_sent_is_named():
    def work() -> bool:
        return LOCK.locked()

    with pytest.raises(InputError, match=r"work\(\) uses 'LOCK', a lock, from the notebook: make it inside the function"):
        ranks.run(work, 2)


def test_a_name_that_a_function_of_the_notebook_uses_is_found_too():
    def work() -> bool:
        return is_locked()

    with pytest.raises(InputError, match=r"is_locked\(\) uses 'LOCK', a lock, from the notebook"):
        ranks.run(work, 2)


def is_locked() -> bool:
    return LOCK.locked()
