"""Measures the command in its arguments in a process of its own, which becomes the parent of all orphans; prints JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from processes import measure

timeout, *command = sys.argv[1:]
measured = measure(command, Path("."), os.environ, float(timeout))
print(json.dumps({**measured.to_json(), "output": measured.output}))
