"""python -m xpulab.warm COMMAND [ARGUMENT ...]: run a command with a fork server, where Jupyter finds the warm kernel."""

import sys

from xpulab.warm.kernels import run_command

sys.exit(run_command(sys.argv[1:]))
