"""The devices that the suite supports and the wheel for each. Standard library only."""

from __future__ import annotations

REAL = ("xpu", "gpu", "cpu")
"""Real devices, in the order in which `auto` tries them."""

SIMULATED = "sim"
"""Cards that are simulated on the CPU (see xpulab.sim). `auto` never takes them: they must be requested."""

DEVICES = (*REAL, SIMULATED)

JUDGED = {"cpu": "CPU", "gpu": "GPU", "xpu": "XPU", SIMULATED: "simulated cards"}
"""By device what a run on it judges: every verdict names it, so that a green CPU is not taken for a card."""

MOST_CARDS = 16
"""The most cards, and so the most ranks, that one machine may have; as many are simulated at most."""

WHEELS = ("paddlepaddle", "paddlepaddle-xpu", "paddlepaddle-gpu")
"""The distributions of Paddle, one for each kind of device; an environment must contain exactly one of them."""

LAUNCHER_VARIABLES = (
    "PADDLE_TRAINERS_NUM",
    "PADDLE_ELASTIC_JOB_ID",
    "PADDLE_TRAINER_ENDPOINTS",
    "DISTRIBUTED_TRAINER_ENDPOINTS",
    "FLAGS_START_PORT",
    "PADDLE_ELASTIC_TIMEOUT",
)
"""Cluster images export these; a launch on one node then waits for other nodes. Source: ERNIE's launch scripts unset them."""


def wheel_device(device: str) -> str:
    """The device whose wheel `device` needs: the simulated accelerator is a plug-in for the CPU wheel."""
    return "cpu" if device == SIMULATED else device
