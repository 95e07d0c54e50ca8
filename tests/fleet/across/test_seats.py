"""Who a task is by Slurm's variables, and the addresses and ports of a trial's ranks."""

from __future__ import annotations

import pytest

from xpulab.errors import InputError
from xpulab.fleet.across.links import Group, Setup
from xpulab.fleet.across.node.place import Place, card_of, place_of
from xpulab.fleet.across.node.seats import seats_of
from xpulab.ranks.environment import of_seat

pytestmark = pytest.mark.unit
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURMD_NODENAME": "b", "SLURM_JOB_ID": "12"}


def setup(**addresses):
    return Setup("xpu", 2, addresses, 0, 1.0, 1.0)


def test_a_task_knows_itself_by_the_variables_of_slurm():
    given = {**SLURM, "SLURM_STEP_ID": "0", "SLURM_JOB_NODELIST": "[a-c]", "SLURM_STEP_NODELIST": "[a-b]"}
    assert place_of(given) == Place(3, 4, 1, "b", "[a-b]", "12.0")


def test_outside_of_srun_it_says_how_it_is_started():
    with pytest.raises(InputError, match="xpulab fleet links"):
        place_of({})


@pytest.mark.parametrize(
    ("visible", "card"), [({}, 3), ({"XPU_VISIBLE_DEVICES": "4"}, 0), ({"XPU_VISIBLE_DEVICES": "4,5,6,7"}, 3)]
)
def test_a_task_that_sees_one_card_takes_that_one(visible, card):
    assert card_of(3, "xpu", visible) == card


def test_the_ranks_of_nodes_with_addresses_of_their_own_share_port_numbers():
    seats = seats_of(Group(1, ("b", "a"), 20000, False), setup(a="10.0.0.1", b="10.0.0.2", c="10.0.0.3"))
    assert seats.endpoints == ("10.0.0.2:20002", "10.0.0.2:20003", "10.0.0.1:20002", "10.0.0.1:20003")
    assert (seats.master, seats.meeting) == ("10.0.0.2:20000", "10.0.0.2:20001")
    assert seats.ports_on("b", 0) == [20002, 20000, 20001] and seats.ports_on("a", 1) == [20003]


def test_the_ranks_of_nodes_with_one_address_have_ports_of_their_own():
    seats = seats_of(Group(1, ("a", "b"), 20000, False), setup(a="127.0.0.1", b="127.0.0.1"))
    assert len(set(seats.endpoints)) == 4


def test_a_rank_gets_the_variables_of_a_launch_on_several_nodes(tmp_path):
    seats = seats_of(Group(1, ("a", "b"), 20000, False), setup(a="10.0.0.1", b="10.0.0.2"))
    given = of_seat({"BKCL_SOCKET_IFNAME": "eth0"}, seats.seat("b", 1, card=1), tmp_path)
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
    assert {name: given.get(name) for name in expected} == expected
    assert "PADDLE_DISTRI_BACKEND" not in given  # Paddle chooses that of the card
