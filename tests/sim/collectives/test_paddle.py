"""Paddle's public collectives on simulated cards, by value, on 2 and 4 ranks, and with faults: through paddle_job.py."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from xpulab.sim.limits import DROP_EXIT_CODE

pytestmark = pytest.mark.integration

JOB = Path(__file__).with_name("paddle_job.py")
CASES = re.findall(r"^def case_(\w+)", JOB.read_text(), re.MULTILINE)
NUMBERS = (2, 4)
FAULTS = {
    "fail": "fail collective kind=all_reduce",
    "drop": "drop collective kind=all_reduce",
    "hang": "hang collective kind=all_reduce",
    "lose": "lose collective kind=all_reduce",
    "delay": "delay collective seconds=0.3",
    "flip a result": "flip collective kind=all_reduce bit=22",
    "flip a message": "flip collective kind=send bit=22",
}


def jobs(out: Path, asked: list[int | str], timeout: int) -> list[list[dict[str, Any]]]:
    environment = os.environ | {"XPULAB_SIM_TIMEOUT": str(timeout), "OMP_NUM_THREADS": "1"}
    environment.pop("XPULAB_SIM_FAULTS", None)
    command = [sys.executable, str(JOB), str(out), json.dumps(asked)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """By number of ranks, for each rank: "reported", pairs of case and error or None."""
    out = tmp_path_factory.mktemp("paddle_job") / "results.json"
    return dict(zip(NUMBERS, jobs(out, list(NUMBERS), 30), strict=True))


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("case", CASES)
def test_paddle(results: dict[int, list[dict[str, Any]]], case: str, number: int) -> None:
    ranks = [dict(rank["reported"]) for rank in results[number]]
    assert [rank.get(case, "did not come to its end") for rank in ranks] == [None] * number


@pytest.fixture(scope="module")
def with_faults(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """By fault, for the rank beside it and the rank that has it: what it reported, and its exit status."""
    out = tmp_path_factory.mktemp("paddle_faults") / "results.json"
    return dict(zip(FAULTS, jobs(out, list(FAULTS.values()), 3), strict=True))


@pytest.mark.parametrize(
    ("fault", "beside", "at"),
    [
        ("fail", "rank 1 failed in all_reduce: .*injected fault 'fail collective", "injected fault 'fail collective"),
        ("hang", "all_reduce.*timed out after 3.*rank 1 .*is alive", "sim"),
        ("lose", "rank 1 failed in all_reduce: .*is lost", "is lost"),
    ],
)
def test_a_rank_that_fails_is_an_error_on_both(
    with_faults: dict[str, list[dict[str, Any]]], fault: str, beside: str, at: str
) -> None:
    for rank, pattern in zip(with_faults[fault], (beside, at), strict=True):
        assert rank["status"] >= 0
        (error,) = rank["reported"]
        assert re.search(pattern, error, re.DOTALL), error


def test_a_rank_that_is_gone_is_named(with_faults: dict[str, list[dict[str, Any]]]) -> None:
    beside, gone = with_faults["drop"]
    assert (gone["reported"], gone["status"]) == ([], DROP_EXIT_CODE)
    assert re.search(r"rank 1 \(process \d+\) has died", beside["reported"][0])


def test_a_rank_that_is_slow_is_none(with_faults: dict[str, list[dict[str, Any]]]) -> None:
    assert [rank["reported"] for rank in with_faults["delay"]] == [[[2.0] * 4, [5.0] * 4], [[2.0] * 4, [0.0] * 4]]


def test_a_bit_that_flips_shows_where_it_flipped(with_faults: dict[str, list[dict[str, Any]]]) -> None:
    beside, at = (rank["reported"] for rank in with_faults["flip a result"])
    assert beside == [[2.0] * 4, [5.0] * 4]
    assert at == [[3.0, 2.0, 2.0, 2.0], [0.0] * 4]
    beside, at = (rank["reported"] for rank in with_faults["flip a message"])
    assert beside == [[2.0] * 4, [7.0, 5.0, 5.0, 5.0]]
    assert at == [[2.0] * 4, [0.0] * 4]
