"""What a run executes: which notebooks, at which level, which of their sections, and which checks that plans."""

from __future__ import annotations

import glob
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from nbformat import NotebookNode

from xpulab import files
from xpulab.errors import InputError
from xpulab.harness.chapter import Chapter, read_chapter
from xpulab.harness.sections import Section, closure, code_cells, excerpt, up_to
from xpulab.messages import N_, shown
from xpulab.records import environments
from xpulab.records.planned import PlannedCheck
from xpulab.records.record import LEVELS, METADATA_KEY


@dataclass(frozen=True)
class Plan:
    """One notebook that will be run.

    chapter: the notebook. level: one of LEVELS. sections: those that run, in reading order.
    partial: whether less runs than the level asks for, so that the verdict is none on the whole notebook.
    """

    chapter: Chapter = field(repr=False)
    level: str
    sections: tuple[Section, ...]
    partial: bool = False

    @property
    def name(self) -> str:
        """The file's name without its ending: "02_sft"."""
        return self.chapter.path.stem

    @property
    def cards(self) -> int:
        """How many cards it needs."""
        return self.chapter.cards

    @property
    def budget_seconds(self) -> float:
        """How long the whole notebook should take at this level."""
        return self.chapter.budget_seconds[self.level]

    @property
    def expected_seconds(self) -> float:
        """An estimate for what runs: the budget by the share of the code cells that do."""
        return self.budget_seconds * len(code_cells(self.notebook)) / self.chapter.last_cell

    @property
    def is_whole(self) -> bool:
        """Whether every section of the notebook runs."""
        return len(self.sections) == len(self.chapter.sections)

    @cached_property
    def notebook(self) -> NotebookNode:
        """What is executed: the whole notebook, or the cells of the sections that run."""
        chapter = self.chapter
        return chapter.notebook if self.is_whole else excerpt(chapter.notebook, chapter.sections, self.sections)

    @cached_property
    def checks(self) -> tuple[PlannedCheck, ...]:
        """The checks of the sections that run, in reading order."""
        return tuple(check for check in self.chapter.checks if self.chapter.section_of(check) in self.sections)


def make_plans(notebooks: Sequence[str], level: str, checks: Sequence[str] = ()) -> list[Plan]:
    """The plans for these notebooks (numbers, names, paths, globs, or files.RELEASE for those that judge a release); when none
    is given, for all chapters that need no environment of their own.

    checks: globs of checks' names; when there are any, only the sections of these checks run, with all that they need.
    Raises InputError for a level, notebook or check that is not there, a notebook that cannot be run, a file's or check's name
    that two notebooks share, and for chapters together with notebooks that judge a release.
    """
    if level not in LEVELS:
        levels = f"{', '.join(LEVELS[:-1])} or {LEVELS[-1]}"
        raise InputError(N_("no level {level}: choose {levels}", level=repr(level), levels=levels))
    chapters = [read_chapter(path) for path in find_notebooks(notebooks)]
    if not notebooks:
        usual = [chapter for chapter in chapters if not chapter.environment]
        names = [check.name for chapter in usual for check in chapter.checks]
        if all(any(fnmatchcase(name, pattern) for name in names) for pattern in checks):
            chapters = usual  # else the check may be one of those that need another environment, which is then named
    _refuse_mixtures(chapters)
    if not checks:
        return [plan for plan in (plan_of(chapter, level) for chapter in chapters) if plan.checks or plan.is_whole]
    known = [check.name for chapter in chapters for check in chapter.checks]
    for pattern in checks:
        if not any(fnmatchcase(name, pattern) for name in known):
            asked = N_("no check {pattern}: neither a name nor a glob that matches", pattern=repr(pattern))
            raise InputError(N_("{asked}; `xpulab run --list` shows them", asked=asked))
    wanted = {name for name in known if any(fnmatchcase(name, pattern) for pattern in checks)}
    plans = [plan_of_checks(chapter, level, wanted) for chapter in chapters]
    return [plan for plan in plans if plan.sections]


def plan_of(chapter: Chapter, level: str) -> Plan:
    """The plan for all sections of a notebook that run at this level."""
    names = {section.name for section in chapter.sections if section.level in up_to(level)}
    return Plan(chapter, level, closure(chapter.sections, names))


def plan_of_checks(chapter: Chapter, level: str, names: Collection[str]) -> Plan:
    """The plan for the sections of these checks, as far as the notebook has them, with all that they need."""
    sections = {chapter.section_of(check).name for check in chapter.checks if check.name in names}
    return Plan(chapter, level, closure(chapter.sections, sections), partial=True)


def read_plan(path: Path, level: str) -> Plan:
    """Read one notebook and plan it at this level; raises InputError when it cannot be run as one of the suite's."""
    return plan_of(read_chapter(path), level)


