"""`python .../xpulab/start.py MODULE ARGUMENT ...`: as `python -m MODULE`, but without the current folder on sys.path.

With -m a file json.py or typer.py there is imported in place of Python's or a package's, as root where root's health check
starts us. Python has -P for this from 3.11 on, and -I also ignores the user's PYTHONPATH.
"""

import os
import sys

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    import runpy  # not before: until now sys.path began with the folder of this package

    del sys.argv[0]
    if sys.argv[0] == "xpulab":  # this one, also where it is not installed
        sys.path.insert(0, os.path.dirname(here))
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
