"""What a run executes: which notebooks, at which level, which of their sections, and which checks that plans."""

from __future__ import annotations

import glob
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from nbformat import NotebookNode

from xpulab import files
from xpulab.errors import InputError
from xpulab.harness.chapter import Chapter, code_cells, read_chapter
from xpulab.harness.sections import Section, closure, excerpt, refuse_undefined_names, up_to
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
    def path(self) -> Path:
        """The committed notebook."""
        return self.chapter.path

    @property
    def title(self) -> str:
        """What it is called in reports."""
        return self.chapter.title

    @property
    def cards(self) -> int:
        """How many cards it needs."""
        return self.chapter.cards

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names that its parameters cell sets."""
        return self.chapter.parameters

    @property
    def budget_seconds(self) -> float:
        """How long the whole notebook should take at this level."""
        return self.chapter.budget_seconds[self.level]

    @property
    def expected_seconds(self) -> float:
        """An estimate for what runs: the budget by the share of the code cells that do."""
        return self.budget_seconds * len(code_cells(self.notebook)) / len(code_cells(self.chapter.notebook))

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
        running = {section.name for section in self.sections}
        return tuple(check for check in self.chapter.checks if self.chapter.section_of(check).name in running)


def make_plans(notebooks: Sequence[str], level: str, checks: Sequence[str] = ()) -> list[Plan]:
    """The plans for these notebooks (numbers, names, paths, globs, or files.RELEASE for those that judge a release); when none
    is given, for all chapters that need no environment of their own.

    checks: globs of checks' names; when there are any, only the sections of these checks run, with all that they need.
    Raises InputError for a level, notebook or check that is not there, a notebook that cannot be run, a file's or check's name
    that two notebooks share, and for chapters together with notebooks that judge a release.
    """
    if level not in LEVELS:
        raise InputError(
            N_(
                "no level {level}: choose {LEVELS} or {LEVELS2}",
                level=repr(level),
                LEVELS=", ".join(LEVELS[:-1]),
                LEVELS2=LEVELS[-1],
            )
        )
    chapters = [read_chapter(path) for path in find_notebooks(notebooks)]
    if not notebooks:
        usual = [chapter for chapter in chapters if not chapter.environment]
        names = [check.name for chapter in usual for check in chapter.checks]
        if all(any(fnmatchcase(name, pattern) for name in names) for pattern in checks):
            chapters = usual  # else the check may be one of those that need another environment, which is then named
    _refuse_two_subjects(chapters)
    _refuse_shared_file_names(chapters)
    _refuse_shared_names(chapters)
    if checks:
        return plans_of_checks(chapters, level, checks)
    return [plan for plan in (plan_of(chapter, level) for chapter in chapters) if plan.checks or plan.is_whole]


def plan_of(chapter: Chapter, level: str) -> Plan:
    """The plan for all sections of a notebook that run at this level."""
    names = {section.name for section in chapter.sections if section.level in up_to(level)}
    plan = Plan(chapter, level, closure(chapter.sections, names))
    return _checked(plan)


def plan_of_checks(chapter: Chapter, level: str, names: Sequence[str]) -> Plan:
    """The plan for the sections of these checks, which the notebook must plan, with all that they need."""
    checks = tuple(check for check in chapter.checks if check.name in names)
    return _checked(Plan(chapter, level, chapter.closure_of(checks), partial=True))


def plans_of_checks(chapters: Sequence[Chapter], level: str, globs: Sequence[str]) -> list[Plan]:
    """The plans for the checks that the globs match, of the notebooks that have any.

    Raises InputError for a glob that matches no check.
    """
    matched: dict[str, list[str]] = {}
    for pattern in globs:
        found = [(chapter, check) for chapter in chapters for check in chapter.checks if fnmatchcase(check.name, pattern)]
        if not found:
            raise InputError(
                N_(
                    "no check {pattern}: neither a name nor a glob that matches; `xpulab run --list` shows them",
                    pattern=repr(pattern),
                )
            )
        for chapter, check in found:
            matched.setdefault(chapter.path.stem, []).append(check.name)
    return [plan_of_checks(each, level, matched[each.path.stem]) for each in chapters if each.path.stem in matched]


def check_needs(chapter: Chapter) -> None:
    """Raise InputError when the sections of a check, with all that they need, use a name that they do not define."""
    for section in chapter.sections:
        checks = [check.name for check in chapter.checks if chapter.section_of(check) is section]
        if checks:
            plan_of_checks(chapter, LEVELS[-1], checks)


def with_own_environment() -> list[str]:
    """The names of the chapters that are not part of a run that names none: they need an environment of their own."""
    metadata = {path.stem: json.loads(path.read_text(encoding="utf-8"))["metadata"] for path in files.NOTEBOOKS.glob("*.ipynb")}
    return sorted(name for name, entries in metadata.items() if entries.get(METADATA_KEY, {}).get("environment"))


def refuse_other_environments(chapters: Iterable[Chapter]) -> None:
    """Raise InputError for a notebook that needs another environment than the one that this process runs in."""
    here = environments.present()
    others = [chapter for chapter in chapters if chapter.environment != here]
    if not others:
        return
    names, number, wanted = ", ".join(each.path.stem for each in others), others[0].path.stem[:2], others[0].environment
    if wanted:
        package = environments.PACKAGES[wanted]
        raise InputError(
            N_(
                "{names}: needs an environment of its own, with {package}; bash env/validate.sh {number} makes it, "
                ".venv-{wanted}, and runs the chapter there, apart from others",
                names=names,
                package=package,
                number=number,
                wanted=wanted,
            )
        )
    package = environments.PACKAGES[here]
    raise InputError(
        N_(
            "{names}: cannot run in an environment with {package}; bash env/validate.sh makes the usual one, "
            ".venv; run it there",
            names=names,
            package=package,
        )
    )


def format_left_out(name: str) -> str:
    """For a reader of a run that names no notebook: a chapter that is not part of it, and how to run it."""
    number = name[:2]
    return N_(
        "{name} is not part of this run: it has an environment of its own; bash env/validate.sh {number} runs it",
        name=name,
        number=number,
    )


def format_plan(plan: Plan) -> str:
    """What a plan runs, in the chosen language: a line for the notebook, one for each section, its checks below."""
    counted = shown(
        N_(
            "{checks} checks, about {expected_seconds} s",
            checks=len(plan.checks),
            expected_seconds=f"{plan.expected_seconds:.0f}",
        )
    )
    lines = [f"{plan.name}  {shown(plan.title)} ({counted})"]
    for section in plan.sections:
        facts = [shown(section.part), section.level]
        facts += [shown(N_("needs {needs}", needs=", ".join(section.needs)))] if section.needs else []
        lines.append(f"  {section.name}  {shown(section.title)} ({', '.join(facts)})")
        lines += [f"    {check.name}" for check in plan.checks if plan.chapter.section_of(check) is section]
    return "\n".join(lines)


def find_notebooks(notebooks: Sequence[str]) -> list[Path]:
    """The files that these numbers, names, paths or globs stand for, each once, in the order given; none stands for all."""
    if not notebooks:
        found = sorted(files.NOTEBOOKS.glob("*.ipynb"))
        if not found:
            raise InputError(N_("{NOTEBOOKS}: holds no notebook", NOTEBOOKS=files.NOTEBOOKS))
        return found
    return list(dict.fromkeys(path for given in notebooks for path in _matching(given)))


def read_plan(path: Path, level: str) -> Plan:
    """Read one notebook and plan it at this level; raises InputError when it cannot be run as one of the suite's."""
    return plan_of(read_chapter(path), level)


