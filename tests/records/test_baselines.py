"""A baseline is valid for the hardware, wheel and level it was measured with; its bounds follow from the spread of its runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xpulab import files
from xpulab.errors import InputError
from xpulab.records import baselines
from xpulab.records.baselines import Baseline, NoBaseline
from xpulab.records.record import Measurement, RunContext

MACHINE = {"processor": "Quick CPU (6-85-7)", "cores": 4}
HERE = RunContext("cpu", 1, MACHINE, {"paddlepaddle": "3.3.1"})
CONDITIONS = {"seed": "0"}


def rate(value, case="copy"):
    return Measurement(case, "rate", "GB/s", (value,), CONDITIONS)


def losses(*values):
    return Measurement("losses", "loss", "nats", values, CONDITIONS)


def baseline(run_context=HERE, level="quick", measured=(10.0, 11.0, 12.0)):
    entry = baselines.summarise("demo.baseline", [rate(each) for each in measured], run_context.device)
    return Baseline(
        device=run_context.device,
        hardware=baselines.hardware(run_context),
        wheel=baselines.wheel(run_context),
        level=level,
        machine=run_context.machine,
        driver="none",
        versions=run_context.versions,
        commit="0123456789",
        date="2026-11-21",
        runs=len(measured),
        entries=(entry,),
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder that baselines are read from."""
    monkeypatch.setenv(baselines.FOLDER, str(tmp_path))
    baselines.load_all.cache_clear()
    yield tmp_path
    baselines.load_all.cache_clear()


def refusal(run_context=HERE, level="quick"):
    with pytest.raises(NoBaseline) as none:
        baselines.find(run_context, level)
    return str(none.value)


GPU = RunContext("gpu", 1, {**MACHINE, "card": "A100", "driver": "550"}, {"paddlepaddle-gpu": "3.3.1"})
SLOW = replace(HERE, machine={"processor": "Slow CPU (6-42-1)", "cores": 4})
OTHER_WHEEL = replace(HERE, versions={"paddlepaddle-gpu": "3.3.1"})
SIM = replace(HERE, device="sim")


class TestABaselineIsFound:
    @pytest.mark.parametrize("run_context", [HERE, replace(HERE, versions={"paddlepaddle": "3.4.0"})])
    def test_on_the_machine_that_measured_it_also_for_another_release_of_the_wheel(self, folder, run_context):
        baselines.store(baseline(), folder)
        assert baselines.find(run_context, "quick") == baseline()

    def test_not_without_a_file(self, folder):
        assert "there is no cpu.json" in refusal() and "xpulab baseline" in refusal()

    @pytest.mark.parametrize(
        ("stored", "run_context", "level", "why"),
        [
            (HERE, SLOW, "quick", "hardware Quick CPU (6-85-7), 4 cores, not with Slow CPU (6-42-1), 4 cores"),
            (GPU, replace(GPU, machine={**MACHINE, "card": "H100"}), "quick", "hardware A100, not with H100"),
            (HERE, OTHER_WHEEL, "quick", "wheel paddlepaddle, not with paddlepaddle-gpu"),
            (HERE, HERE, "standard", "level quick, not with standard"),
            (HERE, SIM, "quick", "there is no sim.json"),
        ],
        ids=["other hardware", "another card", "another family of wheels", "another level", "another device"],
    )
    def test_not_for_anything_else(self, folder, stored, run_context, level, why):
        baselines.store(baseline(stored), folder)
        assert why in refusal(run_context, level)


OWN = baselines.summarise("demo.baseline", [rate(3.0, "add"), rate(4.0, "add")], "sim")


@pytest.mark.parametrize(
    ("check", "measured"),
    [
        ("demo.other", rate(1.0)),
        ("demo.baseline", rate(1.0, case="add")),
        ("demo.baseline", replace(rate(1.0), conditions={"seed": "1"})),
        ("demo.baseline", replace(rate(1.0), unit="MB/s")),
        ("demo.baseline", replace(rate(1.0), values=(1.0, 2.0))),
    ],
    ids=["another check", "another case", "another seed", "another unit", "another length"],
)
def test_an_entry_is_not_found_for_another_measurement(check, measured):
    assert baseline().entry("demo.baseline", rate(99.0)).value == (11.0,)
    with pytest.raises(NoBaseline):
        baseline().entry(check, measured)


class TestSummaryOfSeveralRuns:
    def test_the_value_is_the_median_of_each_step(self):
        entry = baselines.summarise("demo.baseline", [losses(3.0, 2.0), losses(3.1, 1.0), losses(3.5, 1.5)], "cpu")
        assert (entry.value, entry.spread) == ((3.1, 1.5), 1.0)

    @pytest.mark.parametrize(
        ("kind", "values", "spread", "device", "tolerance"),
        [
            ("loss", (3.0, 2.0), 0.1, "cpu", 0.4),  # four spreads
            ("loss", (3.0, 2.0), 0.0, "cpu", 0.003),  # without spread a thousandth of the largest
            ("memory", (1000.0,), 1.0, "gpu", 20.0),  # at least two percent
            ("rate", (10.0,), 0.1, "cpu", 6.0),  # of a rate a factor, the smallest by device
            ("rate", (10.0,), 0.1, "sim", 6.0),
            ("rate", (10.0,), 0.1, "gpu", 1.25),
            ("rate", (10.0,), 0.1, "xpu", 1.25),
            ("rate", (10.0,), 5.0, "gpu", 3.0),  # which grows with its spread
        ],
    )
    def test_the_tolerance_follows_from_kind_spread_and_device(self, kind, values, spread, device, tolerance):
        assert baselines.tolerance_of(kind, values, spread, device) == tolerance


class TestTheFile:
    def test_keeps_the_baselines_of_other_machines_and_levels(self, folder):
        other = replace(HERE, machine={"processor": "Slow CPU (6-42-1)", "cores": 2})
        for each in (baseline(), baseline(other, measured=(1.0, 2.0)), baseline(level="standard", measured=(7.0, 8.0))):
            path = baselines.store(each, folder)
        assert [(each.hardware[:4], each.level) for each in baselines.load(path)] == [
            ("Quic", "quick"),
            ("Quic", "standard"),
            ("Slow", "quick"),
        ]

    @pytest.mark.parametrize(
        ("old", "new", "why"),
        [
            ('"runs": 3', '"runs": "three"', "'three' is not of type 'integer'"),
            ('"value": [11.0]', '"value": [0.0]', r"0\.0 is less than or equal to the minimum of 0"),
        ],
        ids=["not its schema", "a rate of zero"],
    )
    def test_that_was_changed_is_refused_with_the_line(self, folder, old, new, why):
        path = baselines.store(baseline(), folder)
        text = path.read_text().replace(old, new)
        path.write_text(text)
        line = 1 + next(number for number, each in enumerate(text.splitlines()) if new in each)
        with pytest.raises(InputError, match=rf"cpu\.json line {line}: {why}"):
            baselines.load(path)


@pytest.mark.parametrize("path", sorted((files.DATA / "baselines").glob("*.json")), ids=lambda path: path.stem)
def test_the_committed_baselines_are_valid(path):
    assert all(each.runs >= 5 and each.commit != "unknown" for each in baselines.load(path))
