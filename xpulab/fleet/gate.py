"""What the runs and soaks in a folder say of this machine: may it take work, what is red, and the command that repeats it.

A scheduler's gate asks in a fraction of a second; a person asks for the run in a bundle. It only reads: a job measures, with
`xpulab run`. Red stays until something green that is later and has as much, of the same machine.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xpulab.devices import DEVICES
from xpulab.doctor.system import boot_id
from xpulab.errors import InputError
from xpulab.fleet.runs import content_of, read_result, read_soak
from xpulab.records.origin import node_name, seconds_of
from xpulab.records.record import COMPARED, LEVELS, RED

if TYPE_CHECKING:
    from xpulab.fleet.bundle import Bundle

CODES = {"green": 0, "warning": 0, "red": 1, "undecided": 1, "unknown": 2}
"""By state the exit code. warning: green, beside files that do not count. unknown: no red counts, and no green.

undecided: a whole run had nothing red, and compared less than LEAST_SHARE. It counts like a red one.
"""
LEAST_SHARE = 0.5
"""Of the checks of the notebooks that ran: what skips more of them says nothing of a machine."""

_GRAMMAR = {"device": "|".join((*DEVICES, "auto")), "cards": "[1-9][0-9]{0,3}", "level": "|".join(LEVELS), "notebooks": "all"}
_CLOCKS_DIFFER = 360.0
"""Seconds by which a date may be ahead of this machine's clock."""
_RESULT, _SOAK = "result.json", "soak.json"
_LONGEST_PART = 100
"""Characters of what a check measured, or expected, or of another reason: the line must end with the command."""


@dataclass(frozen=True)
class Answer:
    """What is said of a machine. state: a key of CODES. line: what was found, for a log.

    problems: why it is red, each with what was measured and the command that repeats it, those of the last run first.
    ignored: what does not count, a sentence each that names the file. file: what decided; "" for nothing.
    """

    state: str
    line: str
    problems: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    file: str = ""

    @property
    def code(self) -> int:
        """The exit code."""
        return CODES[self.state]

    @property
    def reason(self) -> str:
        """Why a scheduler drains this node: check, measured, expected, and the command to repeat; else the line."""
        return f"[node_problem] xpulab {self.problems[0]}" if self.problems else self.line

    def to_json(self) -> dict[str, Any]:
        """As JSON values; the schema is data/schema/gate.schema.json."""
        return {"schema": 1, **asdict(self), "reason": self.reason}


@dataclass(frozen=True)
class Extent:
    """How much was judged, or must be; the defaults require nothing.

    device: "" is any. cards: a notebook could use. expected: how many had to be there. level: one of LEVELS. is_whole: all
    notebooks. covers: the notebooks that ran; of a soak its checks. compared, skipped: the checks that compared something, and
    the checks and notebooks that were not to run. seed: None is any. rounds: of a soak; 0 for a run.
    """

    device: str = ""
    cards: int = 1
    expected: int = 0
    level: str = LEVELS[0]
    is_whole: bool = False
    covers: frozenset[str] = frozenset()
    compared: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()
    seed: int | None = None
    rounds: int = 0

    def lacks(self, least: Extent) -> str:
        """What this has less than the other: "cards=1, not 8"; "" when it has as much or more."""
        missing = self.skipped & (least.covers | least.compared)
        if not least.is_whole:
            missing |= least.covers - self.covers
        found = {
            f"device={self.device}, not {least.device}": least.device not in ("", self.device),
            f"cards={self.cards}, not {least.cards}": self.cards < least.cards,
            f"without --expect {least.expected}": max(self.cards, self.expected) < least.expected,
            f"level={self.level}, not {least.level}": LEVELS.index(self.level) < LEVELS.index(least.level),
            f"{self.rounds} rounds of a soak, not {least.rounds}": self.rounds < least.rounds,
            "not notebooks=all": least.is_whole and not self.is_whole,
            f"without {', '.join(sorted(missing))}": bool(missing),
            f"seed={self.seed}, not {least.seed}": least.seed not in (None, self.seed),
        }
        return next((less for less, is_so in found.items() if is_so), "")


