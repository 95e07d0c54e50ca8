"""Adds up gradients over two backward passes, large enough that a kernel of the card's own works for a while."""

import json

import numpy as np
import paddle

from xpulab import sim

sim.load()
paddle.set_device("sim:0")
RUNS = 20
rng = np.random.default_rng(0)
factors = rng.random((768, 512), dtype="float32")
rows = rng.integers(0, 512, 700)
c, ids = paddle.to_tensor(factors), paddle.to_tensor(rows)
picked = np.zeros((512, 512), "float32")
np.add.at(picked, rows, factors[:700])
cases = {
    "embedding": (lambda w: paddle.nn.functional.embedding(ids, w) * c[:700], picked),
    "slice": (lambda w: w[:, 128:].t() * c[:384], np.concatenate([np.zeros((512, 128), "float32"), factors[:384].T], axis=1)),
    "transpose": (lambda w: w.t() * c[:512], factors[:512].T),
}
saw = {}
for name, (forward, once) in cases.items():
    wrong = 0
    for _ in range(RUNS):
        weight = paddle.create_parameter([512, 512], "float32")
        for _ in range(2):
            forward(weight).sum().backward()
        wrong += not np.allclose(weight.grad.numpy(), 2 * once, atol=1e-4)
    saw[name] = wrong
print(json.dumps(saw))
