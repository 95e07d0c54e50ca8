"""Placed (distributed) tensors on four ranks, which are forked from this process. Prints what each rank saw."""

import json

import numpy as np
import paddle
import paddle.distributed as dist

from xpulab import ranks
from xpulab.chapters.auto_parallel import resharding

RANKS = 4


def line():
    return dist.ProcessMesh(list(range(RANKS)), dim_names=["x"])


def lists_of_parts():
    """Operators of lists of cut tensors, and their gradients: those whose result is not that of numpy."""
    x, wrong = np.arange(32, dtype="float32").reshape(8, 4), []
    for name, join, join_in_numpy in (("concat", paddle.concat, np.concatenate), ("stack", paddle.stack, np.stack)):
        values = [paddle.to_tensor(x + shift, stop_gradient=False) for shift in (0, 100)]
        one, other = (dist.shard_tensor(value, line(), [dist.Shard(0)], stop_gradient=False) for value in values)
        joined = join([one, other], axis=1)
        (joined * joined).sum().backward()
        if not np.array_equal(resharding.whole(joined), join_in_numpy([x, x + 100], axis=1)):
            wrong.append(name)
        if not np.array_equal(resharding.whole(other.grad), 2 * (x + 100)):
            wrong.append(f"gradient of {name}")
    return wrong


def second_gradient():
    """What Paddle says when a placed tensor gets a second gradient."""
    ones = paddle.to_tensor(np.ones([4, 4], "float32"), stop_gradient=False)
    weight = dist.shard_tensor(ones, line(), [dist.Replicate()], stop_gradient=False)
    try:
        for _ in range(2):
            (weight * 2).sum().backward()
    except SystemError as error:
        return str(error)
    return ""


CASES = (lists_of_parts, second_gradient)


def all_cases():
    dist.init_parallel_env()
    return {case.__name__: case() for case in CASES}


if __name__ == "__main__":
    print(json.dumps(list(ranks.run(all_cases, RANKS, device="sim"))))
