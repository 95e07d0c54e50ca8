"""The variables of a rank: as the launcher makes them, and with ports that no other process is given."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from xpulab.ranks import environment


def test_what_another_job_left_in_the_environment_does_not_reach_the_launcher():
    of_a_job = {"PADDLE_TRAINER_ID": "3", "PADDLE_TRAINER_ENDPOINTS": "a:1,b:2", "PADDLE_MASTER": "a:1", "MASTER_PORT": "1"}
    of_the_notebook = {"PATH": "/bin", "FLAGS_selected_gpus": "3", "XPU_PADDLE_FC_LOCAL_INT16": "1"}

    kept = environment.before_launch({**of_a_job, **of_the_notebook})

    assert kept == {
        "PATH": "/bin",
        "XPU_PADDLE_FC_LOCAL_INT16": "1",
        "OMP_NUM_THREADS": "1",
        "FLAGS_tcp_store_using_libuv": "0",
    }


def test_simulated_cards_talk_through_their_own_backend(tmp_path: Path):
    of_rank = environment.of_rank({}, 1, [7, 8, 9], "sim", tmp_path)

    assert of_rank["PADDLE_DISTRI_BACKEND"] == "xccl"
    assert of_rank["PADDLE_XCCL_BACKEND"] == "sim"
    assert of_rank["FLAGS_selected_sims"] == "1"


def test_a_held_port_can_be_listened_on_by_the_store_only():
    with environment.held_ports(1) as (port,):
        with socket.socket() as another, pytest.raises(OSError):
            another.bind((environment.HOST, port))
        with socket.socket() as store:
            store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            store.bind((environment.HOST, port))
            store.listen()
