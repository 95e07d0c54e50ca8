"""Train on n ranks, save sharded checkpoints, and resume on any other number of ranks. Plain Paddle, one file.

    python resume_anywhere.py config.json                                                                    # one process
    python -m paddle.distributed.launch --nproc_per_node 2 --backend gloo resume_anywhere.py config.json     # two, on a CPU
    python -m paddle.distributed.launch --devices 0,1 resume_anywhere.py config.json                         # two cards

Start it again with the same config.json, on as many ranks as you have now: it resumes from the newest complete checkpoint in
output_dir. All ranks must see output_dir: on several nodes it is on a shared file system.

The names in config.json are those of PaddleNLP's llm/run_finetune.py; each can be given on the command line too
(--max_steps 20). Names that this script does not use are listed and ignored. To make it yours, replace Net, batch_of_step and
GLOBAL_BATCH. Needs Paddle 3.3 and numpy. The authors have run it on CPUs and on simulated cards only.
"""

import argparse
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle import nn

DEFAULTS = {
    "output_dir": "./checkpoints",
    "device": "cpu",  # cpu, gpu, xpu, or the name of a custom device
    "max_steps": 40,
    "save_steps": 10,
    "save_total_limit": 2,
    "learning_rate": 0.01,
    "seed": 0,
    "unified_checkpoint": True,  # this script writes no other kind: any number of ranks can load it
    "resume_from_checkpoint": "",  # a folder; empty: the newest complete one in output_dir
}
GLOBAL_BATCH = 16  # rows of all ranks together, so that a run on another number of ranks sees the same data
VOCABULARY, WIDTH, HIDDEN, LENGTH = 64, 32, 64, 12


# ---------------------------------------------------------------------------------------------- yours: the model and the data


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(VOCABULARY, WIDTH), nn.LayerNorm(WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, tokens):
        return self.narrow(F.gelu(self.widen(self.norm(self.embed(tokens)))))


def batch_of_step(seed, step):
    """The rows of all ranks, [GLOBAL_BATCH, LENGTH]; they depend on the step only, not on the number of ranks."""
    first = np.random.default_rng([seed, step]).integers(0, VOCABULARY, [GLOBAL_BATCH, 1])
    return (first + 3 * np.arange(LENGTH)) % VOCABULARY  # every third number: easy to learn


def loss_of(model, tokens):
    return F.cross_entropy(model(tokens[:, :-1]).reshape([-1, VOCABULARY]), tokens[:, 1:].reshape([-1]))


# ------------------------------------------------------------------------------ which rank writes which slice of each tensor


