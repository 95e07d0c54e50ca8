"""Runs Paddle's public collectives on simulated cards, in ranks forked from one process that has imported Paddle.

python paddle_job.py OUT '[2, 4, "fail collective n=1"]'    # one job after another

A number is a job with so many ranks, which run all cases: the functions here whose names begin with "case_". They take this
rank and the number of ranks, and raise when a value is wrong. A text is a job with 2 ranks and this fault on rank 1.
Writes a list of jobs to OUT, as JSON: each is a list of ranks with "status" and "reported". For a number these are pairs
[case, its error or null]; for a fault the results of an all_reduce of 4 ones and of a message of 4 fives from rank 1, or the
error.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from xpulab import sim

MOST = 8
SECONDS = 100
"""For one job."""

sim.load(MOST)

import numpy as np  # noqa: E402
import paddle  # noqa: E402
import paddle.distributed as dist  # noqa: E402
import pytest  # noqa: E402
from paddle.distributed.auto_parallel.pipelining import schedules as pipelining_schedules  # noqa: E402
from paddle.distributed.auto_parallel.pipelining import stage as pipelining_stage  # noqa: E402

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
OPS = {"SUM": sum, "MAX": max, "MIN": min, "PROD": np.prod}


def tensor(values: Any, dtype: str = "float32") -> paddle.Tensor:
    return paddle.to_tensor(np.asarray(values)).cast(dtype)


def same(got: paddle.Tensor, expected: Any) -> None:
    assert str(got.place).startswith("Place(sim"), got.place
    values = got.cast("float32").numpy() if got.dtype == paddle.bfloat16 else got.numpy()
    np.testing.assert_array_equal(values, np.asarray(expected).astype(values.dtype))


def values(rank: int, size: int = 12) -> np.ndarray:
    """Small whole numbers, so that sums and products of 4 ranks are exact in every type."""
    return (np.arange(size) + rank) % 3 + 1


def columns(ranks: int) -> list[tuple[int, ...]]:
    """For each element the values of all ranks."""
    return list(zip(*(values(each) for each in range(ranks)), strict=True))


def nothing() -> list[paddle.Tensor]:
    """Tensors of the card without an element."""
    return [paddle.empty([0, 2]), paddle.to_tensor(np.zeros([0, 2], np.float32))]


# ---- one tensor ------------------------------------------------------------------------------------------------------


def case_all_reduce(rank: int, ranks: int) -> None:
    for op, dtype in ((op, dtype) for op in OPS for dtype in (*FLOATS, *INTEGERS)):
        got = tensor(values(rank), dtype)
        dist.all_reduce(got, op=getattr(dist.ReduceOp, op))
        same(got, [OPS[op](column) for column in columns(ranks)])


def case_known_paddle_averages_on_no_custom_device(rank: int, ranks: int) -> None:
    """The card could: test_values.py has AVG. Paddle asks which NCCL there is, or refuses the operation."""
    with pytest.raises(AttributeError, match="nccl_version"):
        dist.all_reduce(tensor(values(rank)), op=dist.ReduceOp.AVG)
    with pytest.raises(ValueError, match="Invalid CustomCCL reduction"):
        dist.stream.all_reduce(tensor(values(rank)), op=dist.ReduceOp.AVG)


def case_all_reduce_of_booleans(rank: int, ranks: int) -> None:
    got = paddle.to_tensor(np.array([rank == 0, False, True]))
    dist.all_reduce(got, op=dist.ReduceOp.MAX)
    same(got, [True, False, True])


def case_all_reduce_of_complex_numbers(rank: int, ranks: int) -> None:
    for dtype in ("complex64", "complex128"):
        got = paddle.to_tensor((values(rank) * (1 + 2j)).astype(dtype))
        dist.all_reduce(got)
        same(got, sum(values(each) for each in range(ranks)) * (1 + 2j))


def case_all_reduce_of_three_million(rank: int, ranks: int) -> None:
    got = paddle.arange(3_000_000, dtype="float32") % 1000 + rank
    dist.all_reduce(got)
    same(got, (np.arange(3_000_000) % 1000) * ranks + sum(range(ranks)))


def case_known_paddle_refuses_to_all_reduce_nothing(rank: int, ranks: int) -> None:
    for got in nothing():
        with pytest.raises(ValueError, match="Size of tensor should be greater than 0"):
            dist.all_reduce(got)


def case_all_reduce_later(rank: int, ranks: int) -> None:
    got = tensor(values(rank))
    dist.all_reduce(got, sync_op=False).wait()
    same(got, sum(values(each) for each in range(ranks)))


def case_reduce(rank: int, ranks: int) -> None:
    for dtype in (*FLOATS, *INTEGERS):
        got = tensor(values(rank), dtype)
        dist.reduce(got, dst=ranks - 1)
        if rank == ranks - 1:
            same(got, sum(values(each) for each in range(ranks)))


def case_broadcast(rank: int, ranks: int) -> None:
    for dtype in (*FLOATS, *INTEGERS, "bool", "complex64", "complex128"):
        got = tensor(values(rank), dtype)
        dist.broadcast(got, src=1)
        same(got, values(1).astype(bool) if dtype == "bool" else values(1))


# ---- many tensors ----------------------------------------------------------------------------------------------------


def case_all_gather(rank: int, ranks: int) -> None:
    for dtype in (*FLOATS, "uint8", "int8", "int32", "int64", "bool"):  # those that Paddle can split
        got: list[paddle.Tensor] = []
        dist.all_gather(got, tensor(values(rank), dtype))
        for each in range(ranks):
            same(got[each], values(each).astype(bool) if dtype == "bool" else values(each))


def case_known_paddle_refuses_to_all_gather_nothing(rank: int, ranks: int) -> None:
    for part in nothing():
        with pytest.raises(ValueError, match=r"Tensor should be in backend's place|Size of tensor should be greater than 0"):
            dist.all_gather([], part)


def case_reduce_scatter(rank: int, ranks: int) -> None:
    for dtype in (*FLOATS, "int32", "int64"):
        got = tensor(np.zeros(5), dtype)
        dist.reduce_scatter(got, [tensor(values(rank + part, 5), dtype) for part in range(ranks)])
        same(got, sum(values(each + rank, 5) for each in range(ranks)))


def case_scatter(rank: int, ranks: int) -> None:
    got = tensor(np.zeros(4))
    dist.scatter(got, [tensor(values(part, 4)) for part in range(ranks)] if rank == 1 else None, src=1)
    same(got, values(rank, 4))


def case_gather(rank: int, ranks: int) -> None:
    got: list[paddle.Tensor] = []
    dist.gather(tensor(values(rank)), got, dst=0)
    if rank == 0:
        for each in range(ranks):
            same(got[each], values(each))


def case_alltoall(rank: int, ranks: int) -> None:
    for dtype in (*FLOATS, *INTEGERS):
        got: list[paddle.Tensor] = []
        dist.alltoall(got, [tensor(values(rank + 2 * to), dtype) for to in range(ranks)])
        for each in range(ranks):
            same(got[each], values(each + 2 * rank))


def case_alltoall_single_even(rank: int, ranks: int) -> None:
    got = tensor(np.zeros(ranks * 2))
    dist.alltoall_single(got, tensor(np.arange(ranks * 2) + 100 * rank))
    same(got, np.concatenate([100 * each + np.array([2 * rank, 2 * rank + 1]) for each in range(ranks)]))


def case_alltoall_single_uneven(rank: int, ranks: int) -> None:
    """Rank r sends to rank s (r + s) % 3 rows: for some none."""
    send = [(rank + to) % 3 for to in range(ranks)]
    receive = [(source + rank) % 3 for source in range(ranks)]
    got = tensor(np.zeros([sum(receive), 2]))
    dist.alltoall_single(got, paddle.full([sum(send), 2], float(rank)), out_split_sizes=receive, in_split_sizes=send)
    same(got, np.repeat(np.arange(ranks), receive)[:, None] * np.ones([1, 2]))


def case_alltoall_single_of_nothing(rank: int, ranks: int) -> None:
    for part, got in zip(nothing(), nothing(), strict=True):
        dist.alltoall_single(got, part, out_split_sizes=[0] * ranks, in_split_sizes=[0] * ranks)
        assert got.shape == [0, 2]
        dist.alltoall_single(got, part)
        assert got.shape == [0, 2]


def case_known_nothing_that_a_cpu_kernel_made_is_not_on_the_card(rank: int, ranks: int) -> None:
    """Paddle does not bring an empty result back from the CPU kernel that it fell back to."""
    for part in (paddle.zeros([0, 2]), paddle.ones([3, 2])[paddle.to_tensor([False] * 3)]):
        assert part.place.is_cpu_place()
        with pytest.raises(RuntimeError, match="interface not found"):
            dist.alltoall_single(paddle.empty([0, 2]), part, out_split_sizes=[0] * ranks, in_split_sizes=[0] * ranks)


def case_alltoall_single_to_one_rank(rank: int, ranks: int) -> None:
    """All rows go to rank 0; the others get an empty tensor."""
    got = paddle.empty([3 * ranks if rank == 0 else 0, 2])
    sizes = [3 if rank == 0 else 0] * ranks
    dist.alltoall_single(got, paddle.full([3, 2], float(rank)), out_split_sizes=sizes, in_split_sizes=[3] + [0] * (ranks - 1))
    if rank == 0:
        same(got, np.repeat(np.arange(ranks), 3)[:, None] * np.ones([1, 2]))
    dist.all_reduce(probe := tensor([1.0]))
    same(probe, [ranks])


# ---- messages --------------------------------------------------------------------------------------------------------


def case_send_and_recv(rank: int, ranks: int) -> None:
    for dtype in (*FLOATS, *INTEGERS, "bool"):
        if rank == 0:
            dist.send(tensor(values(7), dtype), dst=1)
        elif rank == 1:
            dist.recv(got := tensor(values(0), dtype), src=0)
            same(got, values(7).astype(bool) if dtype == "bool" else values(7))


def case_send_and_recv_of_three_million(rank: int, ranks: int) -> None:
    """Everyone sends to the next before it receives from the one before."""
    got = paddle.zeros([3_000_000])
    dist.isend(paddle.full([3_000_000], float(rank)), dst=(rank + 1) % ranks)
    dist.recv(got, src=(rank - 1) % ranks)
    same(got, np.full(3_000_000, (rank - 1) % ranks))


def case_batch_isend_irecv(rank: int, ranks: int) -> None:
    for size in (1, 3_000_000):
        got = paddle.zeros([size])
        asked = [
            dist.P2POp(dist.isend, paddle.full([size], float(rank)), (rank + 1) % ranks),
            dist.P2POp(dist.irecv, got, (rank - 1) % ranks),
        ]
        for task in dist.batch_isend_irecv(asked):
            task.wait()
        same(got, np.full(size, (rank - 1) % ranks))


# ---- the rest --------------------------------------------------------------------------------------------------------


def case_barrier(rank: int, ranks: int) -> None:
    dist.barrier()


def case_objects(rank: int, ranks: int) -> None:
    got: list[Any] = []
    dist.all_gather_object(got, {"rank": rank, "text": "x" * 1000 * rank})
    assert [each["rank"] for each in got] == list(range(ranks))
    assert [len(each["text"]) for each in got] == [1000 * each for each in range(ranks)]
    objects = [{"from": rank}]
    dist.broadcast_object_list(objects, src=1)
    assert objects == [{"from": 1}]


def case_new_group(rank: int, ranks: int) -> None:
    """The whole, and its two halves: even and odd ranks."""
    halves = [dist.new_group(list(range(first, ranks, 2))) for first in range(2)]
    got = tensor([float(rank)])
    dist.all_reduce(got, group=halves[rank % 2])
    same(got, [sum(range(rank % 2, ranks, 2))])
    whole = dist.new_group(list(range(ranks)))
    dist.all_reduce(got, group=whole)
    same(got, [sum(sum(range(each % 2, ranks, 2)) for each in range(ranks))])


def pipeline(rank: int, ranks: int, schedule: type, chunks: int) -> None:
    """A chain of layers, chunks of them a rank: loss and gradients are those of the unsplit model, to the last bit.

    The layers are wide enough (512 x 512 a micro batch, 1 MB) for what is sent not to fit a mailbox.
    """
    width, micro, stages = 512, 8, ranks * chunks
    dist.auto_parallel.set_mesh(dist.ProcessMesh(list(range(ranks)), dim_names=["pp"]))
    paddle.seed(7)
    layers = [paddle.nn.Linear(width, width) for _ in range(stages)]
    twins = [paddle.nn.Linear(width, width) for _ in range(stages)]
    for layer, twin in zip(layers, twins, strict=True):
        twin.set_state_dict(layer.state_dict())
    batch, target = paddle.randn([512 * micro, width]), paddle.randn([512 * micro, width])
    loss_of = paddle.nn.MSELoss()

    expected = []
    for part, wanted in zip(batch.split(micro), target.split(micro), strict=True):
        for twin in twins:
            part = twin(part)
        loss = loss_of(part, wanted)
        loss.backward()  # the schedules do not divide by the number of micro batches
        expected.append(float(loss))

    mine = [pipelining_stage.PipelineStage(layers[each], each, stages) for each in range(rank, stages, ranks)]
    losses: list[paddle.Tensor] = []
    running = schedule(mine if chunks > 1 else mine[0], micro, loss_fn=loss_of)
    given = (batch,) if rank == 0 else ()
    wanted = {"target": target, "losses": losses} if rank == ranks - 1 else {}
    running.step(*given, **wanted)
    if rank == ranks - 1:
        assert [float(loss) for loss in losses] == expected
    for each in range(rank, stages, ranks):
        np.testing.assert_array_equal(layers[each].weight.grad.numpy(), twins[each].weight.grad.numpy())
        assert np.abs(layers[each].weight.grad.numpy()).max() > 0


def case_pipeline_forward_then_backward(rank: int, ranks: int) -> None:
    pipeline(rank, ranks, pipelining_schedules.ScheduleFThenB, 1)


def case_pipeline_one_forward_one_backward(rank: int, ranks: int) -> None:
    pipeline(rank, ranks, pipelining_schedules.Schedule1F1B, 1)


def case_pipeline_of_two_chunks_a_rank(rank: int, ranks: int) -> None:
    pipeline(rank, ranks, pipelining_schedules.ScheduleVPP, 2)


def case_the_counters_saw_it(rank: int, ranks: int) -> None:
    before = sim.counters(rank).collectives["all_reduce"]
    dist.all_reduce(got := tensor([1.0]))
    same(got, [ranks])
    assert sim.counters(rank).collectives["all_reduce"] == before + 1


CASES: dict[str, Callable[[int, int], None]] = {
    name.removeprefix("case_"): function for name, function in globals().items() if name.startswith("case_")
}


# ---- ranks -----------------------------------------------------------------------------------------------------------


def free_ports(number: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def environment(rank: int, ports: list[int]) -> dict[str, str]:
    *own, master = ports
    endpoints = [f"127.0.0.1:{port}" for port in own]
    return {
        "PADDLE_TRAINER_ID": str(rank),
        "PADDLE_TRAINERS_NUM": str(len(endpoints)),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
        "PADDLE_MASTER": f"127.0.0.1:{master}",
        "FLAGS_selected_sims": str(rank),
        "PADDLE_DISTRI_BACKEND": "xccl",
        "PADDLE_XCCL_BACKEND": "sim",
    }


def all_cases(rank: int, ranks: int, report: Callable[[Any], None]) -> None:
    """Say of each case its name and its error, or None."""
    for name, case in CASES.items():
        error = None
        try:
            case(rank, ranks)
        except BaseException:
            error = traceback.format_exc()
        report([name, error])


def with_fault(text: str) -> Callable[[int, int, Callable[[Any], None]], None]:
    """What rank 1 gets to see, with this fault on it, and the others."""

    def work(rank: int, ranks: int, report: Callable[[Any], None]) -> None:
        dist.all_reduce(before := tensor([1.0]))
        same(before, [ranks])  # it has been done: the fault is for the next
        if rank == 1:
            sim.set_faults(text)
        try:
            dist.all_reduce(got := tensor([1.0] * 4))
            report(got.numpy().tolist())
            received = tensor([0.0] * 4)
            if rank == 1:
                dist.send(tensor([5.0] * 4), dst=0)
            elif rank == 0:
                dist.recv(received, src=1)
            report(received.numpy().tolist())
        except BaseException as error:
            report(f"{type(error).__name__}: {error}")

    return work


def job(number: int, work: Callable[[int, int, Callable[[Any], None]], None]) -> list[dict[str, Any]]:
    """Run work(rank, ranks, report) on so many ranks: what each reported, and its exit status."""
    ports = free_ports(number + 1)
    pipes: dict[int, int] = {}
    processes: list[int] = []
    for rank in range(number):
        reader, writer = os.pipe()
        process = os.fork()
        if process == 0:
            status = 1
            try:
                faulthandler.dump_traceback_later(SECONDS - 5)
                os.environ.update(environment(rank, ports))
                dist.init_parallel_env()
                work(rank, number, lambda reported: os.write(writer, (json.dumps(reported) + "\n").encode()) and None)  # noqa: B023
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(writer)
        pipes[reader] = rank
        processes.append(process)
    reported = [b""] * number
    until = time.monotonic() + SECONDS
    while pipes and (left := until - time.monotonic()) > 0:
        for pipe in select.select(list(pipes), [], [], left)[0]:
            if part := os.read(pipe, 65536):
                reported[pipes[pipe]] += part
            else:
                del pipes[pipe]
                os.close(pipe)
    if pipes:
        for process in processes:
            os.kill(process, signal.SIGKILL)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
    return [
        {"reported": [json.loads(line) for line in lines.decode().splitlines()], "status": status}
        for lines, status in zip(reported, statuses, strict=True)
    ]


if __name__ == "__main__":
    asked = json.loads(sys.argv[2])
    done = [job(int(one), all_cases) if isinstance(one, int) else job(2, with_fault(one)) for one in asked]
    Path(sys.argv[1]).write_text(json.dumps(done))
