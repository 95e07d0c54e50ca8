"""Judge the run of a bundle again, on any machine: what its notebooks recorded against what this version plans.

The verdict is new: nothing is taken from result.json but what ran, and its statements are compared with what the notebooks say.
Both verdicts are shown, with every difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import jsonschema

from xpulab import __version__, files
from xpulab.errors import InputError
from xpulab.faults import CATALOGUE
from xpulab.fleet import bundle
from xpulab.fleet.bundle import Bundle
from xpulab.fleet.contradictions import contradictions
from xpulab.fleet.signature import Signature
from xpulab.harness.chapter import read_chapter, read_notebook
from xpulab.harness.execute import Target
from xpulab.harness.judge import Verdict, judge, not_run
from xpulab.harness.plan import Plan, plan_of, plan_of_checks
from xpulab.harness.report.result import Result, to_json
from xpulab.harness.report.text import format_result
from xpulab.messages import ENGLISH, LANGUAGES
from xpulab.records import proof
from xpulab.records.commit import commit
from xpulab.records.proof import Proof
from xpulab.records.record import METADATA_KEY

SCHEMA = 1
_SHOWN = 20
"""Differences that a person is shown; the JSON has all."""
_OF_RUN = ("device", "level", "cards", "seed")
_NOT_ENDED = ("running", "waiting")
"""Outcomes of a run, and of its notebooks, that was killed: no verdict is claimed, so none can differ."""


@dataclass(frozen=True)
class Judged:
    """result: the new judgement. claimed: what the bundle's own result.json says, as JSON values. name: of the run in the
    bundle, "" or of a soak the folder of the round.

    differences: where the claim, the notebooks and their records say different things, one sentence each.
    notes: what makes the judgement weaker, one sentence each.
    """

    result: Result
    claimed: Mapping[str, Any] = field(repr=False)
    differences: tuple[str, ...]
    notes: tuple[str, ...]
    name: str = ""

    @property
    def is_green(self) -> bool:
        """Whether it is green, as it claims."""
        return self.result.is_green and not self.differences


@dataclass(frozen=True)
class _Stored:
    """A bundle that was read: path, manifest, files by name, and below which of them a run is."""

    path: Path
    made: Bundle
    contents: Mapping[str, bytes] = field(repr=False)
    prefix: str

    def json(self, name: str, schema: str = "") -> Any:
        """A file of the run, or of the machine when the name begins so; InputError when it is not there or no JSON.

        schema: the file of the one that it must fit.
        """
        full = name if name.startswith("machine/") else f"{self.prefix}{name}"
        try:
            value = json.loads(self.contents[full])
            if schema:
                loaded = json.loads(files.data("schema", schema).read_text(encoding="utf-8"))
                jsonschema.Draft202012Validator(loaded).validate(value)
        except (KeyError, ValueError, RecursionError) as error:
            raise InputError(f"{self.path}: its {full} cannot be read: {error!r}; ask for the bundle again") from error
        except jsonschema.ValidationError as error:
            raise InputError(
                f"{self.path}: its {full} is none that xpulab {__version__} reads: {error.message[:200]}; "
                f"judge it with the version that made it, {self.made.xpulab}"
            ) from error
        return value


def judge_again(path: Path, folder: Path) -> list[Judged]:
    """Unpack the runs of a bundle into a new folder, and judge each notebook: one run, or each kept round of a soak.

    Raises InputError when the file is no bundle, has no executed notebooks, does not say what ran, or comes from a version
    whose notebooks are other ones.
    """
    made, contents = bundle.read(path)
    results = sorted(name for name in contents if name.startswith("run/") and name.endswith("/result.json"))
    if not results:
        raise InputError(f"{path}: has no result.json: there is nothing to judge; a soak without a whole round has none")
    if not any(name.endswith(".ipynb") for name in contents):
        raise InputError(f"{path}: has no executed notebooks, as one that was made with --summary: ask for a whole bundle")
    runs = []
    for name in results:
        stored = _Stored(path, made, contents, name.removesuffix("result.json"))
        runs.append(_judge_run(stored, folder / _name(stored)))
    return runs


def _judge_run(stored: _Stored, folder: Path) -> Judged:
    (folder / "notebooks").mkdir(parents=True, exist_ok=True)
    claimed = stored.json("result.json", "result.schema.json")
    target = Target(claimed["device"], claimed["level"], claimed["cards"], claimed["seed"])
    judged = tuple(_verdict(stored, each, target, _is_partial(claimed, each), folder) for each in claimed["notebooks"])
    proved = _proof(stored, claimed)
    node = claimed.get("node", "")
    result = Result(target, judged, float(claimed["seconds"]), folder, date=claimed["date"], node=node, proof=proved)
    differences = (*_of_claim(claimed, result), *_of_notebooks(stored, claimed, result), *_of_proof(proved))
    return Judged(result, claimed, differences, tuple(_notes(stored, result)), _name(stored))


def _is_partial(claimed: Mapping[str, Any], notebook: Mapping[str, Any]) -> bool:
    """Whether only some sections of a notebook were asked for; of a run that was killed only its green notebooks say so."""
    return "partial" in (claimed["outcome"], notebook["outcome"])


def _name(stored: _Stored) -> str:
    return stored.prefix.removeprefix("run/").rstrip("/")


# ------------------------------------------------------------------------------------------------------------ each notebook


def _verdict(stored: _Stored, claimed: Mapping[str, Any], target: Target, partial: bool, folder: Path) -> Verdict:
    """The verdict on one notebook, whose executed form is written below the folder; one that did not run stays so."""
    notebooks = files.notebooks_in(_language(stored, claimed))
    committed = {path.stem: path for path in notebooks.glob("*.ipynb")}.get(claimed["name"])
    if committed is None:
        raise InputError(f"{stored.path}: this version has no notebook {claimed['name']!r}; judge it with the one that made it")
    chapter = read_chapter(committed)
    if claimed["executed"] is None:
        names = tuple(check["name"] for check in claimed["checks"])
        plan = plan_of_checks(chapter, target.level, names) if partial else plan_of(chapter, target.level)
        may_skip = claimed["outcome"] == "skipped" and plan.cards > target.cards and target.device != "cpu"
        reason = claimed["reason"] or "it was not executed"
        return not_run(plan, "skipped", reason) if may_skip else not_run(plan, "missing", reason)
    if (name := f"{stored.prefix}{claimed['executed']}") not in stored.contents:
        raise InputError(f"{stored.path}: holds no {name}, which its result.json names; ask for the bundle again")
    executed = folder / "notebooks" / committed.name
    executed.write_bytes(stored.contents[name])
    if (log := f"{name.removesuffix('.ipynb')}.log") in stored.contents:
        executed.with_suffix(".log").write_bytes(stored.contents[log])
    plan = _partial_plan(chapter, target.level, executed) if partial else plan_of(chapter, target.level)
    try:
        verdict = judge(plan, executed)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{stored.path}: {name} is not what `xpulab run` writes: {error!r}; ask for it again") from error
    if any("its cells are not those" in reason for reason in verdict.reasons) and _is_another_version(stored):
        raise InputError(
            f"{stored.path}: {claimed['name']} has other cells than here: it was made by xpulab {_version(stored)}, "
            f"and this is {__version__}, commit {commit()}; judge it with the version that made it"
        )
    return verdict


def _language(stored: _Stored, claimed: Mapping[str, Any]) -> str:
    """Of the notebook that was executed; English where none was, or it does not say."""
    try:
        metadata = json.loads(stored.contents[f"{stored.prefix}{claimed['executed']}"])["metadata"]
        named = metadata[METADATA_KEY]["language"]
    except (KeyError, TypeError, ValueError):
        return ENGLISH
    return named if named in LANGUAGES else ENGLISH


def _partial_plan(chapter: Any, level: str, executed: Path) -> Plan:
    """The plan of the sections that an executed notebook holds."""
    cells = read_notebook(executed).cells
    held = {cell.metadata.get(METADATA_KEY, {}).get("section") for cell in cells}
    return Plan(chapter, level, tuple(section for section in chapter.sections if section.name in held), partial=True)


def _is_another_version(stored: _Stored) -> bool:
    """Whether the bundle was made by another version, or by another commit, as far as both are known."""
    if stored.made.xpulab != __version__:
        return True
    theirs, ours = _commit(stored), commit()
    return "unknown" not in (theirs, ours) and theirs.rstrip("+") != ours.rstrip("+")


def _version(stored: _Stored) -> str:
    return f"{stored.made.xpulab}, commit {_commit(stored)}"


def _commit(stored: _Stored) -> str:
    if "machine/versions.json" not in stored.contents:
        return "unknown"
    versions = stored.json("machine/versions.json")
    return str(versions.get("commit", "unknown")) if isinstance(versions, dict) else "unknown"


# ---------------------------------------------------------------------------------- what says something else than the claim


def _of_claim(claimed: Mapping[str, Any], result: Result) -> Iterator[str]:
    """Where result.json differs from the new judgement."""
    new = to_json(result)
    verdict = () if claimed["outcome"] in _NOT_ENDED else ("green", "outcome", "machine", "versions", "card_facts")
    for name in verdict:
        if claimed[name] != new[name]:
            yield f"{name}: result.json says {_short(claimed[name])}, the notebooks say {_short(new[name])}"
    for theirs, ours in zip(claimed["notebooks"], new["notebooks"], strict=True):
        if theirs["outcome"] in _NOT_ENDED:
            continue
        if theirs["outcome"] != ours["outcome"]:
            why = f" ({ours['reason']})" if ours["reason"] else ""
            yield f"{ours['name']}: result.json says {theirs['outcome']}, it is {ours['outcome']}{why}"
        yield from _of_checks(theirs["checks"], ours["checks"])


def _of_checks(theirs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> Iterator[str]:
    by_name = {check["name"]: check for check in theirs}
    for check in ours:
        claim = by_name.pop(check["name"], None)
        if claim is None:
            yield f"{check['name']}: not in result.json, it is {check['outcome']}"
            continue
        for name in ("outcome", "measured", "expected", "control", "rows"):
            if claim[name] != check[name]:
                yield f"{check['name']}: {name}: result.json says {_short(claim[name])}, it is {_short(check[name])}"
    yield from (f"{name}: in result.json, but not planned here" for name in by_name)


def _of_notebooks(stored: _Stored, claimed: Mapping[str, Any], result: Result) -> Iterator[str]:
    """What the executed notebooks say of themselves, and those that result.json does not name."""
    for verdict in result.verdicts:
        if verdict.executed is None:
            continue
        for name in _OF_RUN if verdict.run else ():
            if (ran := getattr(verdict.run, name)) != claimed[name]:
                yield f"{verdict.name}: {name}: result.json says {claimed[name]}, it ran with {ran}"
        if verdict.run is None:
            yield f"{verdict.name}: it does not say how it was run, as every notebook of a run does"
        yield from (f"{verdict.name}: {each}" for each in contradictions(read_notebook(verdict.executed)))
    unfinished = {f"notebooks/{each['name']}.ipynb" for each in claimed["notebooks"] if each["outcome"] in _NOT_ENDED}
    named = {f"{stored.prefix}{name}" for name in (*unfinished, *(each["executed"] for each in claimed["notebooks"]))}
    beside = f"{stored.prefix}notebooks/"
    for name in sorted(stored.contents):
        if name.startswith(beside) and name.endswith(".ipynb") and name not in named:
            yield f"{name.removeprefix(stored.prefix)}: it is in the bundle, and result.json does not name it"


def _proof(stored: _Stored, claimed: Mapping[str, Any]) -> Proof | None:
    """prove.json; None when the run has none. Raises InputError when only one of it and result.json has a proof."""
    has_file = f"{stored.prefix}{proof.FILE}" in stored.contents
    if has_file != bool(claimed.get("proof")):
        raise InputError(f"{stored.path}: result.json and {proof.FILE} do not agree on whether faults were injected; ask again")
    if not has_file:
        return None
    read = proof.from_json(stored.json(proof.FILE, "prove.schema.json"))
    return replace(read, faults=tuple(map(_judge_fault, read.faults)))


def _judge_fault(fault: proof.InjectedFault) -> proof.InjectedFault:
    """The fault, missed when a check that had to detect it did not, whatever is claimed."""
    silent = [name for name in fault.expected if name not in fault.detected_by]
    return replace(fault, missed=f"not detected by {', '.join(silent)}") if silent and not fault.missed else fault


def _of_proof(proved: Proof | None) -> Iterator[str]:
    by_name = {fault.name: fault for fault in CATALOGUE}
    for each in proved.faults if proved else ():
        listed = by_name.get(each.fault)
        if listed is None:
            yield f"{proof.FILE}: this version has no fault {each.fault}"
        elif set(each.expected) not in (set(listed.detected_by), set(listed.smoke)):
            right, given = ", ".join(listed.detected_by), ", ".join(each.expected)
            yield f"{proof.FILE}: {each.fault} must be detected by {right}, not {given}"


def _notes(stored: _Stored, result: Result) -> Iterator[str]:
    yield from stored.made.notes
    if _is_another_version(stored):
        yield f"made by xpulab {_version(stored)}, judged by {__version__}, commit {commit()}: notebooks that ran are the same"
    if stored.made.removed:
        yield "secrets were removed: text in their place is another one than the run showed"
    if stored.json("result.json")["outcome"] in _NOT_ENDED:
        yield "the run was killed: what had not ended counts as missing"
    known = len(list(files.NOTEBOOKS.glob("*.ipynb")))
    if len(result.verdicts) < known:
        yield f"{len(result.verdicts)} of {known} notebooks are in it"
    if _name(stored):
        yield "a round of a soak: what repeated between rounds is the soak's own statement, in soak.json"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else f"{text[:157]}..."


def format_judged(judged: Sequence[Judged], signature: Signature) -> str:
    """For a terminal."""
    return "\n\n".join(["\n".join(_format(each)) for each in judged] + [signature.format()])


def judged_to_json(judged: Sequence[Judged], signature: Signature) -> dict[str, Any]:
    """For programs; the schema is data/schema/judged.schema.json."""
    return {
        "schema": SCHEMA,
        "green": all(each.is_green for each in judged) and signature.outcome != "refused",
        "signature": asdict(signature),
        "runs": [
            {
                "name": each.name,
                "claimed": {"green": each.claimed["green"], "outcome": each.claimed["outcome"]},
                "judged": {"green": each.result.is_green, "outcome": each.result.outcome},
                "differences": list(each.differences),
                "notes": list(each.notes),
                "result": to_json(each.result),
            }
            for each in judged
        ],
    }


def _format(judged: Judged) -> Iterator[str]:
    if judged.name:
        yield f"{judged.name}:"
    yield format_result(judged.result)
    both = ((judged.claimed["green"], judged.claimed["outcome"]), (judged.result.is_green, judged.result.outcome))
    theirs, ours = (f"{'green' if green else 'RED'} ({outcome})" for green, outcome in both)
    yield f"{judged.result.node or 'unknown node'}, {judged.result.date}: claimed {theirs}, judged again {ours}"
    yield from (f"  note: {note}" for note in judged.notes)
    if judged.differences:
        yield f"  {len(judged.differences)} differences between the claim, the notebooks and their records:"
        yield from (f"    {each}" for each in judged.differences[:_SHOWN])
        if len(judged.differences) > _SHOWN:
            yield f"    and {len(judged.differences) - _SHOWN} more; --json has all"
