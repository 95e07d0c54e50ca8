"""Save and load a distributed checkpoint in one process; the arguments are the names of the workarounds to apply."""

import sys

from xpulab.chapters.shared import workarounds

workarounds.silence_import_warnings()

import tempfile

import paddle
import paddle.distributed as dist

for name in sys.argv[1:]:
    getattr(workarounds, name)()
folder = tempfile.mkdtemp()
dist.save_state_dict({"w": paddle.ones([2])}, folder)
dist.load_state_dict({"w": paddle.zeros([2])}, folder)
