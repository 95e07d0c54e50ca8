"""Threads for matrix products of a model that is not tiny, on the CPU."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import paddle
import threadpoolctl  # type: ignore[import-untyped]

from xpulab.records.usable import whole_cores

VARIABLE = "MKL_NUM_THREADS"


def use_all_cores() -> int:
    """Let the matrix products of Paddle and numpy use all cores that this process may use; how many they are.

    Everything else stays at the single thread that OMP_NUM_THREADS asks for. Paddle 3.3.1 brings two OpenMP libraries, libiomp
    for MKL and libgomp for its own kernels. With OMP_NUM_THREADS=2 both have two threads that wait for work in busy loops, and
    a training step of a model of 135 million weights took 8.4 s on two shared cores, instead of 3.7 s with one thread.

    Programs that are started later inherit the variable MKL_NUM_THREADS; where it is set already, nothing changes.
    """
    if VARIABLE in os.environ:
        return int(os.environ[VARIABLE])
    cores = whole_cores()
    os.environ[VARIABLE] = str(cores)
    library = Path(paddle.__file__).parent / "libs" / "libmklml_intel.so"
    if library.exists():  # Paddle for another processor has no MKL
        ctypes.CDLL(str(library)).MKL_Set_Num_Threads(cores)
    for blas in threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers:
        blas.set_num_threads(cores)
    return cores
