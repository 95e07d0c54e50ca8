"""Baselines are made of several green runs of one machine, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from tests.conftest import GOOD
from xpulab.errors import InputError
from xpulab.harness import baseline
from xpulab.harness import run as harness
from xpulab.harness.execute import RunOptions
from xpulab.harness.judge import Group, Verdict
from xpulab.harness.plan import read_plan
from xpulab.records import baselines
from xpulab.records.record import Measurement, Record, RunContext

pytestmark = pytest.mark.integration

HERE = RunContext("cpu", 1, {"processor": "Quick CPU", "cores": 4}, {"paddlepaddle": "3.3.1"})
DEVICE = "from xpulab.chapters.shared.device import use_device\nuse_device(device, cards)"
MEASURES = """import math
with check.baseline("demo.baseline", level=level, conditions={"seed": seed}, means="as before") as rows:
    rows.rate("copy", math.sqrt(100), "GB/s", control=math.sqrt(100) / 20)
    rows.losses("losses", [3.0, 2.0, 1.0], control=[3.0, 3.0, 3.0])"""
BAD = 'check.equal("demo.bad", 1, 2, control=3)'


def run_of(speed, run_context=HERE, case="copy"):
    """The verdicts on a run that measured this speed."""
    record = Record("demo.baseline", "skipped", "", measurements=(Measurement(case, "rate", "GB/s", (speed,), {}),))
    return [Verdict("demo", "A demo", "passed", None, (Group("", "lesson", (record,)),), run_context)]


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """An empty folder for baselines."""
    folder = tmp_path / "baselines"
    monkeypatch.setenv(baselines.FOLDER, str(folder))
    baselines.load_all.cache_clear()
    yield folder
    baselines.load_all.cache_clear()


def test_the_value_is_the_median_of_the_runs_and_says_where_it_comes_from():
    summary = baseline.summarize([run_of(10.0), run_of(14.0), run_of(11.0)], "quick")
    assert [(entry.value, entry.spread) for entry in summary.entries] == [((11.0,), 4.0)]
    assert (summary.device, summary.hardware, summary.wheel) == ("cpu", "Quick CPU, 4 cores", "paddlepaddle")
    assert (summary.runs, summary.driver, summary.versions) == (3, "none", HERE.versions)


NOTHING = [Verdict("demo", "A demo", "passed", None, (), HERE)]
OTHER = run_of(10.0, replace(HERE, versions={"paddlepaddle": "3.3.0"}))


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([run_of(10.0), OTHER], "same versions"),
        ([run_of(10.0), run_of(10.0, case="add")], r"demo\.baseline, (add|copy): not every run"),
        ([NOTHING, NOTHING], "nothing was measured"),
    ],
)
def test_runs_that_are_no_measurement_of_one_machine_are_refused(runs, why):
    with pytest.raises(InputError, match=why):
        baseline.summarize(runs, "quick")


@pytest.mark.timeout(280)
@pytest.mark.usefixtures("in_fork_server")
class TestMeasuredAndCompared:
    """Real runs of a demo notebook, whose kernels are forked."""

    def measure(self, plan, folder):
        return baseline.measure([plan], RunOptions("cpu", "quick", 1), 2, folder, Console(quiet=True))

    def test_a_slower_machine_is_red_and_its_own_baseline_is_not(self, put, kept, tmp_path):
        baselines.store(self.measure(read_plan(put("demo", DEVICE, MEASURES, GOOD), "quick"), tmp_path / "out"), kept)
        slower = read_plan(put("demo", DEVICE, MEASURES.replace("sqrt(100)", "sqrt(1)"), GOOD), "quick")
        harness.prepare(tmp_path / "after")
        after = harness.run([slower], RunOptions("cpu", "quick", 1), 1, tmp_path / "after", Console(quiet=True))
        (first, _) = after.result.verdicts[0].records
        assert (first.name, first.outcome) == ("demo.baseline", "failed")
        assert self.measure(slower, tmp_path / "again").entries[0].value == (1.0,)

    def test_nothing_is_kept_of_a_run_that_is_red(self, put, kept, tmp_path):
        plan = read_plan(put("demo", DEVICE, MEASURES, BAD), "quick")
        with pytest.raises(baseline.NotGreen) as red:
            self.measure(plan, tmp_path / "out")
        assert red.value.result.outcome == "failed"
        assert (red.value.result.folder / "index.html").exists() and not kept.exists()
