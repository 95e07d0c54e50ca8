"""A run that goes well: what the function finds, and what comes back."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import numpy as np
import paddle
import paddle.distributed as dist
import pytest

from xpulab import ranks

pytestmark = pytest.mark.integration

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the ranks cannot import this file, as they cannot a cell


def rank() -> int:
    return int(os.environ["PADDLE_TRAINER_ID"])


@pytest.mark.parametrize("n", [1, 4, 16])
def test_values_come_in_the_order_of_the_ranks(n: int):
    assert ranks.run(rank, n) == list(range(n))


def test_arguments_arrive_at_every_rank():
    assert ranks.run(lambda base, text: f"{text}{base + rank()}", 2, 5, "rank ") == ["rank 5", "rank 6"]


@dataclass(frozen=True)
class Pair:
    left: int
    right: int


def test_an_instance_of_a_class_of_the_notebook_comes_back_as_one():
    assert ranks.run(lambda pair: Pair(pair.right, rank()), 2, Pair(1, 2)) == [Pair(2, 0), Pair(2, 1)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "bool"])
def test_tensors_arrive_and_come_back_unchanged(dtype: str):
    given = paddle.arange(6).reshape([2, 3]).astype(dtype)

    def work(tensor: paddle.Tensor) -> tuple:
        return tensor, tensor.dtype == given.dtype

    (returned, same_type), _ = ranks.run(work, 2, given)

    assert same_type
    assert returned.dtype == given.dtype
    assert np.array_equal(returned.astype("float64").numpy(), given.astype("float64").numpy())


def test_a_function_may_use_paddle_device_whose_module_has_a_type_of_its_own():
    assert ranks.run(lambda: paddle.device.get_device(), 2) == ["cpu", "cpu"]


def test_what_ranks_print_is_kept_by_rank_and_not_shown(capfd: pytest.CaptureFixture):
    def work() -> None:
        print("out", rank())
        print("err", rank(), file=sys.stderr)
        os.write(1, b"C++\n")

    printed = ranks.run(work, 2).printed

    assert [sorted(each.splitlines()) for each in printed] == [["C++", "err 0", "out 0"], ["C++", "err 1", "out 1"]]
    assert capfd.readouterr() == ("", "")


def test_a_rank_works_in_the_folder_of_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    assert ranks.run(os.getcwd, 2) == [str(tmp_path)] * 2


def test_a_rank_imports_from_where_the_notebook_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "beside_the_notebook.py").write_text("NUMBER = 7")
    monkeypatch.syspath_prepend(str(tmp_path))

    def work() -> int:
        import beside_the_notebook

        return beside_the_notebook.NUMBER

    assert ranks.run(work, 1) == [7]


def test_each_rank_draws_other_random_numbers():
    drawn = ranks.run(lambda: (random.random(), float(np.random.rand()), float(paddle.rand([1]))), 2)

    assert all(one != other for one, other in zip(*drawn, strict=True))


def test_a_rank_computes_in_one_thread():
    from threadpoolctl import threadpool_info

    def work() -> set:
        return {library["num_threads"] for library in threadpool_info()} | {os.environ["OMP_NUM_THREADS"]}

    assert ranks.run(work, 1) == [{1, "1"}]


def test_fifty_runs_in_a_row_leave_nothing_open():
    ranks.run(rank, 2)
    gc.collect()  # what earlier tests left to the garbage collection is closed now, and not between the two lists
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(50):
        assert ranks.run(rank, 2) == [0, 1]
    assert set(os.listdir("/proc/self/fd")) <= before


def all_reduced(add: int) -> float:
    dist.init_parallel_env()
    value = paddle.to_tensor([float(dist.get_rank() + add)])
    dist.all_reduce(value)
    return float(value)


def test_two_runs_at_the_same_time_do_not_meet():
    results: dict[int, list] = {}
    threads = [threading.Thread(target=lambda at=at: results.update({at: ranks.run(all_reduced, 2, at)})) for at in (0, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == {0: [1.0, 1.0], 100: [201.0, 201.0]}


def test_a_rank_that_is_done_early_does_not_take_the_store_with_it():
    def work() -> float:
        dist.init_parallel_env()
        if dist.get_rank() == 0:
            return 0.0
        group = dist.new_group([1, 2])
        value = paddle.to_tensor([float(dist.get_rank())])
        dist.all_reduce(value, group=group)
        return float(value)

    assert ranks.run(work, 3) == [0.0, 3.0, 3.0]


def world_size():
    return dist.get_world_size(), dist.get_rank()


def test_a_rank_knows_the_number_of_ranks_before_it_joins_them():
    assert ranks.run(world_size, 2) == [(2, 0), (2, 1)]
