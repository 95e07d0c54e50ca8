"""What Paddle refuses a plug-in before it asks it. Prints the error of each call."""

import json

import numpy as np
import paddle
import paddle.distributed as dist
from paddle.incubate.tensor import manipulation

from xpulab import ranks, sim


def error_of(attempt):
    try:
        return str(attempt())
    except Exception as error:  # any of Paddle's or of Python's types says no
        return f"{type(error).__name__}: {error}"


def second_gradient():
    """On a rank: what Paddle says when a placed tensor gets a second gradient."""
    dist.init_parallel_env()
    ones, line = paddle.to_tensor(np.ones([4, 4], "float32"), stop_gradient=False), dist.ProcessMesh([0, 1], dim_names=["x"])
    weight = dist.shard_tensor(ones, line, [dist.Replicate()], stop_gradient=False)

    def twice():
        for _ in range(2):
            (weight * 2).sum().backward()

    return error_of(twice)


if __name__ == "__main__":
    saw = {"second gradient": list(ranks.run(second_gradient, 2, device="sim"))}
    sim.load()
    paddle.set_device("sim:0")
    saw["pin_memory"] = error_of(lambda: paddle.ones([2]).pin_memory())
    saw["create_async_load"] = error_of(manipulation.create_async_load)
    print(json.dumps(saw))
