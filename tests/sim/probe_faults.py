"""Each kind of fault, one after the other in one process; XPULAB_SIM_TIMEOUT=1. Prints what a user sees of each.

Arguments: how to end, and texts of faults, as JSON, that are given to the plug-in itself, past the check in Python.
"""

import json
import sys
from contextlib import suppress

import numpy as np
import paddle
from counted import counters

from xpulab import sim

sim.load(2)
paddle.set_device("sim:0")
saw = {}
zeros = np.zeros(1000, dtype="uint8")


def with_faults(text, body):
    """What body returns, or raises, with the faults of the text; and how many were injected."""
    sim.set_faults(text)
    before = sum(counters(card).faults for card in (0, 1))
    try:
        result = body()
    except (RuntimeError, MemoryError, OSError) as error:
        result = f"{type(error).__name__}: {error}"
    injected = sum(counters(card).faults for card in (0, 1)) - before
    sim.set_faults("")
    return result, injected


def there_and_back(count=1):
    return [int(paddle.to_tensor(zeros, place="cpu").to("sim:0").cpu().numpy().astype("int64").sum()) for _ in range(count)]


def between_cards():
    return int(paddle.to_tensor(zeros, place="cpu").to("sim:0").to("sim:1").cpu().numpy().astype("int64").sum())


def places_of_bits(text, count=8):
    """Which byte was flipped in each of so many copies."""

    def body():
        found = []
        for _ in range(count):
            arrived = paddle.to_tensor(zeros, place="cpu").to("sim:0").cpu().numpy()
            found.append([int(each) for each in np.nonzero(arrived)[0]])
        return found

    return with_faults(text, body)[0]


square = paddle.to_tensor(np.zeros((300, 300), dtype="float32"))
there_and_back()

saw["none"] = with_faults("", lambda: there_and_back(3))
saw["flip h2d"] = with_faults("flip copy kind=h2d n=2 bit=7", lambda: there_and_back(3))
saw["flip between cards"] = with_faults("flip copy kind=p2p bit=1", between_cards)
saw["flip launch"] = with_faults("flip launch kind=contiguous bit=30", lambda: float(square.t().contiguous().abs().max()))

saw["n"] = with_faults("flip copy kind=h2d n=2 bit=0", lambda: there_and_back(5))
saw["from"] = with_faults("flip copy kind=h2d from=2 bit=0", lambda: there_and_back(5))
saw["card"] = with_faults("flip copy kind=h2d card=1 bit=0", there_and_back)
saw["another rank"] = with_faults("flip copy kind=h2d rank=1 bit=0", there_and_back)
saw["two"] = with_faults("flip copy kind=h2d n=1 bit=0; flip copy kind=h2d n=2 bit=1", lambda: there_and_back(3))
saw["drawn"] = [places_of_bits("flip copy kind=h2d") for _ in range(2)]

large = 5 * 2**20
saw["fail alloc"] = with_faults("fail alloc n=1", lambda: paddle.ones([large]))
saw["after fail alloc"] = with_faults("", lambda: float(paddle.ones([large])[:7].sum()))
saw["fail launch"] = with_faults("fail launch", lambda: float(square.t().contiguous().sum()))
saw["delay copy"] = with_faults("delay copy seconds=0.01", there_and_back)


def gradient_of_an_embedding():
    """Of three rows that are read often, in float32: its bits depend on the order in which it is added up."""
    table = paddle.ones([3, 8])
    table.stop_gradient = False
    upstream = paddle.to_tensor(np.random.default_rng(0).standard_normal([999, 8]).astype("float32"))
    paddle.nn.functional.embedding(paddle.arange(999) % 3, table).backward(upstream)
    return table.grad.numpy().ravel().tolist()


saw["repeats itself"] = [gradient_of_an_embedding() for _ in range(2)]
saw["reorder"] = with_faults("reorder launch kind=embedding_grad", lambda: [gradient_of_an_embedding() for _ in range(2)])
saw["slow task"] = with_faults("slow task factor=2", lambda: (there_and_back(), float(square.t().contiguous().sum())))


def wait_for_a_launch():
    square.t().contiguous()
    paddle.device.synchronize()


saw["hang launch"] = with_faults("hang launch", wait_for_a_launch)


def twice_on_a_lost_card():
    with suppress(RuntimeError):
        there_and_back()
    return there_and_back()


saw["lose card"] = with_faults("lose task card=0 n=1", twice_on_a_lost_card)


def allocate_on_a_lost_card():
    with suppress(RuntimeError):
        there_and_back()
    return list(paddle.empty([large * 5]).shape)


saw["allocate on a lost card"] = with_faults("lose task card=0 n=1", allocate_on_a_lost_card)
saw["in the end"] = with_faults("", there_and_back)
texts, library = json.loads(sys.argv[2]), sim._library()
saw["refused by the plug-in"] = [text for text in texts if library.xpulab_sim_set_faults(text.encode())]
print(json.dumps(saw))
if sys.argv[1] == "leave a hanging stream":
    sim.set_faults("hang launch")
    with paddle.device.stream_guard(paddle.device.Stream("sim:0")):
        square.t().contiguous()
if sys.argv[1] == "leave a lost card":
    sim.set_faults("lose task n=1")
    with suppress(RuntimeError):
        there_and_back()
