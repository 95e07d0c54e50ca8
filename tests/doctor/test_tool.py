"""What a run of a vendor's tool says; limits of its time and output: tests/test_child.py."""

from __future__ import annotations

from xpulab.doctor.tool import OUTPUT_LIMIT, run_tool


def test_tool_speaks_english(machine):
    machine.tool("smi", 'echo "$LC_ALL"')
    assert run_tool(("smi",)).output == "C\n"


def test_file_that_is_no_program_failed(machine):
    (machine.bin / "smi").write_bytes(b"\x7fELF nonsense")
    (machine.bin / "smi").chmod(0o755)
    run = run_tool(("smi",))
    assert run.outcome == "failed"
    assert "cannot be started" in run.detail


def test_flood_is_cut_off(machine):
    machine.tool("smi", "exec /usr/bin/yes")
    run = run_tool(("smi",))
    assert (run.outcome, run.output) == ("unreadable", "")
    assert str(OUTPUT_LIMIT) in run.detail


def test_hanging_tool_is_killed(machine):
    machine.tool("smi", "echo table; exec /bin/sleep 60")
    run = run_tool(("smi",), timeout=0.3)
    assert (run.outcome, run.output, run.detail) == ("hung", "table\n", "smi did not end within 0.3 s and was killed")
