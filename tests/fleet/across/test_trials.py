"""Trials of groups: lines to and from tasks, what their reports mean, ports in use, tasks that end or do not answer."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict

import pytest

from xpulab.fleet.across import links
from xpulab.fleet.across.links import KILLED, LATE, PASSED, STOPPED, WRONG, RankReport, Setup
from xpulab.fleet.across.step import GONE
from xpulab.fleet.across.trials import Trials, judge

NODES = ("node1", "node2", "node3")
ONE_HOST = Setup("cpu", 1, dict.fromkeys(NODES, "127.0.0.1"), 0, 0.05, 0.05)


def report(rank, outcome=PASSED, trial=1, steps=5, bad=0, reason="why"):
    lines = tuple({"name": f"check{number}", "outcome": "failed", "detail": ""} for number in range(bad))
    return RankReport(trial, rank, NODES[rank], outcome, "" if outcome == PASSED else reason, "s", steps, lines, 3, {}, {}, "")


class FakeTasks:
    """Tasks that answer a trial with what `answers` has for it. told: all messages."""

    def __init__(self, *answers):
        self.told, self._answers, self._waiting = [], deque(answers), deque()

    def tell(self, kind, body):
        self.told.append((kind, body))
        if kind == links.TRIAL and self._answers:
            self._waiting += [message(body) for message in self._answers.popleft()]

    def next(self, seconds):
        return self._waiting.popleft() if self._waiting else None


def reports(*given):
    return [lambda group, each=each: (links.REPORT, {**asdict(each), "trial": group.number}) for each in given]


def test_a_group_passes_when_all_of_its_ranks_do():
    tasks = FakeTasks(reports(*map(report, range(3))))
    trials = Trials(tasks, ONE_HOST, "7.0")
    assert trials.works(NODES).passed
    (outcome,) = trials.outcomes
    assert (outcome.nodes, [each.rank for each in outcome.reports]) == (NODES, [0, 1, 2])


def test_two_jobs_and_two_trials_get_other_ports():
    def ports(step):
        tasks = FakeTasks(*[reports(*map(report, range(3)))] * 2)
        trials = Trials(tasks, ONE_HOST, step)
        trials.works(NODES), trials.works(NODES)
        return [group.port for _, group in tasks.told]

    first, second = ports("7.0"), ports("8.0")
    assert len({*first, *second}) == 4
    assert abs(first[0] - first[1]) >= 5  # a store, a meeting, three ranks


def test_a_port_in_use_is_no_finding_another_one_is_taken():
    taken = [lambda group: (links.PORT_TAKEN, {"trial": group.number, "node": "node1", "ports": [group.port]})]
    tasks = FakeTasks(taken, reports(*map(report, range(3))))
    assert Trials(tasks, ONE_HOST, "7.0").works(NODES).passed
    assert [kind for kind, _ in tasks.told] == [links.TRIAL, links.STOP, links.TRIAL]
    assert tasks.told[0][1].port != tasks.told[2][1].port


def test_a_node_whose_task_has_ended_is_not_tried_again():
    tasks = FakeTasks([lambda group: (GONE, {"node": "node2", "reason": "Killed"})], reports(report(0), report(2)))
    trials = Trials(tasks, ONE_HOST, "7.0")
    assert trials.works(NODES).reason == "node2: its task has ended: Killed"
    told = len(tasks.told)
    assert trials.works(("node1", "node2")).suspect == "node2" and len(tasks.told) == told + 1  # only that others stop


def test_a_task_that_does_not_answer_is_waited_for_once():
    tasks = FakeTasks(reports(report(0), report(1)))
    trials = Trials(tasks, Setup("cpu", 1, dict.fromkeys(NODES, "a"), 0, -4.9, -4.9), "7.0")
    assert trials.works(NODES).reason == "node3: its task does not answer"
    assert trials.gone == {"node3": "its task does not answer"}


@pytest.mark.parametrize(
    ("given", "suspect", "reason"),
    [
        ([report(0, STOPPED), report(1, KILLED), report(2, STOPPED)], "node2", "rank 1 on node2: why"),
        ([report(0, LATE, steps=7), report(1, LATE, steps=7), report(2, LATE, steps=6)], "node3", "rank 2 on node3: why"),
        ([report(0, LATE), report(1, LATE), report(2, LATE)], "", "rank 0 on node1: why"),
        ([report(0, WRONG, bad=1), report(1, WRONG, bad=4), report(2, WRONG, bad=1)], "node2", "rank 1 on node2: why"),
        ([report(0, WRONG, bad=2), report(1, WRONG, bad=2), report(2)], "", "rank 0 on node1: why"),
    ],
)
def test_the_reports_point_to_a_node_only_when_it_is_unlike_the_others(given, suspect, reason):
    finding = judge(NODES, 1, given, {})
    assert (finding.passed, finding.suspect, finding.reason) == (False, suspect, reason)


def test_a_long_message_arrives_in_lines_that_srun_does_not_divide():
    lines = list(links.lines_of(3, links.READY, {"problem": "x" * 5000}))
    assert len(lines) > 5 and max(map(len, lines)) < 1000
    reader = links.Reader()
    *early, last = [reader.read(line) for line in lines]
    assert set(early) == {None} and last == (links.READY, {"problem": "x" * 5000})


def test_messages_of_several_tasks_may_be_mixed_with_each_other_and_with_other_lines():
    reader, found = links.Reader(), []
    both = [list(links.lines_of(task, links.READY, {"problem": str(task) * 1000})) for task in (0, 1)]
    for pair in zip(*both, strict=True):
        for line in (*pair, "I1122 tcp_store.cc:336] create libuv server\n"):
            if message := reader.read(line):
                found.append(message[1]["problem"][0])
    assert found == ["0", "1"]
