"""The benchmarks are scripts that import one another from their own folder."""

from __future__ import annotations

import sys

from xpulab import files

sys.path.insert(0, str(files.ROOT / "tools" / "benchmarks"))
