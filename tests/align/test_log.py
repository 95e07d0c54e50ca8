"""What xpulab.align.Log writes, and that its file works alone beside a script."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys

import jsonschema
import numpy as np
import pytest

from xpulab import files
from xpulab.align import Log, log, perturb
from xpulab.align.read import read_log


class Parameter(np.ndarray):
    """An array with what a parameter of Paddle has."""

    stop_gradient = False
    grad = None

    def detach(self):
        return np.asarray(self).view(Numbers)


class Numbers(np.ndarray):
    """An array whose functions are methods, as a tensor's."""

    def cos(self):
        return np.cos(self)

    def sign(self):
        return np.sign(self)


class Model:
    def __init__(self, *shapes):
        random = np.random.default_rng(3)
        self.held = [random.normal(size=shape).astype("float32").view(Parameter) for shape in shapes]
        for parameter in self.held:
            parameter.grad = random.normal(size=parameter.shape).astype("float32")

    def parameters(self):
        return self.held


class Optimizer:
    _epsilon, _weight_decay, _beta1, _beta2 = 1e-8, 0.1, 0.9, 0.95

    def get_lr(self):
        return 3e-4


def lines(path):
    """The lines of a log, each of which fits the schema."""
    validator = jsonschema.Draft202012Validator(json.loads(files.data("schema", "align_log.schema.json").read_text()))
    found = [json.loads(line) for line in path.read_text().splitlines()]
    for line in found:
        validator.validate(line)
    return found


def test_a_digest_is_that_of_the_tokens_as_int64_and_of_their_shape():
    rows = np.array([[1, 2, 3], [4, 5, 6]])
    expected = hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest()[:16]
    assert log.digest(rows) == log.digest(rows.tolist()) == log.digest(rows.astype("int32")) == expected
    assert log.digest([rows[:1], rows[1:]]) == expected, "an accumulated step reads the same rows"
    assert len({expected, *map(log.digest, [rows[::-1], rows.T, rows + 1, [rows, rows], rows[:1]])}) == 6


def test_a_step_has_the_exact_numbers_of_model_and_optimizer(tmp_path):
    model, optimizer = Model((70, 5), (5,)), Optimizer()
    Log(tmp_path / "a.jsonl", model, optimizer, seed=4).step(np.float32(0.1), batch=np.zeros((2, 3), int))
    first, step = lines(tmp_path / "a.jsonl")
    assert step["step"] == 1 and step["loss"] == float(np.float32(0.1)) and step["learning_rate"] == 3e-4
    gradients = np.concatenate([parameter.grad.ravel() for parameter in model.held]).astype(float)
    assert step["grad_norm"] == pytest.approx(np.linalg.norm(gradients), rel=1e-6)
    environment = first["environment"]
    assert environment["settings"] == {"seed": 4} and environment["versions"]["numpy"] == np.__version__
    assert environment["optimizer"] | {"epsilon": 1e-8, "weight_decay": 0.1, "beta2": 0.95} == environment["optimizer"]
    assert environment["weights"] == {"dtype": "float32"}


def test_what_is_no_number_is_written_as_text(tmp_path):
    writer = Log(tmp_path / "a.jsonl")
    writer.step(float("nan"), grad_norm=float("inf"))
    writer.step(-float("inf"))
    assert [step["loss"] for step in lines(tmp_path / "a.jsonl")[1:]] == ["nan", "-inf"]
    assert read_log(tmp_path / "a.jsonl").columns["loss"].values[1] == -float("inf")


def test_a_job_that_is_started_again_goes_on_in_its_log_behind_a_line_that_was_cut(tmp_path):
    path = tmp_path / "a.jsonl"
    writer = Log(path, seed=4)
    for step in range(1, 8):
        writer.step(9.0 - step, step=step)
    assert [line.get("step") for line in lines(path)] == [None, 1, 2, 3, 4, 5, 6, 7]
    with path.open("a") as file:
        file.write('{"step": 8, "lo')
    again = Log(path, seed=5)
    for step in range(6, 10):
        again.step(9.0 - step, step=step)
    log = read_log(path)
    assert list(log.steps) == list(range(1, 10)) and list(log.columns["loss"].values) == [9.0 - step for step in range(1, 10)]
    assert "step 6" in " ".join(log.notes) and "settings.seed" in " ".join(log.notes)


def test_what_is_no_log_is_never_overwritten(tmp_path):
    (tmp_path / "a.jsonl").write_text("mine\n")
    with pytest.raises(FileExistsError, match=r"a\.jsonl"):
        Log(tmp_path / "a.jsonl")
    assert (tmp_path / "a.jsonl").read_text() == "mine\n"


def test_only_the_first_process_writes(tmp_path, monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    Log(tmp_path / "a.jsonl").step(1.5)
    assert not (tmp_path / "a.jsonl").exists()


def test_perturbed_weights_move_by_one_unit_in_the_last_place():
    model, moved = Model((50, 40)), {}
    for parameter in model.held:
        parameter_id = id(parameter)
        Parameter.set_value = lambda self, value: moved.__setitem__(id(self), value)
    try:
        perturb(model)
    finally:
        del Parameter.set_value
    before, after = np.asarray(model.held[0]), np.asarray(moved[parameter_id])
    apart = after.view("int32").astype(int) - before.view("int32").astype(int)
    assert set(np.unique(apart)) == {-1, 1} and 0.3 < (apart > 0).mean() < 0.7


ALONE = """
from log import Log

log = Log("a.jsonl", seed=0)
for step in range(3):
    log.step(4.0 - step, batch=[[1, 2], [3, step]], learning_rate=0.1)
"""


def test_a_copy_of_the_file_works_alone_with_the_standard_library(tmp_path):
    shutil.copy(log.__file__, tmp_path)
    (tmp_path / "train.py").write_text(ALONE)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-S", "train.py"], cwd=tmp_path, check=True, timeout=60, env=environment)
    assert [line.get("loss") for line in lines(tmp_path / "a.jsonl")] == [None, 4.0, 3.0, 2.0]
