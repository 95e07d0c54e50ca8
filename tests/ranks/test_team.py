"""Launched ranks stay for several calls, and no call sees what another one has left."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import cloudpickle
import numpy as np
import paddle
import paddle.distributed as dist
import psutil
import pytest
import tqdm

from xpulab import ranks, warm
from xpulab.chapters.shared import fault
from xpulab.ranks import reset, team

pytestmark = pytest.mark.integration

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module", autouse=True)
def no_team_is_left() -> Iterator[None]:
    yield
    team.close_all()


def on_team(function: Callable[..., object], *arguments: object, n: int = 2, **options: object) -> ranks.Results:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTEST_CURRENT_TEST")  # another one in each test, which would need other ranks
        return ranks.run(function, n, *arguments, launch=True, **options)


def pids(n: int = 2, **options: object) -> list[int]:
    return on_team(os.getpid, n=n, **options)


def in_seeds() -> tuple:
    return random.random(), float(np.random.rand()), float(paddle.rand([1]))


def leave_seeds() -> None:
    random.seed(7)
    np.random.seed(7)
    paddle.seed(7)


def in_flags() -> tuple:
    return tuple(paddle.get_flags(["FLAGS_check_nan_inf", "FLAGS_benchmark"]).values())


def leave_flags() -> None:
    paddle.set_flags({"FLAGS_check_nan_inf": True, "FLAGS_benchmark": True})


def in_groups() -> tuple:
    return dist.is_initialized(), sorted(dist.collective._group_map), dist.collective._default_store is None


def leave_groups() -> None:
    dist.init_parallel_env()
    dist.all_reduce(paddle.ones([1]), group=dist.new_group([0, 1]))
    dist.collective._default_store.add("come", 1)


def in_store() -> int:
    dist.init_parallel_env()
    dist.barrier()
    return dist.collective._default_store.add("come", 0)


def in_fleet() -> tuple:
    return hasattr(dist.fleet.fleet, "_hcg"), dist.fleet.base.topology._HYBRID_PARALLEL_GROUP is None


def leave_fleet() -> None:
    strategy = dist.fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": 2, "pp_degree": 1}
    dist.fleet.init(is_collective=True, strategy=strategy)
    dist.fleet.meta_parallel.get_rng_state_tracker().add("of a test", 3)


def in_tracker() -> list:
    return sorted(dist.fleet.meta_parallel.get_rng_state_tracker().states_)


def in_mesh() -> bool:
    return dist.auto_parallel.get_mesh() is None


def leave_mesh() -> None:
    dist.auto_parallel.set_mesh(dist.ProcessMesh([0, 1], dim_names=["x"]))


def in_patches() -> tuple:
    names = paddle.sum.__qualname__, paddle.nn.Linear.forward.__qualname__, paddle.Tensor.cuda.__name__, np.sum.__name__
    return *names, hasattr(paddle, "added"), hasattr(paddle.nn.Linear, "added")


def leave_patches() -> None:
    paddle.sum = paddle.nn.Linear.forward = paddle.Tensor.cuda = np.sum = lambda *_: None
    paddle.added = paddle.nn.Linear.added = 1


def in_lazy_module() -> str:
    from paddle.distributed.flex_checkpoint.dcp.reshard_comm import BroadcastCommunicator

    return BroadcastCommunicator.communicate.__qualname__


def leave_lazy_module() -> None:
    from paddle.distributed.flex_checkpoint.dcp import reshard_comm

    reshard_comm.BroadcastCommunicator.communicate = len


def in_environment() -> tuple:
    return os.environ.get("OF_A_CALL"), os.getcwd(), signal.getsignal(signal.SIGHUP), len(warnings.filters)


def leave_environment() -> None:
    os.environ["OF_A_CALL"] = "1"
    os.chdir("/")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    warnings.simplefilter("error")


def in_modes() -> tuple:
    level = paddle.base.framework._dygraph_tracer()._amp_level if paddle.in_dynamic_mode() else None
    return paddle.get_default_dtype(), paddle.in_dynamic_mode(), paddle.is_grad_enabled(), str(level)


def leave_modes() -> None:
    paddle.set_default_dtype("float64")
    paddle.base.framework._dygraph_tracer()._amp_level = paddle.base.core.AmpLevel.O1
    paddle.set_grad_enabled(False)
    paddle.enable_static()


def in_names() -> tuple:
    linear = paddle.nn.Linear(2, 2)
    return linear.weight.name, linear.full_name()


def leave_names() -> None:
    [paddle.nn.Linear(2, 2) for _ in range(3)]


def in_programs() -> tuple:
    return paddle.static.default_main_program().num_ops(), paddle.static.global_scope().find_var("of a test") is None


def leave_programs() -> None:
    paddle.enable_static()
    paddle.static.data("x", [2]) + 1
    paddle.static.global_scope().var("of a test")


def in_log() -> int:
    return dist.fleet.utils.log_util.logger.level


def leave_log() -> None:
    dist.fleet.utils.log_util.logger.setLevel("CRITICAL")


def in_hooks() -> float:
    weight = paddle.nn.Linear(1, 1, weight_attr=paddle.nn.initializer.Constant(2.0)).weight
    (weight * weight).backward()
    return float(weight.grad)


def leave_hooks() -> None:
    paddle.autograd.saved_tensors_hooks(lambda tensor: tensor.numpy() * 2, paddle.to_tensor).__enter__()


def in_defaults() -> tuple:
    constant = float(paddle.nn.Linear(1, 1).weight) == 3.0
    return constant, repr(paddle.ones([1]) / 3), paddle.jit.api.ProgramTranslator().enable_to_static


def leave_defaults() -> None:
    paddle.nn.initializer.set_global_initializer(paddle.nn.initializer.Constant(3.0))
    paddle.set_printoptions(precision=2)
    paddle.jit.enable_to_static(False)


def in_printed() -> None:
    print("one call")


LEFT = {
    "flags": (leave_flags, in_flags),
    "groups": (leave_groups, in_groups),
    "store": (leave_groups, in_store),
    "fleet": (leave_fleet, in_fleet),
    "random states": (leave_fleet, in_tracker),
    "mesh": (leave_mesh, in_mesh),
    "patches": (leave_patches, in_patches),
    "a module that is imported late": (leave_lazy_module, in_lazy_module),
    "environment": (leave_environment, in_environment),
    "modes": (leave_modes, in_modes),
    "names": (leave_names, in_names),
    "programs": (leave_programs, in_programs),
    "log": (leave_log, in_log),
    "hooks": (leave_hooks, in_hooks),
    "defaults": (leave_defaults, in_defaults),
}


@pytest.mark.parametrize("left", LEFT)
def test_a_call_does_not_see_what_another_one_has_left(left: str):
    leave, look = LEFT[left]
    before = on_team(look), pids()

    on_team(leave)

    assert (on_team(look), pids()) == before


@pytest.mark.parametrize("left", LEFT)
def test_a_rank_that_is_not_reset_would_see_it(left: str):
    leave, look = LEFT[left]

    def look_again() -> tuple:
        before = look()
        leave()
        return before, look()

    before, after = on_team(look_again)[0]
    assert before != after


def test_what_a_call_has_left_is_seen_where_ranks_are_not_reset(monkeypatch: pytest.MonkeyPatch):
    def reset_nothing() -> None:
        reset.State.restore = lambda *_: True  # what runs the ranks is not reset itself

    monkeypatch.setenv("OF_THIS_TEST", "1")  # a team of its own
    names = ["flags", "names", "log", "mesh", "a module that is imported late", "defaults", "modes", "patches"]
    before = {name: on_team(LEFT[name][1]) for name in names}
    on_team(reset_nothing)
    for name in names:
        on_team(LEFT[name][0])
        assert on_team(LEFT[name][1]) != before[name], name
    team.close_all()


def test_each_call_draws_other_random_numbers():
    def drawn() -> tuple:
        found = in_seeds()
        leave_seeds()
        return found

    calls = [on_team(drawn)[0] for _ in range(3)]

    assert all(len(set(of_calls)) == 3 for of_calls in zip(*calls, strict=True))


def test_memory_of_a_call_is_given_back():
    def held(size: int) -> list:
        card = paddle.device.get_device()
        paddle.kept = paddle.ones([size])
        return paddle.device.memory_allocated(card), paddle.device.max_memory_allocated(card)

    first, _, second = (on_team(held, size, device="sim") for size in (1 << 10, 1 << 20, 1 << 10))

    assert first == second


def test_what_is_printed_is_that_of_one_call():
    on_team(lambda: print("the first"))

    assert on_team(in_printed).printed == ["one call\n"] * 2


def test_a_smaller_number_of_ranks_after_a_larger_one():
    def summed() -> tuple:
        dist.init_parallel_env()
        dist.all_reduce(x := paddle.ones([1]))
        return float(x), dist.get_world_size(), dist.collective._default_store.add("come", 0)

    assert [on_team(summed, n=n) for n in (3, 2, 3, 2)] == [[(float(n), n, 0)] * n for n in (3, 2, 3, 2)]


def test_groups_of_the_same_ranks_and_of_others_work_in_each_call():
    def sums(first: int) -> list[float]:
        dist.init_parallel_env()
        held = []
        for members in ([first, 2], [0, 1, 2], [first, 2]):
            group = dist.new_group(members)
            x = paddle.to_tensor([float(dist.get_rank())])
            if dist.get_rank() in members:
                dist.all_reduce(x, group=group)
            held.append(float(x))
        return held

    assert on_team(sums, 0, n=3)[0] == [2.0, 3.0, 2.0]
    assert on_team(sums, 1, n=3)[1:] == [[3.0, 3.0, 3.0]] * 2
    assert on_team(sums, 0, n=3)[2] == [2.0, 3.0, 2.0]


def test_a_failure_names_its_rank_and_the_next_call_has_other_ranks(all_end: Callable[[list[psutil.Process]], None]):
    def fails() -> None:
        dist.init_parallel_env()
        if dist.get_rank() == 1:
            raise ValueError("of rank 1")
        dist.barrier()

    before = pids()
    processes = [psutil.Process(pid) for pid in before]
    with pytest.raises(ranks.RanksFailed) as raised:
        on_team(fails)

    assert raised.value.root_cause == 1
    assert "ValueError: of rank 1" in str(raised.value)
    all_end(processes)
    assert not set(pids()) & set(before)


def test_a_rank_that_dies_between_two_calls_is_replaced(all_end: Callable[[list[psutil.Process]], None]):
    before = pids()
    os.kill(before[1], signal.SIGKILL)
    all_end([psutil.Process(before[1])])

    assert not set(pids()) & set(before)


def test_fresh_ranks_are_others_and_the_team_stays():
    before = pids()

    assert not set(pids(fresh=True)) & set(before)
    assert pids() == before


def test_other_variables_need_other_ranks(monkeypatch: pytest.MonkeyPatch):
    before = pids()
    monkeypatch.setenv("READ_WHEN_A_LIBRARY_STARTS", "1")

    assert not set(pids()) & set(before)
    assert on_team(lambda: os.environ["READ_WHEN_A_LIBRARY_STARTS"]) == ["1", "1"]


def test_a_thread_that_runs_on_ends_the_team():
    def leaves_a_thread() -> int:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        return os.getpid()

    assert not set(on_team(leaves_a_thread)) & set(pids())


def test_a_loader_within_an_epoch_and_a_bar_do_not_end_the_team():
    def leaves_a_loader() -> int:
        paddle.of_loader = iter(paddle.io.DataLoader([np.ones([2])] * 50, batch_size=1))
        next(paddle.of_loader)
        tqdm.tqdm(range(3)).update()
        return os.getpid()

    before, began = pids(), time.monotonic()
    assert on_team(leaves_a_loader) == before
    assert time.monotonic() - began < 3  # for which a loader waits that is freed in its own thread


def test_of_too_many_teams_the_one_ends_that_was_not_used_for_longest(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(team, "_KEPT", 1)
    found = [psutil.Process(pids(n=n)[0]) for n in (1, 2)]

    assert [process.is_running() for process in found] == [False, True]


def test_each_start_is_noted_for_who_runs_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(warm.STARTS_OF_RANKS, str(tmp_path / "starts"))
    for _ in range(2):
        pids(n=1)

    (seconds,) = map(float, (tmp_path / "starts").read_text().split())
    assert 0.5 < seconds < 120


def test_faults_of_the_cards_count_anew_in_each_call(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XPULAB_SIM_FAULTS", "flip collective kind=all_reduce rank=0 n=2 bit=31")

    def sums() -> list[float]:
        dist.init_parallel_env()
        held = []
        for _ in range(3):
            dist.all_reduce(x := paddle.ones([1]))
            held.append(float(x))
        return held

    assert [on_team(sums, device="sim") for _ in range(2)] == [[[2.0, -2.0, 2.0], [2.0, 2.0, 2.0]]] * 2


def test_a_fault_in_every_rank_of_one_call_is_gone_in_the_next(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ranks, "run", ranks.run)
    before = on_team(in_patches)
    fault.in_every_rank(leave_patches)
    with_it = on_team(in_patches)
    monkeypatch.undo()

    assert with_it != before == on_team(in_patches)


NOTEBOOK = """
import os, signal, sys
from xpulab import ranks

def work(path):
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\\n")

for _ in range(2):
    ranks.run(work, 2, sys.argv[1], launch=True)
if sys.argv[2] == "waits":
    signal.pause()
"""


@pytest.mark.parametrize("how", ["ends", "waits"])
def test_the_team_ends_with_the_notebook(notebook, pipe, all_end, tmp_path: Path, how: str):
    (tmp_path / "scratch").mkdir()
    process = notebook(NOTEBOOK, pipe.path, how, TMPDIR=str(tmp_path / "scratch"))
    found = pipe.numbers(4)
    of_it = [psutil.Process(pid) for pid in set(found) if psutil.pid_exists(pid)]
    if how == "waits":
        of_it += psutil.Process(process.pid).children(recursive=True)
        process.kill()
    process.communicate(timeout=60)

    all_end(of_it)
    assert len(set(found)) == 2
    assert how == "waits" or not list((tmp_path / "scratch").iterdir())
