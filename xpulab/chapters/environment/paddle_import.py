"""A chapter goes on where Paddle cannot be imported: the reason is shown in red, and cells that need Paddle are left out.

    if paddle_works():
        import paddle

A cell is left out when it uses a name that no cell before it has defined. Its checks are missing, so the chapter stays red.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Collection

from pyflakes.checker import Checker
from pyflakes.messages import UndefinedName

from xpulab.checks.shown import red_lines, show
from xpulab.doctor import paddle_facts
from xpulab.doctor.detect import detect
from xpulab.doctor.installation import failed_import
from xpulab.doctor.paddle_facts import PaddleFacts
from xpulab.doctor.probe import probe_import
from xpulab.records.planned import names_in
from xpulab.records.record import METADATA_KEY, Record


def paddle_works() -> bool:
    """Whether `import paddle` works, tried in a process of its own, since it may also crash or hang.

    When it does not, this shows what it means and the command that fixes it, and later cells that need Paddle are left out.
    """
    if "paddle" in sys.modules:
        return True
    step = probe_import()
    if step.outcome == "ok":
        return True
    finding = failed_import(detect().device, "paddle", step)
    paddle_facts.remember_failure(PaddleFacts(error=step.detail, known=finding.known))
    _show(f"{finding.seen}\ncause: {finding.cause}\nfix: {finding.remedy}", {METADATA_KEY: {"known": finding.known}})
    from IPython import get_ipython

    if shell := get_ipython():
        shell.ast_transformers.append(_LeavesOut(shell.user_ns, finding.seen))
    return False


class _LeavesOut(ast.NodeTransformer):
    """IPython gives it each cell before the cell runs; one that needs what is missing becomes an empty one."""

    def __init__(self, defined: Collection[str], reason: str) -> None:
        self._defined, self._reason = defined, reason

    def visit(self, tree: ast.AST) -> ast.AST:
        needed = undefined_names(tree, self._defined)
        if not needed:
            return tree
        _show(f"needs paddle: this cell uses {', '.join(needed)}", {METADATA_KEY: {"needs": "paddle"}})
        for name in names_in(tree):
            show(Record(name, "missing", means="not run", reason=f"needs paddle: {self._reason}"))
        return ast.Module(body=[], type_ignores=[])


def undefined_names(tree: ast.AST, defined: Collection[str]) -> list[str]:
    """The names that a cell uses, and that neither it nor `defined` nor Python itself defines, in alphabetical order."""
    problems = Checker(tree, builtins={*defined, *dir(builtins)}).messages
    return sorted({problem.message_args[0] for problem in problems if isinstance(problem, UndefinedName)})


def _show(text: str, metadata: dict[str, object]) -> None:
    from IPython.display import display

    display({"text/plain": text, "text/html": red_lines(text)}, raw=True, metadata=metadata)
