"""tools/argument_census.py: what is recorded of a call, what counts as varied, and the page it writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from xpulab import files

TOOLS = files.ROOT / "tools"

SCRIPT = """
import sys
sys.path.append({tools!r})
import argument_recorder
argument_recorder.install()
import paddle
from paddle.nn.functional import softmax
softmax(paddle.ones([2, 3]))
softmax(paddle.ones([2, 3]), axis=0)
layer = paddle.nn.Linear(2, 2)
stepper = paddle.optimizer.AdamW(0.1, 0.9, parameters=layer.parameters())
stepper.clear_grad(False)
"""


@pytest.fixture
def census(monkeypatch):
    """The tool as a module."""
    monkeypatch.syspath_prepend(str(TOOLS))
    import argument_census

    return argument_census


def test_values_that_are_not_the_default_are_recorded(tmp_path):
    """By position and by name, of functions, constructors and methods; the default itself is recorded as the default."""
    lines = tmp_path / "lines"
    script = SCRIPT.format(tools=str(TOOLS))
    environment = {**os.environ, "ARGUMENTS_RECORDED_IN": str(lines)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=120, cwd=tmp_path)
    found = [json.loads(line) for line in lines.read_text().splitlines()]
    assert ["paddle.nn.functional.softmax", "axis", "int 0", False] in found
    assert ["paddle.nn.functional.softmax", "x", "float32 2-d", False] in found
    assert ["paddle.optimizer.AdamW", "beta1", "float below 1", True] in found
    assert ["paddle.optimizer.AdamW", "parameters", "list 2", False] in found
    assert ["paddle.optimizer.Optimizer.clear_grad", "set_to_zero", "False", False] in found
    assert not [entry for entry in found if entry[:2] == ["paddle.nn.functional.softmax", "dtype"] and not entry[3]]


def test_a_parameter_is_varied_when_any_call_gave_it_another_value(tmp_path, census, capsys):
    """What a class inherits counts where it comes from; what is out of scope is not open; too much open is exit code 1."""
    lines = [
        ["paddle.nn.functional.softmax", "axis", "int below 0", True],
        ["paddle.nn.functional.log_softmax", "axis", "int 0", False],
        ["paddlenlp.trl.SFTConfig", "adam_beta2", "float below 1", False],
    ]
    file = tmp_path / "lines"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    status = {(each.function, each.name): each.status for each in census.counted(file)}
    assert status["paddle.nn.functional.softmax", "axis"] == "default only"
    assert status["paddle.nn.functional.log_softmax", "axis"] == "varied"
    assert status["paddlenlp.trainer.TrainingArguments", "adam_beta2"] == "varied"
    assert status["paddle.nn.functional.conv2d", "stride"] == "out of scope"
    assert ("paddlenlp.trl.SFTConfig", "adam_beta2") not in status
    with pytest.raises(SystemExit) as ended:
        census.main(["open", str(file)])
    assert ended.value.code == 1
    assert "paddle.nn.functional.softmax | axis" in capsys.readouterr().out


def test_the_page_has_every_parameter_of_the_installed_release(tmp_path, census):
    """Each function of the installed Paddle and PaddleNLP, with its parameters."""
    text = census.PAGE.read_text(encoding="utf-8")
    empty = tmp_path / "lines"
    empty.write_text("")
    sections = {part.split("\n", 1)[0]: part for part in text.split("\n## ")[1:]}
    for each in census.counted(empty):
        module = census.module_of(each.function)
        row = next(
            line
            for line in sections[module].splitlines()
            if line.startswith(f"| `{each.function.removeprefix(module + '.')}` |")
        )
        assert f"`{each.name}`" in row, each
