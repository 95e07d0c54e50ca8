"""Apply the workarounds named by the arguments, then import PaddleNLP's AutoTrainer."""

import sys

from xpulab.chapters.shared import workarounds

for name in sys.argv[1:]:
    getattr(workarounds, name)()

import paddlenlp.trainer.auto_trainer  # noqa: F401