@dataclass(frozen=True)
class _Verdict:
    """What one run or soak says. file: its result.json or soak.json. ended: seconds since 1970. state: of CODES.

    found: what is green, or why it is unknown. may_be_red: whether that is so because it cannot be read.
    judges: "machine", "part" of one, "release" or "rehearsal". node, boot, serials: where it ran, and the cards there.
    """

    file: str
    ended: float
    state: str
    found: str
    problems: tuple[str, ...] = ()
    extent: Extent = Extent()
    judges: str = "machine"
    node: str | None = None
    boot: str | None = None
    serials: frozenset[str] = frozenset()
    may_be_red: bool = False

    def spares(self, red: _Verdict, boot: str | None) -> str:
        """Why a red one stays although this one is green; "" where it does not. boot: the present one."""
        if self.ended <= red.ended:
            return "it ran before"
        may_be_present = red.boot == boot or {self.boot, red.boot} == {None}
        if (why := _other_boot(self.boot, boot)) and may_be_present:
            return why
        gone = sorted(red.serials - self.serials) if self.boot == red.boot else ()  # a card is replaced between two boots
        return f"without the card {gone[0]}" if gone else self.extent.lacks(red.extent)

    def sentence(self, now: float) -> str:
        """What it says, and how old it is."""
        ago = f"{max(0.0, now - self.ended) / 3600:.1f} h ago"
        return f"{self.state} {ago}, {self.problems[0] if self.problems else self.found}"


def requirement(text: str) -> Extent:
    """What a green run must have: "device=xpu,cards=8,level=quick,notebooks=all", each key optional.

    Raises InputError, which names the key.
    """
    found: dict[str, str] = {}
    for part in text.split(",") if text else ():
        key, _, value = part.partition("=")
        if key not in _GRAMMAR or key in found or not re.fullmatch(_GRAMMAR[key], value):
            keys = ", ".join(f"{name}={allowed}" for name, allowed in _GRAMMAR.items())
            raise InputError(f"--require {text}: {part!r} is none of {keys}, each at most once")
        found[key] = value
    device, cards = found.get("device", "").replace("auto", ""), int(found.get("cards", 1))
    return Extent(device, cards, level=found.get("level", LEVELS[0]), is_whole="notebooks" in found)


def gate(folder: Path, max_age_hours: float, require: str = "") -> Answer:
    """What a folder says of this machine: that of a run or soak, or one that holds several of them.

    A green run counts when it has what is required, is of this boot of the machine, and is not older than max_age_hours. A red
    run or soak counts, whatever it has, until a later green one has as much. A partial run, one of another node and one that
    was interrupted do not count. What cannot be read may be red: nothing green before it counts.
    require: as for `requirement`.
    Raises InputError when the folder cannot be read, or holds no whole run.
    """
    required, now, boot = requirement(require), time.time(), boot_id()
    verdicts = sorted(_verdicts(folder, now), key=lambda verdict: verdict.ended)
    greens, unknown = ([each for each in verdicts if each.state == state] for state in ("green", "unknown"))
    counts = [each for each in verdicts if CODES[each.state] == 1]
    if reds := [red for red in counts if all(green.spares(red, boot) for green in greens)]:
        problems = [problem for red in reversed(reds) for problem in red.problems]
        less = [replace(green, found=f"{green.file}: green, but {green.spares(reds[-1], boot)}") for green in greens]
        ignored = [each.found for each in unknown + less if each.ended > reds[-1].ended]
        return _answer(reds[-1].state, reds[-1].sentence(now), ignored, reds[-1], problems)
    runs = {run: run.extent.lacks(required) or _other_boot(run.boot, boot) for run in greens if not run.extent.rounds}
    last = next((run for run in reversed(runs) if not runs[run]), None)
    if last is None:
        ignored = [each.found for each in unknown]
        ignored += [f"{run.file}: {run.sentence(now)}, but {less}; run it again" for run, less in runs.items()][-1:]
        if not ignored:
            raise InputError(f"{folder}: holds no result.json of a whole run; `xpulab run --out {folder}/first` makes one")
        return _answer("unknown", f"unknown, {ignored[-1]}", ignored)
    ignored = [each.found for each in unknown if each.ended > last.ended or each.may_be_red]
    if late := [each.found for each in unknown if each.may_be_red and each.ended >= last.ended]:
        return _answer("unknown", f"unknown, {late[-1]}", ignored)
    if not now - last.ended <= max_age_hours * 3600:  # nan is no age
        return _answer("unknown", f"unknown, the last verdict is too old: {last.sentence(now)}; run it again", ignored)
    if ignored:
        return _answer("warning", f"warning, {last.sentence(now)}; {ignored[-1]}", ignored, last)
    return _answer("green", last.sentence(now), (), last)


def verdict_in(path: Path) -> tuple[Bundle, Answer]:
    """A bundle whose checksums are right, and the verdict of the run in it.

    Raises InputError when the file is no bundle, is damaged, or holds no run.
    """
    from xpulab.fleet import bundle  # it needs much that a gate does not, which has a fraction of a second

    name = f"run/{_RESULT}"
    made, contents = bundle.read(path, kept=name)
    if name not in contents:
        raise InputError(f"{path}: holds no result.json, so it has no verdict; ask for a bundle of a run")
    verdict = _of_run(f"{path}: {name}", contents[name])
    return made, _answer(verdict.state, verdict.sentence(time.time()), (), verdict, verdict.problems)


