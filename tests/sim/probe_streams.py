"""Streams and events. A task that hangs stands for one that takes long: what happens meanwhile needs no clock."""

import json
import os
import time

import paddle
from counted import counters

from xpulab import sim

sim.load(2)
paddle.set_device("sim:0")
saw = {}
large = (paddle.arange(512 * 512) % 1000).astype("float32").reshape([512, 512])
small = paddle.arange(16).astype("float32").reshape([4, 4])
expected = large.numpy().T.copy()


def stream():
    return paddle.device.Stream("sim:0")


def event():
    return paddle.device.Event()


def refusal(body):
    try:
        body()
    except RuntimeError as error:
        return str(error)
    return "nothing was raised"


def threads():
    return len(os.listdir("/proc/self/task"))


def has_struck():
    """Waits until a fault has come up, so that it does not strike what comes next."""
    deadline = time.monotonic() + 60
    while counters(0).faults == 0 and time.monotonic() < deadline:
        time.sleep(0.001)


paddle.device.synchronize()

# Work that is not done when the call returns.
sim.set_faults("hang launch kind=contiguous n=1")
first, after_first = stream(), event()
with paddle.device.stream_guard(first):
    large.t().contiguous()
    after_first.record(first)
has_struck()
saw["returns before the work is done"] = [first.query(), after_first.query()]

# Another stream is not held up, and one that waits for the event is.
second, after_second = stream(), event()
with paddle.device.stream_guard(second):
    large.t().contiguous()
    after_second.record(second)
second.synchronize()
saw["another stream goes on"] = [second.query(), after_second.query()]
third, after_third = stream(), event()
third.wait_event(after_first)
after_third.record(third)
saw["a stream that waits for the event"] = [third.query(), after_third.query()]

# With the faults the hanging task ends, as a failure; then streams that have failed work again.
sim.set_faults("")
refused = refusal(third.synchronize)
refusal(first.synchronize)
saw["after that"] = [first.query(), after_first.query(), refused]

# Synchronize waits.
sim.set_faults("delay launch kind=contiguous seconds=0.2")
with paddle.device.stream_guard(first):
    turned = large.t().contiguous()
first.synchronize()
saw["after synchronize"] = [first.query(), bool((turned.numpy() == expected).all())]

# Order on one stream, and between two of them, however slow they are.
sim.set_faults("delay task seconds=0.002")
wrong = 0
for _ in range(5):
    one, other, ready = stream(), stream(), event()
    with paddle.device.stream_guard(one):
        source = large.t().contiguous()
        ready.record(one)
    other.wait_event(ready)
    with paddle.device.stream_guard(other):
        result = source.t().contiguous()
    other.synchronize()
    wrong += not bool((result.cpu().numpy() == expected.T).all())
saw["wrong after waits for events"] = wrong

# The CPU's kernels see what the card's have done, and the other way round, on whichever stream.
mixed = 0
for turn in range(5):
    current = stream()
    with paddle.device.stream_guard(current):
        value = (large.t().contiguous() + turn).t().contiguous() * 2
        mixed += not bool((value.cpu().numpy() == (expected.T + turn) * 2).all())
saw["wrong when the CPU takes part"] = mixed

sim.set_faults("")

# What fails while it is queued comes out where somebody waits, and stays.
sim.set_faults("fail launch kind=contiguous n=1")
failing, after_failing = stream(), event()
with paddle.device.stream_guard(failing):
    large.t().contiguous()
    after_failing.record(failing)
saw["failure at the stream"] = refusal(failing.synchronize)
saw["failure at the stream, again"] = refusal(failing.synchronize)
saw["failure at the event"] = refusal(after_failing.synchronize)
saw["failure at the device"] = refusal(paddle.device.synchronize)
sim.set_faults("")
saw["after the faults are gone"] = refusal(failing.synchronize)

# Gradients add up over backward passes: Paddle adds them on the host, and waits for nothing.
wrong = 0
for _ in range(10):
    weight = paddle.create_parameter([512, 512], "float32")
    for _ in range(2):
        (weight.t() * large).sum().backward()
    wrong += not bool((weight.grad.numpy() == 2 * expected).all())
saw["wrong gradients after two passes"] = wrong

# Work that is short is done at once when nothing waits before it: no thread is started for it.
before = threads()
with paddle.device.stream_guard(stream()):
    small.t().contiguous()
saw["threads for short work"] = threads() - before
print(json.dumps(saw))
