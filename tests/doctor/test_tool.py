"""A vendor's tool has limits on time and output, and leaves no process behind."""

from __future__ import annotations

import os
import select

from xpulab.doctor.tool import OUTPUT_LIMIT, run_tool


def test_standard_output_is_separate_from_standard_error(machine):
    machine.tool("smi", "echo table; echo warning >&2")
    run = run_tool(("smi",))
    assert (run.outcome, run.output) == ("ok", "table\n")


def test_undecodable_bytes_are_replaced(machine):
    machine.tool("smi", r"printf 'P800 \377\n'")
    assert run_tool(("smi",)).output == "P800 \ufffd\n"


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


def test_hanging_tool_is_gone_afterwards(machine):
    machine.tool("smi", f"echo $$ > {machine.calls}; exec /bin/sleep 60")
    run = run_tool(("smi",), timeout=0.3)
    assert (run.outcome, run.detail) == ("hung", "smi did not end within 0.3 s and was killed")
    assert not os.path.exists(f"/proc/{int(machine.calls.read_text())}")


def test_children_of_a_hanging_tool_are_killed_with_it(machine, tmp_path):
    held = tmp_path / "held"
    os.mkfifo(held)
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    machine.tool("smi", f"/bin/sleep 60 9> {held} & echo started; exec /bin/sleep 60")
    run = run_tool(("smi",), timeout=0.3)
    poll = select.poll()
    poll.register(reader, select.POLLHUP)
    closed_by_the_child = poll.poll(2000)
    os.close(reader)
    assert run.output == "started\n"
    assert closed_by_the_child
