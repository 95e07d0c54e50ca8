"""A small network with attention trains. Arguments: "cpu" or "sim", number of steps. Prints losses and memory."""

import gc
import hashlib
import json
import os
import sys

import paddle
from paddle import nn

name, steps = sys.argv[1], int(sys.argv[2])
if name == "sim":
    from xpulab import sim

    sim.load()
paddle.set_device({"cpu": "cpu", "sim": "sim:0"}[name])


class Block(nn.Layer):
    def __init__(self, width=32, words=50):
        super().__init__()
        self.embed, self.norm = nn.Embedding(words, width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, words)

    def forward(self, tokens):
        hidden = self.norm(self.embed(tokens))
        queries, keys, values = self.mix(hidden).split(3, axis=-1)
        scores = queries @ keys.transpose([0, 2, 1]) / 5.0
        mask = paddle.triu(paddle.full([tokens.shape[1]] * 2, -1e9), 1)
        return self.out(hidden + nn.functional.softmax(scores + mask) @ values)


def resident():
    with open("/proc/self/statm") as status:
        return int(status.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def allocated():
    return paddle.device.memory_allocated("sim:0") if name == "sim" else 0


paddle.seed(3)
network = Block()
optimizer = paddle.optimizer.AdamW(1e-2, parameters=network.parameters(), grad_clip=nn.ClipGradByGlobalNorm(1.0))
tokens = paddle.to_tensor([[(row * 7 + place * 3) % 50 for place in range(13)] for row in range(4)])
losses, memory, pages = [], [], []
for _ in range(steps):
    loss = nn.functional.cross_entropy(network(tokens[:, :-1]), tokens[:, 1:])
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    losses.append(float(loss))
    del loss
    memory.append(allocated())
    pages.append(resident())
weights = hashlib.sha256(b"".join(weight.numpy().tobytes() for weight in network.parameters())).hexdigest()
places = sorted({str(weight.place) for weight in network.parameters()})
kept = {"allocations": sim.counters().allocations, "frees": sim.counters().frees} if name == "sim" else {}
del network, optimizer, tokens
gc.collect()
saw = {"losses": losses, "weights": weights, "places": places, "memory": memory, "pages": pages, "kept": kept}
if name == "sim":
    paddle.device.empty_cache()
    saw["at the end"] = allocated()
print(json.dumps(saw))
