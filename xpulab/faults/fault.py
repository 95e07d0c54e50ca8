"""What a fault is: a function that breaks one thing in a process, and the checks that must detect it.

    @fault("03_lora", detected_by=("lora.merge",))
    def merge_forgets_the_scale():
        \"""Merging adds the adapter without its scale.\"""
        from paddlenlp.peft.lora.lora_layers import LoRALinear

        delta = LoRALinear.get_delta_weight
        LoRALinear.get_delta_weight = lambda self, *given: delta(self, *given) / self.scaling

The function runs in the process of the notebook before its first cell, or in every rank that the notebook starts. It
imports what it patches itself: nothing of a fault is imported by a process that has none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Injection = Callable[[], None]


@dataclass(frozen=True)
class Fault:
    """A way in which training really goes wrong.

    name: unique in the catalogue, the function's name with hyphens.
    what: one sentence for the reader of a table, the first line of the function's docstring.
    notebook: the name of the notebook that must detect it, "03_lora".
    device: the lane on which it is tried, "cpu" or "sim".
    also_on: other lanes on which the same checks must detect it at level quick.
    detected_by: the names of the checks that must turn red; others may.
    inject: breaks the process that calls it.
    sim_faults: faults of the simulated cards, in the grammar of xpulab.sim.faults; "" for none.
    reason_contains: for a fault that ends the notebook: lower-case text that the verdict's reason must contain; else "".
    smoke: the names of the checks that must turn red at level smoke; empty where it is not tried at that level.
    """

    name: str
    what: str
    notebook: str
    device: str
    detected_by: tuple[str, ...]
    inject: Injection
    sim_faults: str = ""
    reason_contains: str = ""
    smoke: tuple[str, ...] = ()
    also_on: tuple[str, ...] = ()

    @property
    def lanes(self) -> tuple[str, ...]:
        """All lanes on which it is tried."""
        return (self.device, *self.also_on)


def fault(
    notebook: str,
    *,
    detected_by: tuple[str, ...],
    device: str = "cpu",
    also_on: tuple[str, ...] = (),
    where: Literal["notebook", "ranks"] = "notebook",
    sim_faults: str = "",
    reason_contains: str = "",
    smoke: tuple[str, ...] = (),
) -> Callable[[Injection], Fault]:
    """Make a Fault of the decorated function; where: the processes that it runs in. The rest is as in Fault."""

    def from_function(function: Injection) -> Fault:
        what = (inspect.getdoc(function) or "").partition("\n")[0]
        if not what:
            raise ValueError(f"the fault {function.__name__} needs a docstring: one sentence that says what breaks")
        return Fault(
            name=function.__name__.replace("_", "-"),
            what=what,
            notebook=notebook,
            device=device,
            detected_by=detected_by,
            inject=function if where == "notebook" else lambda: in_every_rank(function),
            sim_faults=sim_faults,
            reason_contains=reason_contains,
            smoke=smoke,
            also_on=also_on,
        )

    return from_function


def in_every_rank(function: Injection) -> None:
    """Call `function` in every rank that this process starts from now on, before the rank's own function."""
    from xpulab import ranks

    run = ranks.run

    def run_with_fault(work, n, *arguments, **options):
        def in_a_rank(*given):
            function()
            return work(*given)

        return run(in_a_rank, n, *arguments, **options)

    ranks.run = run_with_fault


def when_defined(name: str, change: Callable[[dict], None]) -> None:
    """Call change(user_ns) after the first cell of the notebook that leaves `name` defined, user_ns being its names."""
    from IPython import get_ipython

    shell = get_ipython()

    def after_a_cell(_result):
        if name in shell.user_ns:
            shell.events.unregister("post_run_cell", after_a_cell)
            change(shell.user_ns)

    shell.events.register("post_run_cell", after_a_cell)


def replace_in_cells(old: str, new: str) -> None:
    """Run every cell of the notebook with the text `old` replaced by `new`: for faults in code that a cell defines."""
    from IPython import get_ipython

    get_ipython().input_transformers_cleanup.append(lambda lines: "".join(lines).replace(old, new).splitlines(keepends=True))
