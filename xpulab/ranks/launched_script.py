"""The script of a team: `launch OPTION ...` is paddle.distributed.launch, and that runs `rank ADDRESS` in each rank.

Both end with the process that started them.
"""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from xpulab.child import end_with_parent

    end_with_parent()
    script, role, *arguments = sys.argv
    if role == "rank":
        from xpulab.ranks.member import main

        main(*arguments)
    else:
        sys.argv[1:] = arguments
        runpy.run_module("paddle.distributed.launch", run_name="__main__", alter_sys=True)
