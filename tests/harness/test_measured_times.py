"""What chapters took is kept in the user's cache; whatever is wrong with that file, a run goes on."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tests.conftest import GOOD, section
from xpulab import cli, files
from xpulab.harness.execute import in_order, longest_first
from xpulab.harness.measured_times import MeasuredTimes, default_path
from xpulab.harness.plan import read_plan

MIB = 1 << 20


@pytest.fixture
def chapter(put, tmp_path, monkeypatch):
    """Makes a chapter of the book."""
    monkeypatch.setattr(files, "NOTEBOOKS", tmp_path)
    return lambda name, *cells, **options: read_plan(put(name, *(cells or [GOOD]), **options), "quick")


@pytest.fixture
def kept(tmp_path):
    return tmp_path / "cache" / "times.json"


def test_what_was_measured_is_known_to_the_next_run_and_half_of_it_stays(chapter, kept):
    plan = chapter("one", budget=90)
    assert MeasuredTimes("cpu", "quick", kept).seconds(plan) == 90.0  # what its author planned
    for seconds, known in ((10.0, 10.0), (20.0, 15.0)):
        MeasuredTimes("cpu", "quick", kept).note(plan, seconds, 800 * MIB)
        times = MeasuredTimes("cpu", "quick", kept)
        assert (times.seconds(plan), times.peak_bytes(plan)) == (known, 800 * MIB)


def test_times_of_a_chapter_stay_when_it_gets_another_number(chapter, kept):
    MeasuredTimes("cpu", "quick", kept).note(chapter("05_one"), 10.0, 800 * MIB)
    (files.NOTEBOOKS / "05_one.ipynb").unlink()
    renumbered = chapter("06_one")
    assert MeasuredTimes("cpu", "quick", kept).seconds(renumbered) == 10.0


@pytest.mark.parametrize(("device", "level"), [("sim", "quick"), ("cpu", "smoke")])
def test_another_device_or_level_has_times_of_its_own(chapter, kept, device, level):
    plan = chapter("one", budget=90)
    MeasuredTimes("cpu", "quick", kept).note(plan, 7.0, 800 * MIB)
    assert MeasuredTimes(device, level, kept).seconds(plan) == 90.0
    MeasuredTimes(device, level, kept).note(plan, 3.0, 1)
    assert MeasuredTimes("cpu", "quick", kept).seconds(plan) == 7.0


def test_ranks_need_memory_too(chapter, kept):
    times = MeasuredTimes("cpu", "quick", kept)
    assert times.peak_bytes(chapter("four", cards=4)) - times.peak_bytes(chapter("one")) == 3 * 512 * MIB


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"[1, 2]",
        b'"text"',
        b'{"cpu quick": 5}',
        b'{"cpu quick": {"one": null}}',
        b'{"cpu quick": {"one": {"seconds": -1, "peak_bytes": 5}}}',
        b'{"cpu quick": {"one": {"seconds": NaN, "peak_bytes": 5}}}',
        b'{"cpu quick": {"one": {"seconds": 3, "peak_bytes": Infinity}}}',
        b'{"cpu quick": {"one": {"seconds": "long", "peak_bytes": 5}}}',
        b'{"cpu quick": {"one": {"seconds": 3}}}',
    ],
)
def test_a_damaged_file_is_ignored_and_replaced(chapter, kept, text):
    plan = chapter("one", budget=90)
    kept.parent.mkdir()
    kept.write_bytes(text)
    times = MeasuredTimes("cpu", "quick", kept)
    assert times.seconds(plan) == 90.0
    times.note(plan, 5.0, MIB)
    assert MeasuredTimes("cpu", "quick", kept).seconds(plan) == 5.0


def test_a_place_that_cannot_be_written_is_ignored(chapter, tmp_path):
    (tmp_path / "file").write_text("no folder")
    plan = chapter("one")
    times = MeasuredTimes("cpu", "quick", tmp_path / "file" / "times.json")
    times.note(plan, 5.0, MIB)
    assert times.seconds(plan) == 5.0


def test_two_runs_at_once_keep_what_both_measured(chapter, kept):
    one, two = chapter("one"), chapter("two")
    first, second = MeasuredTimes("cpu", "quick", kept), MeasuredTimes("cpu", "quick", kept)
    first.note(one, 5.0, MIB)
    second.note(two, 6.0, MIB)
    assert set(json.loads(kept.read_text())["cpu quick"]) == {"one", "two"}
    assert [path.name for path in kept.parent.iterdir()] == [kept.name], "nothing is left beside it"


def test_a_notebook_that_is_no_chapter_is_not_kept(put, kept):
    plan = read_plan(put("one", GOOD), "quick")
    MeasuredTimes("cpu", "quick", kept).note(plan, 5.0, MIB)
    assert not kept.exists()


def test_the_file_is_in_the_cache_of_this_user_and_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("platform.node", lambda: "node17")
    assert default_path() == tmp_path / "xpulab" / "times" / "node17.json"


def names(plans):
    return [plan.name for plan in plans]


def test_the_longest_come_first_by_what_was_measured(chapter, kept):
    plans = [chapter("a", budget=90), chapter("b", budget=30), chapter("c", budget=60)]
    times = MeasuredTimes("cpu", "quick", kept)
    assert names(longest_first(plans, times)) == ["a", "c", "b"]
    times.note(plans[0], 5.0, MIB)
    assert names(longest_first(plans, times)) == ["c", "b", "a"]


def test_side_by_side_the_shortest_comes_first_then_what_judges_times_then_the_longest(chapter, kept):
    plans = [chapter("long", budget=90), chapter("short", budget=10), chapter("middle", budget=60)]
    plans.append(chapter("timed", section("times", judges_times=True), GOOD, budget=20))
    assert names(in_order(plans, MeasuredTimes("cpu", "quick", kept))) == ["short", "timed", "long", "middle"]
    assert in_order([], MeasuredTimes("cpu", "quick", kept)) == []


def test_a_list_of_what_would_run_shows_the_measured_time(chapter, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plan = chapter("one", budget=90)
    arguments = ["run", "one", "--list", "--device", "cpu"]
    assert "about 90 s" in CliRunner().invoke(cli.app, arguments, catch_exceptions=False).output
    MeasuredTimes("cpu", "quick").note(plan, 7.0, MIB)
    assert "about 7 s" in CliRunner().invoke(cli.app, arguments, catch_exceptions=False).output
