"""Everything in Paddle that may ask for pinned host memory or for an asynchronous copy, on a card. Prints what each said."""

import json
import re
from unittest import mock

import paddle
from paddle.incubate.tensor import manipulation

from xpulab import sim

sim.load(2)
paddle.set_device("sim:0")
x = paddle.arange(12, dtype="float32").reshape([3, 4])


def from_loader():
    dataset = paddle.io.TensorDataset([paddle.ones([4, 2])])
    return str(next(iter(paddle.io.DataLoader(dataset, batch_size=2, use_buffer_reader=True)))[0].place)


def offloaded():
    loader = manipulation.create_async_load()
    kept, task = manipulation.async_offload(x, loader)
    task.cpu_wait()
    return [type(task).__name__, str(kept.place), bool((kept.numpy() == x.numpy()).all())]


def reloaded_as_on_an_xpu():
    """Where a tensor was and comes back, with the branch of async_reload for wheels for XPUs, and the second card in use."""
    on_a_card = mock.patch.object(paddle, "XPUPlace", lambda number: paddle.CustomPlace("sim", number))
    paddle.set_device("sim:1")
    tensor = paddle.ones([4])
    with mock.patch.object(paddle, "is_compiled_with_xpu", lambda: True), on_a_card:
        back, _task = manipulation.async_reload(tensor.cpu(), None)
    paddle.set_device("sim:0")
    return [str(tensor.place), str(back.place)]


ATTEMPTS = {
    "pin_memory": lambda: str(x.pin_memory().place),
    "pin_memory of a CPU tensor": lambda: str(x.cpu().pin_memory().place),
    "CUDAPinnedPlace": lambda: str(paddle.CUDAPinnedPlace()),
    "XPUPinnedPlace": lambda: str(paddle.XPUPinnedPlace()),
    "zeros(pin_memory=True)": lambda: str(paddle.zeros([2], pin_memory=True).place),
    "DataLoader with a buffer": from_loader,
    "create_async_load": lambda: str(manipulation.create_async_load()),
    "async_offload": offloaded,
    "async_reload": lambda: manipulation.async_reload(x.cpu(), manipulation.create_async_load()),
    "async_reload on an XPU": reloaded_as_on_an_xpu,
    "async_offload_with_offset": lambda: manipulation.async_offload_with_offset(
        x.flatten(), x.flatten().cpu(), 0, 0, 12, manipulation.create_async_load()
    ),
}


def answer(attempt):
    try:
        return attempt()
    except (RuntimeError, AttributeError, TypeError, ValueError) as error:
        return re.sub(r"\s+", " ", f"{type(error).__name__}: {error}")


answers = {name: answer(attempt) for name, attempt in ATTEMPTS.items()}
print(json.dumps([answers, sim.counters().host_allocations, hasattr(paddle.base.core, "AsyncLoad")]))
