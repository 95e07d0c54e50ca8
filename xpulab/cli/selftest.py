"""`xpulab selftest`: known faults are injected, and each must be detected; after a run, a sample on its machine."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli import chosen
from xpulab.cli.app import command
from xpulab.devices import SIMULATED
from xpulab.errors import InputError
from xpulab.messages import N_


@command()
def selftest(
    run: Annotated[
        Path | None,
        typer.Argument(
            help="The folder of a run of this machine that has ended: a sample of faults that its checks must detect."
        ),
    ] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="Of RUN: how many faults are injected. Default: 6.")] = None,
    names: Annotated[list[str] | None, typer.Option("--fault", help="Only this fault; may be given several times.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show the faults; try none.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="What each trial found as JSON.")] = False,
    rehearsed: Annotated[
        str | None,
        typer.Option(
            "--as", help="xpu or gpu: on simulated cards judged as this device, the faults of that lane and of smoke."
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Faults at a time. Default: three for two cores.")] = None,
) -> None:
    """Inject known faults, one at a time, and show that the notebooks detect each. Exit code 1 when one is missed."""
    if run is not None:
        chosen.alone("RUN", **{"fault": names, "list": show_list, "json": as_json, "as": rehearsed})
        raise typer.Exit(_prove(run, sample or 6, jobs))
    if sample is not None:
        raise InputError(N_("--sample needs the folder of a run: xpulab selftest RUN --sample {sample}", sample=sample))
    from xpulab.faults import command as proofs
    from xpulab.faults import selftest as trials
    from xpulab.harness.fork_server import Started, started

    chosen.rehearse(rehearsed, SIMULATED)
    faults = trials.faults_named(names or [])
    if rehearsed:
        faults = trials.on_simulated_cards(faults, are_chosen=bool(names))
    if show_list:
        chosen.alone("--list", json=as_json, jobs=jobs)
        print(proofs.format_catalogue(faults))
        return

    from xpulab import sim

    if any(SIMULATED in fault.lanes for fault in faults):
        sim.environment(trials.CARDS)  # builds the plug-in now, or says what is missing
    start: AbstractContextManager[Started | None] = started(SIMULATED) if rehearsed else nullcontext()
    with start as cold:
        if rehearsed and cold:
            chosen.show_machine(rehearsed, cold.folder, trials.CARDS)
        code = proofs.run_trials(faults, jobs or chosen.jobs("cpu", len(faults)), as_json, cold)
    raise typer.Exit(code)


def _prove(run: Path, sample: int, jobs: int | None) -> int:
    """Inject so many faults into the notebooks of a run; returns the exit code."""
    from xpulab.faults.prove import prove
    from xpulab.harness import run as harness
    from xpulab.harness import run_file

    folder = run.resolve()
    plans, options = run_file.read(folder)
    result = harness.require_finished(plans, options, folder)
    return 0 if prove(result, sample, jobs or chosen.jobs(options.device, len(plans))) else 1
