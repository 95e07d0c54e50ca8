"""Which of the known defects this wheel, driver and card really have, each proved by value, beside what the list says.

The list is data/known_issues.yaml. A proof that can end its process runs in another one. Not run on a GPU or XPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import paddle
from packaging.specifiers import SpecifierSet

from xpulab import files, ranks
from xpulab.chapters.environment.passport_proofs import DEFECTS, PAST, CannotTry, Defect
from xpulab.chapters.shared.device import Device
from xpulab.chapters.shared.processes import forked_device
from xpulab.checks.compare import first_line
from xpulab.checks.table import Table
from xpulab.messages import N_
from xpulab.records import known_issues
from xpulab.warm import ForkServerGone

PRESENT, ABSENT = "has it", "does not have it"
"""The answers of a proof."""

_UNTRIED = "not tried: "


@dataclass(frozen=True)
class Entry:
    """One defect of the passport.

    name: of the defect. found: PRESENT, ABSENT or the error that its proof ended with; None when it was not tried.
    listed: PRESENT or ABSENT, what the list says for this release and device.
    proof: "here", or why it was not tried, or where it is proved, "proved by lora.other-rank of 03_lora".
    """

    name: str
    found: str | None
    listed: str
    proof: str


def passport(device: Device, level: str) -> list[Entry]:
    """All known defects, each with the answer of its proof, in the order of data/known_issues.yaml, then the past ones.

    level: at "standard" all proofs run, at others those that take no process of their own; on a GPU or an XPU, where a new
    process takes seconds, only those that need no other process at all.
    """
    proofs = [*DEFECTS, *(past.defect for past in PAST)]
    tried = [proof for proof in proofs if _runs(proof, device, level)]
    answers = _answers(tried, device)
    by_name = {proof.name: proof for proof in proofs}
    entries = []
    for issue in known_issues.load():
        listed = PRESENT if issue.applies(device.name) else ABSENT
        if issue.id in by_name:
            entries.append(_entry(by_name[issue.id], listed, answers))
        else:
            entries.append(
                Entry(
                    issue.id,
                    None,
                    listed,
                    N_("proved by {check} of {check2}", check=issue.check, check2=chapter_of(issue.check)),
                )
            )
    for past in PAST:
        has = SpecifierSet(past.versions).contains(paddle.__version__, prereleases=True)
        entries.append(_entry(past.defect, PRESENT if has else ABSENT, answers))
    return entries


def compare(rows: Table, entries: Iterable[Entry], device: str) -> None:
    """Add a row for each entry: what its proof found is what the list says; the control says the opposite.

    A defect that no card was measured for, and that this card does not have, is skipped: nothing can be said about the list.
    """
    for entry in entries:
        if entry.found is None:
            rows.skip(entry.name, entry.proof)
        elif device in ("gpu", "xpu") and (entry.found, entry.listed) == (ABSENT, PRESENT):
            rows.skip(entry.name, N_("this {device} does not have it; the list was measured on the CPU", device=device))
        else:
            rows.equal(entry.name, entry.found, entry.listed, control=ABSENT if entry.listed == PRESENT else PRESENT)


def format_passport(entries: Sequence[Entry]) -> str:
    """A line for each defect that was tried, those that are here first, and how many each chapter or level proves."""
    tried = [entry for entry in entries if entry.found is not None]
    present = sum(entry.found == PRESENT for entry in tried)
    lines = [f"{present} of the {len(tried)} defects that were tried are here"]
    lines += [f"{entry.found:17} {entry.name}" for entry in sorted(tried, key=lambda entry: entry.found != PRESENT)]
    elsewhere = Counter(entry.proof.rpartition(" of ")[2] for entry in entries if entry.found is None)
    return "\n".join([*lines, *(f"{count:3} more: {where}" for where, count in sorted(elsewhere.items()))])


@cache
def chapter_of(check: str) -> str:
    """The name of the notebook that plans the check; "no chapter" when none does."""
    planned = f'\\"{check}\\"'
    for path in sorted(files.NOTEBOOKS.glob("[0-9]*.ipynb")):
        if planned in path.read_text(encoding="utf-8"):
            return path.stem
    return "no chapter"


def _runs(defect: Defect, device: Device, level: str) -> bool:
    if defect.where == "here" or level == "standard":
        return True
    return defect.where == "together" and forked_device(device.name) == device.name


def _entry(defect: Defect, listed: str, answers: dict[str, str]) -> Entry:
    answer = answers.get(defect.name, f"{_UNTRIED}{N_('it runs at level standard')}")
    if answer.startswith(_UNTRIED):
        return Entry(defect.name, None, listed, answer)
    return Entry(defect.name, answer, listed, "here")


def _answers(defects: Sequence[Defect], device: Device) -> dict[str, str]:
    """By name PRESENT, ABSENT, or a text that says why there is no answer."""
    groups = {where: [each for each in defects if each.where == where] for where in ("here", "together", "alone")}
    found = _tried(groups["here"])
    in_processes = [groups["together"], *([each] for each in groups["alone"])]
    with ThreadPoolExecutor(2) as pool:
        for answers in pool.map(lambda group: _in_a_process(group, device), [group for group in in_processes if group]):
            found |= answers
    return found


def _in_a_process(defects: Sequence[Defect], device: Device) -> dict[str, str]:
    """The answers from a process of its own. A signal that ends it shows the defect, where it has only one to try."""
    names = [defect.name for defect in defects]
    try:
        return ranks.run(answers_of, 1, names, device=device.name)[0]
    except ForkServerGone as gone:
        return dict.fromkeys(names, f"{_UNTRIED}{N_('no other process starts: {gone}', gone=first_line(gone))}")
    except ranks.RanksFailed as failed:
        ended = failed.reports[0].reason
    if len(names) == 1 and "signal" in ended:
        return {names[0]: PRESENT}
    return dict.fromkeys(names, f"its process ended: {ended}")


def answers_of(names: Sequence[str]) -> dict[str, str]:
    """In another process: the answers of the proofs of these names."""
    proofs = {defect.name: defect for defect in (*DEFECTS, *(past.defect for past in PAST))}
    return _tried([proofs[name] for name in names])


def _tried(defects: Sequence[Defect]) -> dict[str, str]:
    return {defect.name: _answer(defect) for defect in defects}


def _answer(defect: Defect) -> str:
    try:
        return PRESENT if defect.present() else ABSENT
    except CannotTry as reason:
        return f"{_UNTRIED}{reason}"
    except Exception as error:  # a defect of another kind: the row shows it
        return f"its proof raised {type(error).__name__}: {first_line(error)}"
