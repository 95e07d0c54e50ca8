"""The diagnosis names what is wrong with a machine, and nothing that is not."""

from __future__ import annotations

import json

import pytest

from tests.doctor.conftest import A100
from xpulab.doctor.diagnosis import Diagnosis, diagnose
from xpulab.doctor.paddle_facts import PaddleFacts
from xpulab.doctor.render import format_diagnosis
from xpulab.doctor.system import SYSTEM_ROOT

EXACT = {"XPU_PADDLE_FC_LOCAL_INT16": "1"}
PADDLE_FOR_XPU = PaddleFacts(version="3.3.0", built_for="xpu", xpu_cards=2)


@pytest.fixture
def examine(installed, monkeypatch):
    """Diagnoses a machine in which every package is as it should be, under Python 3.10."""
    monkeypatch.setattr("xpulab.doctor.versions.python_version", lambda: "3.10.13")
    for name, value in EXACT.items():
        monkeypatch.setenv(name, value)
    versions = {"paddlenlp": "3.0.0b4", "numpy": "1.26.4", "aistudio-sdk": "0.2.6", "setuptools": "80.1.0"}
    versions |= {"pip": "25.0", "datasets": "3.6.0", "pyarrow": "22.0.0"}

    def run(machine, frameworks=("paddlepaddle-xpu",), **options) -> Diagnosis:
        wheels = {name: "3.3.0" if name == "paddlepaddle-xpu" else "3.3.1" for name in frameworks}
        installed(versions | wheels)
        monkeypatch.setenv(SYSTEM_ROOT, str(machine.root))
        return diagnose(**options)

    return run


def verdicts(diagnosis: Diagnosis) -> dict[str, str]:
    return {finding.id: finding.verdict for finding in diagnosis.findings}


def finding(diagnosis: Diagnosis, id: str):
    return next(found for found in diagnosis.findings if found.id == id)


def test_healthy_p800_has_no_problem_but_old_firmware(p800, examine):
    diagnosis = examine(p800, paddle=PADDLE_FOR_XPU)
    problems = [thing for thing in (*diagnosis.findings, *diagnosis.versions) if thing.verdict != "ok"]
    assert [(thing.what, thing.found, thing.verdict) for thing in problems] == [("SBL firmware", "1.39", "warn")]


@pytest.mark.parametrize(("cards", "traces"), [(1, ()), (0, (".dockerenv",))], ids=["fewer", "none, in a container"])
def test_paddle_that_sees_fewer_cards_is_wrong(p800, examine, cards, traces):
    for path in traces:
        p800.file(path, "")
    paddle = PaddleFacts(version="3.3.0", built_for="xpu", xpu_cards=cards)
    assert verdicts(examine(p800, paddle=paddle))["card-count"] == "wrong"


@pytest.mark.parametrize(
    ("node", "id", "seen"), [("xpu1", "card-count", "/dev: 1"), ("xpuctrl", "node-permissions", "no /dev/xpuctrl")]
)
def test_a_node_that_is_missing_is_wrong(p800, examine, node, id, seen):
    (p800.root / "dev" / node).unlink()
    found = finding(examine(p800), id)
    assert (found.verdict, seen in found.seen) == ("wrong", True)


@pytest.mark.parametrize(
    ("script", "known"),
    [
        ("echo eight healthy cards", "vendor-tool-unread"),
        ("echo eight healthy cards; exit 3", "vendor-tool-fails"),
        ("yes eight healthy cards", "vendor-tool-fails"),
    ],
)
def test_a_tool_that_cannot_be_read_is_not_known_counts_no_cards_and_its_text_is_kept(p800, examine, script, known):
    p800.tool("xpu-smi", f"PATH=/usr/bin:/bin; {script}")
    diagnosis = examine(p800, paddle=PADDLE_FOR_XPU)
    found = finding(diagnosis, "xpu-smi")
    assert (found.verdict, found.known) == ("unknown", known)
    assert (verdicts(diagnosis)["card-count"], diagnosis.outcome) == ("ok", "warn")
    assert "xpu-smi printed:\neight healthy cards" in format_diagnosis(diagnosis)
    raw = json.loads(json.dumps(diagnosis.to_json()))["detection"]["xpu_smi"]["raw"]
    assert raw.startswith("eight healthy cards") and len(raw) <= 4000


@pytest.mark.parametrize(
    ("card", "id", "verdict", "seen"),
    [
        ({"ecc": [0, 0], "pages": [], "reasons": 0}, "memory", "ok", "no uncorrectable errors of memory on 1 card"),
        ({"ecc": [3, 17]}, "memory", "wrong", "card 0: 3"),
        ({"ecc": [0, 17]}, "memory", "warn", "card 0: 17"),
        ({"pages": [1, 2]}, "memory", "warn", "card 0: 2"),
        ({"ecc": [0, 0], "rows": [0, 0, 0, 1]}, "card-error", "wrong", "card 0 is in state ERROR"),
        ({"reasons": 0x20}, "temperature", "warn", "0 (36 C)"),
    ],
)
def test_health_that_the_vendor_shows_is_judged(machine, examine, card, id, verdict, seen):
    machine.nodes("nvidia0")
    machine.nvml({**A100, **card})
    found = finding(examine(machine, frameworks=["paddlepaddle-gpu"]), id)
    assert (found.verdict, seen in found.seen, bool(found.remedy)) == (verdict, True, verdict != "ok")


