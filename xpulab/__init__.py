"""Tutorials that are tests: PaddlePaddle training on Kunlun XPU, NVIDIA GPU and CPU, with a verdict at the end.

Inside a kernel a notebook imports `xpulab.chapters`; outside it `xpulab.harness` runs, judges and reports. The two meet
in one format only, `xpulab.records.record`.
"""

__version__ = "1.0.1.dev0"
