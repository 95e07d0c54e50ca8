"""What a warm kernel runs in its worker: an ipykernel that reports the processor time of each cell.

The time is in the metadata of the reply to the cell: "xpulab", "processor_seconds". It costs two system calls a cell; only
xpulab.harness.execute reads it. Kernels that start cold do not report it.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import resource
import sys
from typing import Any

import ipykernel.kernelapp
from ipykernel.ipkernel import IPythonKernel

from xpulab import warm
from xpulab.records.processor import ProcessorSeconds, to_metadata
from xpulab.warm.worker import log_handlers


def run(payload: bytes) -> None:
    """Be a kernel; payload: the arguments of ipykernel_launcher as JSON."""
    launcher = importlib.util.find_spec("ipykernel_launcher")
    assert launcher is not None and launcher.origin is not None
    sys.argv[:] = [launcher.origin, *json.loads(payload)]
    sys.path.remove("")  # IPython puts it where it belongs
    logs: dict[Any, list[logging.StreamHandler]] = {sys.stdout: [], sys.stderr: []}
    for handler in log_handlers():
        if isinstance(handler, logging.StreamHandler):
            logs.get(handler.stream, []).append(handler)
    app = ipykernel.kernelapp.IPKernelApp.instance(
        parent_handle=os.getppid(),  # a default that it reads at its import
        kernel_class=MeasuredKernel,
    )
    app.initialize()
    for handlers, stream in zip(logs.values(), (sys.stdout, sys.stderr), strict=True):  # now the kernel's, for the notebook
        for handler in handlers:
            handler.setStream(stream)
    if matplotlib := sys.modules.get("matplotlib"):  # reads the variable, which the kernel has set, at its import
        matplotlib.rcParams["backend"] = os.environ["MPLBACKEND"]
    app.start()


class MeasuredKernel(IPythonKernel):
    """As IPython's kernel, for the front end too."""

    def init_metadata(self, parent: dict[str, Any]) -> dict[str, Any]:
        """Called before a cell runs."""
        self._before = used_so_far()
        return super().init_metadata(parent)

    def finish_metadata(
        self, parent: dict[str, Any], metadata: dict[str, Any], reply_content: dict[str, Any]
    ) -> dict[str, Any]:
        """Called after a cell has run, with the metadata of the reply."""
        finished = super().finish_metadata(parent, metadata, reply_content)
        return {**finished, **to_metadata(used_so_far() - self._before)}


def used_so_far() -> ProcessorSeconds:
    """What this process has used, with the workers that it has closed and the other processes that it has waited for."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return ProcessorSeconds(
        kernel=own.ru_utime + own.ru_stime,
        ranks=warm.seconds_of_workers(),
        children=children.ru_utime + children.ru_stime,
    )
