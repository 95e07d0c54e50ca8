"""A line with the loss while a model trains, for a person who watches in JupyterLab; it leaves nothing in the outputs."""

from __future__ import annotations

from typing import Any

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 40


def live_loss() -> Any:
    """A callback for Trainer(callbacks=[...]): step, loss and a small curve, in one line that is replaced at each log.

    It shows nothing where nobody watches: under papermill, nbval, nbconvert and xpulab run. When training ends the line is
    removed, so it is never part of a notebook's outputs.
    """
    from paddlenlp.trainer import TrainerCallback

    class LiveLoss(TrainerCallback):
        def __init__(self) -> None:
            self._losses: list[float] = []
            self._line: Any = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            if is_watched():
                from IPython.display import display

                self._losses, self._line = [], display({"text/plain": "training"}, raw=True, display_id=True)

        def on_log(self, args: Any, state: Any, control: Any, logs: dict | None = None, **others: Any) -> None:
            if self._line and logs and "loss" in logs:
                self._losses.append(float(logs["loss"]))
                self._line.update({"text/plain": format_line(state.global_step, state.max_steps, self._losses)}, raw=True)

        def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            if self._line:
                from IPython.display import clear_output

                clear_output()

    return LiveLoss()


def is_watched() -> bool:
    """Whether the running cell was started in JupyterLab or Jupyter Notebook 7.

    These send `deletedCells` with each request to run a cell (jupyterlab/packages/cells/src/widget.ts, CodeCell.execute);
    nbclient, which papermill, nbconvert and nbmake use, and nbval do not.
    """
    from IPython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    if kernel is None:
        return False
    return "deletedCells" in kernel.get_parent("shell").get("metadata", {})


def format_line(step: int, steps: int, losses: list[float]) -> str:
    """ "step 40 of 120  loss 0.531  ▇▅▃▂▁": the last losses as bars between the smallest and the largest of them."""
    shown = losses[-_WIDTH:]
    low, high = min(shown), max(shown)
    spread = (high - low) or 1.0
    bars = "".join(_BARS[round((loss - low) / spread * (len(_BARS) - 1))] for loss in shown)
    return f"step {step} of {steps}  loss {losses[-1]:.4f}  {bars}"
