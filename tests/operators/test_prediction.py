"""`xpulab shapes --for xpu`: which kernels of a step a P800 has, from each source, and what is said of the others."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from xpulab import cli
from xpulab.errors import InputError
from xpulab.operators import kernel_table

HALF = frozenset({"float16", "float32"})

SOURCE = """
XPUOpMap& get_kl3_ops() {
  static XPUOpMap kernels{
      {"matmul_v2",
       XPUKernelSet({phi::DataType::FLOAT32,
                     phi::DataType::BFLOAT16})},
      {"scale", XPUKernelSet({phi::DataType::FLOAT32
#ifdef PADDLE_WITH_XPU_FFT
                     ,
                     phi::DataType::COMPLEX64
#endif
       })},
  };
"""


def shapes(*arguments):
    return CliRunner().invoke(cli.app, ["shapes", *map(str, arguments)])


@pytest.mark.parametrize(
    ("kernel", "old_name", "dtype", "where"),
    [
        ("matmul", "matmul_v2", "bfloat16", "card"),
        ("matmul", "matmul", "bfloat16", "card"),
        ("index_elementwise_get", "index_elementwise_get", "float32", "card?"),
        ("div_scale", "div_scale", "float32", "CPU"),
        ("log1p", "log1p", "bfloat16", "error"),
        ("tile", "tile", "float16", "CPU"),
        ("a_kernel_of_next_year", "a_kernel_of_next_year", "float32", "unknown"),
    ],
)
def test_the_own_table_says_where_a_kernel_is_computed(kernel, old_name, dtype, where):
    assert kernel_table.own_table().where(kernel, old_name, dtype, HALF) == where


def test_a_whole_list_leaves_nothing_unknown():
    table = kernel_table.from_stored({"paddle": "9.9", "date": "2030-01-02", "kernels": {"matmul_v2": ["float32"]}}, "x")
    found = [table.where(name, old, "float32", HALF) for name, old in (("matmul", "matmul_v2"), ("new", "new"))]
    assert found == ["card", "CPU"] and "9.9" in table.source and "2030-01-02" in table.source


def test_the_list_of_a_checkout_is_read(tmp_path):
    path = tmp_path / kernel_table.LIST
    path.parent.mkdir(parents=True)
    path.write_text(SOURCE)
    table = kernel_table.from_source(tmp_path)
    assert table.listed == {"matmul_v2": {"float32", "bfloat16"}, "scale": {"float32"}}
    path.write_text("// moved")
    with pytest.raises(InputError, match=rf"{kernel_table.LIST}: holds no entry"):
        kernel_table.from_source(tmp_path)


def test_the_list_of_a_wheel_for_xpu_goes_through_a_file(tmp_path):
    core = SimpleNamespace(
        XPUVersion=SimpleNamespace(XPU3=3),
        get_xpu_device_op_list=lambda version: {"scale": ["VarType.FP32", "DataType.BFLOAT16"]} if version == 3 else {},
    )
    path = tmp_path / "kernels.json"
    path.write_text(json.dumps(kernel_table.of_wheel(core, "3.3.0")))
    table = kernel_table.from_file(path)
    assert table.listed == {"scale": {"float32", "bfloat16"}} and "3.3.0" in table.source


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--for", "gpu", "train.py"], "only xpu"),
        (["--for", "xpu", "--kernels", "nowhere.json", "train.py"], "nowhere.json"),
        (["--for", "xpu", "--kernels", "damaged.json", "train.py"], "damaged.json line 2"),
        (["--for", "xpu", "--paddle-source", ".", "train.py"], "xpu3_op_list.cc"),
        (["--for", "xpu", "--paddle-source", ".", "--kernels", "damaged.json", "train.py"], "give one of them"),
        (["--kernels", "damaged.json", "train.py"], "with --for xpu"),
        (["--for", "xpu", "--device", "cpu", "nowhere.py"], "nowhere.py"),
        (["--device", "cpu"], "SCRIPT"),
        (["--save-kernels", "out.json"], "not built for XPU"),
    ],
)
def test_bad_input_names_what_is_wrong_and_ends_with_2(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "damaged.json").write_text('{\n"format": }')
    done = shapes(*arguments)
    assert done.exit_code == 2 and message in " ".join((done.output + done.stderr).split())
    assert not (tmp_path / "out.json").exists()


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
    done = shapes("--for", "xpu", "--device", device, "--json", "--timeout", "200", script)
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    rows = {(row["name"], row["dtype"]): row for row in report["kernels"]}
    division = rows["div_scale", "float32"]
    assert (division["where"], division["calls"], division["caller"]) == ("CPU", 2, f"{script}:7")
    assert division["instead"] == "x * (1 / number)"
    assert (rows["logsigmoid", "float32"]["where"], rows["logsigmoid_grad", "float32"]["caller"]) == ("CPU", f"{script}:8")
    assert {rows[name, "float32"]["where"] for name in ("matmul", "matmul_grad", "adamw", "add")} == {"card"}
    assert rows["matmul", "float32"]["old_name"] == "matmul_v2"
    assert report["counted"]["CPU"] == 3 and "2025-03-21" in report["source"]
    # what the CPU really computed: on simulated cards all that the plug-in has no kernel for
    assert bool(rows["matmul", "float32"]["fell_back"]) is (device == "sim")


@pytest.mark.integration
def test_what_to_write_instead_of_log_sigmoid_is_the_same():
    import paddle
    import paddle.nn.functional as F

    x = paddle.to_tensor(np.array([[-40.0, -1.0, 0.0], [0.5, 3.0, 40.0]]), stop_gradient=False)
    instead = eval(kernel_table.instead()["logsigmoid"], {"F": F, "paddle": paddle, "x": x})
    assert np.allclose(instead.reshape(x.shape).numpy(), F.log_sigmoid(x).numpy(), rtol=1e-12)
