"""Cures for defects of the pinned Paddle 3.3 and PaddleNLP 3.0.0b4, each named after its symptom.

A notebook calls the cure where a reader can see it. tests/test_compat.py shows for each that the symptom is still there
without it, so that a cure which is no longer needed is noticed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from typing import Any

_IMPORT_WARNINGS = (
    "No ccache found",
    "Setuptools is replacing distutils",
    "pkg_resources is deprecated",
    "Distutils was imported before Setuptools",
    "(?s).*swiglu.* is deprecated",
    "IProgress not found",
)


def silence_import_warnings() -> None:
    """Importing and running PaddleNLP prints warnings about ccache, pkg_resources and swiglu that mean nothing here.

    Paddle's C++ adds lines about its executor and about types that it converts. Call it before the first import.
    """
    os.environ.setdefault("GLOG_minloglevel", "2")
    for message in _IMPORT_WARNINGS:
        warnings.filterwarnings("ignore", message=message)


def silence_paddlenlp_log() -> None:
    """PaddleNLP's log writes colours, times and paths among a notebook's outputs: from here on it is silent.

    Whatever matters in it must be checked: a notebook is not judged by its log.
    """
    from paddlenlp.utils.log import logger

    logger.set_level("CRITICAL")


def log_history() -> Any:
    """trainer.state.log_history is empty after training: returns a callback for Trainer(callbacks=[...]) that keeps it.

    Its `losses` holds the training loss of each logged step, its `rates` the learning rate that was logged with it (the
    one of the step that follows: PaddleNLP logs after the scheduler has moved on).
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
    """DPOTrainer and KTOTrainer fail in one process: "'Fleet' object has no attribute '_user_defined_strategy'".

    They hand their models to fleet.distributed_model whatever the number of processes, and Paddle 3.3 wants fleet.init for
    that. From here on one process gets back the model that it gave. Source: PaddleNLP 3.0.0b4, trl/dpo_trainer.py,
    DPOTrainer._wrap_ref_model and evaluate.
    """
    from paddle.distributed import fleet, get_world_size

    if hasattr(fleet.distributed_model, "cured"):
        return
    wrap = fleet.distributed_model

    def distributed_model(model: Any) -> Any:
        return wrap(model) if get_world_size() > 1 else model

    distributed_model.cured = True
    fleet.distributed_model = distributed_model


def restore_distributed_checkpoint() -> None:
    """`import paddlenlp.trainer.auto_trainer` fails on Paddle 3.2 and later, which moved that package.

    The old names are made to stand for the new ones. Source: Paddle #74593.
    """
    old, new = "paddle.distributed.checkpoint", "paddle.distributed.flex_checkpoint.dcp"
    if importlib.util.find_spec(old):  # Paddle 3.1 and earlier
        return
    sys.modules.setdefault(old, importlib.import_module(new))
    for module in ("load_state_dict", "save_state_dict", "metadata", "utils"):
        sys.modules.setdefault(f"{old}.{module}", importlib.import_module(f"{new}.{module}"))


def resume_data_order(trainer_class: type) -> type:
    """A run resumed on one card in epoch 2 or later gets the first epoch's order again: returns a trainer class that does not.

    The stock Trainer draws each order from numpy's state, which a new process has at its start. The sampler used here, the
    one that several cards get, computes the order from the epoch's number (so it is the same for every seed).
    Source: PaddleNLP 3.0.0b4, trainer/trainer.py, Trainer._get_train_sampler.
    """
    from paddle.io import DistributedBatchSampler

    class OrderedByEpoch(trainer_class):
        def _get_train_sampler(self) -> Any:
            stock = super()._get_train_sampler()
            if stock is None or isinstance(stock, DistributedBatchSampler):
                return stock
            return DistributedBatchSampler(
                self.train_dataset,
                batch_size=self.args.per_device_train_batch_size,
                num_replicas=1,
                rank=0,
                shuffle=True,
                drop_last=self.args.dataloader_drop_last,
            )

    return OrderedByEpoch


def resume_random_state(trainer_class: type) -> type:
    """A run resumed where an epoch ends draws other dropout masks: returns a trainer class that does not.

    The stock Trainer loads rng_state.pth when it has skipped the last batch that was trained on already; where an epoch
    ends there is none to skip. Here it is loaded before the first batch too.
    Source: PaddleNLP 3.0.0b4, trainer/trainer.py, Trainer._inner_training_loop.
    """
    from paddlenlp.trainer import TrainerCallback

    class RandomStateFirst(trainer_class):
        def train(self, resume_from_checkpoint: str | None = None, *arguments: Any, **named: Any) -> Any:
            trainer = self

            class Restore(TrainerCallback):
                def on_train_begin(self, *_: Any, **__: Any) -> None:
                    trainer._load_rng_state(resume_from_checkpoint)

            self.add_callback(restore := Restore())
            try:
                return super().train(resume_from_checkpoint, *arguments, **named)
            finally:
                self.remove_callback(restore)

    return RandomStateFirst


def load_checkpoints_on_cpu() -> None:
    """`dist.load_state_dict` on several ranks raises this on a CPU: it moves all that ranks send each other by Tensor.cuda().

    From here on, in this process, such tensors stay where they are while ranks send them. A device that is not a CPU is left
    alone. Source: Paddle 3.3.1, distributed/flex_checkpoint/dcp/reshard_comm.py, BroadcastCommunicator.communicate.
    """
    import paddle
    from paddle.distributed.flex_checkpoint.dcp.reshard_comm import BroadcastCommunicator

    real = BroadcastCommunicator.communicate
    if paddle.is_compiled_with_cuda() or paddle.is_compiled_with_xpu() or paddle.device.get_all_custom_device_type():
        return
    if getattr(real, "stays_on_the_cpu", False):
        return

    def communicate(self: Any, *given: Any, **named: Any) -> Any:
        cuda = paddle.Tensor.cuda
        paddle.Tensor.cuda = lambda tensor, *_, **__: tensor
        try:
            return real(self, *given, **named)
        finally:
            paddle.Tensor.cuda = cuda

    communicate.stays_on_the_cpu = True
    BroadcastCommunicator.communicate = communicate


def silence_checkpoint_log() -> None:
    """Saving and loading on several ranks writes lines of fleet's log, with times, among a notebook's outputs: no more.

    Whatever matters in it must be checked. Source: Paddle 3.3.1, distributed/flex_checkpoint/dcp.
    """
    from paddle.distributed.fleet.utils.log_util import logger

    logger.setLevel("CRITICAL")
