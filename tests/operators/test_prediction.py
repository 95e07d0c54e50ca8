"""`xpulab shapes --for xpu`: which kernels of a step a P800 has, and what is said of the others."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from xpulab import cli
from xpulab.operators import prediction

HALF = ("float16", "float32")


def shapes(*arguments):
    return CliRunner().invoke(cli.app, ["shapes", *map(str, arguments)])


@pytest.mark.parametrize(
    ("kernel", "dtype", "where"),
    [
        ("matmul", "bfloat16", "card"),
        ("index_elementwise_get", "float32", "card?"),
        ("div_scale", "float32", "CPU"),
        ("log1p", "bfloat16", "error"),
        ("a_kernel_of_next_year", "float32", "unknown"),
    ],
)
def test_the_table_says_where_a_kernel_is_computed(kernel, dtype, where):
    assert prediction.where(kernel, dtype, HALF) == where


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--for", "gpu", "train.py"], "only xpu"),
        (["--for", "xpu", "--device", "cpu", "nowhere.py"], "nowhere.py"),
    ],
)
def test_bad_input_names_what_is_wrong_and_ends_with_2(arguments, message):
    done = shapes(*arguments)
    assert done.exit_code == 2 and message in done.output + done.stderr


TRAINING = """import paddle
import paddle.nn.functional as F

layer = paddle.nn.Linear(4, 3)
optimizer = paddle.optimizer.AdamW(1e-3, parameters=layer.parameters())
for step in range(2):
    logits = layer(paddle.ones([2, 4])) / 3.0
    loss = -F.log_sigmoid(logits[:, :2]).mean()
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
"""


@pytest.mark.integration
@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_a_step_is_predicted_with_line_calls_and_what_to_write_instead(device, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    done = shapes("--for", "xpu", "--device", device, "--out", tmp_path / "kept", "--timeout", "200", script)
    assert done.exit_code == 0 and "not run on a card" in done.output, done.output
    report = json.loads((tmp_path / "kept" / "kernels.json").read_text())
    rows = {(row["name"], row["dtype"]): row for row in report["kernels"]}
    division = rows["div_scale", "float32"]
    assert (division["where"], division["calls"], division["caller"]) == ("CPU", 2, f"{script}:7")
    assert division["instead"] == "x * (1 / number)"
    assert (rows["logsigmoid", "float32"]["where"], rows["logsigmoid_grad", "float32"]["caller"]) == ("CPU", f"{script}:8")
    assert {rows[name, "float32"]["where"] for name in ("matmul", "matmul_grad", "adamw", "add")} == {"card"}
    assert report["counted"]["CPU"] == 3 and "2025-03-21" in report["source"]
    # what the CPU really computed: on simulated cards all that the plug-in has no kernel for
    assert bool(rows["matmul", "float32"]["fell_back"]) is (device == "sim")


@pytest.mark.integration
def test_what_to_write_instead_of_log_sigmoid_is_the_same():
    import paddle
    import paddle.nn.functional as F

    x = paddle.to_tensor(np.array([[-40.0, -1.0, 0.0], [0.5, 3.0, 40.0]]), stop_gradient=False)
    instead = eval(prediction.instead_of("logsigmoid"), {"F": F, "paddle": paddle, "x": x})
    assert np.allclose(instead.reshape(x.shape).numpy(), F.log_sigmoid(x).numpy(), rtol=1e-12)
