"""The lines between `xpulab fleet links` and its tasks: whole messages come out of parts, and nothing else does."""

from __future__ import annotations

import pytest

from xpulab.fleet.across import links

pytestmark = pytest.mark.unit


def test_a_long_message_arrives_in_lines_that_srun_does_not_divide():
    lines = list(links.lines_of(3, 0, links.READY, {"problem": "x" * 5000}))
    assert len(lines) > 5 and max(map(len, lines)) < 1000
    reader = links.Reader()
    *early, last = [reader.read(line) for line in lines]
    assert set(early) == {None} and last == (links.READY, {"task": 3, "problem": "x" * 5000})


def test_messages_of_several_tasks_may_be_mixed_with_each_other_and_with_other_lines():
    reader, found = links.Reader(), []
    both = [list(links.lines_of(task, 7, links.READY, {"problem": str(task) * 1000})) for task in (0, 1)]
    for pair in zip(*both, strict=True):
        for line in (*pair, "I1122 tcp_store.cc:336] create libuv server\n"):
            if message := reader.read(line):
                found.append(message[1]["problem"][0])
    assert found == ["0", "1"]


def test_a_message_to_the_tasks_is_one_line():
    group = links.Group(5, ("node1", "node2"), 20000, True)
    line = links.dumps(links.TRIAL, group)
    kind, fields = links.loads(line)
    assert (kind, links.Group(**{**fields, "nodes": tuple(fields["nodes"])}), "\n" in line) == (links.TRIAL, group, False)
