"""A node has the name that its scheduler knows."""

from __future__ import annotations

import platform

import pytest

from xpulab.records.origin import VARIABLES, node_name


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"XPULAB_NODE": "rack3-7", "SLURMD_NODENAME": "node17"}, "rack3-7"),
        ({"SLURMD_NODENAME": "node17", "NODE_NAME": "pod-host"}, "node17"),
        ({"SLURMD_NODENAME": "", "NODE_NAME": "worker-3"}, "worker-3"),
        ({}, platform.node()),
    ],
)
def test_the_name_is_the_schedulers_else_the_hosts(environ, name, monkeypatch):
    for variable in VARIABLES:
        monkeypatch.setenv(variable, environ.get(variable, ""))
    assert node_name() == name
