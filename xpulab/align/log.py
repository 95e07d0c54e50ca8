"""Writes a log of a training, one line a step; `xpulab align A B` compares two of them.

Copy this file beside your script: it needs Python's standard library only, and works with Paddle and with torch.

    log = Log("a.jsonl", model, optimizer, seed=0)    # once; further settings by name are kept in the first line
    ...
    loss.backward()
    log.step(loss, batch=input_ids)                   # before the optimizer's step, while the gradients are there
    optimizer.step()

PaddleNLP's Trainer takes it as a callback:

    trainer.add_callback(Log("a.jsonl", seed=0).callback(trainer))

The first line is {"format": "xpulab.align/1", "environment": {...}}, each further one a step:
{"step": 1, "loss": 4.47, "grad_norm": 1.2, "learning_rate": 0.001, "batch": "9f3c..."}.
Only the loss is required. learning_rate is that with which the step changes the weights.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import platform
import sys
from array import array
from collections.abc import Callable, Iterator
from importlib import metadata
from operator import attrgetter
from typing import Any

FORMAT = "xpulab.align/1"

_PACKAGES = (
    *("paddlepaddle", "paddlepaddle-gpu", "paddlepaddle-xpu", "paddlenlp", "paddleformers", "paddle-xpu"),
    *("torch", "transformers", "peft", "trl", "accelerate", "flash-attn", "numpy", "tokenizers", "datasets"),
)
_VARIABLES = (
    *("FLAGS_", "XPU_", "XPULINK_", "XPUAPI_", "BKCL_", "NCCL_", "CUDA_", "NVIDIA_TF32", "CUBLAS_", "CUDNN_", "TORCH_"),
    *("OMP_", "MKL_", "PYTHONHASHSEED"),
)
_PADDLE_FLAGS = (
    *("FLAGS_use_stride_kernel", "FLAGS_enable_api_kernel_fallback", "FLAGS_use_accuracy_compatible_kernel"),
    *("FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic", "FLAGS_gemm_use_half_precision_compute_type"),
    *("FLAGS_enable_cublas_tensor_op_math", "FLAGS_cudnn_exhaustive_search", "FLAGS_flash_attn_version"),
)
_TORCH_BACKENDS = (
    *("cuda.matmul.allow_tf32", "cuda.matmul.allow_bf16_reduced_precision_reduction"),
    *("cudnn.allow_tf32", "cudnn.benchmark"),
)
_ARGUMENTS = (
    *("seed", "data_seed", "bf16", "fp16", "fp16_opt_level", "half_precision_backend", "amp_master_grad", "tf32", "recompute"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate", "lr_scheduler_type", "warmup_steps"),
    *("warmup_ratio", "max_steps", "num_train_epochs", "optim", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"),
    *("max_grad_norm", "dataloader_num_workers", "dataloader_drop_last", "group_by_length", "sharding"),
)
_CONFIG = (
    *("model_type", "num_hidden_layers", "hidden_size", "use_flash_attention", "use_fused_rms_norm", "fuse_rms_norm"),
    *("use_fused_rope", "fuse_attention_qkv", "fuse_attention_ffn", "fuse_linear", "use_fused_head_and_loss_fn"),
    *("_attn_implementation", "attn_impl", "hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout"),
    *("tie_word_embeddings", "sequence_parallel", "recompute"),
)
_LAST_PLACE = {"float32": 2.0**-23, "float64": 2.0**-52, "bfloat16": 2.0**-7, "float16": 2.0**-10}


class Log:
    """A log of one training, in a new file or in that of a job that was started again: there it goes on with a new header.

    In a training of several processes only the first one writes.

    model, optimizer: their gradients and learning rate are noted; without them the first line knows less. settings: what else
    may explain a difference, such as seed=0 or dtype="bfloat16", the type of the matrix products under autocast.
    Raises FileExistsError when the file is there and no log: nothing is overwritten.
    """

    def __init__(self, path: str | os.PathLike[str], model: Any = None, optimizer: Any = None, **settings: Any) -> None:
        self.model, self.optimizer, self.settings = model, optimizer, settings
        self._number = 0
        self._has_begun = False
        self._file = None
        if _rank() == 0:
            self._file = _opened(path)

    def step(
        self,
        loss: Any,
        batch: Any = None,
        learning_rate: float | None = None,
        grad_norm: float | None = None,
        step: int | None = None,
    ) -> None:
        """Note one optimizer step, between backward and the optimizer's own step.

        loss: a number or a tensor of one element; of several processes, their mean. batch: input_ids, or a list of those of
        each part of an accumulated step. step: its number, where a resumed training does not begin with 1. What is not given is
        read from model and optimizer.
        """
        self._number = self._number + 1 if step is None else int(step)
        if self._file is None:
            return
        if grad_norm is None and self.model is not None:
            grad_norm = gradient_norm(self.model)
        rate = _rate(self.optimizer) if learning_rate is None else learning_rate
        numbers = {"loss": loss, "grad_norm": grad_norm, "learning_rate": rate}
        line: dict[str, Any] = {"step": self._number}
        line.update({name: _number(value) for name, value in numbers.items() if value is not None})
        if batch is not None:
            line["batch"] = digest(batch)
        if not self._has_begun:
            self._write({"format": FORMAT, "environment": self._environment()})
            self._has_begun = True
        self._write(line)

    def callback(self, trainer: Any) -> Any:
        """A callback that notes each step of PaddleNLP's Trainer: give it to trainer.add_callback."""
        return _Callback(self, trainer)

    def _write(self, line: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()

    def _environment(self) -> dict[str, Any]:
        found = environment()
        if self.model is not None:
            found["weights"] = {"dtype": " ".join(sorted({_dtype(parameter) for parameter in self.model.parameters()}))}
            found["model"] = _some(getattr(self.model, "config", None), _CONFIG)
        if self.optimizer is not None:
            found["optimizer"] = _optimizer(self.optimizer)
        found["settings"] = {name: _scalar(value) for name, value in self.settings.items()}
        return {name: values for name, values in found.items() if values}


def digest(batch: Any) -> str:
    """16 hexadecimal digits of SHA-256 of the token numbers of a batch, row by row, as little-endian int64.

    batch: input_ids as a tensor, an array or nested lists, or a list of those of each part of an accumulated step.
    """
    return hashlib.sha256(array("q", map(int, _flat(batch))).tobytes()).hexdigest()[:16]


def gradient_norm(model: Any) -> float | None:
    """The 2-norm of all gradients of this process, before clipping, with a GradScaler's factor; None without gradients."""
    total = None
    for parameter in model.parameters():
        gradient = getattr(parameter, "main_grad", None)
        gradient = parameter.grad if gradient is None else gradient
        if gradient is not None:
            wide = _float(gradient)
            squares = (wide * wide).sum()
            total = squares if total is None else total + squares
    return None if total is None else math.sqrt(float(total))


def perturb(model: Any, number: int = 1) -> None:
    """Move each weight by one unit in its last place, up or down by its value: a training from there measures the noise.

    The log of such a training is what `xpulab align --noise` takes. Call it before the first step. number: another one moves
    other weights up.
    """
    for parameter in model.parameters():
        name = _dtype(parameter)
        if name not in _LAST_PLACE:
            continue
        values = parameter.detach()
        wide = _float(values)
        moved = wide + wide * (wide * (7919.0 * number)).cos().sign() * (0.7 * _LAST_PLACE[name])
        if hasattr(parameter, "set_value"):
            parameter.set_value(moved.astype(parameter.dtype))
        else:
            values.copy_(moved.to(values.dtype))


def environment() -> dict[str, Any]:
    """What this process knows about where it computes: versions, machine, processes, flags, variables."""
    versions = {package: _tried(functools.partial(metadata.version, package)) for package in _PACKAGES}
    found: dict[str, Any] = {"versions": {"python": platform.python_version(), **versions}}
    found["machine"] = {"system": platform.platform(), "cores": len(os.sched_getaffinity(0))}
    found["parallel"] = {"processes": _processes()}
    paddle, torch = sys.modules.get("paddle"), sys.modules.get("torch")
    if paddle is not None and hasattr(paddle, "get_flags"):
        found["machine"]["device"] = _tried(paddle.get_device)
        found["flags"] = {
            name: _tried(functools.partial(lambda flag: paddle.get_flags(flag)[flag], name)) for name in _PADDLE_FLAGS
        }
    elif torch is not None:
        found["machine"]["device"] = _tried(torch.cuda.get_device_name) or "cpu"
        found["flags"] = {name: _tried(functools.partial(attrgetter(name), torch.backends)) for name in _TORCH_BACKENDS}
    found["variables"] = {name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)}
    return {group: {name: value for name, value in values.items() if value is not None} for group, values in found.items()}


