"""Workarounds for defects of the pinned Paddle 3.3 and PaddleNLP 3.0.0b4, each named after what it does.

A notebook calls a workaround where a reader can see it. data/known_issues.yaml lists the defects.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

from xpulab import processor

_IMPORT_WARNINGS = (
    "No ccache found",
    "Setuptools is replacing distutils",
    "pkg_resources is deprecated",
    "Distutils was imported before Setuptools",
    "(?s).*swiglu.* is deprecated",
    "IProgress not found",
)


def silence_import_warnings() -> None:
    """Hide irrelevant warnings of PaddleNLP about ccache, pkg_resources and swiglu.

    It also hides the lines of Paddle's C++ code about its executor and type conversions. Call it before the first import.
    """
    os.environ.setdefault("GLOG_minloglevel", "2")
    for message in _IMPORT_WARNINGS:
        warnings.filterwarnings("ignore", message=message)


def multiply_fast_on_amd(described: str = processor.DESCRIBED) -> None:
    """On AMD and Hygon processors, let Paddle's matrix products on the CPU use AVX2; on others nothing changes.

    Paddle 3.3 brings MKL of 2019, which takes its slowest code on processors that are not Intel's: on one core of an AMD EPYC
    38 GFLOP/s in fp32 without, 100 with this. MKL reads the variable at its first product, so call it before that; a value
    that the user has set is kept. described: the file in which Linux describes it; one that is not there changes nothing.
    """
    core = processor.first_core(described)
    if core.get("vendor_id") in ("AuthenticAMD", "HygonGenuine") and {"avx2", "fma"} <= set(core.get("flags", "").split()):
        os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "5")


def silence_paddlenlp_log() -> None:
    """Silence PaddleNLP's log, which writes colours, times and paths into a notebook's outputs.

    What matters in the log must be a check: a notebook is not judged by its log.
    """
    from paddlenlp.utils.log import logger

    logger.set_level("CRITICAL")


def log_history() -> Any:
    """A callback for Trainer(callbacks=[...]) that keeps the log history; trainer.state.log_history is empty after training.

    losses: the training loss of each logged step.
    rates: the learning rate logged with each loss. It is that of the next step, because PaddleNLP logs after the scheduler's
        step.
    Source: PaddleNLP 3.0.0b4, trainer/trainer.py, Trainer._maybe_log_save_evaluate.
    """
    from paddlenlp.trainer import TrainerCallback

    class LogHistory(TrainerCallback):
        def __init__(self) -> None:
            self.losses: list[float] = []
            self.rates: list[float] = []

        def on_log(self, args: Any, state: Any, control: Any, logs: dict | None = None, **others: Any) -> None:
            if logs and "loss" in logs:
                self.losses.append(float(logs["loss"]))
                self.rates.append(float(logs["learning_rate"]))

    return LogHistory()


def unwrap_single_process_models() -> None:
    """Let DPOTrainer and KTOTrainer run in one process, where fleet.distributed_model then returns the model unchanged.

    Without it they fail with "'Fleet' object has no attribute '_user_defined_strategy'": they pass their models to
    fleet.distributed_model for any number of processes, and Paddle 3.3 requires fleet.init before that.
    Source: PaddleNLP 3.0.0b4, trl/dpo_trainer.py, DPOTrainer._wrap_ref_model and evaluate.
    """
    from paddle.distributed import fleet, get_world_size

    def distributed_model(wrap: Callable[..., Any], model: Any) -> Any:
        return wrap(model) if get_world_size() > 1 else model

    _replace_once(fleet, "distributed_model", distributed_model)


def restore_distributed_checkpoint() -> None:
    """Make `import paddlenlp.trainer.auto_trainer` work on Paddle 3.2 and later, which moved paddle.distributed.checkpoint.

    The old module names become aliases of the new ones. Source: Paddle #74593.
    """
    old, new = "paddle.distributed.checkpoint", "paddle.distributed.flex_checkpoint.dcp"
    if importlib.util.find_spec(old):  # Paddle 3.1 and earlier
        return
    sys.modules.setdefault(old, importlib.import_module(new))
    for module in ("load_state_dict", "save_state_dict", "metadata", "utils"):
        sys.modules.setdefault(f"{old}.{module}", importlib.import_module(f"{new}.{module}"))


def load_checkpoints_on_cpu() -> None:
    """Let dist.load_state_dict work on several ranks of a CPU; other devices are not changed.

    Without it "No available device found" is raised, because tensors that ranks send to each other are moved by Tensor.cuda().
    With it, in this process, these tensors stay on their device while they are sent.
    Source: Paddle 3.3.1, distributed/flex_checkpoint/dcp/reshard_comm.py, BroadcastCommunicator.communicate.
    """
    import paddle
    from paddle.distributed.flex_checkpoint.dcp.reshard_comm import BroadcastCommunicator

    if paddle.is_compiled_with_cuda() or paddle.is_compiled_with_xpu() or paddle.device.get_all_custom_device_type():
        return

    def communicate(real: Callable[..., Any], *given: Any, **named: Any) -> Any:
        with mock.patch.object(paddle.Tensor, "cuda", lambda tensor, *_, **__: tensor):
            return real(*given, **named)

    _replace_once(BroadcastCommunicator, "communicate", communicate)


def read_each_checkpoint_anew() -> None:
    """Let dist.load_state_dict read the metadata of every checkpoint on Paddle 3.3.0; on other releases nothing changes.

    Without it a load keeps its metadata when it has filled plain tensors, or found all slices in the files of its own rank. The
    next load in this process, from safetensors or with statements, then looks for the slices of *that* checkpoint. Where shapes
    permit it, no error is raised. With it, the metadata is forgotten after each load, as in 3.3.1.
    Source: Paddle 3.3.0, distributed/flex_checkpoint/dcp/load_state_dict.py, load_state_dict and _metadata_manager.
    """
    import paddle
    import paddle.distributed as dist

    if paddle.__version__ != "3.3.0":
        return
    module: Any = importlib.import_module("paddle.distributed.flex_checkpoint.dcp.load_state_dict")

    def load_state_dict(real: Callable[..., Any], *given: Any, **named: Any) -> Any:
        result = real(*given, **named)
        module._metadata_manager.clear()
        return result

    for owner in (dist, module):  # merge_sharded_state_dict calls that of the module
        _replace_once(owner, "load_state_dict", load_state_dict)


def _replace_once(owner: Any, name: str, function: Callable[..., Any]) -> None:
    """Call the function instead, with the original before the arguments; a second time changes nothing."""
    real = getattr(owner, name)
    if getattr(real, "replaced_by_xpulab", False):
        return

    def replacement(*given: Any, **named: Any) -> Any:
        return function(real, *given, **named)

    replacement.replaced_by_xpulab = True
    setattr(owner, name, replacement)


def silence_tracing_warnings() -> None:
    """Hide warnings of an export that say nothing about it."""
    for message in (
        "Tensor do not have 'place' interface",
        "Return results has maybe unbound local variable",
        "no variable in your model",
        "When training, we now always track global mean and variance",
        "Found 'dict' in given outputs",
        "Return results from different branches in cond are not same type",
    ):
        warnings.filterwarnings("ignore", message=message)


def silence_checkpoint_log() -> None:
    """Silence fleet's log, which writes lines with times into a notebook's outputs when ranks save and load.

    What matters in the log must be a check. Source: Paddle 3.3.1, distributed/flex_checkpoint/dcp.
    """
    from paddle.distributed.fleet.utils.log_util import logger

    logger.setLevel("CRITICAL")
