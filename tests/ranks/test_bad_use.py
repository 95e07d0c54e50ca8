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


REFUSED = [
    *((int, n, {}, r"ranks: give a whole number from 1 to 16") for n in (0, -1, 17, 2.0, True, "2")),
    (int, 2, {"device": "npu"}, r"no device 'npu': choose xpu, gpu, cpu, sim"),
    *((int, 2, {"device": device}, rf"2 ranks on {device}: Paddle sees 0 cards here") for device in ("gpu", "xpu")),
    (int, 2, {"device": "gpu", "launch": False}, "ranks on gpu cannot be forked"),
    *((int, 2, {"time_limit": seconds}, "give a number of seconds above 0") for seconds in (0, -1, float("nan"))),
    (3, 2, {}, "3 is no function: give the function itself"),
]


@pytest.mark.parametrize(("function", "n", "options", "message"), REFUSED)
def test_an_invalid_argument_is_refused(function: object, n: object, options: dict, message: str):
    with pytest.raises(InputError, match=message):
        ranks.run(function, n, **options)


def test_an_argument_that_cannot_be_sent_is_named():
    with pytest.raises(InputError, match=r"argument 2 of work\(\), a lock: make it inside the function; .*cannot pickle"):

        def work(number: int, lock: object) -> None: ...

        ranks.run(work, 2, 1, threading.Lock())


def test_a_name_of_the_notebook_that_cannot_be_sent_is_named():
    def work() -> bool:
        return LOCK.locked()

    with pytest.raises(InputError, match=r"'LOCK' of the notebook, which work\(\) uses, a lock: make it inside"):
        ranks.run(work, 2)
