"""Ranks that paddle.distributed.launch starts: the same as forked ones, only slower."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import cloudpickle
import paddle
import paddle.distributed as dist
import pytest

from xpulab import ranks
from xpulab.ranks import team

pytestmark = pytest.mark.integration

cloudpickle.register_pickle_by_value(sys.modules[__name__])

OF_THIS_RUN = {"PADDLE_MASTER", "PADDLE_TRAINER_ENDPOINTS", "PADDLE_CURRENT_ENDPOINT"}
"""Ports."""
OF_THIS_WAY = {"POD_NAME", "PADDLE_LOG_DIR", "PADDLE_BACKUP_ENV_PATH", "XPULAB_RANKS"}
"""Random names, and folders."""

OF_IMPORTS = {"KMP_INIT_AT_FORK", "KMP_DUPLICATE_LIB_OK", "HF_UPDATE_DOWNLOAD_COUNTS"}
"""Set by what PaddleNLP imports, which a forked rank has done already: scikit-learn and datasets."""


def state() -> dict:
    """All that a function can find around it."""
    return {
        "environment": dict(os.environ),
        "path": sys.path,
        "arguments": sys.argv,
        "folder": os.getcwd(),
        "device": paddle.device.get_device(),
        "signals": {int(number): signal.getsignal(number) is signal.SIG_DFL for number in (signal.SIGTERM, signal.SIGHUP)},
        "input": sys.stdin.read(),
        "modules": "paddle" in sys.modules,
        "group": os.getpgid(0) == os.getsid(0) == os.getpid(),
    }


def work() -> tuple:
    found = state()
    dist.init_parallel_env()
    value = paddle.to_tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(value)
    return found, float(value), dist.get_rank(), dist.get_world_size()


@pytest.fixture(scope="module")
def both() -> tuple[list, list]:
    """The values of two ranks, forked and launched."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PADDLE_TRAINER_ID", "7")  # of another job, in which the notebook runs
        patch.setenv("PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:1,10.0.0.2:1")
        patch.setenv("http_proxy", "http://proxy")
        patch.setenv("PORT_RANGE", "40000:50000")
        return ranks.run(work, 2), ranks.run(work, 2, launch=True)


def test_launched_ranks_reduce_as_forked_ones_do(both: tuple[list, list]):
    assert [value[1:] for value in both[0]] == [value[1:] for value in both[1]] == [(3.0, 0, 2), (3.0, 1, 2)]


def test_both_ways_give_the_same_environment_variables(both: tuple[list, list]):
    for forked, started in zip(*both, strict=True):
        one, other = forked[0]["environment"], started[0]["environment"]
        assert one.keys() - OF_IMPORTS == other.keys() - OF_IMPORTS
        different = OF_THIS_RUN | OF_THIS_WAY | OF_IMPORTS
        assert {name: one[name] for name in one.keys() - different} == {name: other[name] for name in other.keys() - different}
        for name in OF_THIS_RUN:
            hosts = [[endpoint.split(":")[0] for endpoint in each[name].split(",")] for each in (one, other)]
            assert hosts[0] == hosts[1]
        assert one["PORT_RANGE"] == "40000:50000"


def test_both_ways_give_the_same_process_state(both: tuple[list, list]):
    for forked, started in zip(*both, strict=True):
        del forked[0]["environment"], started[0]["environment"]
        assert forked[0] == started[0]


def test_a_launched_rank_that_is_killed_is_the_root_cause_and_its_folder_is_removed():
    def work() -> None:
        dist.init_parallel_env()
        dist.barrier()
        ranks.step(os.environ["PADDLE_LOG_DIR"])
        print("last line")
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()

    with pytest.raises(ranks.RanksFailed) as raised:
        ranks.run(work, 2, launch=True)

    failed = raised.value
    assert failed.root_cause == 1
    assert failed.reports[1].reason in ("killed by signal 9 (SIGKILL)", "it ended without an error message")
    assert "last line" in failed.reports[1].printed
    assert not Path(failed.reports[1].step).exists()


def test_a_launcher_that_does_not_start_is_quoted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(team, "_SCRIPT", "/no/such/script.py")

    with pytest.raises(ranks.RanksFailed, match=r"(?s)root cause: rank 0: it never started.*/no/such/script.py"):
        ranks.run(work, 2, launch=True)
