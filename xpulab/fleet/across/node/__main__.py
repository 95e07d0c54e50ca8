"""`python -m xpulab.fleet.across.node`: a task, as srun starts it."""

import sys

from xpulab.fleet.across.node.task import main

if __name__ == "__main__":
    sys.exit(main())
