"""What a warm kernel runs in its worker: an ipykernel."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import sys
from typing import Any

import ipykernel.kernelapp

from xpulab.warm.worker import log_handlers


def run(payload: bytes) -> None:
    """Be a kernel; payload: the arguments of ipykernel_launcher as JSON."""
    launcher = importlib.util.find_spec("ipykernel_launcher")
    assert launcher is not None and launcher.origin is not None
    sys.argv[:] = [launcher.origin, *json.loads(payload)]
    logs: dict[Any, list[logging.StreamHandler]] = {sys.stdout: [], sys.stderr: []}
    for handler in log_handlers():
        if isinstance(handler, logging.StreamHandler):
            logs.get(handler.stream, []).append(handler)
    app = ipykernel.kernelapp.IPKernelApp.instance(parent_handle=os.getppid())  # a default that it reads at its import
    app.initialize()
    for handlers, stream in zip(logs.values(), (sys.stdout, sys.stderr), strict=True):  # now the kernel's, for the notebook
        for handler in handlers:
            handler.setStream(stream)
    if matplotlib := sys.modules.get("matplotlib"):  # reads the variable, which the kernel has set, at its import
        matplotlib.rcParams["backend"] = os.environ["MPLBACKEND"]
    app.start()
