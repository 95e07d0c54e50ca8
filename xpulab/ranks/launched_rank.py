"""The script that paddle.distributed.launch runs in each rank: its one argument is the address of the run."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from xpulab.child import end_with_parent

    end_with_parent()
    from xpulab.ranks.inside import main

    main(sys.argv[1])
