"""Compute where the device has a kernel for it; skip the row where the device is known to have none.

Known is what data/refusals.yaml declares, and what Paddle's wheel lists: for an operator that it has on this device, the types.
Nothing follows from the words of an error: one that is not declared is a red row, which prints the entry that would declare it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import paddle
from paddle.base import core

from xpulab.checks.compare import first_line
from xpulab.checks.compared import add_error, add_row
from xpulab.checks.grid import Case
from xpulab.checks.grid_table import AddRow
from xpulab.checks.table import Table
from xpulab.messages import N_
from xpulab.records.refusals import format_undeclared, refusal

_PLACES = {"cpu": ("CPU",), "gpu": ("GPU", "GPUDNN"), "xpu": ("XPU", "KPS"), "sim": ("CPU", "sim")}
"""By device how Paddle's list of kernels names it; the kernels of the CPU stand in for those of a simulated card."""


def lacked(kernel: str, dtype: str, form: str = "") -> str:
    """Why the device in use has no kernel of this name for this type; "" where nobody says so.

    kernel: its name in Paddle, "swiglu". form: "gradient" for the kernel of its gradient; others only name an entry.
    """
    device = _device()
    if declared := refusal(device, kernel, dtype, form=form):
        return declared.format_reason()
    name = f"{kernel}_grad" if form == "gradient" else kernel
    types = _types_of(name, device) or _types_of(name, "cpu")  # where it has none, Paddle takes the CPU's, or raises
    if not types or dtype in types:
        return ""
    return N_(
        "Paddle's wheel has {name} on {device} for {types} only", name=name, device=device, types=", ".join(sorted(types))
    )


def results_of(
    rows: Table, case: str, compute: Callable[[], list[paddle.Tensor]], kernel: str, dtype: str, form: str = ""
) -> list[paddle.Tensor]:
    """The tensors that `compute` returns; none after an error: the row is skipped where the kernel is lacked, else red.

    A kernel that is declared as one that ends the process on this machine's processor is not tried.
    """
    declared = refusal(_device(), kernel, dtype, form=form)
    if declared and declared.without:
        return _skipped(rows, case, declared.format_reason())
    try:
        return compute()
    except Exception as error:  # whatever is raised: its class decides nothing
        if reason := lacked(kernel, dtype, form):
            return _skipped(rows, case, reason)
        rows.equal(case, undeclared(first_line(error), kernel, dtype, form), "no error", control="another error")
        return []


def _skipped(rows: Table, case: str, reason: str) -> list[paddle.Tensor]:
    rows.skip(case, N_("no kernel for it here: {reason}", reason=reason))
    return []


def add_row_of(kernels: Callable[[Case], Iterable[tuple[str, str, str]]]) -> AddRow:
    """compared.add_row for a grid of operators: an error is a skipped row where the device is known to lack a kernel.

    kernels: of a case name, type and form of each kernel that it uses, as for `lacked`; an entry is proposed for the first.
    """

    def add_row_or_skip(rows: Table, case: Case, compared: Any) -> None:
        if not isinstance(compared, Exception):
            add_row(rows, case, compared)
            return
        used = list(kernels(case))
        if reason := next(filter(None, (lacked(*each) for each in used)), ""):
            rows.skip(case.name, reason)
        else:
            add_error(rows, case.name, undeclared(first_line(compared), *used[0]))

    return add_row_or_skip


def undeclared(error: str, kernel: str, dtype: str, form: str = "") -> str:
    """What a red row says: the error, and the entry that would declare that the device in use lacks the kernel."""
    return format_undeclared(error, _device(), kernel, dtype, form=form)


def _device() -> str:
    return str(paddle.get_device()).partition(":")[0]


@cache
def _kernels() -> Mapping[str, Sequence[str]]:
    """By operator what the wheel has, each as "(CPU, Undefined(AnyLayout), float32)"."""
    listed: Mapping[str, Sequence[str]] = core._get_registered_phi_kernels("function")  # type: ignore[attr-defined]
    return listed


def _types_of(name: str, device: str) -> frozenset[str]:
    """The types for which the wheel has this operator on the device; empty where it lists none."""
    parts = (each.strip("()").split(", ") for each in _kernels().get(name, ()))
    return frozenset(each[-1] for each in parts if each[0] in _PLACES.get(device, ()))
