"""`python -m xpulab.ranks.across`: a task, as srun starts it."""

import sys

from xpulab.ranks.across.task import main

if __name__ == "__main__":
    sys.exit(main())
