"""The devices that the suite supports and the wheel for each. Standard library only."""

from __future__ import annotations

import os

REAL = ("xpu", "gpu", "cpu")
"""Real devices, in the order in which `auto` tries them."""

SIMULATED = "sim"
"""Cards that are simulated on the CPU (see xpulab.sim). `auto` never takes them: they must be requested."""

DEVICES = (*REAL, SIMULATED)

JUDGED = {"cpu": "CPU", "gpu": "GPU", "xpu": "XPU", SIMULATED: "simulated cards"}
"""By device what a run on it judges: every verdict names it, so that a green CPU is not taken for a card."""

REHEARSED = ("xpu", "gpu")
"""The devices that simulated cards may stand for in a rehearsal (`xpulab run --device sim --as xpu`)."""

STANDS_FOR = "XPULAB_AS"
"""The variable that holds this device, for the run's kernels and ranks."""

MOST_CARDS = 16
"""The most cards, and so the most ranks, that one machine may have; as many are simulated at most."""

WHEELS = ("paddlepaddle", "paddlepaddle-xpu", "paddlepaddle-gpu")
"""The distributions of Paddle, one for each kind of device; an environment must contain exactly one of them."""

REPEATABLE = {"gpu": ("FLAGS_embedding_deterministic", "FLAGS_cudnn_deterministic")}
"""By device the flags with which Paddle repeats a computation to the bit: use_device sets them to 1. The first is for
embeddings, the second for cuDNN, index_add, index_select and flash attention. Source: paddle/common/flags.cc as of 2025, which
has none for an XPU, and the kernels that read them; Paddle#50494, #65696. Not run on a GPU."""

LAUNCHER_VARIABLES = (
    "PADDLE_TRAINERS_NUM",
    "PADDLE_ELASTIC_JOB_ID",
    "PADDLE_TRAINER_ENDPOINTS",
    "DISTRIBUTED_TRAINER_ENDPOINTS",
    "FLAGS_START_PORT",
    "PADDLE_ELASTIC_TIMEOUT",
)
"""Cluster images export these; a launch on one node then waits for other nodes. Source: ERNIE's launch scripts unset them."""
NODE_VARIABLES = ("PADDLE_NNODES", "PADDLE_MASTER")
"""A launch takes them for its options --nnodes and --master. Source: paddle/distributed/launch of 3.3.1."""


def judged_as(device: str) -> str:
    """The device whose rules hold on `device`: in a rehearsal simulated cards have those of the card that they stand for.

    Its known issues, refusals, ranks and kernels are meant. Paddle itself, and bounds, have the name of the device.
    """
    stands_for = os.environ.get(STANDS_FOR, "")
    return stands_for if device == SIMULATED and stands_for in REHEARSED else device


def wheel_device(device: str) -> str:
    """The device whose wheel `device` needs: the simulated accelerator is a plug-in for the CPU wheel."""
    return "cpu" if device == SIMULATED else device


def starts_cold(device: str) -> bool:
    """Whether its kernels are never forked: it was not measured that a process forks safely where a GPU or an XPU is in use."""
    return wheel_device(judged_as(device)) != "cpu"
