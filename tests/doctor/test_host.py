"""The doctor's look at a host, on a folder that stands for /proc, /sys and /dev, and on this machine."""

from __future__ import annotations

import json
import os
import struct
import time

import jsonschema
import pytest
from typer.testing import CliRunner

from tests.conftest import assert_chinese
from tests.doctor.conftest import Machine
from xpulab import cli, files
from xpulab.doctor.host import HostRequest, examine, format_host
from xpulab.doctor.host.limits import judged_clock
from xpulab.doctor.remedies import remedies
from xpulab.messages import shown

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes
"""
MEMINFO = "MemTotal:       1056564224 kB\nHugePages_Total:       0\nHugePages_Free:        0\nHugepagesize:       2048 kB\n"
MOUNTS = "proc /proc proc rw 0 0\ntmpfs /dev/shm tmpfs rw,nosuid,size=67108864k 0 0\n"
UPTIME = 100_000
CARD, NIC = "0000:3b:00.0", "0000:3a:00.0"


class Host(Machine):
    """A host with two Kunlun cards and two network cards, of which nothing is wrong."""

    def __init__(self, folder):
        super().__init__(folder)
        self.file("proc/self/limits", LIMITS)
        self.file("proc/meminfo", MEMINFO)
        self.file("proc/mounts", MOUNTS)
        self.file("proc/uptime", f"{UPTIME}.25 90000.00\n")
        self.file("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 iommu=pt\n")
        self.file("proc/cpuinfo", "processor : 0\nmodel name : Some 9000\nprocessor : 1\nmodel name : Some 9000\n")
        self.file("sys/class/iommu/dmar0/name", "dmar0\n")
        self.file("dev/kmsg", "6,1,5000000,-;Linux version 5.15\n")
        for number, address in enumerate((CARD, "0000:b1:00.0")):
            self.file(f"sys/devices/system/node/node{number}/cpulist", "0-31\n")
            self.file(f"sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor", "performance\n")
            self.pci(address, "1d22", "3688")
            self.link(address)
            self.file(f"sys/bus/pci/devices/{address}/numa_node", f"{number}\n")
            self.nic(number)
        self.nodes("xpu0", "xpu1", "xpuctrl")

    def link(self, address, speed="32.0 GT/s PCIe", width="16"):
        folder = f"sys/bus/pci/devices/{address}"
        for kind, values in (("current", (speed, width)), ("max", ("32.0 GT/s PCIe", "16"))):
            self.file(f"{folder}/{kind}_link_speed", f"{values[0]}\n")
            self.file(f"{folder}/{kind}_link_width", f"{values[1]}\n")

    def nic(self, number, state="4: ACTIVE", rate="400 Gb/sec (4X NDR)", gid="fe80:0000:0000:0000:0a00:00ff:fe00:0001"):
        port = f"sys/class/infiniband/mlx5_{number}/ports/1"
        for name, value in (("state", state), ("link_layer", "Ethernet"), ("rate", rate), ("gids/0", gid)):
            self.file(f"{port}/{name}", f"{value}\n")
        self.file(f"sys/class/infiniband/mlx5_{number}/device/numa_node", f"{number}\n")
        self.file(f"sys/class/infiniband/mlx5_{number}/device/net/eth{number + 1}/mtu", "1500\n")
        self.file(f"sys/class/infiniband/mlx5_{number}/fw_ver", "28.39.1002\n")

    def bridge(self, control):
        """A bridge whose second extended capability is access control with this control register."""
        self.pci("0000:3a:01.0", "8086", "347a", "060400")
        space = bytearray(4096)
        struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | 0x148 << 20)
        struct.pack_into("<I", space, 0x148, 0x000D | 1 << 16)
        struct.pack_into("<H", space, 0x148 + 6, control)
        (self.root / "sys/bus/pci/devices/0000:3a:01.0/config").write_bytes(space)

    def process(self, pid, *held, name="python", parent=1):
        self.file(f"proc/{pid}/comm", f"{name}\n")
        self.file(f"proc/{pid}/status", f"Name:\t{name}\nPPid:\t{parent}\n")
        (self.root / f"proc/{pid}/fd").mkdir()
        for number, target in enumerate(held):
            (self.root / f"proc/{pid}/fd/{number}").symlink_to(target)

    def kernel(self, *messages, ago=60):
        for number, message in enumerate(messages):
            with (self.root / "dev/kmsg").open("a") as log:
                log.write(f"3,{number},{int((UPTIME - ago) * 1e6)},-;{message}\n DEVICE=+pci:{CARD}\n")


@pytest.fixture
def host(tmp_path, monkeypatch):
    made = Host(tmp_path)
    monkeypatch.setenv("PATH", str(made.bin))
    return made


def look(host, environ=(), **asked):
    return examine(HostRequest(root=host.root, environ=dict(environ), **asked))


def problems(report):
    """By id the findings that are not ok, without those of this machine's own clock and disk."""
    return {each.id: each for each in report.findings if each.verdict in ("wrong", "warn") and each.id not in ("clock", "disk")}


