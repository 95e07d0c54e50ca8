"""Ranks meet at the node of rank 0: all of them, or the one that is missing is named."""

from __future__ import annotations

import socket
import threading

import pytest

from xpulab.fleet.across.node.meeting import Unreachable, met
from xpulab.ranks import environment

pytestmark = pytest.mark.unit


@pytest.fixture
def ports():
    with environment.held_ports(2) as found:
        yield found


def meet(rank, ranks, port, store_port, found, seconds):
    try:
        with met(rank, ranks, f"127.0.0.1:{port}", store_port, seconds):
            if rank == 0:
                with socket.create_server(("127.0.0.1", store_port)):
                    found["others"].wait(20)
        found[rank] = "met"
    except Unreachable as error:
        found[rank] = str(error)
    if rank:
        found["others"].set()


def run(ports, present, ranks, seconds):
    found = {"others": threading.Event()}
    threads = [threading.Thread(target=meet, args=(rank, ranks, *ports, found, seconds)) for rank in present]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    found.pop("others")
    return found


def test_ranks_go_on_when_the_store_of_rank_0_listens(ports):
    assert run(ports, (0, 1), 2, 20.0) == {0: "met", 1: "met"}


def test_a_rank_that_is_missing_is_named_by_rank_0(ports):
    found = run(ports, (0, 1), 3, 0.3)
    assert found[0] == f"rank 2 did not arrive at 127.0.0.1:{ports[0]} within 0 s"
    assert found[1] == f"rank 1 waited at 127.0.0.1:{ports[0]} for the other ranks: rank 0 closed the connection"


def test_a_rank_that_does_not_reach_rank_0_says_which_address_it_tried(ports):
    (message,) = run(ports, (1,), 2, 0.2).values()
    assert message.startswith(f"rank 1 cannot connect to 127.0.0.1:{ports[0]} within 0 s: Connection refused.")
