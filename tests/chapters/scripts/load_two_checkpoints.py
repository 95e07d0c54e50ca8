"""Load two checkpoints of safetensors with a load_state_dict that keeps its metadata, as that of Paddle 3.3.0 does.

The first argument is the version of Paddle that the workarounds see, the others are the names of those to apply.
"""

import sys

from xpulab.chapters.shared import workarounds

workarounds.silence_import_warnings()

import importlib
import tempfile

import paddle
import paddle.distributed as dist

workarounds.silence_checkpoint_log()
loading = importlib.import_module("paddle.distributed.flex_checkpoint.dcp.load_state_dict")
real = dist.load_state_dict


def load_state_dict(*given, **named):
    loading._metadata_manager.clear = lambda: None
    try:
        real(*given, **named)
    finally:
        del loading._metadata_manager.clear


loading.load_state_dict = dist.load_state_dict = load_state_dict
paddle.__version__ = sys.argv[1]
for name in sys.argv[2:]:
    getattr(workarounds, name)()
print("replaced" if dist.load_state_dict is not load_state_dict else "not replaced")
for size in (2, 3):
    folder, wanted = tempfile.mkdtemp(), paddle.arange(1.0, size + 1)
    dist.save_state_dict({"w": wanted}, folder, safetensors=True)
    state = {"w": paddle.zeros([size])}
    dist.load_state_dict(state, folder, safetensors=True)
print(state["w"].tolist())
