"""The kernels of a step of PaddleNLP's Trainer, in the process that trains."""

from __future__ import annotations

from typing import Any, ClassVar

from paddlenlp.trainer import TrainerCallback

from xpulab.operators.kernel_log import KernelLog, Launch


class SecondStep(TrainerCallback):
    """Logs the kernels of the second step; the first one also makes the optimizer's state."""

    noted: ClassVar[list[Launch]] = []

    def __init__(self) -> None:
        self._log: KernelLog | None = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Called before each step, and before each part of it that is accumulated."""
        if state.global_step == 1 and self._log is None and not SecondStep.noted:
            self._log = KernelLog()
            self._log.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Called after the optimizer."""
        if self._log is not None:
            SecondStep.noted, self._log = self._log.end(), None
