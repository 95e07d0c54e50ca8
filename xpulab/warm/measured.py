"""A kernel that reports the processor time of each cell, in the metadata of its reply: "xpulab", "processor_seconds".

It costs two system calls a cell, and the reply is read by nobody but xpulab.harness.execute. Kernels that start cold do not
report it.
"""

from __future__ import annotations

import resource
from typing import Any

from ipykernel.ipkernel import IPythonKernel

from xpulab import warm
from xpulab.records.processor import ProcessorSeconds, to_metadata


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
