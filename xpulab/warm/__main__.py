"""python -m xpulab.warm COMMAND [ARGUMENT ...]: run a command beside a fork server, with the warm kernel made known."""

import sys

from xpulab.warm.kernels import run_command

sys.exit(run_command(sys.argv[1:]))
