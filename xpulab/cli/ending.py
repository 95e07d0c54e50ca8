"""What `xpulab run` does after a run when it is asked to: inject faults, write a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xpulab.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from xpulab.doctor.meant import Lost
    from xpulab.harness.plan import Plan
    from xpulab.harness.report.result import Result
    from xpulab.harness.run import Outcome


def check_options(is_soak: bool, prove: bool, bundle: Path | None) -> None:
    """Raises InputError, before anything runs, for options that a soak does not have and a bundle that cannot be written."""
    if is_soak and (prove or bundle):
        option, instead = (
            ("--prove", "run it at another level") if prove else ("--bundle", "`xpulab bundle DIR` makes it later")
        )
        raise InputError(f"{option}: not with --level soak; {instead}")
    if bundle:
        from xpulab.fleet.bundle import refuse_existing

        refuse_existing(bundle)


def refused(
    plans: Sequence[Plan], cards: int, seed: int, folder: Path, lost: Lost, resume: bool, bundle: Path | None
) -> Result:
    """Report a run of which nothing ran, because Paddle cannot use the accelerator that this machine is meant to have.

    cards, seed: as they were asked for. folder: of the reports. resume: whether it may hold a run that was interrupted.
    bundle: where it is written, None when it was not asked for. Raises InputError when the folder cannot be used.
    """
    from xpulab.harness import run as harness
    from xpulab.harness.execute import Target
    from xpulab.harness.report.text import format_result

    if not (resume and harness.is_begun(folder)):
        harness.prepare(folder)
    result = harness.refuse(plans, Target(lost.device, plans[0].level, cards, seed), folder, lost)
    if bundle:
        write_bundle(folder, bundle)
    print(f"report: {folder / 'index.html'}")
    print(format_result(result))
    return result


def refused_soak(result: Result, plans: Sequence[Plan], hours: float | None) -> None:
    """Write what programs read of a soak beside the reports of its run, of which nothing ran. hours: as they were asked for."""
    from xpulab.harness.soak import report
    from xpulab.harness.soak.summary import Summary

    summary = Summary(result.target, tuple(plans), (), 0.0, hours, False, result.folder, None, result.lost)
    for name, text in report.files_of_refused(summary).items():
        (result.folder / name).write_text(text, encoding="utf-8")


def proved(outcome: Outcome, number: int, jobs: int, console: Console) -> Result:
    """The result of a run with its proof; without one when the run was interrupted."""
    if outcome.interrupted:
        return outcome.result
    from xpulab.faults.prove import prove

    return prove(outcome.result, number, jobs, console)


def finished(ended: Result, faults: int, jobs: int, bundle: Path | None, console: Console) -> Result:
    """Show the result of a run that has ended before, and do what is asked for after it; the result with its proof.

    faults: how many must be injected, 0 without --prove. They are not injected again when the run's proof has so many.
    bundle: where it is written, None when it was not asked for.
    """
    from xpulab.harness.report.text import format_result
    from xpulab.harness.run import Outcome

    console.print(f"{ended.folder}: this run has ended, there is nothing to resume", markup=False, soft_wrap=True)
    result = proved(Outcome(ended, False), faults, jobs, console) if _is_to_prove(ended, faults) else ended
    console.print(format_result(result), highlight=False, markup=False, soft_wrap=True)
    if bundle:
        write_bundle(ended.folder, bundle)
    return result


def _is_to_prove(ended: Result, faults: int) -> bool:
    """Whether the run has no proof yet, or one with fewer faults than are asked for, of which more fit."""
    return faults > 0 and (ended.proof is None or len(ended.proof.faults) < min(faults, ended.proof.candidates))


def write_bundle(folder: Path, out: Path) -> None:
    """Write the bundle of the run, and say what was removed and where the file is."""
    from xpulab.fleet import bundle
    from xpulab.fleet.sending import collect, format_removed, format_written

    collected = collect(folder, bundle.EVERYTHING)
    bundle.write(collected, out)
    print(format_removed(collected.bundle))
    print(format_written(out))
