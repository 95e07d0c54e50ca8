"""Notebooks start while processors and memory have room, at least one always, and never beside a check that judges times."""

from __future__ import annotations

import math

import pytest

from tests.conftest import section
from xpulab.harness.admission import AtATime, ByLoad, Running, last_timed_cell
from xpulab.harness.machine import Reading
from xpulab.harness.plan import make_plans, read_plan

GIB = 1 << 30
OLD = Running(0.0, GIB)
NEW = Running(100.0, GIB)
GOOD = 'check.equal("demo.good", 2, 2, control=3)'
TIMED = 'check.equal("demo.timed", 2, 2, control=3)'


class Shown:
    """A machine that shows one reading."""

    def __init__(self, busy, cores=2, available=64 * GIB):
        self.reading, self.forgotten = Reading(cores, busy, available), 0

    def look(self):
        return self.reading

    def forget(self):
        self.forgotten += 1


def admitted(machine, running, waiting=(NEW,)):
    return ByLoad(machine).next(100.0, running, waiting)


@pytest.mark.parametrize("machine", [Shown(2.0), Shown(None), Shown(2.0, available=0), Shown(0.3, cores=0.5)])
def test_one_notebook_runs_whatever_else_the_machine_does(machine):
    assert admitted(machine, []) == 0


@pytest.mark.parametrize(("busy", "place"), [(2.0, None), (1.95, None), (1.8, 0), (0.0, 0)])
def test_the_next_starts_when_a_part_of_a_core_is_free(busy, place):
    assert admitted(Shown(busy), [OLD]) == place


def test_a_chapter_that_waits_does_not_hold_a_core():
    assert admitted(Shown(1.2), [OLD, OLD]) == 0
    assert admitted(Shown(1.2), [OLD, OLD, OLD]) == 0


def test_more_than_two_a_core_never_run():
    assert admitted(Shown(0.0), [OLD] * 4) is None


def test_a_notebook_that_has_just_started_counts_as_a_core():
    just = Running(99.5, GIB)
    assert admitted(Shown(1.2), [OLD, just]) is None
    assert admitted(Shown(0.5), [OLD, just]) == 0


@pytest.mark.parametrize(("running", "place"), [(1, 0), (2, None)])
def test_while_the_load_is_unknown_there_is_a_notebook_a_core(running, place):
    assert admitted(Shown(None), [OLD] * running) == place


def test_memory_must_hold_it_with_a_margin():
    assert admitted(Shown(0.0, available=2 * GIB), [OLD]) == 0
    assert admitted(Shown(0.0, available=2 * GIB - 1), [OLD]) is None


def test_memory_that_a_young_notebook_will_take_is_not_available():
    young = Running(95.0, 3 * GIB)
    assert admitted(Shown(0.0, available=4 * GIB), [young]) is None
    assert admitted(Shown(0.0, available=5 * GIB), [young]) == 0


def test_unknown_memory_is_no_reason_to_wait():
    assert admitted(Shown(0.0, available=math.inf), [OLD]) == 0


def test_a_smaller_notebook_starts_before_one_that_does_not_fit():
    assert admitted(Shown(0.0, available=3 * GIB), [OLD], [Running(100.0, 8 * GIB), NEW]) == 1


def test_beside_a_check_that_judges_times_a_core_each():
    timed = Running(0.0, GIB, judges_times=True)
    assert admitted(Shown(0.0), [timed]) == 0
    assert admitted(Shown(0.0), [timed, OLD]) is None
    assert admitted(Shown(0.0), [OLD, OLD], [timed, NEW]) == 1


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
        (plan.chapter, check) for plan in make_plans([], "standard") for check in plan.checks if check.method == "baseline"
    ]
    assert baselines
    for chapter, check in baselines:
        assert chapter.section_of(check).judges_times, f"{chapter.path.name} {check.name}: declare judges_times"
