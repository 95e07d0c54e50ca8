"""What a device lacks: operators, collectives, types and reductions, declared with release and source.

    refusal("cpu", "reduce_scatter")                     # gloo has none: the entry that says so
    refusal("xpu", "all_reduce", "int8", "PROD")         # None: not declared, so an error there is red

They are listed in data/refusals.yaml. A check is skipped only where an entry says that the device lacks what it needs; an error
that is not declared is red, whatever its words. `format_undeclared` gives the entry that would declare it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from xpulab import files, processor
from xpulab.devices import judged_as
from xpulab.records.environments import installed_version
from xpulab.records.known_issues import are_installed, with_tuples


@dataclass(frozen=True)
class Refusal:
    """One thing that devices lack.

    call: the operator or collective, as the tables name it: "reduce_scatter", "swiglu", "matmul".
    devices: of cpu, gpu, xpu, sim.
    versions: package name to version specifier, all of which must match ("paddle" means the installed Paddle wheel).
    reason: what the device lacks, a sentence. source: where that is documented or was measured.
    types: the types that it concerns, "float16"; empty for all.
    reductions: the reductions that it concerns, of SUM, MAX, MIN, PROD, AVG; empty for all.
    form: the form of the call that it concerns, "stream" or "gradient"; "" for all.
    without: a feature of the host's processor, "avx512f": it is lacked where that is, and the process ends when it is called.
    unseen: those of `devices` of which the source was only read: nothing was run there.
    """

    call: str
    devices: tuple[str, ...]
    versions: dict[str, str]
    reason: str
    source: str
    types: tuple[str, ...] = ()
    reductions: tuple[str, ...] = ()
    form: str = ""
    without: str = ""
    unseen: tuple[str, ...] = ()

    def concerns(self, device: str, call: str, dtype: str, reduction: str, form: str) -> bool:
        """Whether the entry is about this call with the installed versions. "" is a call without type, reduction or form.

        A rehearsal lacks what the device lacks that is rehearsed, and what the simulated cards lack.
        """
        return (
            (bool({device, judged_as(device)} & {*self.devices}) and call == self.call)
            and (not self.types or dtype in self.types)
            and (not self.reductions or reduction in self.reductions)
            and self.form in ("", form)
            and (not self.without or processor.lacks(self.without))
            and are_installed(self.versions)
        )

    def format_reason(self) -> str:
        """The reason of a skip: what the device lacks, who says so, and where nobody has seen it."""
        never = f"; never seen on {', '.join(self.unseen)}" if self.unseen else ""
        return f"{self.reason} ({self.source}{never})"


def load(path: Path | None = None) -> tuple[Refusal, ...]:
    """What the file declares; data/refusals.yaml when no path is given.

    Raises InputError with file and line when it does not fit data/schema/refusals.schema.json.
    """
    entries = files.load_yaml(path or files.data("refusals.yaml"), files.data("schema", "refusals.schema.json"))
    return tuple(Refusal(**with_tuples(entry)) for entry in entries)


@cache
def refusal(device: str, call: str, dtype: str = "", reduction: str = "", form: str = "") -> Refusal | None:
    """The entry that declares this call as one that the device lacks, or None."""
    return next((entry for entry in _listed() if entry.concerns(device, call, dtype, reduction, form)), None)


def format_undeclared(error: str, device: str, call: str, dtype: str = "", reduction: str = "", form: str = "") -> str:
    """What a red row says of an error that nothing declares: the error, and the entry that declares it when it is right."""
    fields = [f"call: {call}", f"devices: [{device}]", f'versions: {{paddle: "=={installed_version("paddle")}"}}']
    fields += [f"types: [{dtype}]"] if dtype else []
    fields += [f"reductions: [{reduction}]"] if reduction else []
    fields += [f"form: {form}"] if form else []
    entry = f"- {{{', '.join(fields)}, reason: WHAT IT LACKS, source: WHO SAYS SO}}"
    return f"{error}; if the device lacks this, declare it in data/refusals.yaml: {entry}"


@cache
def _listed() -> tuple[Refusal, ...]:
    """The list, loaded once in a process."""
    return load()
