"""How ranks meet: a store that answers at once, and gloo groups that do not read each other's addresses."""

from __future__ import annotations

import os
import socket
import sys

import cloudpickle
import paddle
import paddle.distributed as dist
import psutil
import pytest

from xpulab import ranks
from xpulab.ranks.rendezvous import send_at_once

pytestmark = pytest.mark.integration

cloudpickle.register_pickle_by_value(sys.modules[__name__])

GROUPS = 8
"""More than enough: with one store for all, the first group after that of all ranks read the latter's addresses."""


def sums_in_many_groups() -> list[float]:
    """Groups of all ranks and of two of them, made one after another without a barrier."""
    dist.init_parallel_env()
    half = [0, 1] if dist.get_rank() < 2 else [2, 3]
    found = []
    for _ in range(GROUPS):
        everyone = dist.new_group([0, 1, 2, 3])
        halves = {tuple(each): dist.new_group(each) for each in ([0, 1], [2, 3])}
        for group in (everyone, halves[tuple(half)]):
            x = paddle.to_tensor([float(dist.get_rank())])
            dist.all_reduce(x, group=group)
            found.append(float(x))
    return found


def test_many_gloo_groups_in_a_row_connect_their_own_ranks():
    assert ranks.run(sums_in_many_groups, 4) == [[6.0, 1.0] * GROUPS] * 2 + [[6.0, 5.0] * GROUPS] * 2


@pytest.mark.parametrize("launch", [False, True])
def test_groups_end_well_however_ranks_were_started(launch: bool):
    def sum_in_a_group() -> float:
        dist.init_parallel_env()
        dist.all_reduce(x := paddle.ones([1]), group=dist.new_group([0, 1]))
        return float(x)

    assert ranks.run(sum_in_a_group, 2, launch=launch) == [2.0, 2.0]


def connections_without_delay() -> list[bool]:
    """For each connection of this rank to the job's store: whether it sends small requests at once."""
    dist.init_parallel_env()
    address = os.environ["PADDLE_MASTER"].rsplit(":", 1)
    store, found = (address[0], int(address[1])), []
    for each in psutil.Process().net_connections("tcp4"):
        if each.raddr == store:
            with socket.socket(fileno=os.dup(each.fd)) as connection:
                found.append(bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
    return found


def test_requests_to_the_store_are_sent_at_once():
    assert ranks.run(connections_without_delay, 2) == [[True]] * 2


def test_connections_to_other_ports_keep_their_options():
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        chosen, other = (socket.create_connection(each.getsockname()) for each in (first, second))
        with chosen, other:
            send_at_once(first.getsockname()[1])
            options = [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in (chosen, other)]
    assert [bool(each) for each in options] == [True, False]
