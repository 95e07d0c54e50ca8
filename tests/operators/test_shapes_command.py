"""The command `xpulab shapes` on scripts as users write them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import psutil
import pytest

pytestmark = pytest.mark.integration

TRAINING = """
import sys
import paddle
import paddle.nn.functional as F

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5
layer = paddle.nn.Linear(4, 3)
optimizer = paddle.optimizer.AdamW(1e-3, parameters=layer.parameters())
for step in range(steps):
    loss = F.softmax(layer(paddle.ones([2, 4]))).square().sum()
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    print("finished step", step + 1, __name__, flush=True)
open("finished", "w").close()
"""
ENDLESS = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(987)"])
time.sleep(987)
"""
NOTHING = """
import paddle

parameter = paddle.create_parameter([4], "float32")
optimizer = paddle.optimizer.SGD(parameters=[parameter])
half = paddle.full([4], 0.5)
for _ in range(3):
    CALLED
    optimizer.step()
"""
WRONG_SOFTMAX = """
import paddle
real = paddle._C_ops.softmax
paddle._C_ops.softmax = lambda x, axis=-1, **named: real(x, 0, **named)
"""


@pytest.fixture
def shapes(tmp_path):
    """A function that runs the command on a script in an empty folder: the finished process."""

    def run(script, *arguments, options=(), stdout=subprocess.PIPE, words=("train.py",)):
        (tmp_path / "train.py").write_text(script)
        command = [sys.executable, "-m", "xpulab", "shapes", "--device", "cpu", *options, *words, *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        shown = {"stdout": stdout, "stderr": subprocess.PIPE, "text": True}
        return subprocess.run(command, cwd=tmp_path, timeout=200, env=environment, **shown)

    return run


def test_a_right_script_is_right_and_leaves_nothing(shapes, tmp_path):
    done = shapes(TRAINING, "3")
    assert done.returncode == 0, done.stderr
    assert "linear [2, 4] [4, 3] [3] float32" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("step 2 of train.py on cpu: ")
    assert done.stdout.splitlines()[-1].endswith(": no operator is wrong")
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_the_report_that_is_kept_says_what_was_compared_with_what(shapes, tmp_path):
    done = shapes(TRAINING, options=["--step", "1", "--out", "kept", "--timeout", "150"])
    report = json.loads((tmp_path / "kept" / "operators.json").read_text())
    assert (done.returncode, report["step"], report["device"]) == (0, 1, "cpu")
    rows = {row["operator"]: row for row in report["operators"]}
    assert rows["softmax"]["outcome"] == "right" and rows["softmax"]["reference"] == "numpy"
    assert rows["softmax"]["gradient"] <= 1 and rows["softmax"]["caller"].endswith("train.py:10")
    assert (tmp_path / "kept" / "script.log").exists()


def test_a_wrong_operator_gives_exit_code_1_and_is_named(shapes):
    done = shapes(WRONG_SOFTMAX + TRAINING)
    assert done.returncode == 1, done.stderr
    first = done.stdout.splitlines()[1]
    assert first.startswith("wrong") and "softmax [2, 3] float32" in first and "train.py" in first
    assert done.stdout.splitlines()[-1].endswith("NOT right")


@pytest.mark.parametrize("called", ["pass", "paddle.bernoulli(half)"], ids=["none", "none with a reference"])
def test_a_step_of_which_nothing_was_compared_has_no_verdict(shapes, called):
    done = shapes(NOTHING.replace("CALLED", called))
    line = done.stderr.splitlines()[-1]
    assert (done.returncode, line.startswith("xpulab: train.py: in step 2 nothing was compared; give the --step")) == (2, True)
    assert done.stdout == ""


@pytest.mark.parametrize(("options", "code"), [((), 2), (("--out", "kept"), 0)], ids=["lost", "kept"])
def test_a_report_that_no_disk_holds_is_no_success(shapes, tmp_path, options, code):
    with open("/dev/full", "w") as full:
        done = shapes(TRAINING, options=options, stdout=full)
    assert (done.returncode, "No space left on device" in done.stderr) == (code, code == 2), done.stderr
    assert (tmp_path / "kept" / "operators.json").exists() is (code == 0)


REFUSED = {
    "raises": (TRAINING.replace("layer(paddle", "missing(paddle"), (), "NameError: name 'missing' is not defined at"),
    "no optimizer": ("import paddle\npaddle.ones([2]).sum()", (), "needs an optimizer of paddle.optimizer"),
    "too few steps": (TRAINING, ("1",), "after 1 optimizer steps, before step 2: give --step 1 or less"),
    "ends itself": ("import sys\nsys.exit(7)", (), "it ended with exit code 7 after 0 optimizer steps"),
    "dies": ("import os\nprint('before the end', flush=True)\nos.kill(os.getpid(), 9)", (), "before the end"),
}


@pytest.mark.parametrize(("script", "arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_a_script_without_the_step_gives_exit_code_2_and_one_message(shapes, script, arguments, message):
    done = shapes(script, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("xpulab: train.py: ") and message in done.stderr
    assert "xpulab/operators" not in done.stderr  # a traceback is the script's own


PROGRAM = """
import sys
import paddle

if "--defect" in sys.argv:
    real = paddle._C_ops.gelu
    paddle._C_ops.gelu = lambda x, approximate=False, *more: real(x, True, *more)
paddle.seed(3)
net = paddle.nn.Sequential(paddle.nn.Linear(16, 32), paddle.nn.GELU(), paddle.nn.Linear(32, 4))
net = paddle.jit.to_static(net, full_graph=True)
optimizer = paddle.optimizer.AdamW(1e-3, parameters=net.parameters())
for step in range(3):
    net(paddle.randn([8, 16]) * 2).square().mean().backward()
    optimizer.step()
    optimizer.clear_grad()
"""
STATIC = """
import numpy as np
import paddle

paddle.enable_static()
x = paddle.static.data("x", [None, 4])
loss = paddle.mean(paddle.static.nn.fc(x, 3) ** 2)
paddle.optimizer.SGD(0.1).minimize(loss)
executor = paddle.static.Executor()
executor.run(paddle.static.default_startup_program())
for _ in range(3):
    executor.run(feed={"x": np.ones([2, 4], "float32")}, fetch_list=[loss])
"""


@pytest.mark.parametrize(
    ("options", "arguments", "verdict", "code"),
    [
        ((), (), "undecided", 1),
        ((), ("--defect",), "undecided", 1),
        (("--eager",), (), "no operator is wrong", 0),
        (("--eager",), ("--defect",), "NOT right", 1),
    ],
)
def test_a_compiled_program_is_never_right_without_a_comparison(shapes, options, arguments, verdict, code):
    done = shapes(PROGRAM, *arguments, options=options)
    assert (done.returncode, done.stdout.splitlines()[-1].endswith(f": {verdict}")) == (code, True), done.stdout + done.stderr
    assert ("what would decide it: --eager" in done.stdout) is (verdict == "undecided")


def test_a_static_graph_is_refused_with_the_reason_and_its_kernels_are_counted(shapes):
    done = shapes(STATIC)
    assert done.returncode == 2 and "programs that paddle.static.Executor runs" in done.stderr and "--for xpu" in done.stderr
    done = shapes(STATIC, options=["--for", "xpu"])
    assert done.returncode == 0 and "in a compiled program" in done.stdout, done.stderr
    assert " % of the calls are of kernels in no table" in done.stdout


RANKS = """
import os, sys
import paddle
import paddle.distributed as dist

def train(rows):
    dist.init_parallel_env()
    layer = paddle.nn.Linear(rows, 3)
    optimizer = paddle.optimizer.SGD(0.1, parameters=layer.parameters())
    os.chdir("/")
    for step in range(3):
        layer(paddle.ones([2, rows])).sum().backward()
        optimizer.step()
        optimizer.clear_grad()

if __name__ == "__main__":
    assert sys.argv[1:] == ["--rows", "4"], sys.argv
    dist.spawn(train, args=(4,), nprocs=2)
"""
STARTED = {
    "python": (["python", "-u", "train.py"], ()),
    "launcher": (["python", "-m", "paddle.distributed.launch", "--devices", "0,1", "train.py"], ()),
    "launcher as a module": (["paddle.distributed.launch", "--nnodes", "2", "train.py"], ("-m",)),
    "torchrun": (["torchrun", "--nproc_per_node", "8", "train.py"], ()),
    "module": (["train"], ("-m",)),
}


@pytest.mark.parametrize(("words", "options"), STARTED.values(), ids=STARTED)
def test_the_command_of_a_training_is_taken_as_it_is(shapes, words, options):
    done = shapes(RANKS, "--rows", "4", options=options, words=words)
    assert done.returncode == 0, done.stderr
    assert "linear [2, 4] [4, 3] [3] float32" in done.stdout


def test_a_part_of_a_package_is_told_how_to_start(shapes):
    done = shapes("from .model import net")
    assert done.returncode == 2 and done.stderr.endswith("xpulab shapes -m train\n")


def test_a_script_that_raises_shows_its_own_traceback_and_what_it_printed(shapes):
    done = shapes(
        "print('loading', flush=True)\n"
        + TRAINING.replace("F.softmax(layer(paddle.ones([2, 4])))", "layer(paddle.ones([2, 5]))")
    )
    assert done.returncode == 2 and "loading" in done.stderr
    traceback = done.stderr[done.stderr.index("Traceback") :]
    assert traceback.splitlines()[1].split(",")[:2] == ['  File "train.py"', " line 11"]
    assert "at train.py:11, before step 2 was recorded" in traceback.splitlines()[-1]


def test_a_batch_in_which_no_label_counts_is_said(shapes):
    done = shapes(
        TRAINING.replace(
            "F.softmax(layer(paddle.ones([2, 4]))).square().sum()",
            'F.cross_entropy(layer(paddle.ones([2, 4])), paddle.full([2], -100, "int64"))',
        )
    )
    assert "no label of this batch counts" in done.stdout


def test_a_script_that_does_not_end_is_killed_with_its_workers(shapes):
    done = shapes(ENDLESS, options=["--timeout", "3"])
    assert done.returncode == 2
    assert "was not recorded and compared within 3 s; give a larger --timeout" in done.stderr
    commands = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert [command for command in commands if "sleep(987)" in command and "pytest" not in command] == []


def test_optimizers_of_the_script_and_environment_variables_before_the_import_count(shapes):
    own = """
import os
os.environ["FLAGS_use_stride_kernel"] = "0"
import paddle
assert paddle.get_flags("FLAGS_use_stride_kernel") == {"FLAGS_use_stride_kernel": False}

class Own(paddle.optimizer.SGD):
    def step(self):
        super().step()

x = paddle.create_parameter([3], "float32")
optimizer = Own(0.1, parameters=[x])
for _ in range(3):
    (x * x).sum().backward()
    optimizer.step()
    optimizer.clear_grad()
"""
    done = shapes(own)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "sgd [3]" in done.stdout