def test_a_host_of_which_nothing_is_wrong_has_no_finding(host):
    host.bridge(0)
    host.tool("xpu-smi", "echo")
    report = look(host, rdma_ports=2)
    assert problems(report) == {}
    seen = {finding.id: finding.seen for finding in report.findings}
    assert "32.0 GT/s x16" in seen["pci-link"] and "2 RDMA ports are active" in seen["rdma"]
    assert "0000:b1:00.0 on node 1" in seen["numa"] and "xpu-smi answered" in seen["vendor-tool"]
    assert {"acs", "iommu", "kernel-log", "foreign-processes", "cpu-governor", "share", "huge-pages"} <= set(seen)


def limit(name, value):
    return lambda host: host.file("proc/self/limits", LIMITS.replace(name, value))


# what is broken; the id of the finding, its verdict, what it says
BROKEN = {
    "little locked memory": (
        limit("unlimited            unlimited", "67108864             67108864 "),
        ("locked-memory", "wrong", "0.062 GiB"),
    ),
    "few open files": (limit("1048576              1048576", "1024                 1048576"), ("open-files", "wrong", "1,024")),
    "a container's shared memory": (
        lambda host: host.file("proc/mounts", MOUNTS.replace("67108864k", "65536k")),
        ("shared-memory", "wrong", "0.0625 GiB; workers of data loaders need about 2 GiB for 2 cards"),
    ),
    "no shared memory": (lambda host: host.file("proc/mounts", ""), ("shared-memory", "wrong", "not mounted")),
    "memory in huge pages": (
        lambda host: host.file("proc/meminfo", MEMINFO.replace("Free:        0", "Free:   200000")),
        ("huge-pages", "warn", "391 GiB"),
    ),
    "a slow clock": (
        lambda host: host.file("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n"),
        ("cpu-governor", "warn", "performance, powersave"),
    ),
    "few processes": (lambda host: host.file("sys/fs/cgroup/pids.max", "512\n"), ("processes", "wrong", "512 processes")),
    "a narrow link": (
        lambda host: host.link(CARD, width="8"),
        ("pci-link", "wrong", f"{CARD}: 32.0 GT/s x8 of 32.0 GT/s x16"),
    ),
    "a slow link": (lambda host: host.link(CARD, speed="2.5 GT/s PCIe"), ("pci-link", "warn", f"{CARD}: 2.5 GT/s x16")),
    "a card on no node": (
        lambda host: host.file(f"sys/bus/pci/devices/{CARD}/numa_node", "-1\n"),
        ("numa", "warn", f"no NUMA node is known for {CARD}"),
    ),
    "network cards on one node": (
        lambda host: host.file("sys/class/infiniband/mlx5_1/device/numa_node", "0\n"),
        ("numa", "warn", "no network card is on the node of 0000:b1:00.0"),
    ),
    "redirects": (lambda host: host.bridge(0b0001_1101), ("acs", "warn", "0000:3a:01.0")),
    "an IOMMU that translates": (lambda host: host.file("proc/cmdline", "root=/dev/sda1\n"), ("iommu", "warn", "iommu=pt")),
    "a process on a card": (
        lambda host: host.process(4242, "/dev/null", "/dev/xpu1"),
        ("foreign-processes", "wrong", "python (4242) holds /dev/xpu1"),
    ),
    "a port that is down": (lambda host: host.nic(1, state="1: DOWN"), ("rdma-state", "wrong", "mlx5_1/1 is DOWN")),
    "a port without address": (lambda host: host.nic(0, gid="0000:0000:0000:0000"), ("rdma-gid", "wrong", "mlx5_0/1")),
    "a slower port": (lambda host: host.nic(0, rate="200 Gb/sec (4X HDR)"), ("rdma-rate", "warn", "200 Gb/sec")),
    "a tool that fails": (lambda host: host.tool("xpu-smi", "exit 3"), ("vendor-tool", "wrong", "status 3")),
}


@pytest.mark.parametrize(("breaks", "finding"), BROKEN.values(), ids=BROKEN)
def test_what_is_broken_is_the_only_finding_with_cause_and_fix(host, breaks, finding):
    breaks(host)
    report = look(host)
    id, verdict, text = finding
    assert list(problems(report)) == [id]
    broken = problems(report)[id]
    assert broken.verdict == verdict and text in broken.seen and broken.cause and broken.remedy
    assert report.outcome == "wrong" if verdict == "wrong" else report.outcome in ("warn", "wrong")
    assert f"fix: {broken.remedy}" in format_host(report)


@pytest.mark.parametrize("breaks", [broken for broken, _ in BROKEN.values()], ids=BROKEN)
def test_what_is_broken_is_said_in_chinese(host, breaks, chinese):
    breaks(host)
    for finding in look(host, rdma_ports=3).findings:
        if finding.id not in ("rdma-state", "pci-link"):  # which may be states, speeds and addresses alone
            assert_chinese(shown(finding.seen))
        if finding.cause:
            assert_chinese(shown(finding.cause))


KERNEL = [row for row in remedies() if row.id.startswith("kernel-")]


