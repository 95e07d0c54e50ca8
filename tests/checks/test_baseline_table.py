"""A measurement is compared with the baseline of the device; without a baseline it is skipped, not passed."""

from __future__ import annotations

import math

import pytest

from xpulab.checks import check
from xpulab.records import baselines
from xpulab.records.baselines import Baseline
from xpulab.records.record import Measurement, RunContext

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


def test_without_a_baseline_it_is_skipped_with_one_reason(shown):
    def fill(rows):
        rows.rate("copy", 10.0, "GB/s", control=1.0)
        rows.memory("memory", 1000, control=2000)

    measure(fill)
    reason = "copy and memory: no baseline: there is no cpu.json; `xpulab baseline` measures one"
    assert (shown.record.outcome, shown.record.reason) == ("skipped", reason)
    assert shown.text == f"skipped demo.baseline  {reason}"


def losses(*values, control=2.0):
    return lambda rows: rows.losses("losses", list(values), control=[control] * max(1, len(values)))


def memory(value):
    return lambda rows: rows.memory("memory", value, control=5000)


@pytest.mark.usefixtures("with_baseline")
class TestComparedWithABaseline:
    @pytest.mark.parametrize("fill", [copy(10.0), copy(2.0), copy(55.0), losses(3.0, 2.001)])
    def test_what_is_within_its_tolerance_passes(self, shown, fill):
        measure(fill)
        assert shown.record.outcome == "passed"

    @pytest.mark.parametrize("fill", [copy(1.5), copy(61.0), losses(3.0, 2.01), memory(900), memory(1100)])
    def test_what_is_outside_fails_with_a_remedy(self, shown, fill):
        measure(fill)
        assert shown.record.outcome == "failed"
        assert "xpulab baseline" in row(shown).reason

    @pytest.mark.parametrize(
        "fill", [*map(copy, (math.nan, math.inf, 0.0, -1.0)), copy(10.0, control=9.0), losses(control=1.0)]
    )
    def test_what_is_no_measurement_or_has_an_accepted_control_is_broken(self, shown, fill):
        measure(fill)
        assert shown.record.outcome == "broken"

    def test_without_a_device_it_is_broken(self, shown):
        check.ledger.run_context = None
        measure(copy(10.0))
        assert shown.record.outcome == "broken"
        assert "choose a device first" in shown.record.reason
