"""The script that paddle.distributed.launch runs in each rank: its one argument is the address of the run."""

import ctypes
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from xpulab.ranks.inside import main

    main(sys.argv[1])
