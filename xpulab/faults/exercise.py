"""An exercise: a fault of a chapter's catalogue is injected without its name, and the reader finds out from the red checks.

data/exercises.yaml has one for each chapter that has such an exercise.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from xpulab import files
from xpulab.chapters.shared.fault import Fault
from xpulab.errors import InputError
from xpulab.faults import inject
from xpulab.faults.selftest import CARDS, chapter_of, faults_named
from xpulab.harness.execute import Execution, RunOptions
from xpulab.harness.judge import Verdict, judge
from xpulab.harness.plan import plan_of_checks, refuse_other_environments
from xpulab.harness.report import text
from xpulab.messages import N_, shown


@dataclass(frozen=True)
class Exercise:
    """A defect to find.

    chapter: the chapter's name without its number, "lora". fault: what is injected. hint: where a reader may look first.
    answer: what is broken, and how the red checks, and the green ones, tell.
    """

    chapter: str
    fault: Fault
    hint: str
    answer: str


def exercises() -> tuple[Exercise, ...]:
    """Those of data/exercises.yaml, in the order of the chapters."""
    stored = files.load_yaml(files.data("exercises.yaml"), files.data("schema", "exercises.schema.json"))
    found = [Exercise(row["chapter"], faults_named([row["fault"]])[0], row["hint"], row["answer"]) for row in stored]
    return tuple(sorted(found, key=lambda exercise: exercise.fault.notebook))


def exercise_named(chapter: str) -> Exercise:
    """The exercise of a chapter: its name, or its number with or without the name. Raises InputError when it has none."""
    known = exercises()
    for exercise in known:
        number = exercise.fault.notebook[:2]
        if chapter in (exercise.chapter, exercise.fault.notebook) or (chapter.isdecimal() and int(chapter) == int(number)):
            return exercise
    names = ", ".join(exercise.chapter for exercise in known)
    raise InputError(N_("no exercise {chapter}; there is one for {names}", chapter=repr(chapter), names=names))


def run(exercise: Exercise, folder: Path, environment: Mapping[str, str]) -> Verdict:
    """Run the sections of the checks that see the defect, with the defect; the executed notebook is left in the folder.

    environment: the variables of the kernel, as harness.fork_server.kernel_environment gives them.
    Raises InputError when the defect could not be injected, or the chapter needs another environment.
    """
    fault = exercise.fault
    refuse_other_environments([chapter_of(fault)])
    plan = plan_of_checks(chapter_of(fault), fault.level, fault.detected_by)
    with tempfile.TemporaryDirectory(prefix="xpulab-exercise-", ignore_cleanup_errors=True) as scratch:
        variables = {**environment, **inject.prepare(fault, Path(scratch))}
        options = RunOptions(fault.device, fault.level, max(CARDS, plan.cards))
        executed = [path for _, path in Execution(options, folder, variables).run([plan], 1)]
        if failure := inject.why_not_injected(Path(scratch)):
            raise InputError(N_("the defect could not be injected: {failure}; run env/validate.sh first", failure=failure))
    return judge(plan, executed[0])


def format_list() -> str:
    """A line for each exercise."""
    return "\n".join(f"{exercise.chapter:<24}{shown(exercise.hint)}" for exercise in exercises())


def format_task(exercise: Exercise, verdict: Verdict) -> str:
    """What a reader gets to see: the red checks, where to look, and how to get the answer."""
    question = f"{shown('One thing is broken. Which one?')} {shown(exercise.hint)}"
    executed = shown(N_("The executed notebook: {executed}", executed=verdict.executed))
    answer = shown(N_("The answer: xpulab exercise {chapter} --answer", chapter=exercise.chapter))
    return "\n".join([*text.format_notebook(verdict), "", question, executed, answer])


def format_answer(exercise: Exercise) -> str:
    """What is broken and how one can tell."""
    red = ", ".join(exercise.fault.detected_by)
    where = shown(N_("Must be red: {red}. In the catalogue of faults: {name}", red=red, name=exercise.fault.name))
    return f"{shown(exercise.fault.what)}\n{shown(exercise.answer)}\n{where}"
