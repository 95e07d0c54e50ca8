"""A measurement is compared with the baseline of the device; without a baseline it is skipped, not passed."""

from __future__ import annotations

import json
import math

import pytest

from xpulab.checks import check
from xpulab.records import baselines
from xpulab.records.baselines import Baseline
from xpulab.records.record import Measurement, RunContext, record_in

HERE = RunContext("cpu", 1, {"processor": "Quick CPU", "cores": 4}, {"paddlepaddle": "3.3.1"})
CONDITIONS = {"seed": 0}
MEASUREMENTS = (
    Measurement("copy", "rate", "GB/s", (10.0,), {"seed": "0"}),
    Measurement("losses", "loss", "nats", (3.0, 2.0), {"seed": "0"}),
    Measurement("memory", "memory", "bytes", (1000.0,), {"seed": "0"}),
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder for baselines; a device was chosen."""
    monkeypatch.setenv(baselines.FOLDER, str(tmp_path))
    baselines.load_all.cache_clear()
    check.ledger.run_context = HERE
    yield tmp_path
    baselines.load_all.cache_clear()


@pytest.fixture
def with_baseline(folder):
    """There is a baseline for MEASUREMENTS."""
    entries = tuple(baselines.summarise("demo.baseline", [each, each], "cpu") for each in MEASUREMENTS)
    origin = dict(machine=HERE.machine, driver="none", versions=HERE.versions, commit="0123456789", date="2026-11-21", runs=2)
    hardware = baselines.hardware(HERE)
    baselines.store(Baseline("cpu", hardware, "paddlepaddle", "quick", entries=entries, **origin), folder)


def measure(fill, level="quick"):
    with check.baseline("demo.baseline", level=level, conditions=CONDITIONS, means="as in the baseline") as rows:
        fill(rows)


def row(shown):
    """The only row of the check."""
    (only,) = shown.record.rows
    return only


def copy(value, control=1.0):
    return lambda rows: rows.rate("copy", value, "GB/s", control=control)


def test_without_a_baseline_it_is_skipped_with_one_reason(shown, folder):
    def fill(rows):
        rows.rate("copy", 10.0, "GB/s", control=1.0)
        rows.memory("memory", 1000, control=2000)

    measure(fill)
    reason = f"no baseline: there is no cpu.json in {folder.name}; `xpulab baseline` measures one"
    assert (shown.record.outcome, shown.record.reason) == ("skipped", reason)
    assert shown.text == f"skipped demo.baseline  {reason}"


def test_without_a_baseline_the_record_has_the_measurements(shown):
    measure(copy(10.0))
    stored = record_in(json.loads(json.dumps(shown.outputs[-1][1], allow_nan=False)))
    assert stored.measurements == (MEASUREMENTS[0],)


@pytest.mark.usefixtures("with_baseline")
class TestComparedWithABaseline:
    @pytest.mark.parametrize("value", [10.0, 2.0, 55.0])
    def test_a_rate_within_its_factor_passes(self, shown, value):
        measure(copy(value))
        assert (shown.record.outcome, row(shown).measured) == ("passed", value)

    def test_a_rate_that_is_too_low_fails_with_a_hint(self, shown):
        measure(copy(1.5))
        assert shown.record.outcome == "failed"
        assert "slower than the baseline: look for another program" in row(shown).reason

    def test_a_rate_that_is_too_high_fails_with_a_hint(self, shown):
        measure(copy(61.0))
        assert shown.record.outcome == "failed"
        assert "faster than the baseline: look for work that is skipped or not waited for" in row(shown).reason

    def test_losses_within_the_tolerance_pass(self, shown):
        measure(lambda rows: rows.losses("losses", [3.0, 2.001], control=[2.0, 2.0]))
        assert shown.record.outcome == "passed"

    def test_one_different_loss_fails(self, shown):
        measure(lambda rows: rows.losses("losses", [3.0, 2.01], control=[2.0, 2.0]))
        assert shown.record.outcome == "failed"
        assert "not the baseline's loss" in row(shown).reason

    @pytest.mark.parametrize("value", [900, 1100])
    def test_less_memory_fails_like_more(self, shown, value):
        measure(lambda rows: rows.memory("memory", value, control=5000))
        assert shown.record.outcome == "failed"
        assert "not the baseline's amount of memory" in row(shown).reason

    def test_the_record_has_the_origin_of_the_baseline(self, shown):
        measure(copy(10.0))
        origin = "2 runs of 2026-11-21 on Quick CPU, 4 cores, paddlepaddle 3.3.1, commit 0123456789"
        assert shown.record.expected == f"as in {origin}"

    def test_a_control_that_is_accepted_makes_it_broken(self, shown):
        measure(copy(10.0, control=9.0))
        assert shown.record.outcome == "broken"

    @pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
    def test_a_value_that_is_not_a_rate_is_broken_and_not_recorded(self, shown, value):
        measure(copy(value))
        assert (shown.record.outcome, shown.record.measurements) == ("broken", ())

    def test_an_empty_list_of_losses_is_broken(self, shown):
        measure(lambda rows: rows.losses("losses", [], control=[1.0]))
        assert shown.record.outcome == "broken"

    def test_another_number_of_losses_has_no_baseline(self, shown):
        measure(lambda rows: rows.losses("losses", [3.0], control=[1.0]))
        assert shown.record.outcome == "skipped"

    def test_another_level_has_no_baseline(self, shown):
        measure(copy(10.0), level="standard")
        assert shown.record.outcome == "skipped"

    def test_without_a_device_it_is_broken(self, shown):
        check.ledger.run_context = None
        measure(copy(10.0))
        assert shown.record.outcome == "broken"
        assert "choose a device first" in shown.record.reason

    def test_with_an_invalid_file_it_is_broken_not_skipped(self, shown, folder):
        (folder / "cpu.json").write_text("{")
        measure(copy(10.0))
        assert shown.record.outcome == "broken"
        assert "cpu.json line 1: not JSON" in shown.record.reason
