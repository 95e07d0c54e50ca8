"""`xpulab run --device sim --as xpu`: what it shows of a machine, what its verdict says, and what it refuses."""

from __future__ import annotations

import json

import jsonschema
import pytest
from typer.testing import CliRunner

from tests.fleet.compare import made_up
from xpulab import cli, files
from xpulab.devices import STANDS_FOR, judged_as
from xpulab.doctor import meant, rehearsed
from xpulab.doctor.detect import detect
from xpulab.errors import InputError
from xpulab.fleet import gate
from xpulab.harness.execute import RunOptions
from xpulab.harness.judge import not_run
from xpulab.harness.plan import make_plans
from xpulab.harness.report.result import Result, to_json
from xpulab.records import known_issues, refusals


@pytest.mark.parametrize("device", ["xpu", "gpu"])
def test_the_machine_that_it_shows_has_eight_cards_of_which_the_visible_may_be_used(device, tmp_path, monkeypatch):
    for name, value in rehearsed.machine(device, tmp_path).items():
        monkeypatch.setenv(name, value)
    detection = detect()
    nodes, reading = meant.of_device(device, detection)
    assert detection.device == device
    assert [len(detection.kunlun_pci if device == "xpu" else detection.nvidia_pci), len(nodes)] == [8, 8]
    assert (reading.outcome, len(reading.cards), reading.unread) == ("ok", 8, ())
    assert len({(card.index, card.serial, card.pci_address) for card in reading.cards}) == 8
    assert meant.visible_cards(device, detection) == (8, 8)
    monkeypatch.setenv("XPU_VISIBLE_DEVICES" if device == "xpu" else "CUDA_VISIBLE_DEVICES", "2,3")
    assert meant.visible_cards(device, detection) == (2, 8)


def test_only_simulated_cards_are_judged_as_another_device(monkeypatch):
    monkeypatch.setenv(STANDS_FOR, "xpu")
    assert [judged_as(device) for device in ("sim", "cpu", "gpu", "xpu")] == ["xpu", "cpu", "gpu", "xpu"]
    monkeypatch.delenv(STANDS_FOR)
    assert judged_as("sim") == "sim"


def test_known_issues_are_those_of_the_device_and_of_the_kernels_that_compute(monkeypatch):
    fields = {"id": "a", "check": "a.b", "versions": {}, "symptom": "", "reference": "", "workaround": ""}
    of_cpu_kernel = known_issues.KnownIssue(**fields, devices=("cpu", "sim"), cause="kernel")
    forgotten = known_issues.KnownIssue(**fields, devices=("cpu", "sim"))
    of_xpu = known_issues.KnownIssue(**fields, devices=("xpu",), cause="kernel")
    issues = [of_cpu_kernel, forgotten, of_xpu]
    assert [issue.applies("sim") for issue in issues] == [True, True, False]
    monkeypatch.setenv(STANDS_FOR, "xpu")
    assert [issue.applies("sim") for issue in issues] == [True, False, True]


def test_it_lacks_what_the_device_lacks_and_what_simulated_cards_lack(monkeypatch):
    fields = {"call": "all_reduce", "versions": {}, "reason": "", "source": ""}
    entries = [refusals.Refusal(**fields, devices=devices) for devices in (("xpu",), ("sim",), ("cpu",))]

    def concerned():
        return [entry.concerns("sim", "all_reduce", "", "", "") for entry in entries]

    assert concerned() == [False, True, False]
    monkeypatch.setenv(STANDS_FOR, "xpu")
    assert concerned() == [True, True, False]


def test_its_verdict_judges_no_card_and_opens_no_gate(tmp_path):
    options = RunOptions("sim", "quick", 2, stands_for="xpu")
    result = Result(options, tuple(not_run(plan, "missing", "a demo") for plan in make_plans(["11"], "quick")), 1.0, tmp_path)
    stored = to_json(result)
    jsonschema.validate(stored, json.loads(files.data("schema", "result.schema.json").read_text()))
    assert (stored["judges"], stored["stands_for"]) == ("rehearsal", "xpu")
    assert "no card was judged" in stored["verdict"] and "READY" not in stored["verdict"]
    (tmp_path / "a run").mkdir()
    green = made_up.result(made_up.notebook(made_up.check("demo.product")), device="sim", judges="rehearsal", stands_for="xpu")
    (tmp_path / "a run" / "result.json").write_text(json.dumps(green))
    with pytest.raises(InputError, match=r"holds no result\.json of a whole run"):
        gate.gate(tmp_path, 1e6)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--device", "cpu", "--as", "xpu"], "only simulated cards stand for another device: add --device sim"),
        (["--as", "gpu"], "only simulated cards stand for another device: add --device sim"),
        (["--device", "sim", "--as", "tpu"], "--as tpu: choose xpu or gpu"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused(options, said):
    outcome = CliRunner().invoke(cli.app, ["run", *options])
    assert (outcome.exit_code, said in outcome.output) == (2, True)
