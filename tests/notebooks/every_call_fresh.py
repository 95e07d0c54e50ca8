"""IPython runs this before the first cell of a notebook: every call of ranks then starts new ones, and is noted in a file."""

import os
from pathlib import Path

from xpulab.ranks import team

_call = team.call


def _fresh(job, base, time_limit, fresh):
    with Path(os.environ["IPYTHONDIR"], "calls").open("a") as file:
        file.write(f"{job.cards}\n")
    return _call(job, base, time_limit, True)


team.call = _fresh