def _other_boot(boot: str | None, present: str | None) -> str:
    """Why a run of this boot says nothing of the present one, each None where nothing shows it; "" where they are the same."""
    if present is None:
        return "this machine shows no boot id"
    return "" if boot == present else "not of this boot of the machine"


def _answer(state: str, line: str, ignored: Sequence[str], by: _Verdict | None = None, problems: Sequence[str] = ()) -> Answer:
    """An answer in plain text. by: what decided."""
    reasons, said = (tuple(map(_plain, texts)) for texts in (problems, ignored))
    return Answer(state, _plain(f"xpulab: {line}"), reasons, said, by.file if by else "")


def _verdicts(folder: Path, now: float) -> Iterator[_Verdict]:
    """What the folder holds about machines; of another node, a red part, and what cannot be read is unknown."""
    try:
        folders, here = [folder, *sorted(folder.iterdir())], node_name()
    except OSError as error:
        why = f"{folder}: cannot be read: {error.strerror}; give the folder that --out named for `xpulab run`"
        raise InputError(why) from error
    for path in (each / name for each in folders for name in (_RESULT, _SOAK)):
        changed = math.inf
        try:
            changed = path.lstat().st_mtime
            verdict = (_of_run if path.name == _RESULT else _of_soak)(str(path), content_of(path))
            if verdict.ended > now + _CLOCKS_DIFFER:
                changed = math.inf
                raise InputError(f"{path}: its date is in the future; set this machine's clock, and remove it")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, InputError, MemoryError) as error:
            if os.path.lexists(path):  # a run that is too old is removed at any time
                why = str(error) if isinstance(error, InputError) else f"{path}: cannot be read: {error or 'memory'}; remove it"
                yield _Verdict(str(path), changed, "unknown", why, may_be_red=True)
            continue
        one, other = (f"{name}.".lower() for name in (verdict.node or here, here))  # with a domain or without
        if verdict.judges in ("machine", "part") and not (one.startswith(other) or other.startswith(one)):
            yield replace(verdict, state="unknown", found=f"{path}: ran on {verdict.node}, and this is {here}")
        elif verdict.judges == "machine":
            yield verdict
        elif verdict.judges == "part" and verdict.state == "red":
            yield replace(verdict, state="unknown", found=f"{path}: a part is red: {verdict.problems[0]}")


def _of_run(file: str, content: bytes) -> _Verdict:
    """The verdict of a result.json. Raises InputError, which names the file, when it is damaged.

    One that was interrupted before anything failed is unknown: a job that its user or the scheduler ended drains no node.
    """
    result = read_result(content, file)
    notebooks, lost = result["notebooks"], result.get("lost")
    checks = [check for notebook in notebooks for check in notebook["checks"]]
    compared = [check["name"] for check in checks if check["outcome"] in COMPARED]
    extent = Extent(
        "" if lost and lost["device"] == "cpu" else result["device"],  # cards are lost, and nothing says of which kind
        result["cards"],
        (lost or result).get("expected") or 0,
        result["level"],
        result.get("is_whole", False),
        frozenset(notebook["name"] for notebook in notebooks if notebook["outcome"] != "skipped"),
        frozenset(compared),
        frozenset(each["name"] for each in (*notebooks, *checks) if each["outcome"] == "skipped"),
        None if lost else result["seed"],
    )
    problems: tuple[str, ...] = ()
    if result["outcome"] in ("unknown", "running") or _was_only_interrupted(result):
        state = "unknown"
        found = f"{file}: {_one_line(result.get('reason') or 'the run was interrupted')}; run it again"
    elif result["green"]:
        state = "green"
        part = "a part only: " if result["outcome"] == "partial" else ""
        made = sum(len(notebook["checks"]) for notebook in notebooks if notebook["outcome"] != "skipped")
        share = f"{len(compared)} of {made} checks"
        found = f"{part}{share} at level {result['level']} on {result['device']}"
        if len(compared) < LEAST_SHARE * made and not part:
            state = "undecided"
            problems = (f"only {share} were compared, the others were skipped; rerun: xpulab run {_options(result)}",)
    else:
        state, found = "red", ""
        nothing = f"run is red: no notebook was green; rerun: xpulab run {_options(result)}"
        problems = tuple(_problems(result)) or (nothing,)
    judges = result.get("judges", "machine")
    judges = "part" if (judges, result["outcome"]) == ("machine", "partial") else judges
    serials = frozenset(card["serial"] for card in result["card_facts"] if card["serial"])
    where = (judges, result.get("node"), result.get("boot"), serials)
    return _Verdict(file, seconds_of(result["date"]), state, found, problems, extent, *where)


