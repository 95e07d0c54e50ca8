"""Notebooks start while processors and memory have room, at least one always, and never beside a check that judges times."""

from __future__ import annotations

import math

import pytest

from tests.conftest import GOOD, section, usual_plans
from xpulab.harness.admission import AtATime, ByLoad, Running, last_timed_cell
from xpulab.harness.machine import Reading
from xpulab.harness.plan import read_plan

GIB = 1 << 30
OLD = Running(0.0, GIB)
NEW = Running(100.0, GIB)
TIMED = 'check.equal("demo.timed", 2, 2, control=3)'
JUST, YOUNG, LARGE = Running(99.5, GIB), Running(95.0, 3 * GIB), Running(100.0, 8 * GIB)
JUDGES = Running(0.0, GIB, judges_times=True)


class Shown:
    """A machine that shows one reading."""

    def __init__(self, busy, cores=2, available=64 * GIB):
        self.reading, self.forgotten = Reading(cores, busy, available), 0

    def look(self):
        return self.reading

    def forget(self):
        self.forgotten += 1


PLACES = {
    "one runs whatever else the machine does": [((2.0,), [], 0), ((None,), [], 0), ((2.0, 2, 0), [], 0), ((0.3, 0.5), [], 0)],
    "the next when part of a core is free": [
        ((2.0,), [OLD], None),
        ((1.95,), [OLD], None),
        ((1.8,), [OLD], 0),
        ((0,), [OLD], 0),
    ],
    "one that waits does not hold a core": [((1.2,), [OLD] * 2, 0), ((1.2,), [OLD] * 3, 0)],
    "never more than two a core": [((0.0,), [OLD] * 4, None)],
    "one that has just started counts as a core": [((1.2,), [OLD, JUST], None), ((0.5,), [OLD, JUST], 0)],
    "while the load is unknown one a core": [((None,), [OLD], 0), ((None,), [OLD] * 2, None)],
    "memory must hold it with a margin": [((0.0, 2, 2 * GIB), [OLD], 0), ((0.0, 2, 2 * GIB - 1), [OLD], None)],
    "memory that a young one will take": [((0.0, 2, 4 * GIB), [YOUNG], None), ((0.0, 2, 5 * GIB), [YOUNG], 0)],
    "unknown memory is no reason to wait": [((0.0, 2, math.inf), [OLD], 0)],
    "a smaller one before one that does not fit": [((0.0, 2, 3 * GIB), [OLD], 1, [LARGE, NEW])],
    "beside a check that judges times a core each": [
        *(((0.0,), [JUDGES], 0), ((0.0,), [JUDGES, OLD], None)),
        ((0.0,), [OLD, OLD], 1, [JUDGES, NEW]),
    ],
}


@pytest.mark.parametrize("cases", PLACES.values(), ids=PLACES)
def test_which_of_those_that_wait_starts(cases):
    """By case: busy cores, cores, available memory; what runs; the place of the one that starts; what waits."""
    for machine, running, place, *waiting in cases:
        assert ByLoad(Shown(*machine)).next(100.0, running, *(waiting or [(NEW,)])) == place, (machine, running)


def test_a_fixed_number_asks_no_machine():
    assert AtATime(2).next(0.0, [OLD], [NEW]) == 0
    assert AtATime(2).next(0.0, [OLD, OLD], [NEW]) is None
    assert AtATime(2).next(0.0, [OLD], []) is None


def test_a_start_or_an_end_makes_the_measured_load_worthless():
    machine = Shown(2.0)
    ByLoad(machine).changed()
    assert machine.forgotten == 1


def test_the_last_cell_that_judges_times_is_found_in_the_cells_that_run(put):
    path = put("times", GOOD, section("timed", judges_times=True), TIMED, section("after"), 'print("later")')
    assert last_timed_cell(read_plan(path, "quick")) == 4
    assert last_timed_cell(read_plan(put("none", GOOD), "quick")) == 0


def test_each_section_of_the_book_that_compares_with_a_baseline_judges_times():
    baselines = [
        (plan.chapter, check)
        for plan in usual_plans("standard").values()
        for check in plan.checks
        if check.method == "baseline"
    ]
    assert baselines
    for chapter, check in baselines:
        assert chapter.section_of(check).judges_times, f"{chapter.path.name} {check.name}: declare judges_times"
