"""`xpulab fleet hosts`: which hosts are wrong, and which are not like the others."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from xpulab import cli

FACTS = {"kernel": "5.15.0-91", "driver": "5.0.21.26", "cards": "8 x 1d22:3688", "/dev/shm": "size=67108864k"}
WRONG = {
    "id": "rdma-state",
    "verdict": "wrong",
    "seen": "mlx5_1/1 is DOWN",
    "remedy": "ibstat",
    "cause": "c",
    "known": "host-rdma-state",
}


@pytest.fixture
def host(tmp_path):
    """host(name, **facts) writes the report of a host; wrong: with a finding that is wrong."""

    def write(name, wrong=False, **facts):
        report = {"schema": 1, "xpulab": "0", "node": name, "outcome": "wrong" if wrong else "ok"}
        report |= {"facts": {**FACTS, **facts}, "findings": [WRONG] if wrong else []}
        path = tmp_path / "hosts" / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(report))
        return path

    return write


def hosts(*arguments):
    """The command: exit code, what it printed, its error message."""
    done = CliRunner().invoke(cli.app, ["fleet", "hosts", *map(str, arguments)], catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


def test_equal_hosts_pass(host, tmp_path):
    for number in range(3):
        host(f"node{number}")
    code, printed, _ = hosts(tmp_path / "hosts", "--out", tmp_path / "lists")
    assert code == 0 and "0 of 3 hosts fail" in printed
    assert (tmp_path / "lists/passing_nodes.txt").read_text() == "node0\nnode1\nnode2\n"
    assert (tmp_path / "lists/failing_nodes.txt").read_text() == ""


def test_a_host_that_is_wrong_or_unlike_most_is_named_and_can_be_excluded(host, tmp_path):
    for number in range(4):
        host(f"node{number}", wrong=number == 1, **({"driver": "5.0.21.14"} if number == 3 else {}))
    code, printed, _ = hosts(tmp_path / "hosts", "--out", tmp_path / "lists")
    assert code == 1 and "mlx5_1/1 is DOWN" in printed and "fix: ibstat" in printed
    assert "driver: 5.0.21.14; most hosts: 5.0.21.26" in printed
    assert f"srun --exclude={tmp_path}/lists/failing_nodes.txt" in printed
    assert (tmp_path / "lists/failing_nodes.txt").read_text().split() == ["node1", "node3"]


def test_without_a_majority_nobody_fails_and_the_values_are_shown(host):
    code, printed, _ = hosts(host("a"), host("b", driver="5.0.21.14"))
    assert code == 0 and "no majority for driver: 5.0.21.26 (1 hosts), 5.0.21.14 (1 hosts)" in printed and "--golden" in printed


def test_a_golden_report_decides_for_any_number_of_hosts(host):
    golden = host("golden", driver="5.0.21.30")
    code, printed, _ = hosts(host("a"), host("b", driver="5.0.21.30"), "--golden", golden)
    assert code == 1 and "1 of 2 hosts fail" in printed and f"driver: 5.0.21.26; {golden}: 5.0.21.30" in printed


def test_bad_input_gives_one_message_with_file_and_remedy(host, tmp_path):
    a = host("a")
    twice = tmp_path / "again.json"
    twice.write_text(a.read_text())
    (tmp_path / "bad.json").write_text('{"schema": 1,\n "node": }')
    (tmp_path / "other.json").write_text('{"schema": 1}')
    for arguments, says in (
        ((a, twice), "again.json: a second report of host a"),
        ((tmp_path / "bad.json",), "bad.json line 2: not JSON"),
        ((tmp_path / "other.json",), "other.json line 1"),
        ((tmp_path / "none.json",), "none.json: cannot be read"),
        ((a, "--out", a), "choose another folder"),
    ):
        code, _, error = hosts(*arguments)
        assert code == 2 and says in error and "Traceback" not in error
