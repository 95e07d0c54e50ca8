"""What a task and its rank work out on their node: who they are, their address and ports, and how ranks meet."""

from __future__ import annotations

import socket
import threading

import pytest

from xpulab.errors import InputError
from xpulab.fleet.across.links import Group, Setup
from xpulab.fleet.across.node.meeting import Unreachable, met
from xpulab.fleet.across.node.task import Place, card_of, place_of, seat_of
from xpulab.ranks import environment

SLURM = {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURMD_NODENAME": "b", "SLURM_JOB_ID": "12"}


def seats(nodes, **addresses):
    """Rank, its address, that of rank 0's store and that of the meeting, for each task of a trial with two cards a node."""
    group, setup = Group(1, nodes, 20000, False), Setup("xpu", 2, addresses, 0, 1.0, 1.0)
    for node in nodes:
        for local in (0, 1):
            seat, meeting = seat_of(group, setup, node, local, card=local)
            yield seat.rank, seat.endpoints[seat.rank], seat.master, meeting


def test_a_task_knows_itself_by_the_variables_of_slurm():
    given = {**SLURM, "SLURM_STEP_ID": "0", "SLURM_JOB_NODELIST": "[a-c]", "SLURM_STEP_NODELIST": "[a-b]"}
    assert place_of(given) == Place(3, 1, "b", "[a-b]", "12.0")


def test_outside_of_srun_it_says_how_it_is_started():
    with pytest.raises(InputError, match="xpulab fleet links"):
        place_of({})


@pytest.mark.parametrize(
    ("visible", "card"), [({}, 3), ({"XPU_VISIBLE_DEVICES": "4"}, 0), ({"XPU_VISIBLE_DEVICES": "4,5,6,7"}, 3)]
)
def test_a_task_that_sees_one_card_takes_that_one(visible, card):
    assert card_of(3, "xpu", visible) == card


def test_the_ranks_of_nodes_with_addresses_of_their_own_share_port_numbers():
    of_rank_0 = ("10.0.0.2:20000", "10.0.0.2:20001")
    assert list(seats(("b", "a"), a="10.0.0.1", b="10.0.0.2", c="10.0.0.3")) == [
        (0, "10.0.0.2:20002", *of_rank_0),
        (1, "10.0.0.2:20003", *of_rank_0),
        (2, "10.0.0.1:20002", *of_rank_0),
        (3, "10.0.0.1:20003", *of_rank_0),
    ]


def test_the_ranks_of_nodes_with_one_address_have_ports_of_their_own():
    assert len({address for _, *each in seats(("a", "b"), a="127.0.0.1", b="127.0.0.1") for address in each}) == 6


def test_a_rank_gets_the_variables_of_a_launch_on_several_nodes(tmp_path):
    setup = Setup("xpu", 2, {"a": "10.0.0.1", "b": "10.0.0.2"}, 0, 1.0, 1.0)
    seat, _ = seat_of(Group(1, ("a", "b"), 20000, False), setup, "b", 1, card=1)
    variables = environment.of_seat({"BKCL_SOCKET_IFNAME": "eth0"}, seat, tmp_path)
    expected = {
        "PADDLE_TRAINER_ID": "3",
        "PADDLE_TRAINERS_NUM": "4",
        "PADDLE_LOCAL_RANK": "1",
        "PADDLE_LOCAL_SIZE": "2",
        "PADDLE_NNODES": "2",
        "PADDLE_MASTER": "10.0.0.1:20000",
        "PADDLE_CURRENT_ENDPOINT": "10.0.0.2:20003",
        "FLAGS_selected_xpus": "1",
        "BKCL_SOCKET_IFNAME": "eth0",
    }
    assert {name: variables.get(name) for name in expected} == expected
    assert "PADDLE_DISTRI_BACKEND" not in variables  # Paddle chooses that of the card


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
    assert found[0].startswith(f"rank 2 did not arrive at 127.0.0.1:{ports[0]}")
    assert found[1].startswith(f"rank 1 waited at 127.0.0.1:{ports[0]}")


def test_a_rank_that_does_not_reach_rank_0_says_which_address_it_tried(ports):
    (message,) = run(ports, (1,), 2, 0.2).values()
    assert f"127.0.0.1:{ports[0]}" in message and "Connection refused" in message
