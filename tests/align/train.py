"""Tiny trainings with a log each: python train.py FOLDER RUNS, where RUNS is JSON: {"name": {"seed": 1, ...}, ...}.

They run one after another in this process; a run writes FOLDER/NAME.jsonl.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import paddle

from xpulab.align.log import Log, perturb

WORDS, WIDTH, ROWS, LENGTH, EPOCH = 64, 32, 4, 12, 6
"""The size of the vocabulary and of the model, of a batch, and how many batches an epoch has."""


class Model(paddle.nn.Layer):
    """Predicts a word from the mean of those before it. bf16: the products have inputs that are rounded to bfloat16."""

    def __init__(self, bf16):
        super().__init__()
        self.embedding = paddle.nn.Embedding(WORDS, WIDTH)
        self.layers = paddle.nn.LayerList([paddle.nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.norm = paddle.nn.LayerNorm(WIDTH)
        self.head = paddle.nn.Linear(WIDTH, WORDS)
        self.bf16 = bf16

    def forward(self, words):
        x = self.embedding(words) * 3.0
        for layer in self.layers:
            x = x + paddle.nn.functional.gelu(layer(self.rounded(x.cumsum(1) / 4)))
        return self.head(self.rounded(self.norm(x)))

    def rounded(self, x):
        return x.astype("bfloat16").astype("float32") if self.bf16 else x


def batches(data_seed, steps, reshuffled_from):
    """The batches of all steps, epoch by epoch in another order; from an epoch on in the order of another seed."""
    words = np.random.default_rng(5).integers(0, WORDS, (EPOCH, ROWS, LENGTH + 1))
    words.sort(axis=2)  # something to learn
    for epoch in range(-(-steps // EPOCH)):
        seed = data_seed + (1000 if reshuffled_from is not None and epoch >= reshuffled_from else 0)
        for index in np.random.default_rng([seed, epoch]).permutation(EPOCH):
            yield paddle.to_tensor(words[index])


def train(path, steps=20, perturbed=0, save_at=None, resume_at=None, stated=None, **changed):
    """One training. save_at, resume_at: a step behind which it saves its state, or from whose state it goes on.

    changed: of seed, data_seed, changed_rate_from, weight_decay, epsilon, bf16, reshuffled_from and forgets_moments.
    """
    seed, data_seed, rate = changed.get("seed", 0), changed.get("data_seed", 0), 1e-3
    paddle.seed(seed)
    model = Model(changed.get("bf16", False))
    settings = {"epsilon": changed.get("epsilon", 1e-8), "weight_decay": changed.get("weight_decay", 0.01)}
    optimizer = paddle.optimizer.AdamW(rate, parameters=model.parameters(), **settings)
    if perturbed:
        perturb(model, perturbed)
    saved = path.parent / "state"
    if resume_at:
        model.set_state_dict(paddle.load(f"{saved}-{resume_at}.pdparams"))
        if not changed.get("forgets_moments"):
            optimizer.set_state_dict(paddle.load(f"{saved}-{resume_at}.pdopt"))
    log = Log(path, model, optimizer, seed=seed, data_seed=data_seed, resumed=bool(resume_at), **(stated or {}))
    for number, words in enumerate(batches(data_seed, steps, changed.get("reshuffled_from")), start=1):
        if number > steps or number <= (resume_at or 0):
            continue
        if number == changed.get("changed_rate_from"):
            optimizer.set_lr(rate * 1.01)
        logits = model(words[:, :-1])
        loss = paddle.nn.functional.cross_entropy(logits.reshape([-1, WORDS]), words[:, 1:].reshape([-1]))
        loss.backward()
        log.step(loss, batch=words[:, :-1], step=number)
        optimizer.step()
        optimizer.clear_grad()
        if number == save_at:
            paddle.save(model.state_dict(), f"{saved}-{number}.pdparams")
            paddle.save(optimizer.state_dict(), f"{saved}-{number}.pdopt")


if __name__ == "__main__":
    folder, runs = Path(sys.argv[1]), json.loads(sys.argv[2])
    for name, changed in runs.items():
        with paddle.utils.unique_name.guard():
            train(folder / f"{name}.jsonl", **changed)
