"""Many machines side by side: the outliers of each type, and values without a majority."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from xpulab.errors import InputError
from xpulab.fleet.anomaly import Anomaly, repeat
from xpulab.fleet.compare.comparison import FLEET, Comparison
from xpulab.fleet.machine_type import format_groups, format_nodes, grouped_by_type
from xpulab.fleet.outliers import NEEDED, NO_MAJORITY, UNREADABLE, disagreements, find_outliers
from xpulab.fleet.runs import Run, Unreadable
from xpulab.messages import N_
from xpulab.records.record import COMPARED

_SHOWN_VALUES = 3


def compare_machines(runs: Sequence[Run], unreadable: Sequence[Unreadable]) -> Comparison:
    """The machines of a fleet, each compared with those of its type. Raises InputError when no run has ended."""
    groups = grouped_by_type([run for run in runs if run.is_finished])
    if not any(run.is_finished for run in runs):
        raise InputError(N_("none of the runs has ended, so there is nothing to compare; wait, or run them again"))
    findings = [
        Anomaly(each.name, "", "", UNREADABLE, "nothing", "a run", each.reason, f"xpulab bundle FOLDER --out {to}")
        for each in unreadable
        for to in [shlex.quote(f"{each.name}.zip")]
    ]
    findings += find_outliers(runs, groups.values())
    findings += [finding for group in groups.values() for finding in _without_majority(group)]
    number = len(runs)
    counted = N_("1 run") if number == 1 else N_("{number} runs", number=number)
    subject = f"{counted}; {'; '.join(format_groups(groups))}"
    share, undecided = _share(groups.values())
    return Comparison(FLEET, subject, tuple(runs), tuple(findings), tuple(_notes(runs)), share, undecided)


def _share(groups: Collection[Sequence[Run]]) -> tuple[str, tuple[str, ...]]:
    """How many runs a majority of their type judged, and which it did not."""
    judged, undecided = 0, []
    for group in groups:
        names = format_nodes([run.name for run in group])
        compared = Counter((book["name"], check["name"]) for run in group for book, check in run.checks()
                           if check["outcome"] in COMPARED)  # fmt: skip
        if len(group) < NEEDED:
            undecided.append(
                N_("{names}: fewer than {NEEDED} runs of one type; name at least {NEEDED}", names=names, NEEDED=NEEDED)
            )
        elif max(compared.values(), default=0) < NEEDED:
            undecided.append(N_("{names}: no check was compared on {NEEDED} of them; run the same", names=names, NEEDED=NEEDED))
        else:
            judged += len(group)
    number = sum(map(len, groups))
    return N_("{judged} of {number} runs were compared with a majority", judged=judged, number=number), tuple(undecided)


def _without_majority(group: Sequence[Run]) -> Iterator[Anomaly]:
    for vote in disagreements(group):
        if vote.majority is None:
            ballots = list(vote.ballots.items())
            shown = "; ".join(f"{format_nodes(nodes)}: {value}" for value, nodes in ballots[:_SHOWN_VALUES])
            number = len(ballots) - _SHOWN_VALUES
            more = f"; {N_('and {number} other values', number=number)}" if number > 0 else ""
            why = NO_MAJORITY if vote.nodes >= NEEDED else N_("{nodes} nodes are too few for a majority", nodes=vote.nodes)
            again = repeat(group[0], vote.notebook, vote.check) if vote.check else "xpulab doctor"
            measured = (ballots[0][0], ballots[1][0])
            yield Anomaly("", vote.check, vote.case, NO_MAJORITY, *measured, f"{vote.where}: {why}; {shown}{more}", again)


def _notes(runs: Sequence[Run]) -> Iterator[str]:
    if unknown := [run.name for run in runs if run.is_finished and not run.result["machine"]]:
        yield N_("{unknown}: no notebook recorded where it ran, so its values were not compared", unknown=format_nodes(unknown))
    if partial := [run.name for run in runs if run.result["outcome"] == "partial"]:
        yield N_("{partial}: only some checks were run (--check)", partial=format_nodes(partial))