def with_own_environment() -> list[str]:
    """The names of the chapters that are not part of a run that names none: they need an environment of their own."""
    metadata = {path.stem: json.loads(path.read_text(encoding="utf-8"))["metadata"] for path in files.NOTEBOOKS.glob("*.ipynb")}
    return sorted(name for name, entries in metadata.items() if entries.get(METADATA_KEY, {}).get("environment"))


def refuse_other_environments(chapters: Iterable[Chapter]) -> None:
    """Raise InputError for a notebook that needs another environment than the one that this process runs in."""
    here = environments.present()
    if not (others := [chapter for chapter in chapters if chapter.environment != here]):
        return
    names, wanted = ", ".join(each.path.stem for each in others), others[0].environment
    if wanted:
        facts = {"names": names, "package": environments.PACKAGES[wanted], "number": others[0].path.stem[:2]}
        raise InputError(
            N_("{names}: needs an environment of its own, with {package}; bash env/validate.sh {number} runs it there", **facts)
        )
    facts = {"names": names, "package": environments.PACKAGES[here]}
    raise InputError(
        N_("{names}: cannot run in an environment with {package}; run it in the usual one: bash env/validate.sh", **facts)
    )


def format_left_out(name: str) -> str:
    """For a reader of a run that names no notebook: a chapter that is not part of it, and how to run it."""
    left_out = N_("{name} is not part of this run: it has an environment of its own", name=name)
    return N_("{left_out}; bash env/validate.sh {number} runs it", left_out=left_out, number=name[:2])


def format_plan(plan: Plan) -> str:
    """What a plan runs, in the chosen language: a line for the notebook, one for each section, its checks below."""
    seconds = f"{plan.expected_seconds:.0f}"
    counted = shown(N_("{checks} checks, about {seconds} s", checks=len(plan.checks), seconds=seconds))
    lines = [f"{plan.name}  {shown(plan.chapter.title)} ({counted})"]
    for section in plan.sections:
        facts = [shown(section.part), section.level]
        facts += [shown(N_("needs {needs}", needs=", ".join(section.needs)))] if section.needs else []
        lines.append(f"  {section.name}  {shown(section.title)} ({', '.join(facts)})")
        lines += [f"    {check.name}" for check in plan.checks if plan.chapter.section_of(check) is section]
    return "\n".join(lines)


def find_notebooks(notebooks: Sequence[str]) -> list[Path]:
    """The files that these numbers, names, paths or globs stand for, each once, in the order given; none stands for all."""
    chapters = sorted(files.NOTEBOOKS.glob("*.ipynb"))
    if not notebooks and not chapters:
        raise InputError(N_("{NOTEBOOKS}: holds no notebook", NOTEBOOKS=files.NOTEBOOKS))
    found: dict[Path, None] = {} if notebooks else dict.fromkeys(chapters)
    own = {path.relative_to(files.NOTEBOOKS).with_suffix(""): path for path in (*chapters, *files.release_notebooks())}
    for given in notebooks:
        here = [Path(name).resolve() for name in sorted(glob.glob(given)) if name.endswith(".ipynb")]
        matching = files.release_notebooks() if given == files.RELEASE else here
        matching = matching or [path.resolve() for name, path in own.items() if _is_meant(given, name.as_posix())]
        if not matching:
            known = ", ".join(path.stem for path in chapters) or N_("none")
            facts = {"given": repr(given), "known": known}
            raise InputError(N_("no notebook {given}: neither a file, nor a glob that matches, nor one of {known}", **facts))
        found |= dict.fromkeys(matching)
    return list(found)


def _is_meant(given: str, known: str) -> bool:
    """Whether 3, 03, lora, 03_lora, 03_lora.ipynb, release/trainer or a glob of such names stands for this notebook."""
    number, _, name = known.partition("_")
    if given.isdecimal() and number.isdecimal():
        return int(given) == int(number)
    is_short = number.isdecimal() and given == name
    return is_short or (given.count("/") == known.count("/") and fnmatchcase(known, given.removesuffix(".ipynb")))


def _refuse_mixtures(chapters: Sequence[Chapter]) -> None:
    """Raise InputError for notebooks that one report cannot hold."""
    if len({chapter.is_of_release for chapter in chapters}) > 1:
        name = next(chapter.path.stem for chapter in chapters if chapter.is_of_release)
        facts = {"RELEASE": files.RELEASE, "name": name}
        raise InputError(N_("{RELEASE}/{name} judges the release and chapters judge the machine: run them apart", **facts))
    owners: dict[str, Chapter] = {}
    for chapter in chapters:
        for name in (chapter.path.stem, *(check.name for check in chapter.checks)):
            if (owner := owners.setdefault(name, chapter)) is not chapter:
                problem = f"{chapter.path}: {name!r} is the name of something in {owner.path} too"
                raise InputError(f"{problem}, and one report cannot hold both; rename one, or run them apart")
