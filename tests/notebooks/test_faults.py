"""Faults that training really has, one at a time, in the process that runs the committed notebook: each turns it red."""

from __future__ import annotations

import textwrap

import pytest


class Fault:
    """A fault: the notebook that must see it, what breaks, and the checks that must turn red, of perhaps more."""

    notebook = ""
    breaks = ""
    device = "cpu"
    sim_faults = ""
    seen_by: frozenset[str] = frozenset()

    @pytest.fixture(scope="class")
    def outcome(self, run_notebooks):
        return run_notebooks(self.notebook, fault=self.breaks, device=self.device, sim_faults=self.sim_faults)

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


IN_EVERY_RANK = """
from xpulab.notebook import ranks
run = ranks.run
def run_with_fault(function, n, *arguments, **options):
    def in_a_rank(*given):
{fault}
        return function(*given)
    return run(in_a_rank, n, *arguments, **options)
ranks.run = run_with_fault
"""
"""Ranks are processes of their own: what breaks there travels with the function that they run."""


def in_every_rank(fault: str) -> str:
    """Python for a notebook's process that executes `fault` in every rank before the notebook's function."""
    return IN_EVERY_RANK.replace("{fault}", textwrap.indent(textwrap.dedent(fault).strip(), " " * 8))


class TestASumThatForgetsARank(Fault):
    notebook = "05_collectives"
    breaks = in_every_rank("""
        import paddle.distributed as dist
        def forgetful(real):
            def all_reduce(tensor, *rest, **named):
                if dist.get_rank() == 1:
                    tensor.scale_(0.0)
                return real(tensor, *rest, **named)
            return all_reduce
        dist.all_reduce, dist.stream.all_reduce = forgetful(dist.all_reduce), forgetful(dist.stream.all_reduce)
    """)
    seen_by = frozenset({"collectives.values", "collectives.types", "collectives.groups", "collectives.sizes"})


class TestSwappedArgumentsOfAllToAll(Fault):
    notebook = "05_collectives"
    device = "sim"
    breaks = in_every_rank("""
        import paddle.distributed as dist
        real = dist.alltoall_single
        def swapped(out, sent, *rest, **named):  # of the same shape, so that nothing raises
            return real(*((sent, out) if out.shape == sent.shape else (out, sent)), *rest, **named)
        dist.alltoall_single = swapped
    """)
    seen_by = frozenset({"all-to-all.values"})


class TestABitThatFlipsInASum(Fault):
    notebook = "05_collectives"
    device = "sim"
    sim_faults = "flip collective kind=all_reduce rank=1 bit=20 from=1"
    seen_by = frozenset({"collectives.values", "collectives.types"})


class TestMicroBatchesThatCountTwice(Fault):
    notebook = "07_pipeline"
    breaks = in_every_rank("""
        from paddle.distributed.auto_parallel.pipelining.stage import PipelineStage
        real = PipelineStage.backward_one_chunk
        def twice(self, chunk, loss=None, **named):
            return real(self, chunk, loss=None if loss is None else 2 * loss, **named)
        PipelineStage.backward_one_chunk = twice
    """)
    seen_by = frozenset({"pipeline.gradients", "pipeline.chunks"})


class TestInputsThatAreHeldOnTo(Fault):
    notebook = "07_pipeline"
    breaks = in_every_rank("""
        from paddle.distributed.auto_parallel.pipelining.stage import PipelineStage
        real = PipelineStage.backward_one_chunk
        def holding(self, chunk, *given, **named):
            kept = self.fwd_cache[chunk]
            result = real(self, chunk, *given, **named)
            self.fwd_cache[chunk] = kept
            return result
        PipelineStage.backward_one_chunk = holding
    """)
    seen_by = frozenset({"pipeline.released"})
