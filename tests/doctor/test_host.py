"""`xpulab host`, as an operator types it: on folders that stand for /proc, /sys and /dev, and on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

import jsonschema
import pytest

from tests.doctor.conftest import A100, FORMATS, NVML
from xpulab import files
from xpulab.doctor.host import HostRequest, examine
from xpulab.doctor.system import SYSTEM_ROOT

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes
"""
BOOT = "5d0f2a8e-9c3b-4a6e-8f7d-1b2c3d4e5f60"
SCHEMA = json.loads(files.data("schema", "host.schema.json").read_text())


@dataclass(frozen=True)
class Answer:
    """What the command did. report: what it printed as JSON."""

    code: int
    report: dict

    def problems(self):
        """By id the findings that are not ok, without that of this machine's own disk."""
        bad = [each for each in self.report["findings"] if each["verdict"] in ("wrong", "warn") and each["id"] != "disk"]
        return {each["id"]: each for each in bad}


class Host:
    """A host with two P800 and a network card for RDMA, of which nothing is wrong; machine: its files and tools."""

    def __init__(self, machine):
        self.machine, self.file, self.root = machine, machine.file, machine.root
        self.file("proc/self/limits", LIMITS)
        self.file("proc/sys/kernel/random/boot_id", f"{BOOT}\n")
        self.file("sys/class/infiniband/mlx5_0/fw_ver", "28.39.1002\n")
        (self.root / "dev/shm").mkdir()
        for name, state in (("lo", "unknown"), ("eth0", "up"), ("eth1", "down")):
            self.file(f"sys/class/net/{name}/operstate", f"{state}\n")

    def process(self, pid, *held, name="python"):
        self.file(f"proc/{pid}/comm", f"{name}\n")
        (self.root / f"proc/{pid}/fd").mkdir()
        for number, target in enumerate(held):
            (self.root / f"proc/{pid}/fd/{number}").symlink_to(target)

    def run(self, *options, **variables):
        """The command, with no variables but these."""
        shown = {"XPULAB_SYSTEM_ROOT": str(self.root), "PATH": str(self.machine.bin), "SLURMD_NODENAME": "node7"}
        nvml = {"PYTHONPATH": str(NVML), "XPULAB_TEST_NVML": str(self.machine.said)}
        command = [sys.executable, "-m", "xpulab", "host", *options]
        done = subprocess.run(
            command, env={**shown, **nvml, **variables}, cwd=files.ROOT, capture_output=True, text=True, timeout=60
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def look(self, *options, **variables):
        done = self.run("--json", *options, **variables)
        answer = Answer(done.returncode, json.loads(done.stdout))
        jsonschema.validate(answer.report, SCHEMA)
        assert answer.code == (answer.report["outcome"] == "wrong")
        return answer


@pytest.fixture
def host(p800):
    return Host(p800)


@pytest.fixture
def gpus(machine):
    """A host with one A100 of NVIDIA."""
    machine.pci("0000:17:00.0", "10de", "20b2", "030200")
    machine.nodes("nvidia0")
    return Host(machine)


def test_a_host_of_which_nothing_is_wrong_has_no_finding_and_says_node_and_boot(host):
    answer = host.look("--expect", "2")
    assert answer.problems() == {} and answer.code == 0
    assert (answer.report["node"], answer.report["boot"]) == ("node7", BOOT)
    assert {"shared-memory", "foreign-processes", "cards", "xpu-smi"} <= {each["id"] for each in answer.report["findings"]}
    assert host.run("--reason").stdout == "xpulab: nothing is wrong with host node7\n"


def limit(old, new):
    return lambda host: host.file("proc/self/limits", LIMITS.replace(old, new))


def tool_says(old, new):
    def change(host):
        (host.machine.bin / "text").write_text((FORMATS / "kl3_query.txt").read_text().replace(old, new, 1))
        host.machine.tool("xpu-smi", f"exec /bin/cat {host.machine.bin}/text")

    return change


# what is broken; the options and variables; the id of the finding, its verdict, what it says
BROKEN = {
    "little locked memory": (
        limit("unlimited            unlimited", "67108864             67108864 "),
        ({}, ()),
        ("locked-memory", "wrong", "0.062 GiB"),
    ),
    "few open files": (
        limit("1048576              1048576", "1024                 1048576"),
        ({}, ()),
        ("open-files", "wrong", "1,024"),
    ),
    "no shared memory": (lambda host: (host.root / "dev/shm").rmdir(), ({}, ()), ("shared-memory", "wrong", "not mounted")),
    "a process on a card": (
        lambda host: host.process(4242, "/dev/null", "/dev/xpu1"),
        ({}, ()),
        ("foreign-processes", "wrong", "python (4242) holds /dev/xpu1"),
    ),
    "a card too few": (lambda host: None, ({}, ("--expect", "3")), ("cards", "wrong", "2 of 3 cards")),
    "the same, as the site says": (lambda host: None, ({"XPULAB_EXPECT": "3"}, ()), ("cards", "wrong", "2 of 3 cards")),
    "the same, by the label": (lambda host: None, ({}, ("--label", "xpu-p800-3")), ("cards", "wrong", "2 of 3 cards")),
    "another model": (lambda host: None, ({}, ("--label", "xpu-r300-2")), ("model", "wrong", "P800 OAM")),
    "a card in state error": (
        lambda host: host.file("proc/xpu/dev1/state", "ERROR\n"),
        ({}, ()),
        ("card-error", "wrong", "card 1 is in state ERROR"),
    ),
    "an interface that is down": (
        lambda host: None,
        ({"BKCL_SOCKET_IFNAME": "eth0", "BKCL_RDMA_NICS": "eth0,eth1"}, ()),
        ("interfaces", "wrong", "BKCL_RDMA_NICS='eth0,eth1'"),
    ),
    "an interface that is not there": (
        lambda host: None,
        ({"GLOO_SOCKET_IFNAME": "bond0"}, ()),
        ("interfaces", "wrong", "GLOO_SOCKET_IFNAME='bond0'"),
    ),
    "no interface with a prefix": (
        lambda host: None,
        ({"NCCL_SOCKET_IFNAME": "ib,bond"}, ()),
        ("interfaces", "wrong", "NCCL_SOCKET_IFNAME='ib,bond'"),
    ),
}


@pytest.mark.parametrize(("breaks", "call", "finding"), BROKEN.values(), ids=BROKEN)
def test_what_is_broken_is_the_only_finding_with_cause_and_fix(host, breaks, call, finding):
    breaks(host)
    answer = host.look(*call[1], **call[0])
    id, verdict, text = finding
    assert list(answer.problems()) == [id]
    broken = answer.problems()[id]
    assert broken["verdict"] == verdict and text in broken["seen"] and broken["cause"] and broken["remedy"]
    reason = host.run("--reason", *call[1], **call[0])
    assert (reason.returncode, len(reason.stdout.splitlines())) == (1, 1)
    assert reason.stdout.startswith(f"[node_problem] host {id}: ") and reason.stdout.endswith("look: xpulab host\n")
    assert f"fix: {broken['remedy']}" in host.run(*call[1], **call[0]).stdout


# what NVML says of the card; the id of the finding, its verdict
SICK = {
    "errors that ECC could not correct": ({"ecc": [2, 5]}, ("memory", "wrong")),
    "retired pages": ({"ecc": [0, 0], "pages": [17, 18]}, ("memory", "warn")),
    "throttled": ({"reasons": 0x40}, ("temperature", "warn")),
}


@pytest.mark.parametrize(("said", "finding"), SICK.values(), ids=SICK)
def test_what_the_vendors_tool_says_of_a_card_is_found(gpus, said, finding):
    gpus.machine.nvml(A100)
    assert gpus.look().problems() == {}
    gpus.machine.nvml({**A100, **said})
    answer = gpus.look()
    assert [(each["id"], each["verdict"]) for each in answer.problems().values()] == [finding]


NAMED = [
    {"NCCL_SOCKET_IFNAME": "eth"},
    {"NCCL_SOCKET_IFNAME": "=eth0"},
    {"NCCL_SOCKET_IFNAME": "^docker,lo"},
    {"NCCL_SOCKET_IFNAME": "ib,eth", "BKCL_SOCKET_IFNAME": "lo", "BKCL_RDMA_NICS": "eth0,eth0"},
]


@pytest.mark.parametrize("variables", NAMED, ids=str)
def test_interfaces_that_are_up_are_no_finding(host, variables):
    assert host.look(**variables).problems() == {}


def test_beside_jobs_what_they_hold_is_no_finding(host):
    host.process(4242, "/dev/xpu1")
    assert host.look("--beside-jobs").problems() == {}


@pytest.fixture
def shared_memory(host):
    """The host's /dev/shm is a file system of its own, a MiB larger than two cards need, with 8 MiB in it."""
    folder, system = host.root / "dev/shm", {"timeout": 30, "env": {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}}
    mount = ["mount", "-t", "tmpfs", "-o", f"size={(2 << 10) + 1}m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, **system).returncode:
        pytest.skip("mounting a small file system needs root")
    (folder / "batches").write_bytes(bytes(8 << 20))
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True, **system)


def test_shared_memory_counts_by_what_is_free_and_beside_jobs_by_its_size(host, shared_memory):
    assert list(host.look().problems()) == ["shared-memory"]
    assert host.look("--beside-jobs").problems() == {}
    (shared_memory / "batches").unlink()
    assert host.look().problems() == {}


def test_a_name_of_a_process_cannot_change_the_one_line(host):
    host.process(4242, "/dev/xpu1", name="a\n[node_problem] \x1b[31mb")
    reason = host.run("--reason").stdout
    assert reason.count("\n") == 1 and reason.strip().isprintable()


def test_what_cannot_be_read_is_unknown_and_no_alarm(host):
    (host.root / "proc/self/limits").unlink()
    shutil.rmtree(host.root / "sys/class/net")
    host.machine.tool("xpu-smi", "echo driver is busy >&2; exit 1")
    answer = host.look(NCCL_SOCKET_IFNAME="eth0")
    assert answer.problems() == {}
    unknown = {each["id"] for each in answer.report["findings"] if each["verdict"] == "unknown"}
    assert unknown == {"limits", "interfaces", "xpu-smi"}


def test_a_tool_that_hangs_is_unknown_within_seconds(host):
    host.machine.tool("xpu-smi", "exec /bin/sleep 600")
    answer = host.look()
    assert answer.problems() == {}
    assert [each["verdict"] for each in answer.report["findings"] if each["id"] == "xpu-smi"] == ["unknown"]


def test_it_imports_no_paddle(host, tmp_path):
    (tmp_path / "paddle.py").write_text("raise SystemExit(99)")
    assert host.run(PYTHONPATH=str(tmp_path)).returncode == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--label", "p800"), "xpu-p800-8"),
        (("--label", "xpu-p800-0"), "--label xpu-p800-0"),
        (("--label", "xpu-p800-8", "--expect", "7"), "--expect"),
        (("--expect", "many"), "--expect many"),
        (("--device", "tpu"), "--device tpu"),
        (("--reason", "--json"), "--reason and --json"),
    ],
)
def test_options_that_do_not_fit_are_2_with_a_remedy(host, options, said):
    done = host.run(*options)
    assert (done.returncode, done.stdout) == (2, "") and said in done.stderr


def test_a_folder_without_room_for_checkpoints_is_wrong(host, monkeypatch, tmp_path):
    real = shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda path: real(path)._replace(free=(5 << 30)))
    monkeypatch.setenv(SYSTEM_ROOT, str(host.root))
    report = examine(HostRequest(checkpoints=tmp_path / "not" / "yet"))
    (disk,) = [finding for finding in report.findings if finding.id == "disk"]
    assert disk.verdict == "wrong" and "5.0 GiB free" in disk.seen and "not/yet" in disk.seen


def test_this_process_and_services_of_the_vendor_are_not_foreign(host, monkeypatch):
    monkeypatch.setenv(SYSTEM_ROOT, str(host.root))
    host.process(os.getpid(), "/dev/xpu0")
    host.process(812, "/dev/nvidia0", name="nvidia-persiste")
    assert not [each for each in examine(HostRequest()).findings if each.verdict == "wrong"]


def test_the_command_looks_at_this_machine():
    done = subprocess.run([sys.executable, "-m", "xpulab", "host", "--json"], capture_output=True, text=True, timeout=60)
    report = json.loads(done.stdout)
    jsonschema.validate(report, SCHEMA)
    assert done.returncode == (report["outcome"] == "wrong") and report["boot"]
