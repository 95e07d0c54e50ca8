"""What the tests of logs share: small logs that are written by hand."""

from __future__ import annotations

import json
import math

import pytest

STEPS = range(1, 41)
ENVIRONMENT = {"versions": {"paddlepaddle": "3.3.1"}, "settings": {"seed": 0}}


def usual_step(number):
    """A step of a training that goes well; its numbers need all digits, as measured ones do."""
    return {
        "step": number,
        "loss": 4 * math.exp(-number / 30),
        "grad_norm": 1 + math.sin(number) / 3,
        "learning_rate": 1e-3,
        "batch": f"{number % 6:016x}",
    }


@pytest.fixture
def log(tmp_path):
    """log(name, change, steps=..., environment=...) writes a log; change(step) changes a step, or returns another one."""

    def write(name, change=None, steps=STEPS, environment=ENVIRONMENT):
        lines = [{"format": "xpulab.align/1", "environment": environment}]
        for number in steps:
            step = usual_step(number)
            lines.append((change(step) if change else None) or step)
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return write
