"""The ranks of a report's script: variables of Paddle's launcher, answers in order, errors and time limits reported."""

from __future__ import annotations

import os
import time

import pytest

from xpulab.upstream.stand_in import ranks

pytestmark = pytest.mark.integration


def who_am_i(more):
    print("working")
    return int(os.environ["PADDLE_TRAINER_ID"]) + more, os.environ["PADDLE_TRAINERS_NUM"]


def test_each_rank_answers_in_its_place_and_what_it_prints_is_kept():
    answers = ranks.run(who_am_i, 2, 10)
    assert answers == [(10, "2"), (11, "2")]
    assert [text.splitlines()[-1] for text in answers.printed] == ["working"] * 2  # after what imports warn of


def test_a_rank_in_a_process_of_its_own_answers_too(tmp_path):
    variables = ranks.of_rank(0, ["127.0.0.1:1"], "xpu")
    rank = ranks.start(lambda: (tmp_path / "answer").write_text("here"), variables, tmp_path / "log")
    assert (ranks.end([rank], 60), (tmp_path / "answer").read_text()) == ([0], "here")


def fails():
    if os.environ["PADDLE_TRAINER_ID"] == "1":
        raise ValueError("not here")


def test_the_rank_that_raised_is_named():
    with pytest.raises(ranks.RanksFailed, match="rank 1 raised: ValueError: not here") as failed:
        ranks.run(fails, 2)
    assert failed.value.root_cause == 1


def test_a_rank_that_does_not_end_is_killed():
    with pytest.raises(ranks.RanksFailed, match="rank 0 killed: killed by signal 6"):
        ranks.run(time.sleep, 1, 600, time_limit=3)


def fails_beside_one_that_waits():
    fails()
    time.sleep(600)


def test_a_rank_that_waits_for_one_that_failed_is_ended_long_before_the_limit_and_says_where_it_waited(monkeypatch):
    monkeypatch.setattr(ranks, "GRACE", 0.1)
    with pytest.raises(
        ranks.RanksFailed,
        match=r"rank 0 killed: killed by signal 6; .* in fails_beside_one_that_waits.*; rank 1 raised: ValueError",
    ):
        ranks.run(fails_beside_one_that_waits, 2, time_limit=3600)


def many_groups():
    import paddle
    import paddle.distributed as dist

    dist.init_parallel_env()
    sums = []
    for group in [dist.new_group([0, 1]) for _ in range(4)]:
        value = paddle.to_tensor([1.0 + dist.get_rank()])
        dist.all_reduce(value, group=group)
        sums.append(float(value))
    return sums


def test_groups_that_follow_each_other_connect():
    assert [*ranks.run(many_groups, 2)] == [[3.0] * 4] * 2
