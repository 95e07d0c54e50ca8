"""Reshard a tensor of summands into rows on two ranks; print what each rank holds.

The arguments are the names of the workarounds that each rank applies before.
"""

import sys

from xpulab.chapters.shared import workarounds

workarounds.silence_import_warnings()

import paddle
import paddle.distributed as dist

from xpulab import ranks


def scattered(names):
    for name in names:
        getattr(workarounds, name)()
    dist.init_parallel_env()
    mesh = dist.ProcessMesh([0, 1], dim_names=["x"])
    summand = paddle.to_tensor([10.0, 20.0]) + dist.get_rank()
    total = dist.auto_parallel.api.dtensor_from_local(summand, mesh, [dist.Partial()])
    return dist.reshard(total, mesh, [dist.Shard(0)])._local_value().tolist()


if __name__ == "__main__":
    print(list(ranks.run(scattered, 2, sys.argv[1:])))