def test_health_that_is_not_shown_is_not_judged(machine, examine):
    machine.nodes("nvidia0")
    machine.nvml(A100)
    assert not {"memory", "temperature", "card-error"} & verdicts(examine(machine, frameworks=["paddlepaddle-gpu"])).keys()


@pytest.mark.parametrize(
    ("said", "verdict", "known"),
    [
        ({"cards": [A100]}, "ok", None),
        ({"error": "NVML Shared Library Not Found"}, "warn", "nvml-missing"),
        ({"error": "Driver/library version mismatch"}, "wrong", "vendor-tool-fails"),
    ],
)
def test_of_a_gpu_nvml_is_judged(machine, examine, said, verdict, known):
    machine.nodes("nvidia0")
    machine.nvml(**said)
    found = finding(examine(machine, frameworks=["paddlepaddle-gpu"]), "nvml")
    assert (found.verdict, found.known) == (verdict, known)


@pytest.mark.parametrize(
    ("state", "verdict"),
    [("RUNNING", "ok"), ("NORMAL", "ok"), ("ERROR", "wrong"), ("ERROR (3)", "wrong"), ("READY", "unknown"), ("", "unknown")],
)
def test_state_of_a_card_is_judged(p800, examine, state, verdict):
    p800.file("proc/xpu/dev0/state", f"{state}\n")
    assert verdicts(examine(p800))["card-error"] == verdict


def test_kl2_cards_alone_are_wrong_and_the_remedy_names_what_they_need(machine, examine):
    machine.nodes("xpu0", "xpu1", "xpuctrl")
    machine.answering("xpu_smi", {"-m": "kl2_machine.txt"})
    found = finding(examine(machine), "kl2")
    assert (found.verdict, "paddlepaddle-xpu 2.6.1" in found.remedy) == ("wrong", True)


NO_WHEEL = {"KL2": ("kl2_machine.txt", "x86_64", "kl2"), "ARM": ("kl3_machine.txt", "aarch64", "no-wheel")}


@pytest.mark.parametrize(("shown", "processor", "id"), NO_WHEEL.values(), ids=NO_WHEEL)
def test_where_there_is_no_wheel_nothing_is_said_but_that(machine, examine, monkeypatch, shown, processor, id):
    monkeypatch.setattr("platform.machine", lambda: processor)
    machine.nodes("xpu0", "xpu1", "xpuctrl")
    machine.answering("xpu_smi", {"-m": shown})
    diagnosis = examine(machine)
    problems = [thing for thing in diagnosis.things if thing.verdict != "ok"]
    assert [problem.id for problem in problems] == [id] and diagnosis.outcome == "wrong"
    assert "pip install" not in problems[0].remedy and "env/validate" not in problems[0].remedy


def test_dead_card_is_not_passed_over_by_auto(machine, examine):
    machine.pci("0000:03:00.0", "1d22", "3688")
    diagnosis = examine(machine, frameworks=["paddlepaddle"])
    assert (diagnosis.device, diagnosis.outcome) == ("cpu", "wrong")
    found = finding(diagnosis, "no-device-node")
    assert "no kernel module" in found.seen and "on the PCI bus" in found.cause


@pytest.mark.parametrize(
    ("variable", "value", "id"),
    [
        ("PADDLE_TRAINERS_NUM", "14", "launcher-variables"),
        ("PADDLE_NNODES", "2", "launcher-variables"),
        ("PADDLE_MASTER", "10.0.0.5:8090", "launcher-variables"),
        ("BKCL_SOCKET_IFNAME", "xgbe9", "interfaces"),
        ("NCCL_SOCKET_IFNAME", "=eth9", "interfaces"),
        ("FLAGS_use_stride_kernel", "0", "stride-kernel"),
    ],
)
def test_a_variable_that_breaks_trainings_is_a_warning_that_names_it(machine, examine, monkeypatch, variable, value, id):
    machine.file("sys/class/net/eth0/operstate", "up\n")
    monkeypatch.setenv(variable, value)
    found = finding(examine(machine, frameworks=["paddlepaddle"]), id)
    assert found.verdict == "warn" and variable in found.seen + (found.remedy or "")


@pytest.mark.parametrize(("variable", "value"), [("PADDLE_NNODES", "1"), ("BKCL_SOCKET_IFNAME", "eth0")])
def test_a_variable_that_fits_this_host_is_no_warning(machine, examine, monkeypatch, variable, value):
    machine.file("sys/class/net/eth0/operstate", "up\n")
    monkeypatch.setenv(variable, value)
    things = examine(machine, frameworks=["paddlepaddle"]).things
    assert not [
        thing for thing in things if getattr(thing, "id", "") in ("launcher-variables", "interfaces") and thing.verdict != "ok"
    ]
