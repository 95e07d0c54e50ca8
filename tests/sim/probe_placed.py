"""Placed (distributed) tensors on four ranks, which are forked from this process. Prints what each rank saw."""

import json

import numpy as np
import paddle
import paddle.distributed as dist

from xpulab import ranks, sim
from xpulab.chapters.auto_parallel import resharding
from xpulab.reference import placement

RANKS = 4
PLACEMENTS = {"R": dist.Replicate, "S0": lambda: dist.Shard(0), "S1": lambda: dist.Shard(1), "P": dist.Partial}
MOVES = (("P", "R"), ("P", "S0"), ("S0", "R"), ("S0", "S1"), ("R", "S0"), ("R", "P"), ("S0", "P"))
SIZES = ((8, 12), (10, 7), (9, 3), (2, 5))
"""Rows and columns: even, uneven, and with ranks that have none."""

TYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64")
KINDS = {
    "sum": (dist.ReduceType.kRedSum, lambda parts: sum(parts)),
    "max": (dist.ReduceType.kRedMax, lambda parts: np.maximum.reduce(parts)),
    "min": (dist.ReduceType.kRedMin, lambda parts: np.minimum.reduce(parts)),
    "product": (dist.ReduceType.kRedProd, lambda parts: np.multiply.reduce(parts)),
    "average": (dist.ReduceType.kRedAvg, lambda parts: np.mean(parts, axis=0)),
}


def placed(value, mesh, kinds):
    """value: what this rank holds."""
    return dist.auto_parallel.api.dtensor_from_local(paddle.to_tensor(value), mesh, [PLACEMENTS[kind]() for kind in kinds])


def line():
    return dist.ProcessMesh(list(range(RANKS)), dim_names=["x"])


def collectives_of_moves():
    """By move: whether every rank has its block, and the collectives that this rank counted."""
    found, x = {}, np.arange(1, 97, dtype="float32").reshape(8, 12)
    for source, target in MOVES:
        before = placed(placement.summand(x, (RANKS,), [source], dist.get_rank()), line(), [source])
        counted = sim.counters(dist.get_rank()).collectives
        after = dist.reshard(before, line(), [PLACEMENTS[target]()])._local_value().numpy()
        now = sim.counters(dist.get_rank()).collectives
        used = {kind: now[kind] - counted[kind] for kind in now if now[kind] != counted[kind]}
        found[f"{source} to {target}"] = [used, after.tolist()]
    return found


def wrong_sizes():
    """Moves of parts that are uneven or empty whose result is not that of numpy."""
    wrong, rank = [], dist.get_rank()
    for size in SIZES:
        x = np.arange(np.prod(size), dtype="float32").reshape(size)
        for source in ("R", "S0", "S1", "P"):
            for target in ("R", "S0", "S1"):
                before = dist.shard_tensor(paddle.to_tensor(x), line(), [PLACEMENTS[source]()]) if source != "P" else None
                if before is None:
                    before = placed(placement.summand(x, (RANKS,), "P", rank), line(), "P")
                after = dist.reshard(before, line(), [PLACEMENTS[target]()])._local_value().numpy()
                expected = placement.block(x, (RANKS,), [target], rank)
                if after.shape != expected.shape or not np.array_equal(after, expected):
                    wrong.append(f"{size}: {source} to {target}")
    square = dist.ProcessMesh([[0, 1], [2, 3]], dim_names=["x", "y"])
    x = resharding.counted_rows(7)
    both = dist.shard_tensor(paddle.to_tensor(x), square, [dist.Shard(0), dist.Shard(0)])
    back = dist.reshard(both, square, [dist.Replicate(), dist.Replicate()])._local_value().numpy()
    return wrong if np.array_equal(back, x) else [*wrong, "7 rows over two axes"]


def wrong_types():
    """Types whose rows are not what was cut, after they are gathered."""
    wrong = []
    for dtype in TYPES:
        x = (paddle.arange(36).reshape([12, 3]) % 5).astype(dtype)
        back = dist.reshard(dist.shard_tensor(x, line(), [dist.Shard(0)]), line(), [dist.Replicate()])._local_value()
        if str(back.dtype) != str(x.dtype) or not bool((back.astype("float32") == x.astype("float32")).all()):
            wrong.append(dtype)
    return wrong


def wrong_kinds():
    """Ways to combine summands whose result is not that of numpy, whole or in parts."""
    wrong, rank = [], dist.get_rank()
    summands = [np.arange(1, 9, dtype="float32").reshape(4, 2) + other for other in range(RANKS)]
    for name, (kind, combined) in KINDS.items():
        for target in ("R", "S0"):
            from_local = dist.auto_parallel.api.dtensor_from_local
            before = from_local(paddle.to_tensor(summands[rank]), line(), [dist.Partial(kind)])
            after = dist.reshard(before, line(), [PLACEMENTS[target]()])._local_value().numpy()
            if not np.array_equal(after, placement.block(combined(summands), (RANKS,), [target], rank)):
                wrong.append(f"{name} to {target}")
    return wrong


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


def to_other_ranks():
    """The rows that this rank has of a tensor that was cut by rows over ranks 0 and 1; null where it has none."""
    x, found = paddle.arange(6, dtype="float32").reshape([3, 2]), {}
    for first, second in (([0, 1], [2, 3]), ([0, 1], [1, 2])):
        meshes = [dist.ProcessMesh(each, dim_names=["x"]) for each in (first, second)]
        moved = dist.reshard(dist.shard_tensor(x, meshes[0], [dist.Shard(0)]), meshes[1], [dist.Shard(0)])
        found[str(second)] = moved._local_value().numpy().tolist() if dist.get_rank() in second else None
    return found


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


def nothing_to_all():
    """The shape of what all_to_all of no elements gives, and how many the card counted."""
    before, out = sim.counters(dist.get_rank()).collectives["all_to_all"], [paddle.empty([0, 4]) for _ in range(RANKS)]
    dist.alltoall(out, [paddle.empty([0, 4]) for _ in range(RANKS)])
    single = paddle.empty([0])
    dist.alltoall_single(single, paddle.empty([0]))
    paddle.device.synchronize()
    return [[list(each.shape) for each in (*out, single)], sim.counters(dist.get_rank()).collectives["all_to_all"] - before]


def with_a_fault():
    """The gathered rows of this rank while rank 1 inverts a bit of what it gathers."""
    rows = dist.shard_tensor(paddle.ones([4, 1]), line(), [dist.Shard(0)])
    dist.reshard(rows, line(), [dist.Replicate()])
    sim.set_faults("flip collective kind=all_gather rank=1 bit=31 n=1")
    gathered = dist.reshard(rows, line(), [dist.Replicate()])._local_value().numpy().ravel().tolist()
    sim.set_faults("")
    return gathered


CASES = (
    collectives_of_moves,
    wrong_sizes,
    wrong_types,
    wrong_kinds,
    lists_of_parts,
    to_other_ranks,
    second_gradient,
    nothing_to_all,
    with_a_fault,
)


def all_cases():
    dist.init_parallel_env()
    return {case.__name__: case() for case in CASES}


if __name__ == "__main__":
    print(json.dumps(list(ranks.run(all_cases, RANKS, device="sim"))))
