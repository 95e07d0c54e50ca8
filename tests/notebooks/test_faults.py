"""Faults that training really has, one at a time, in the process that runs the committed notebook: each turns it red."""

from __future__ import annotations

import pytest


class Fault:
    """A fault: the notebook that must see it, what breaks, and the checks that must turn red, of perhaps more."""

    notebook = ""
    breaks = ""
    seen_by: frozenset[str] = frozenset()

    @pytest.fixture(scope="class")
    def outcome(self, run_notebooks):
        return run_notebooks(self.notebook, fault=self.breaks)

    def test_the_run_is_red(self, outcome):
        assert (outcome.exit_code, outcome.result["outcome"]) == (1, "failed")

    def test_it_is_seen_by_the_checks_that_are_about_it(self, outcome):
        assert self.seen_by <= outcome.red(), outcome.printed

    def test_no_check_is_missing(self, outcome):
        missing = [check["name"] for check in outcome.notebook(self.notebook)["checks"] if check["outcome"] == "missing"]
        assert missing == []


class TestAnOptimizerThatDoesNotStep(Fault):
    notebook = "01_sft"
    breaks = "import paddle; paddle.optimizer.AdamW.step = lambda self: None"
    seen_by = frozenset({"sft.loss-falls", "sft.every-weight-moves", "sft.trajectory", "sft.recall"})


class TestALossOfNaN:
    """PaddleNLP's own Trainer refuses it; the notebook must say where, and all that never ran is missing."""

    @pytest.fixture(scope="class")
    def notebook(self, run_notebooks):
        fault = """
import paddlenlp.transformers.qwen2.modeling as qwen2
forward = qwen2.Qwen2PretrainingCriterion.forward
qwen2.Qwen2PretrainingCriterion.forward = lambda self, *given: forward(self, *given) * float("nan")
"""
        return run_notebooks("01_sft", fault=fault).notebook("01_sft")

    def test_the_notebook_is_red_and_names_the_loss(self, notebook):
        assert notebook["outcome"] == "failed"
        assert "nan" in notebook["reason"].lower()

    def test_what_never_ran_is_missing(self, notebook):
        outcomes = {check["name"]: check["outcome"] for check in notebook["checks"]}
        assert outcomes["sft.loss-falls"] == outcomes["sft.recall"] == "missing"


class TestLogitsOfNaN(Fault):
    """On the CPU their cross entropy is ln V: the loss looks like that of a healthy model that learns nothing."""

    notebook = "01_sft"
    breaks = """
import paddlenlp.transformers.qwen2.modeling as qwen2
forward = qwen2.Qwen2LMHead.forward
qwen2.Qwen2LMHead.forward = lambda self, *given, **named: forward(self, *given, **named) * float("nan")
"""
    seen_by = frozenset({"sft.loss-falls", "sft.gradients", "sft.logits"})


class TestGradientsThatAreDoubled(Fault):
    notebook = "01_sft"
    breaks = """
import paddle
backward = paddle.Tensor.backward
paddle.Tensor.backward = lambda self, *given, **named: backward(self * 2, *given, **named)
"""
    seen_by = frozenset({"sft.gradients"})


class TestLabelsThatAreNotMoved(Fault):
    notebook = "01_sft"
    breaks = """
from xpulab.notebook import tiny
encode = tiny.encode
def unmoved(tokenizer, row):
    example = encode(tokenizer, row)
    return {**example, "labels": [-100, *example["labels"][:-1]]}
tiny.encode = unmoved
"""
    seen_by = frozenset({"sft.labels-are-the-next-token", "sft.recall"})


class TestBaseWeightsThatTrain(Fault):
    notebook = "02_lora"
    breaks = """
from paddlenlp.peft import LoRAModel
mark = LoRAModel.mark_only_lora_as_trainable
def mark_too_much(self):
    mark(self)
    for name, weight in self.model.named_parameters():
        if "layernorm" in name:
            weight.stop_gradient = False
LoRAModel.mark_only_lora_as_trainable = mark_too_much
"""
    seen_by = frozenset({"lora.trainable-names", "lora.base-is-frozen", "lora.gradients-only-there"})


class TestAMergeThatForgetsTheScale(Fault):
    notebook = "02_lora"
    breaks = """
from paddlenlp.peft.lora.lora_layers import LoRALinear
delta = LoRALinear.get_delta_weight
LoRALinear.get_delta_weight = lambda self, *given: delta(self, *given) / self.scaling
"""
    seen_by = frozenset({"lora.merge"})


class TestProductsInHalfTheBits(Fault):
    notebook = "00_environment"
    breaks = """
import paddle
product = paddle.Tensor.__matmul__
def coarse(tensor):
    return tensor.astype("bfloat16").astype(tensor.dtype)
paddle.Tensor.__matmul__ = lambda self, other: product(coarse(self), coarse(other))
"""
    seen_by = frozenset({"numerics.matmul", "numerics.gradients"})
