"""Starts N ranks on simulated cards, each with a card, five times; each time they sum 4 MB with all_reduce. For growth.py.

.venv/bin/python tools/benchmarks/ranks_of.py N
"""

from __future__ import annotations

import sys

from xpulab import ranks

RUNS = 5
LENGTH = 1_000_000
"""Numbers in float32 on each rank."""


def work(n: int, length: int) -> float:
    """On each of n ranks: the first element of the sum of ones, so n."""
    import paddle
    import paddle.distributed as dist

    data = paddle.ones([length])
    if n > 1:  # Paddle makes no group for one rank
        dist.init_parallel_env()
        dist.all_reduce(data)
    return float(data[0])


def main() -> None:
    """Exits with an error when a sum is wrong."""
    n = int(sys.argv[1])
    for _ in range(RUNS):
        if (sums := ranks.run(work, n, n, LENGTH, device="sim")) != [float(n)] * n:
            raise SystemExit(f"{n} ranks: the sums are {sums}")


if __name__ == "__main__":
    main()