def _checked(plan: Plan) -> Plan:
    if not plan.is_whole:
        refuse_undefined_names(plan.path, plan.notebook, plan.sections)
    return plan


def _matching(given: str) -> list[Path]:
    for candidate in (Path(given), files.NOTEBOOKS / given, files.NOTEBOOKS / f"{given}.ipynb"):
        if candidate.is_file():
            return [candidate.resolve()]
    if given == files.RELEASE:
        return files.release_notebooks()
    chapters = sorted(files.NOTEBOOKS.glob("*.ipynb"))
    if by_part := [path.resolve() for path in chapters if _is_part(given, *path.stem.partition("_")[::2])]:
        return by_part
    if any(sign in given for sign in "*?["):
        for folder, pattern in ((Path(), given), (files.NOTEBOOKS, given), (files.NOTEBOOKS, f"{given}.ipynb")):
            found = [folder / name for name in sorted(glob.glob(pattern, root_dir=folder))]
            if notebooks := [path.resolve() for path in found if path.suffix == ".ipynb"]:
                return notebooks
    if (renamed := files.present_name(given)) != given:
        raise InputError(
            N_("no notebook {given}: chapters were renumbered, and it is {renamed} now", given=repr(given), renamed=renamed)
        )
    known = ", ".join(path.stem for path in chapters)
    raise InputError(
        N_(
            "no notebook {given}: neither a file, nor a glob that matches, nor one of {known}",
            given=repr(given),
            known=known or N_("none"),
        )
    )


def _refuse_two_subjects(chapters: Sequence[Chapter]) -> None:
    of_release = [chapter for chapter in chapters if chapter.is_of_release]
    if of_release and len(of_release) < len(chapters):
        name, other = of_release[0].path.stem, next(each.path.stem for each in chapters if not each.is_of_release)
        raise InputError(
            N_(
                "{RELEASE}/{name} judges the release and {other} the machine: run them apart",
                RELEASE=files.RELEASE,
                name=name,
                other=other,
            )
        )


def _is_part(given: str, number: str, name: str) -> bool:
    """Whether it is the number or the name of a chapter: 3, 03 or lora stand for 03_lora."""
    return given == name or (given.isdecimal() and number.isdecimal() and int(given) == int(number))


def _refuse_shared_file_names(chapters: Sequence[Chapter]) -> None:
    owners: dict[str, Chapter] = {}
    for chapter in chapters:
        owner = owners.setdefault(chapter.path.stem, chapter)
        if owner is not chapter:
            raise InputError(
                f"{chapter.path}: has the name of {owner.path}, and one report cannot hold both; rename one, or run them apart"
            )


def _refuse_shared_names(chapters: Sequence[Chapter]) -> None:
    owners: dict[str, Chapter] = {}
    for chapter in chapters:
        for check in chapter.checks:
            owner = owners.setdefault(check.name, chapter)
            if owner is not chapter:
                raise InputError(f"{chapter.path} cell {check.cell}: check {check.name!r} is planned in {owner.path} too")
