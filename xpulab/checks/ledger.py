"""The session of this kernel: the records of its checks so far, the sources of its cells and its device."""

from __future__ import annotations

from xpulab.records.record import Record, RunContext, worse


class Ledger:
    """What the verdict needs to know about one kernel.

    records: the record of each check, by name.
    sources: the sources of the cells, in the order in which they ran.
    run_context: where the notebook runs; use_device sets it, and it is None before.
    """

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.sources: list[str] = []
        self.run_context: RunContext | None = None
        self._made_in: dict[str, int | None] = {}

    @property
    def device(self) -> str:
        """The device on which Paddle computes: "cpu" until use_device chooses another one."""
        return self.run_context.device if self.run_context else "cpu"

    def keep(self, record: Record) -> None:
        """Store the record. It replaces an earlier one of the same name, which is there when a cell is run again.

        Within one run of a cell the worse record stays, so that the last pass of a loop cannot hide an earlier failure.
        A skip never replaces a comparison.
        """
        from IPython import get_ipython

        shell, earlier = get_ipython(), self.records.get(record.name)
        run = shell.execution_count if shell else None
        same_run = run is not None and self._made_in.get(record.name) == run
        if earlier and (same_run or record.outcome == "skipped"):
            record = worse(earlier, record)
        self.records[record.name], self._made_in[record.name] = record, run

    def watch_cells(self) -> None:
        """Store the source of every cell, starting with the running one, because a kernel driven by nbval has no history."""
        from IPython import get_ipython

        if shell := get_ipython():
            shell.events.register("pre_run_cell", lambda cell: self.sources.append(cell.raw_cell))
            shell.events.register("post_run_cell", lambda done: self.sources.append(done.info.raw_cell))


ledger = Ledger()
ledger.watch_cells()