@pytest.mark.parametrize("row", KERNEL, ids=lambda row: row.id)
def test_a_message_of_the_kernel_is_found_for_a_quarter_of_an_hour(host, row):
    host.kernel(row.example, "usb 1-1: new high-speed USB device", row.example)
    assert list(problems(look(host))) == [row.id]
    assert "2 times" in problems(look(host))[row.id].seen
    host.file("dev/kmsg", "")
    host.kernel(row.example, ago=16 * 60)
    assert problems(look(host)) == {}


def test_only_the_ports_that_training_uses_are_looked_at_and_counted(host):
    host.nic(1, state="1: DOWN")
    for environ in ({"BKCL_RDMA_NICS": "eth1,eth1"}, {"NCCL_IB_HCA": "=mlx5_0:1"}):
        found = problems(look(host, environ, rdma_ports=1))
        assert list(found) == ["numa"], "the other card has no network card of its own then"
    assert list(problems(look(host, {"NCCL_IB_HCA": "^mlx5_0"}))) == ["rdma-state"]
    counted = problems(look(host, {"BKCL_RDMA_NICS": "eth1"}, rdma_ports=8))["rdma-count"]
    assert "1 RDMA ports of BKCL_RDMA_NICS, 8 are expected: mlx5_0/1" in counted.seen
    assert "names no RDMA port" in problems(look(host, {"BKCL_RDMA_NICS": "ib7"}))["rdma-count"].seen


def test_this_process_and_those_that_started_it_are_not_foreign(host):
    host.process(os.getpid(), "/dev/xpu0", parent=77)
    host.process(77, "/dev/xpu1", parent=1)
    assert problems(look(host)) == {}
    host.process(78, "/dev/nvidia0", name="left over")
    assert "left over (78) holds /dev/nvidia0" in problems(look(host))["foreign-processes"].seen


def test_without_rdma_a_limit_of_locked_memory_is_a_warning(host):
    limit("unlimited            unlimited", "67108864             67108864 ")(host)
    for number in (0, 1):
        (host.root / f"sys/class/infiniband/mlx5_{number}/ports/1").rename(host.root / f"unused{number}")
    assert problems(look(host))["locked-memory"].verdict == "warn"


def test_what_cannot_be_read_is_unknown_and_no_alarm(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    bare = Machine(tmp_path)
    bare.file("proc/mounts", MOUNTS)
    report = look(bare)
    assert problems(report) == {}
    unknown = {finding.id for finding in report.findings if finding.verdict == "unknown"}
    assert {"limits", "huge-pages", "kernel-log"} <= unknown


def test_a_clock_that_nothing_corrects_is_a_warning():
    assert judged_clock(5, 16.0).verdict == judged_clock(0, 2.5).verdict == "warn"
    assert judged_clock(0, 0.004).verdict == "ok"


def test_a_folder_without_room_for_checkpoints_is_wrong(host, monkeypatch, tmp_path):
    import shutil

    real = shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda path: real(path)._replace(free=1 << 30))
    report = look(host, checkpoints=tmp_path / "not" / "yet")
    (disk,) = [finding for finding in report.findings if finding.id == "disk"]
    assert disk.verdict == "wrong" and "1.0 GiB free" in disk.seen and "not/yet" in disk.seen


def test_the_facts_are_what_hosts_of_a_cluster_have_in_common(host):
    host.file("sys/module/kunlun/version", "5.0.21.26\n")
    facts = look(host).facts
    assert facts["driver"] == "5.0.21.26" and facts["cards"] == "2 x 1d22:3688" and facts["rdma firmware"] == "2 x 28.39.1002"
    assert facts["memory"] == "1008 GiB" and facts["kernel settings"] == "iommu=pt" and facts["cores"] == "2"


@pytest.mark.integration
def test_a_tool_that_hangs_is_killed_and_the_report_comes_in_time(host):
    host.tool("xpu-smi", "/bin/sleep 60")
    started = time.monotonic()
    assert "did not end within" in problems(look(host))["vendor-tool"].seen
    assert time.monotonic() - started < 15


@pytest.mark.parametrize("options", [["--json"], ["--checkpoints", "/tmp", "--rdma-ports", "0"]], ids=["json", "text"])
def test_the_command_looks_at_this_machine(options):
    done = CliRunner().invoke(cli.app, ["doctor", "--host", *options], catch_exceptions=False)
    assert done.exit_code in (0, 1)
    if "--json" in options:
        report = json.loads(done.stdout)
        jsonschema.validate(report, json.loads(files.data("schema", "host.schema.json").read_text()))
        assert report["facts"]["kernel"] == os.uname().release and done.exit_code == (report["outcome"] == "wrong")
    else:
        assert "findings about host" in done.stdout and "GiB free" in done.stdout


def test_the_command_gives_1_for_a_host_that_is_wrong(host, monkeypatch):
    host.nic(1, state="1: DOWN")
    monkeypatch.setenv("XPULAB_SYSTEM_ROOT", str(host.root))
    done = CliRunner().invoke(cli.app, ["doctor", "--host"], catch_exceptions=False)
    assert done.exit_code == 1 and "rdma-state" in done.stdout and "fix: " in done.stdout