class _Callback:
    """Takes loss and batch from training_step, and writes when the optimizer is about to step; all other events do nothing."""

    def __init__(self, log: Log, trainer: Any) -> None:
        self.log, self.trainer = log, trainer
        self.losses: list[float] = []
        self.batches: list[Any] = []
        training_step = trainer.training_step

        @functools.wraps(training_step)
        def noting(model: Any, inputs: Any, *arguments: Any, **named: Any) -> Any:
            loss = training_step(model, inputs, *arguments, **named)
            self.losses.append(float(self.trainer._nested_gather(loss).mean() if _processes() > 1 else loss))
            self.batches.append(inputs.get("input_ids"))
            return loss

        trainer.training_step = noting

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("on_"):
            return lambda *arguments, **named: None
        raise AttributeError(name)

    def on_optimizer_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """PaddleNLP's event, with all gradients reduced."""
        loss = sum(self.losses)
        if args.gradient_accumulation_steps > 1 and self.trainer._enable_delay_scale_loss():
            loss /= args.gradient_accumulation_steps
        log = self.log
        log.model, log.optimizer = named["model"], named["optimizer"]
        degrees = tuple(name for name in vars(args) if name.endswith(("_parallel_degree", "_parallel_config")))
        log.settings = {**_some(args, (*_ARGUMENTS, *degrees)), **log.settings}
        batch = [part for part in self.batches if part is not None] if _processes() == 1 else []
        log.step(loss, batch or None, step=state.global_step + 1)
        self.losses, self.batches = [], []


