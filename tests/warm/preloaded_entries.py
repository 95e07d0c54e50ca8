"""What workers of the fork server that has imported everything run; the same as a cold process, to compare with."""

from __future__ import annotations

import hashlib
import json
import os


def train(payload):
    """Print the bits of a small model's weights and losses after some steps."""
    import numpy as np
    import paddle

    paddle.seed(int(payload))
    model = paddle.nn.Sequential(paddle.nn.Linear(64, 128), paddle.nn.GELU(), paddle.nn.Dropout(0.1), paddle.nn.Linear(128, 8))
    optimizer = paddle.optimizer.AdamW(1e-2, parameters=model.parameters())
    losses = []
    for _ in range(5):
        loss = paddle.nn.functional.cross_entropy(model(paddle.rand([256, 64])), paddle.randint(0, 8, [256]))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    bits = b"".join(np.ascontiguousarray(weight.numpy()).tobytes() for weight in model.parameters())
    print(json.dumps({"losses": losses, "weights": hashlib.sha256(bits).hexdigest(), "names": sorted(model.state_dict())}))


def describe(payload):
    """What this process holds that a fork might share, and what of its environment has come into effect."""
    import numpy
    import paddle
    import threadpoolctl
    from paddle.base import core

    threads = len(os.listdir("/proc/self/task"))
    with open("/proc/self/maps") as maps:
        shared = [line.split()[5:] for line in maps if line.split()[1][1:4:2] == "ws"]
    print(
        json.dumps(
            {
                "threads": threads,
                "shared memory": shared,
                "files": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
                "random": [float(paddle.rand([1])), float(numpy.random.rand())],
                "flags": paddle.get_flags(["FLAGS_use_stride_kernel", "FLAGS_check_nan_inf"]),
                "plug-ins": core.get_all_custom_device_type(),
                "next name": paddle.nn.Linear(1, 1).weight.name,
                "pools": {one["prefix"]: one["num_threads"] for one in threadpoolctl.threadpool_info()},
                "folder": os.listdir("."),
            }
        )
    )


if __name__ == "__main__":
    import sys

    globals()[sys.argv[1]](sys.argv[2].encode())
