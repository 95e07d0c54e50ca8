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
    assert (answers, answers.printed) == ([(10, "2"), (11, "2")], ["working\n"] * 2)


def test_a_rank_in_a_process_of_its_own_answers_too(tmp_path):
    endpoints = [f"127.0.0.1:{port}" for port in ranks.free_ports(1)]
    end = ranks.started_anew(
        lambda: (tmp_path / "answer").write_text("here"), ranks.of_rank(0, endpoints, "xpu"), tmp_path / "log"
    )
    assert (end(60), (tmp_path / "answer").read_text()) == (0, "here")


def fails():
    if os.environ["PADDLE_TRAINER_ID"] == "1":
        raise ValueError("not here")


def test_the_rank_that_raised_is_named():
    with pytest.raises(ranks.RanksFailed, match="rank 1 raised: ValueError: not here") as failed:
        ranks.run(fails, 2)
    assert failed.value.root_cause == 1


def test_a_rank_that_does_not_end_is_killed():
    with pytest.raises(ranks.RanksFailed, match="rank 0 killed: killed by signal 9"):
        ranks.run(time.sleep, 1, 600, time_limit=3)


def connects_the_second_time(folder):
    if os.environ["PADDLE_TRAINER_ID"] == "0":
        with (folder / "started").open("a") as file:
            file.write("x")
    if (folder / "started").read_text() != "xx":
        raise RuntimeError("[/paddle/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:80] TIMEOUT")
    return "connected"


def test_ranks_that_gloo_did_not_connect_are_started_again(tmp_path):
    assert ranks.run(connects_the_second_time, 1, tmp_path) == ["connected"]
