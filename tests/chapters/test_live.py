"""The loss line is for a person who watches, and leaves nothing behind."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from jupyter_client.manager import KernelManager

from xpulab.chapters.shared import live


@pytest.fixture
def request_metadata(monkeypatch):
    """The metadata of the request that runs the cell, as the kernel sees it."""
    metadata: dict[str, object] = {}
    kernel = SimpleNamespace(get_parent=lambda channel: {"metadata": metadata} if channel == "shell" else {})
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=kernel))
    return metadata


def test_a_cell_that_jupyterlab_runs_is_watched(request_metadata):
    request_metadata.update(deletedCells=[], recordTiming=False, cellId="1")
    assert live.is_watched()


def test_a_cell_that_nbclient_runs_is_not_watched(request_metadata):
    request_metadata.update(cellId="1")
    assert not live.is_watched()


TRAINING = """
from types import SimpleNamespace
from xpulab.chapters.shared.live import live_loss
callback, state = live_loss(), SimpleNamespace(global_step=1, max_steps=2)
callback.on_train_begin(None, state, None)
callback.on_log(None, state, None, logs={"loss": 2.5})
callback.on_train_end(None, state, None)
print("trained")
"""


@pytest.fixture(scope="module")
def kernel():
    """A kernel and its client."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def outputs_of(client, metadata):
    """The kinds of output messages while a cell with a training run is executed."""
    content = {"code": TRAINING, "silent": False, "store_history": True, "allow_stdin": False}
    message = client.session.msg("execute_request", content, metadata=metadata)
    client.shell_channel.send(message)
    kinds = []
    while True:
        answer = client.get_iopub_msg(timeout=90)
        if answer["parent_header"].get("msg_id") != message["header"]["msg_id"]:
            continue
        if answer["msg_type"] == "status" and answer["content"]["execution_state"] == "idle":
            return kinds
        if answer["msg_type"] not in ("status", "execute_input"):
            kinds.append(answer["msg_type"])


@pytest.mark.integration
def test_in_jupyterlab_the_line_is_replaced_and_then_removed(kernel):
    watched = outputs_of(kernel, {"deletedCells": [], "cellId": "1"})
    assert [kind for kind in watched if kind != "stream"] == ["display_data", "update_display_data", "clear_output"]
    assert watched.index("clear_output") < len(watched) - 1 - watched[::-1].index("stream")
