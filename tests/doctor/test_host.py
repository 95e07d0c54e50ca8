"""The doctor's look at a host, on a folder that stands for /proc, /sys and /dev, and on this machine."""

from __future__ import annotations

import json
import os
import shutil

import jsonschema
import pytest
from typer.testing import CliRunner

from tests.doctor.conftest import Machine
from xpulab import cli, files
from xpulab.doctor.host import HostRequest, examine, format_reason
from xpulab.doctor.render import format_host

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes
"""
MOUNTS = "proc /proc proc rw 0 0\ntmpfs /dev/shm tmpfs rw,nosuid,size=67108864k 0 0\n"


class Host(Machine):
    """A host with two Kunlun cards and a network card for RDMA, of which nothing is wrong."""

    def __init__(self, folder):
        super().__init__(folder)
        self.file("proc/self/limits", LIMITS)
        self.file("proc/meminfo", "MemTotal:       1056564224 kB\n")
        self.file("proc/mounts", MOUNTS)
        self.file("sys/class/infiniband/mlx5_0/fw_ver", "28.39.1002\n")
        for address in ("0000:3b:00.0", "0000:b1:00.0"):
            self.pci(address, "1d22", "3688")

    def process(self, pid, *held, name="python"):
        self.file(f"proc/{pid}/comm", f"{name}\n")
        (self.root / f"proc/{pid}/fd").mkdir()
        for number, target in enumerate(held):
            (self.root / f"proc/{pid}/fd/{number}").symlink_to(target)


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def look(host, **asked):
    return examine(HostRequest(root=host.root, **asked))


def problems(report):
    """By id the findings that are not ok, without that of this machine's own disk."""
    return {each.id: each for each in report.findings if each.verdict in ("wrong", "warn") and each.id != "disk"}


def test_a_host_of_which_nothing_is_wrong_has_no_finding(host):
    assert problems(look(host)) == {}
    assert [each.id for each in look(host).findings] == [
        *("locked-memory", "open-files", "shared-memory", "disk", "foreign-processes")
    ]


def limit(name, value):
    return lambda host: host.file("proc/self/limits", LIMITS.replace(name, value))


# what is broken; the id of the finding, its verdict, what it says
BROKEN = {
    "little locked memory": (
        limit("unlimited            unlimited", "67108864             67108864 "),
        ("locked-memory", "wrong", "0.062 GiB"),
    ),
    "few open files": (limit("1048576              1048576", "1024                 1048576"), ("open-files", "wrong", "1,024")),
    "a process on a card": (
        lambda host: host.process(4242, "/dev/null", "/dev/xpu1"),
        ("foreign-processes", "wrong", "python (4242) holds /dev/xpu1"),
    ),
}


@pytest.mark.parametrize(("breaks", "finding"), BROKEN.values(), ids=BROKEN)
def test_what_is_broken_is_the_only_finding_with_cause_and_fix(host, breaks, finding):
    breaks(host)
    report = look(host)
    id, verdict, text = finding
    assert list(problems(report)) == [id]
    broken = problems(report)[id]
    assert broken.verdict == verdict and text in broken.seen and broken.cause and broken.remedy
    assert report.outcome == "wrong" and f"fix: {broken.remedy}" in format_host(report)


def test_this_process_is_not_foreign(host):
    host.process(os.getpid(), "/dev/xpu0")
    assert problems(look(host)) == {}
    host.process(78, "/dev/nvidia0", name="left over")
    assert "left over (78) holds /dev/nvidia0" in problems(look(host))["foreign-processes"].seen


def test_what_cannot_be_read_is_unknown_and_no_alarm(tmp_path):
    bare = Machine(tmp_path)
    bare.file("proc/mounts", MOUNTS)
    report = look(bare)
    assert problems(report) == {} and "limits" in {each.id for each in report.findings if each.verdict == "unknown"}


def test_a_folder_without_room_for_checkpoints_is_wrong(host, monkeypatch, tmp_path):
    real = shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda path: real(path)._replace(free=1 << 30))
    report = look(host, checkpoints=tmp_path / "not" / "yet")
    (disk,) = [finding for finding in report.findings if finding.id == "disk"]
    assert disk.verdict == "wrong" and "1.0 GiB free" in disk.seen and "not/yet" in disk.seen
    assert format_reason(report).startswith(f"[node_problem] host disk: {disk.seen}")


def test_the_command_looks_at_this_machine():
    done = CliRunner().invoke(cli.app, ["doctor", "--host", "--json"], catch_exceptions=False)
    report = json.loads(done.stdout)
    jsonschema.validate(report, json.loads(files.data("schema", "host.schema.json").read_text()))
    assert done.exit_code == (report["outcome"] == "wrong")
