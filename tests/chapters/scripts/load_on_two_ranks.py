"""Save and load a distributed checkpoint on two ranks; print whether each rank loaded the right values.

The arguments are the names of the workarounds that each rank applies before loading.
"""

import sys

from xpulab.chapters.shared import workarounds

workarounds.silence_import_warnings()

import tempfile

import paddle
import paddle.distributed as dist

from xpulab import ranks


def load(path, names):
    for name in names:
        getattr(workarounds, name)()
    dist.init_parallel_env()
    state = {"w": paddle.zeros([4, 6])}
    dist.load_state_dict(state, path)
    return bool((state["w"] == paddle.arange(24, dtype="float32").reshape([4, 6])).all())


def save(path):
    dist.init_parallel_env()
    rank = dist.get_rank()
    part = paddle.arange(24, dtype="float32").reshape([4, 6])[2 * rank : 2 * rank + 2]
    dist.save_state_dict({"w": dist.ShardedWeight("w", part, (2, 6), (4, 6), (2 * rank, 0))}, path)
    dist.barrier()


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    ranks.run(save, 2, folder)
    print(list(ranks.run(load, 2, folder, sys.argv[1:])))
