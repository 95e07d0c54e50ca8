"""Memory, counters and loading. Argument: "before" or "after" the import of paddle the cards are loaded."""

import json
import os
import sys

from counted import counters

from xpulab import sim
from xpulab.errors import InputError

MIB = 2**20
os.environ["XPULAB_SIM_MEMORY"] = str(64 * MIB)


def refusal(body):
    try:
        body()
    except (InputError, MemoryError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


if sys.argv[1] == "before":
    sim.load(2)
import paddle  # noqa: E402 - it is what comes before or after

saw = {"device after the import": paddle.get_device()}
paddle.set_device("cpu")
on_cpu, empty_on_cpu = paddle.arange(1000), paddle.zeros([0, 3])
if sys.argv[1] == "after":
    sim.load(2)

saw["threads after load"] = len(os.listdir("/proc/self/task"))
child = os.fork()
if child == 0:
    paddle.set_device("sim:1")
    os._exit(0 if float(paddle.ones([8]).sum()) == 8 else 1)
saw["child of an unused parent"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

sim.load(2)
saw["another number"] = refusal(lambda: sim.load(3))
saw["devices"] = paddle.device.get_available_custom_device()
saw["a tensor made before"] = int(on_cpu.sum()), int(on_cpu.to("sim:0").sum()), list(empty_on_cpu.shape)
del on_cpu, empty_on_cpu

paddle.set_device("sim:0")
device = paddle.device
device.empty_cache()
start = device.memory_allocated("sim:0")
sixteen = paddle.ones([4 * MIB], dtype="float32")
saw["place"] = str(sixteen.place)
saw["allocated"] = device.memory_allocated("sim:0") - start
saw["too much"] = refusal(lambda: paddle.ones([32 * MIB], dtype="float32"))
saw["after too much"] = float((sixteen[:100] + 1).sum())
another = paddle.ones([4 * MIB], dtype="float32")
saw["peak"] = device.max_memory_allocated("sim:0") - start
del sixteen, another
saw["freed"] = device.memory_allocated("sim:0") - start
saw["kept"] = device.memory_reserved("sim:0")
large = paddle.ones([12 * MIB], dtype="float32")
saw["48 MiB after 2 x 16 freed"] = device.memory_allocated("sim:0") - start
del large
device.empty_cache()
saw["after empty_cache"] = device.memory_reserved("sim:0") - start, counters(0).allocated_bytes - start

before = counters(0)
there = paddle.to_tensor([float(each % 7) for each in range(1000)], place="cpu").to("sim:0")
arrived = counters(0)
back = there.cpu()
returned = counters(0)
saw["to device"] = arrived.bytes_to_device - before.bytes_to_device
saw["to host"] = returned.bytes_to_host - arrived.bytes_to_host
other_before = counters(1).bytes_on_device
there.to("sim:1")
saw["between cards"] = counters(1).bytes_on_device - other_before
saw["wrong copies of views"] = []
for dtype in (
    *("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"),
    *("complex64", "complex128", "float8_e4m3fn", "float8_e5m2"),
):
    numbers, launches = there.cpu()[:60].reshape([5, 4, 3]).astype(dtype), counters(0).kernel_launches
    copied, plain = (at.transpose([2, 0, 1])[1:].contiguous() for at in (numbers.to("sim:0"), numbers))
    same = (copied.cpu().astype("float32") == plain.astype("float32")).all()
    saw["wrong copies of views"] += [dtype] * (not same or counters(0).kernel_launches == launches)

child = os.fork()
if child == 0:
    sys.exit(0 if "forked" in refusal(lambda: paddle.ones([8])) else 1)
saw["child of a parent that used a card"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(saw))
