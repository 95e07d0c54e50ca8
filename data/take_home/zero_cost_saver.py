"""Save a training state while training continues: a snapshot in pieces, two buffers, a thread, a marker. One file.

    from zero_cost_saver import ZeroCostSaver, newest, writer

    saver = ZeroCostSaver(state, writer(folder, ema))      # state: dict of tensors; ema: dict of arrays to average, or {}
    for step in range(first, last):
        loss = loss_of(model, step)
        saver.copy_some()                                  # while nothing changes the state
        loss.backward()
        saver.copy_some()
        saver.finish()                                     # before the optimizer step: copy the rest, start to write
        optimizer.step()
        optimizer.clear_grad()
        if step % save_steps == 0:
            saver.begin(step)                              # after it; raises the error of an earlier save, if any
    saver.finish()
    saver.close()                                          # wait until everything is written

newest(folder) is the newest complete checkpoint, state.safetensors and ema.safetensors in a folder, or None.

Run it to see it work. Started again it resumes from the newest complete checkpoint:

    python zero_cost_saver.py --output_dir ./background --max_steps 12 --save_steps 4 --device cpu

On several ranks give each rank a folder of its own. Needs Paddle 3.3, numpy and safetensors. The authors have run it
on CPUs and on simulated cards only.
"""

import argparse
import hashlib
import json
import shutil
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn
from safetensors.numpy import load_file, save_file


def copy_in_pieces(state, buffer, count):
    """Each next() copies `count` more tensors of the state into the buffer."""
    names = list(state)
    while names:
        for name in names[:count]:
            np.copyto(buffer[name], state[name].numpy())
        del names[:count]
        yield


def host_copy(state):
    return {name: each.numpy().copy() for name, each in state.items()}


class ZeroCostSaver:
    """Copies a state between two optimizer steps; a thread calls write(step, arrays) while training continues."""

    def __init__(self, state, write):
        self.state, self.write = state, write
        self.free, self.writing = [host_copy(state), host_copy(state)], deque()
        self.thread, self.buffer = ThreadPoolExecutor(max_workers=1), None

    def begin(self, step, count=4):
        while self.writing and (self.writing[0].done() or not self.free):
            self.take_back()
        self.step, self.buffer = step, self.free.pop()
        self.pieces = copy_in_pieces(self.state, self.buffer, count)

    def copy_some(self):
        if self.buffer:
            next(self.pieces, None)

    def finish(self):
        if self.buffer:
            for _ in self.pieces:
                pass
            self.writing.append(self.thread.submit(self.write_one, self.step, self.buffer))
            self.buffer = None

    def write_one(self, step, buffer):
        self.write(step, buffer)
        return buffer

    def take_back(self):
        self.free.append(self.writing.popleft().result())

    def close(self):
        while self.writing:
            self.take_back()


MARKER = "complete.json"


def listing(path):
    files = sorted(each for each in path.iterdir() if each.name != MARKER)
    return {each.name: [each.stat().st_size, hashlib.sha256(each.read_bytes()).hexdigest()] for each in files}


def write_checkpoint(path, contents, save=save_file):
    """Write each dict of arrays into a file, and last the marker."""
    shutil.rmtree(path, ignore_errors=True)  # what a killed process left
    path.mkdir(parents=True)
    for name, arrays in contents.items():
        save(arrays, path / f"{name}.safetensors")
    (path.parent / "marker.part").write_text(json.dumps(listing(path)))
    (path.parent / "marker.part").replace(path / MARKER)


def is_complete(path):
    try:
        return json.loads((path / MARKER).read_text()) == listing(path)
    except (OSError, ValueError):
        return False


def newest(to):
    found = [path for path in to.glob("step-*") if is_complete(path)]
    return max(found, key=lambda path: int(path.name.split("-")[1]), default=None)


def update_average(ema, arrays, keep=0.75):
    for name, average in ema.items():
        np.copyto(average, keep * average + (1 - keep) * arrays[name])


def writer(to, ema, save=save_file):
    """What the thread calls: update the average, and write both."""

    def write(step, arrays):
        update_average(ema, arrays)
        write_checkpoint(to / f"step-{step}", {"state": arrays, "ema": ema}, save)

    return write


# ------------------------------------------------------------------------------------------------------------------ an example

VOCABULARY, WIDTH, HIDDEN = 512, 128, 512


def state_of(model, optimizer):
    kept = {name: each for name, each in optimizer.state_dict().items() if isinstance(each, paddle.Tensor)}
    return {**model.state_dict(), **kept}


def loss_of(model, step):
    first = np.random.default_rng(step).integers(0, VOCABULARY, [8, 1])
    tokens = paddle.to_tensor((first + 3 * np.arange(33)) % VOCABULARY)  # every third number: easy to learn
    return F.cross_entropy(model(tokens[:, :-1]).reshape([-1, VOCABULARY]), tokens[:, 1:].reshape([-1]))


def started(args):
    """A run with all tensors of its state: the first step creates the moments, with learning rate 0 it changes no weight."""
    paddle.seed(0)
    model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, VOCABULARY))
    optimizer = paddle.optimizer.AdamW(0.0, parameters=model.parameters())
    loss_of(model, 0).backward()
    optimizer.step()
    optimizer.clear_grad()
    optimizer.set_lr(args.learning_rate)
    return model, optimizer, state_of(model, optimizer)


def train(args):
    paddle.set_device(args.device)
    model, optimizer, state = started(args)
    done, ema = 0, host_copy(model.state_dict())
    if found := newest(args.output_dir):
        for name, array in load_file(found / "state.safetensors").items():
            state[name].set_value(array)
        ema, done = load_file(found / "ema.safetensors"), int(found.name.split("-")[1])
        print("resumed from", found.name)
    saver = ZeroCostSaver(state, writer(args.output_dir, ema))
    for step in range(done + 1, args.max_steps + 1):
        loss = loss_of(model, step)
        saver.copy_some()
        loss.backward()
        saver.copy_some()
        saver.finish()
        optimizer.step()
        optimizer.clear_grad()
        print(f"step {step}, loss {float(loss):.6f}", flush=True)
        if step % args.save_steps == 0:
            saver.begin(step)
    saver.finish()
    saver.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output_dir", type=Path, default=Path("./background"))
    parser.add_argument("--device", default="cpu", help="cpu, gpu, xpu or the name of a custom device")
    parser.add_argument("--max_steps", type=int, default=12)
    parser.add_argument("--save_steps", type=int, default=4)
    parser.add_argument("--learning_rate", type=float, default=0.01)
    train(parser.parse_args())
