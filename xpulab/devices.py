"""The devices that the suite knows, and which wheel serves each. Standard library only."""

from __future__ import annotations

REAL = ("xpu", "gpu", "cpu")
"""In the order in which `auto` tries them."""

SIMULATED = "sim"
"""Cards that are simulated on the CPU (see xpulab.sim): never taken by `auto`, only when somebody asks for them."""

DEVICES = (*REAL, SIMULATED)

MOST_CARDS = 16
"""The most cards, and so the most ranks, that one machine may have; as many are simulated at most."""

WHEELS = ("paddlepaddle", "paddlepaddle-xpu", "paddlepaddle-gpu")
"""The distributions of Paddle, one for each family of devices; an environment must hold one of them and no other."""


def wheel_device(device: str) -> str:
    """The device whose wheel serves `device`: the simulated accelerator is a plug-in for the CPU's."""
    return "cpu" if device == SIMULATED else device
