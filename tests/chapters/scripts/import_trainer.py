"""Apply the workarounds named by the arguments, then import an SFTTrainer as a notebook does."""

import sys

from xpulab.chapters.shared import workarounds

for name in sys.argv[1:]:
    getattr(workarounds, name)()

import paddle  # noqa: F401
from paddlenlp.trl import SFTTrainer  # noqa: F401
