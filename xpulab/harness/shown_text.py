"""nbval's comparison of the text that a cell shows with that of the committed notebook."""

from __future__ import annotations

from types import SimpleNamespace

import nbformat
from nbformat import NotebookNode
from nbval import plugin as nbval

from xpulab import files


class Comparison:
    """nbval's comparison of a cell's outputs, without pytest around it.

    is_sanitized: whether lines that data/nbval-sanitize.cfg makes look alike are no difference, as on another device than
    that of the committed outputs, where a check may be skipped or known that passes there.
    """

    colors = nbval.nocolors
    sanitize = nbval.IPyNbCell.sanitize
    compare_outputs = nbval.IPyNbCell.compare_outputs

    def __init__(self, is_sanitized: bool) -> None:
        config = files.data("nbval-sanitize.cfg")
        patterns = nbval.get_sanitize_patterns(config.read_text(encoding="utf-8")) if is_sanitized else []
        skipped = ("metadata", "traceback", "output_type", "name", "execution_count", "image/png", "image/jpeg")
        self.parent = SimpleNamespace(sanitize_patterns=dict(patterns), skip_compare=skipped)
        self.comparison_traceback: list[str] = []

    def difference(self, executed: NotebookNode, committed: NotebookNode) -> str:
        """What differs, in one line; "" where nothing does, and for a committed cell whose outputs are not to be compared."""
        options = dict(nbval.find_metadata_tags(committed.metadata))
        if committed.execution_count is None or not options.get("check", True):
            return ""
        mine, theirs = (
            nbval.coalesce_streams([nbformat.from_dict(output) for output in cell.outputs]) for cell in (executed, committed)
        )
        if self.compare_outputs(mine, theirs):
            return ""
        return " ".join(line.strip() for line in self.comparison_traceback)[:400]

    def format_output_compare(self, key: str, left: object, right: object) -> None:
        """Called by nbval where two texts differ."""
        pairs = zip(str(left).splitlines(), str(right).splitlines(), strict=False)
        first = next(((mine, theirs) for theirs, mine in pairs if mine != theirs), (right, left))
        self.comparison_traceback = [f"{first[0]!r}, not {first[1]!r}"]