def _opened(path: str | os.PathLike[str]) -> Any:
    """The file to write into, behind what it has; a last line that was cut is ended."""
    file = open(path, "a+", encoding="utf-8")  # noqa: SIM115
    file.seek(0)
    first = file.readline()
    if first and FORMAT not in first:
        raise FileExistsError(f"{path} is there, and no log of xpulab.align: give another name")
    if first and not functools.reduce(lambda _, line: line, file, first).endswith("\n"):
        file.write("\n")
    return file


def _rank() -> int:
    return int(os.environ.get("PADDLE_TRAINER_ID") or os.environ.get("RANK") or 0)


def _processes() -> int:
    return int(os.environ.get("PADDLE_TRAINERS_NUM") or os.environ.get("WORLD_SIZE") or 1)


def _number(value: Any) -> float | str:
    """A float, exactly; "nan", "inf" and "-inf" as text, which JSON lacks."""
    number = float(value.detach() if hasattr(value, "detach") else value)
    return number if math.isfinite(number) else str(number)


def _scalar(value: Any) -> Any:
    """A value that JSON has: what is no number, text, truth value or None becomes text."""
    if isinstance(value, float):
        return _number(value)
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _float(tensor: Any) -> Any:
    return tensor.astype("float32") if hasattr(tensor, "astype") else tensor.float()


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).rpartition(".")[2]


def _flat(rows: Any) -> Iterator[Any]:
    rows = rows.tolist() if hasattr(rows, "tolist") else rows
    if isinstance(rows, (list, tuple)):
        for row in rows:
            yield from _flat(row)
    else:
        yield rows


def _rate(optimizer: Any) -> float | None:
    if hasattr(optimizer, "get_lr"):
        return float(optimizer.get_lr())
    groups = getattr(optimizer, "param_groups", None)
    return float(groups[0]["lr"]) if groups else None


def _optimizer(optimizer: Any) -> dict[str, Any]:
    """Its class and settings, by the same names for Paddle and torch."""
    optimizer = getattr(optimizer, "_inner_opt", optimizer)
    optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
    group = (getattr(optimizer, "param_groups", None) or [None])[0]
    if isinstance(group, dict) and "lr" in group:
        beta1, beta2 = group.get("betas", (None, None))
        found = {"beta1": beta1, "beta2": beta2, "epsilon": group.get("eps"), "weight_decay": group.get("weight_decay")}
    else:
        names = ("beta1", "beta2", "epsilon", "weight_decay", "multi_precision")
        found = {name: getattr(optimizer, f"_{name}", None) for name in names}
        found["clip_norm"] = getattr(getattr(optimizer, "_grad_clip", None), "clip_norm", None)
    found["class"] = type(optimizer).__name__
    return {name: _scalar(value) for name, value in found.items() if value is not None}


def _some(source: Any, names: tuple[str, ...]) -> dict[str, Any]:
    found = {name: getattr(source, name, None) for name in names}
    return {name: _scalar(value) for name, value in found.items() if value is not None}


def _tried(read: Callable[[], Any]) -> Any:
    """What a package says about itself; None where it is not there, or where its release does not say it."""
    try:
        return _scalar(read())
    except Exception:
        return None
