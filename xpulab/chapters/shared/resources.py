"""What a chapter needs with a given model, said before it starts: memory, disk and time; what does not fit is refused."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import paddle
import threadpoolctl  # type: ignore[import-untyped]

from xpulab.errors import InputError
from xpulab.records.record import CardFacts
from xpulab.records.usable import available_memory, whole_cores

GB = 10**9
VARIABLE = "MKL_NUM_THREADS"


def require(*, memory: float, disk: float, seconds: float) -> None:
    """Print what the chapter needs and what is free; from here on, matrix products use all cores.

    memory: bytes of host memory that it uses at its peak. disk: bytes of temporary files. seconds: on two cores.
    Raises InputError when memory or disk is not there; nothing has been written then.
    """
    free_memory, folder = available_memory(), tempfile.gettempdir()
    free_disk = shutil.disk_usage(folder).free
    time = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    print(
        f"this chapter needs about {memory / GB:.1f} GB of memory ({free_memory / GB:.1f} GB available), "
        f"{disk / GB:.1f} GB of disk in {folder} ({free_disk / GB:.1f} GB free) and {time} on two cores"
    )
    if memory > free_memory:
        raise InputError(
            f"this chapter needs {memory / GB:.1f} GB of memory for this model, and {free_memory / GB:.1f} GB are available; "
            "end other programs, choose a smaller model, or use a machine with more memory"
        )
    if disk > free_disk:
        raise InputError(
            f"this chapter writes {disk / GB:.1f} GB for this model, and {folder} has {free_disk / GB:.1f} GB free; "
            "free space, or set TMPDIR to a folder on another disk"
        )
    use_all_cores()


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


def free_memory() -> None:
    """Free objects that nothing refers to, and return their memory to the operating system.

    A trainer is part of reference cycles, so the copies of the model that it holds stay until Python collects garbage. The
    C library keeps freed blocks below 32 MB, as most weights are, for later use; together they can be gigabytes.
    """
    gc.collect()
    with contextlib.suppress(AttributeError):  # another C library than glibc has no malloc_trim
        ctypes.CDLL(None).malloc_trim(0)


def free_on_card(cards: Sequence[CardFacts]) -> float:
    """Bytes of memory that are free on the first card; infinite where the vendor's tool does not show it.

    Not run on a card yet.
    """
    if not cards or cards[0].memory_total_mib is None:
        return math.inf
    return float((cards[0].memory_total_mib - (cards[0].memory_used_mib or 0)) * 2**20)