def _of_soak(file: str, content: bytes) -> _Verdict:
    """The same of a soak. A green one has as much as a red one with as many rounds as that had to its first problem."""
    soak = read_soak(content, file)
    rounds, problems = soak["first_bad_round"] or soak["rounds"], []
    extent = Extent(soak["device"], soak["cards"], level=soak["level"], covers=frozenset(soak["checks"]), rounds=rounds)
    for each in soak["problems"]:
        what = f"--check {shlex.quote(each['check'])}" if each["check"] else shlex.quote(each["notebook"])
        again = f"xpulab soak {what} --device {extent.device}{f' --cards {extent.cards}' if extent.cards > 1 else ''}"
        if each["notebook"] == "search":  # tries first what is in its folder
            again = f"xpulab search --device {extent.device} --out {shlex.quote(str(Path(file).with_name('search')))}"
        where = f"{each['check'] or each['notebook']} in round {each['round']} of a soak (seed {each['seed']})"
        problems.append(f"{where}: {_one_line(each['reason'])}; rerun: {again}")
    state = {"failed": "red", "passed": "green"}.get(soak["outcome"], "unknown")
    found, here = f"{file}: the soak compared no two rounds", ("machine", soak["node"], soak["boot"])
    return _Verdict(file, seconds_of(soak["date"]), state, found, tuple(problems), extent, *here)


def _was_only_interrupted(result: Mapping[str, Any]) -> bool:
    """Whether every red notebook was interrupted, and no check had failed before."""
    red = [notebook for notebook in result["notebooks"] if notebook["outcome"] in ("failed", "missing")]
    outcomes = {check["outcome"] for notebook in red for check in notebook["checks"]}
    interrupted = [notebook for notebook in red if (notebook["reason"] or "").startswith("interrupted")]
    return bool(red) and len(interrupted) == len(red) and not outcomes & {"failed", "broken"}


def _problems(result: Mapping[str, Any]) -> Iterator[str]:
    """The red checks, or why a notebook is red without one, each with the command that repeats it."""
    options = _options(result)
    if lost := result.get("lost"):
        expects = f" --expect {lost['expected']}" if lost["expected"] else ""
        again = f"xpulab run --device auto{expects} --level {result['level']}"
        yield f"the accelerator is lost: {_one_line(lost['problem'])}; rerun: {again}"
        return
    for notebook in result["notebooks"]:
        if notebook["outcome"] not in ("failed", "missing"):
            continue
        name = notebook["name"]
        red = [check for check in notebook["checks"] if check["outcome"] in RED]
        for check in red:
            again = f"xpulab run {shlex.quote(name)} --check {shlex.quote(check['name'])} {options}"
            yield f"{check['name']} {_compared(check)}; rerun: {again}"
        if not red:
            why = _one_line(str(notebook["reason"]))
            yield f"{name} is {notebook['outcome']}: {why}; rerun: xpulab run {shlex.quote(name)} {options}"


def _options(result: Mapping[str, Any]) -> str:
    """The options of the run: without --cards, notebooks that need several would be skipped."""
    cards = f" --cards {result['cards']}" if result["cards"] > 1 else ""
    seed = f" --seed {result['seed']}" if result["seed"] else ""
    return f"--device {result['device']}{cards} --level {result['level']}{seed}"


def _compared(check: Mapping[str, Any]) -> str:
    """What a check measured and expected; of a table that of its first red row."""
    row = next((row for row in check["rows"] if row["outcome"] in RED), None)
    measured = (row or check)["measured"]
    if measured is None:
        return f"is {check['outcome']}: {_one_line(str(check['reason']))}"
    number = f"{measured:.4g}" if isinstance(measured, float) and math.isfinite(measured) else _one_line(str(measured))
    case = f", {_one_line(row['case'])}" if row else ""
    return f"measured {number}{case}, expected {_one_line((row or check)['expected'])}"


def _one_line(text: str) -> str:
    """A text without line ends and control characters, shortened."""
    plain = _plain(text)
    return plain if len(plain) <= _LONGEST_PART else f"{plain[: _LONGEST_PART - 3]}..."


def _plain(text: str) -> str:
    """A text in one line without control characters: a scheduler keeps and shows one line."""
    return "".join(character if character.isprintable() else " " for character in " ".join(text.split()))
