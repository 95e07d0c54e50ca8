"""What this kernel's checks have seen so far, from which cells and on which device; the verdict reads it."""

from __future__ import annotations

from xpulab.records.record import Record, RunContext, worse


class Ledger:
    """Of one kernel. records: by name. sources: of the cells, in the order in which they ran.

    run_context: where the notebook runs, as use_device noted it; None before.
    """

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.sources: list[str] = []
        self.run_context: RunContext | None = None
        self._made_in: dict[str, int | None] = {}

    @property
    def device(self) -> str:
        """Where Paddle computes, which is the CPU until a device is chosen."""
        return self.run_context.device if self.run_context else "cpu"

    def keep(self, record: Record) -> None:
        """Keep the record in place of an earlier one of that name, which a cell that is run again leaves behind.

        Within one run of a cell the worse of the two stays: in a loop, the last must not hide the others. A skip takes no
        comparison back, whenever it comes.
        """
        from IPython import get_ipython

        shell, earlier = get_ipython(), self.records.get(record.name)
        run = shell.execution_count if shell else None
        same_run = run is not None and self._made_in.get(record.name) == run
        if earlier and (same_run or record.outcome == "skipped"):
            record = worse(earlier, record)
        self.records[record.name], self._made_in[record.name] = record, run

    def watch_cells(self) -> None:
        """Keep the source of every cell from the one that is running on: a kernel that nbval drives has no history."""
        from IPython import get_ipython

        if shell := get_ipython():
            shell.events.register("pre_run_cell", lambda cell: self.sources.append(cell.raw_cell))
            shell.events.register("post_run_cell", lambda done: self.sources.append(done.info.raw_cell))


ledger = Ledger()
ledger.watch_cells()