def position(shape, way, rank, n):
    """The slice of a rank; the way is "rows", "columns", "blocks" or "whole"."""
    across = {"rows": [(0, n, rank)], "columns": [(len(shape) - 1, n, rank)], "whole": []}
    across["blocks"] = [(0, n // 2, rank // 2), (1, 2, rank % 2)] if n == 4 else across["rows"]
    place = [slice(0, size) for size in shape]
    for axis, pieces, index in across[way]:
        step = -(-shape[axis] // pieces)  # rounded up
        place[axis] = slice(min(index * step, shape[axis]), min((index + 1) * step, shape[axis]))
    return tuple(place)


def whole_state(model, optimizer):
    weights = model.sharded_state_dict()
    return {**weights, **optimizer.sharded_state_dict(weights)}


def own_slices(state, rank, n):
    """What this rank writes: its rows of each tensor, so that the ranks share the work. A tensor of few rows is not split."""
    slices = {}
    for name, each in state.items():
        whole = each.local_tensor
        place = position(whole.shape, "rows" if whole.shape[0] % n == 0 else "whole", rank, n)
        mine, offset = whole[place].clone(), tuple(axis.start for axis in place)
        slices[name] = dist.ShardedWeight(name, mine, tuple(mine.shape), tuple(whole.shape), offset)
    return slices


# ------------------------------------------------------------------------------------------------- the check before loading

MANIFEST = "complete.json"


def digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def write_manifest(path):
    files = sorted(each for each in path.iterdir() if each.name != MANIFEST)
    listed = {each.name: [each.stat().st_size, digest(each)] for each in files}
    (path / "manifest.part").write_text(json.dumps(listed))
    (path / "manifest.part").replace(path / MANIFEST)


def damage(path, rank=0, n=1):
    """What is wrong with the files of a checkpoint, as a list of sentences; empty when nothing is."""
    try:
        listed = json.loads((path / MANIFEST).read_text())
    except (OSError, ValueError):
        return ["it has no manifest: it was never finished"]
    found = []
    for index, (file, (size, expected)) in enumerate(sorted(listed.items())):
        if not (path / file).exists():
            found.append(f"{file} is missing")
        elif (path / file).stat().st_size != size:
            found.append(f"{file} has {(path / file).stat().st_size} bytes, not {size}")
        elif index % n == rank and digest(path / file) != expected:
            found.append(f"{file} has other contents")
    return found


def mismatches(state, path):
    """What the checkpoint cannot fill: names, shapes or types that it does not have."""
    (metadata,) = [paddle.load(str(each)).state_dict_metadata for each in path.glob("*.metadata")]
    found = []
    for name, tensor in state.items():
        sharded = isinstance(tensor, dist.ShardedWeight)
        shape = tensor.global_shape if sharded else tensor.shape
        dtype = tensor.local_tensor.dtype if sharded else tensor.dtype
        mine = f"{dtype} {list(shape)}"
        there = metadata.get(name)
        theirs = f"paddle.{there[0].dtype} {list(there[0].global_shape)}" if there else "not there"
        if mine != theirs:
            found.append(f"{name} is {theirs}, not {mine}")
    return found


def agree(found, path):
    of_ranks = []
    dist.all_gather_object(of_ranks, found) if dist.get_world_size() > 1 else of_ranks.append(found)
    if together := sorted({each for of_rank in of_ranks for each in of_rank}):
        raise ValueError(f"{path.name}: {'; '.join(together)}")


def careful_load(state, path):
    """As dist.load_state_dict, or raises the same error on every rank."""
    agree(damage(path, dist.get_rank(), dist.get_world_size()), path)
    agree(mismatches(state, path), path)
    before = paddle.get_flags("FLAGS_use_stride_kernel")
    paddle.set_flags({"FLAGS_use_stride_kernel": True})
    try:
        dist.load_state_dict(state, str(path))
    finally:
        paddle.set_flags(before)


# --------------------------------------------------------------------------------------------------------- save and resume


def wait_for_all():
    if dist.get_world_size() > 1:
        dist.barrier()


def finished(output):
    """The checkpoints that have a manifest, oldest first."""
    found = [path for path in output.glob("checkpoint-*") if (path / MANIFEST).exists()]
    return sorted(found, key=lambda path: int(path.name.split("-")[1]))


def save_checkpoint(model, optimizer, path, limit):
    rank, n = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        shutil.rmtree(path, ignore_errors=True)  # what a killed run left: saving into it would keep its old metadata
    wait_for_all()
    dist.save_state_dict(own_slices(whole_state(model, optimizer), rank, n), str(path))
    wait_for_all()
    if rank == 0:
        write_manifest(path)
        for old in finished(path.parent)[:-limit]:
            shutil.rmtree(old)
    wait_for_all()


def resume(model, optimizer, config):
    """Load the checkpoint to resume from, if there is one. Returns the number of steps that are done."""
    asked = config["resume_from_checkpoint"]
    found = [Path(asked)] if asked else finished(Path(config["output_dir"]))
    if not found:
        return 0
    optimizer.set_lr(0.0)  # an optimizer has no moments before its first step, and loading fills only what exists
    loss_of(model, paddle.to_tensor(batch_of_step(config["seed"], 0))).backward()
    optimizer.step()
    optimizer.clear_grad()
    careful_load(whole_state(model, optimizer), found[-1])
    optimizer.set_lr(config["learning_rate"])
    return int(found[-1].name.split("-")[1])


def let_cpu_ranks_load():
    """CPU ONLY, a workaround for Paddle 3.3: ranks exchange data through Tensor.cuda(), which a CPU build refuses."""
    from paddle.distributed.flex_checkpoint.dcp.reshard_comm import BroadcastCommunicator

    real = BroadcastCommunicator.communicate

    def communicate(*given, **named):
        cuda = paddle.Tensor.cuda
        paddle.Tensor.cuda = lambda tensor, *_, **__: tensor
        try:
            return real(*given, **named)
        finally:
            paddle.Tensor.cuda = cuda

    BroadcastCommunicator.communicate = communicate


# ------------------------------------------------------------------------------------------------------------------ training


def train(config):
    device, ranks = config["device"], dist.ParallelEnv()
    paddle.set_device(device if device == "cpu" else f"{device}:{ranks.device_id}")
    if device == "cpu":
        let_cpu_ranks_load()
    if ranks.world_size > 1:
        # rank 0's newer store server can abort while the process ends, when another rank ends at that moment (Paddle 3.3.1)
        if "FLAGS_tcp_store_using_libuv" in paddle.base.core.globals():  # before 3.3 there is no such flag
            paddle.set_flags({"FLAGS_tcp_store_using_libuv": False})
        dist.init_parallel_env()
    rank, n = dist.get_rank(), dist.get_world_size()
    if GLOBAL_BATCH % n:
        raise SystemExit(f"{n} ranks cannot share {GLOBAL_BATCH} rows: choose a number that divides GLOBAL_BATCH")
    paddle.seed(config["seed"])
    net, output = Net(), Path(config["output_dir"])
    optimizer = paddle.optimizer.AdamW(config["learning_rate"], parameters=net.parameters())
    done = resume(net, optimizer, config)
    model = paddle.DataParallel(net) if n > 1 else net
    for step in range(done, config["max_steps"]):
        tokens = paddle.to_tensor(batch_of_step(config["seed"], step)[rank::n])
        loss = loss_of(model, tokens)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        log(output, step + 1, loss.detach(), rank, n)
        if (step + 1) % config["save_steps"] == 0 or step + 1 == config["max_steps"]:
            save_checkpoint(net, optimizer, output / f"checkpoint-{step + 1}", config["save_total_limit"])
    return done


def log(output, step, loss, rank, n):
    """Rank 0 prints the mean loss of all ranks, and adds it to losses.jsonl."""
    if n > 1:
        dist.all_reduce(loss)
    if rank == 0:
        row = {"step": step, "loss": float(loss) / n, "ranks": n}
        output.mkdir(parents=True, exist_ok=True)
        with (output / "losses.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(f"step {step}, loss {row['loss']:.4f}, {n} ranks", flush=True)


def read_config():
    """The defaults, then config.json, then the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", nargs="?", type=Path, help="config.json")
    for name, default in DEFAULTS.items():
        kind = (lambda text: text.lower() in ("1", "true")) if isinstance(default, bool) else type(default)
        parser.add_argument(f"--{name}", type=kind)
    given = vars(parser.parse_args())
    path = given.pop("config")
    from_file = json.loads(path.read_text(encoding="utf-8")) if path else {}
    if unused := sorted(set(from_file) - set(DEFAULTS)):
        print("not used by this script:", ", ".join(unused))
    config = {name: from_file[name] if from_file.get(name) is not None else default for name, default in DEFAULTS.items()}
    config |= {name: value for name, value in given.items() if value is not None}
    if not config["unified_checkpoint"]:
        parser.error("unified_checkpoint must be true: this script writes only checkpoints that any number of ranks can load")
    return config


if __name__ == "__main__":
    train(read_config())
