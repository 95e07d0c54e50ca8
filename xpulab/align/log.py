"""Writes a log of a training, one line a step; `xpulab align A B` compares two of them.

Copy this file beside your script: it needs Python's standard library only, and works with Paddle and with torch.

    log = Log("a.jsonl", model, optimizer, seed=0)    # once; further settings by name are kept in the first line
    ...
    loss.backward()
    log.step(loss, batch=input_ids)                   # before the optimizer's step, while the gradients are there
    optimizer.step()

The Trainer of PaddleNLP or of transformers takes it as a callback:

    trainer.add_callback(Log("a.jsonl", seed=0).callback(trainer))

The first line is {"format": "xpulab.align/1", "environment": {...}}, each further one a step:
{"step": 1, "loss": 4.47, "grad_norm": 1.2, "learning_rate": 0.001, "weights": 30.1, "batch": "9f3c...", "seconds": 0.2}.
Only the loss is required. weights and learning_rate are those with which the loss was computed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import platform
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from operator import attrgetter
from typing import Any

FORMAT = "xpulab.align/1"

_PACKAGES = (
    *("paddlepaddle", "paddlepaddle-gpu", "paddlepaddle-xpu", "paddlenlp", "paddleformers", "paddlefleet", "paddle-xpu"),
    *("torch", "transformers", "peft", "trl", "accelerate", "flash-attn", "numpy", "tokenizers", "datasets"),
)
_VARIABLES = (
    *("FLAGS_", "XPU", "BKCL_", "NCCL_", "CUDA_", "NVIDIA_TF32", "CUBLAS_", "CUDNN_", "TORCH_", "OMP_", "MKL_"),
    "PYTHONHASHSEED",
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
_SAMPLED_TENSORS = 16
_SAMPLED_LENGTH = 64
_LAST_PLACE = {"float32": 2.0**-23, "float64": 2.0**-52, "bfloat16": 2.0**-7, "float16": 2.0**-10}


class Log:
    """A log of one training in a new file. In a training of several processes only the first one writes.

    model, optimizer: their gradients, weights and learning rate are noted; without them the first line knows less. settings:
    what else may explain a difference, such as seed=0 or dtype="bfloat16", the type of the matrix products under autocast.
    Raises FileExistsError when the file is there: a log is never overwritten.
    """

    def __init__(self, path: str | os.PathLike[str], model: Any = None, optimizer: Any = None, **settings: Any) -> None:
        self.model, self.optimizer, self.settings = model, optimizer, settings
        self._number, self._since = 0, time.monotonic()
        self._sample: list[Any] | None = None
        self._has_begun = False
        self._file = None
        if _rank() == 0:
            try:
                self._file = open(path, "x", encoding="utf-8")  # noqa: SIM115
            except FileExistsError as error:
                message = f"{os.fspath(path)}: is there already, and a log is never overwritten; remove it or name another file"
                raise FileExistsError(message) from error

    def step(
        self,
        loss: Any,
        batch: Any = None,
        learning_rate: float | None = None,
        grad_norm: float | None = None,
        step: int | None = None,
        scaler: Any = None,
    ) -> None:
        """Note one optimizer step, between backward and the optimizer's own step.

        loss: a number or a tensor of one element; of several processes, their mean. batch: input_ids, or a list of those of
        each part of an accumulated step. step: its number, where a resumed training does not begin with 1. scaler: a
        GradScaler, whose factor is taken out of the norm of the gradients. What is not given is read from model and optimizer.
        """
        self._number = self._number + 1 if step is None else int(step)
        if self._file is None:
            return
        line: dict[str, Any] = {"step": self._number, "loss": _number(loss)}
        if grad_norm is None and self.model is not None:
            grad_norm = gradient_norm(self.model, scaler)
        rate = _rate(self.optimizer) if learning_rate is None else learning_rate
        if self.model is not None:
            self._sample = self._sample or _sample(self.model)
            line["weights"] = _number(_norm_of_sample(self._sample))
        line.update(
            {name: _number(value) for name, value in (("grad_norm", grad_norm), ("learning_rate", rate)) if value is not None}
        )
        if batch is not None:
            line["batch"] = digest(batch)
        now = time.monotonic()
        line["seconds"], self._since = round(now - self._since, 4), now
        if not self._has_begun:
            self._write({"format": FORMAT, "environment": self._environment()})
            self._has_begun = True
        self._write(line)

    def callback(self, trainer: Any) -> Any:
        """A callback that notes each step of a Trainer of PaddleNLP or transformers: give it to trainer.add_callback."""
        return _Callback(self, trainer)

    def _write(self, line: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()

    def _environment(self) -> dict[str, Any]:
        found = environment()
        if self.model is not None:
            types = sorted({_dtype(parameter) for parameter in self.model.parameters()})
            found["weights"] = {"dtype": " ".join(types), "sampled": _size(self._sample or [])}
            found["model"] = _some(getattr(self.model, "config", None), _CONFIG)
        if self.optimizer is not None:
            found["optimizer"] = _optimizer(self.optimizer)
        found["settings"] = {name: _scalar(value) for name, value in self.settings.items()}
        return {name: values for name, values in found.items() if values}


def digest(batch: Any) -> str:
    """16 hexadecimal digits of the token numbers of a batch, as little-endian int64, and of their shape.

    batch: input_ids as a tensor, an array or nested lists. Of a list of tensors or arrays, the parts of an accumulated step, it
    is that of all rows in one batch where they have the same length, and else that of the parts, one after the other.
    """
    hashed = hashlib.sha256()
    is_list = isinstance(batch, (list, tuple)) and any(hasattr(part, "tolist") for part in batch)
    parts = [part.tolist() if hasattr(part, "tolist") else part for part in (batch if is_list else [batch])]
    if len({tuple(_shape(rows)[1:]) for rows in parts}) == 1 and len(parts) > 1:
        parts = [[row for rows in parts for row in rows]]
    for rows in parts:
        values = array("q", (int(value) for value in _flat(rows)))
        if sys.byteorder == "big":
            values.byteswap()
        hashed.update("x".join(map(str, _shape(rows))).encode() + b":" + values.tobytes())
    return hashed.hexdigest()[:16]


def gradient_norm(model: Any, scaler: Any = None) -> float | None:
    """The 2-norm of all gradients of this process, before clipping, without a GradScaler's factor.

    None without gradients, and where one is sparse (Paddle's Embedding with sparse=True): its rows cannot be multiplied.
    """
    total = None
    for parameter in model.parameters():
        gradient = getattr(parameter, "main_grad", None)
        gradient = parameter.grad if gradient is None else gradient
        if gradient is not None:
            if getattr(gradient, "is_selected_rows", bool)():
                return None
            wide = _float(gradient)
            squares = (wide * wide).sum()
            total = squares if total is None else total + squares
    return None if total is None else math.sqrt(float(total)) / _scale(scaler)


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
    found: dict[str, Any] = {"versions": {"python": platform.python_version(), **_versions()}}
    found["machine"] = {"system": platform.platform(), "processor": _processor(), "cores": len(os.sched_getaffinity(0))}
    found["parallel"] = {"processes": _processes()}
    found["flags"] = {}
    paddle, torch = sys.modules.get("paddle"), sys.modules.get("torch")
    if paddle is not None and hasattr(paddle, "get_flags"):
        found["machine"].update(_paddle_machine(paddle))
        found["flags"].update(_paddle_flags(paddle))
        found["versions"]["paddle_commit"] = _tried(lambda: paddle.version.commit)
    elif torch is not None:
        found["machine"].update(_torch_machine(torch))
        found["flags"].update(_torch_flags(torch))
    known = {name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)}
    found["variables"] = {name: value for name, value in known.items() if not name.startswith("XPULAB_")}
    return {group: {name: value for name, value in values.items() if value is not None} for group, values in found.items()}


class _Callback:
    """Takes loss and batch from training_step, and writes when the optimizer is about to step; all other events do nothing."""

    def __init__(self, log: Log, trainer: Any) -> None:
        self.log, self.trainer = log, trainer
        self.losses: list[float] = []
        self.batches: list[Any] = []
        self.grad_norm: float | None = None
        trainer.training_step = self._noting(trainer.training_step)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("on_"):
            return lambda *arguments, **named: None
        raise AttributeError(name)

    def _noting(self, training_step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(training_step)
        def noting(model: Any, inputs: Any, *arguments: Any, **named: Any) -> Any:
            loss = training_step(model, inputs, *arguments, **named)
            self.losses.append(float(self.trainer._nested_gather(loss).mean() if _processes() > 1 else loss))
            self.batches.append(inputs.get("input_ids"))
            if hasattr(self.trainer, "accelerator"):  # transformers clips before its event
                self.grad_norm = gradient_norm(model, getattr(self.trainer.accelerator, "scaler", None))
            return loss

        return noting

    def on_optimizer_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """PaddleNLP's event, with all gradients reduced."""
        loss = sum(self.losses)
        if args.gradient_accumulation_steps > 1 and self.trainer._enable_delay_scale_loss():
            loss /= args.gradient_accumulation_steps
        self._write(loss, None, args, state, named)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """The event of transformers."""
        self._write(sum(self.losses), self.grad_norm, args, state, named)

    def _write(self, loss: float, grad_norm: float | None, args: Any, state: Any, named: dict[str, Any]) -> None:
        log = self.log
        log.model, log.optimizer = named["model"], named["optimizer"]
        degrees = (name for name in vars(args) if name.endswith(("_parallel_degree", "_parallel_config")))
        log.settings = {**_some(args, (*_ARGUMENTS, *degrees)), **log.settings}
        batch = [part for part in self.batches if part is not None] if _processes() == 1 else []
        log.step(loss, batch or None, grad_norm=grad_norm, step=state.global_step + 1, scaler=named.get("scaler"))
        self.losses, self.batches, self.grad_norm = [], [], None


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
    if isinstance(rows, (list, tuple)):
        for row in rows:
            yield from _flat(row)
    else:
        yield rows


def _shape(rows: Any) -> list[int]:
    return [len(rows), *(_shape(rows[0]) if rows else [])] if isinstance(rows, (list, tuple)) else []


def _learns(parameter: Any) -> bool:
    stopped = getattr(parameter, "stop_gradient", None)
    return bool(parameter.requires_grad) if stopped is None else not stopped


def _sample(model: Any) -> list[Any]:
    """At most 16 tensors that learn, evenly spaced over the model."""
    learning = [parameter for parameter in model.parameters() if _learns(parameter)]
    return learning[:: -(-len(learning) // _SAMPLED_TENSORS) or 1]


def _leading(tensor: Any) -> Any:
    """Its first 64 rows and columns: a linear layer's weights have the same ones in Paddle and, transposed, in torch."""
    return tensor.detach()[tuple(slice(_SAMPLED_LENGTH) for _ in tensor.shape)] if len(tensor.shape) else tensor.detach()


def _norm_of_sample(sample: Iterable[Any]) -> float:
    """The 2-norm; the sum is exact, so that it does not depend on the order of the elements."""
    squares = (value * value for tensor in sample for value in _flat(_float(_leading(tensor)).tolist()))
    values = list(squares)
    return math.sqrt(math.fsum(values)) if all(map(math.isfinite, values)) else math.nan


def _size(sample: Iterable[Any]) -> str:
    """How many elements of how many tensors: samples of other sizes cannot be compared."""
    sizes = [math.prod(min(length, _SAMPLED_LENGTH) for length in tensor.shape) for tensor in sample]
    return f"{sum(sizes)} elements of {len(sizes)} tensors"


def _rate(optimizer: Any) -> float | None:
    if hasattr(optimizer, "get_lr"):
        return float(optimizer.get_lr())
    groups = getattr(optimizer, "param_groups", None)
    return float(groups[0]["lr"]) if groups else None


def _scale(scaler: Any) -> float:
    if scaler is None:
        return 1.0
    return float(scaler.get_scale()) if hasattr(scaler, "get_scale") else float(scaler._scale)


def _optimizer(optimizer: Any) -> dict[str, Any]:
    """Its class and settings, by the same names for Paddle and torch."""
    optimizer = getattr(optimizer, "_inner_opt", optimizer)
    optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
    found: dict[str, Any] = {"class": type(optimizer).__name__}
    groups = getattr(optimizer, "param_groups", None)
    if groups and isinstance(groups[0], dict) and "lr" in groups[0]:
        group = dict(groups[0])
        found["beta1"], found["beta2"] = group.get("betas", (None, None))
        found.update({"epsilon": group.get("eps"), "weight_decay": group.get("weight_decay"), "amsgrad": group.get("amsgrad")})
    else:
        for name in ("beta1", "beta2", "epsilon", "weight_decay", "amsgrad", "multi_precision"):
            found[name] = getattr(optimizer, f"_{name}", None)
        clip = getattr(optimizer, "_grad_clip", None)
        found["clip_norm"] = getattr(clip, "clip_norm", None)
    return {name: _scalar(value) for name, value in found.items() if value is not None}


def _some(source: Any, names: Iterable[str]) -> dict[str, Any]:
    found = {name: getattr(source, name, None) for name in names}
    return {name: _scalar(value) for name, value in found.items() if value is not None}


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    except OSError:
        return platform.machine()


def _tried(read: Callable[[], Any]) -> Any:
    """What a framework says about itself; None where this release or device does not say it."""
    try:
        return _scalar(read())
    except Exception:
        return None


def _paddle_machine(paddle: Any) -> dict[str, Any]:
    device = _tried(paddle.get_device)
    name = _tried(paddle.device.cuda.get_device_name) if str(device).startswith("gpu") else None
    return {"device": device, "card": name}


def _torch_machine(torch: Any) -> dict[str, Any]:
    card = _tried(torch.cuda.get_device_name) if _tried(torch.cuda.is_available) else None
    return {"device": "cpu" if card is None else "gpu", "card": card, "threads": _tried(torch.get_num_threads)}


def _paddle_flags(paddle: Any) -> dict[str, Any]:
    def value(name: str) -> Any:
        return paddle.get_flags(name)[name]

    return {name: _tried(functools.partial(value, name)) for name in _PADDLE_FLAGS}


def _torch_flags(torch: Any) -> dict[str, Any]:
    return {
        "float32_matmul_precision": _tried(torch.get_float32_matmul_precision),
        "deterministic_algorithms": _tried(torch.are_deterministic_algorithms_enabled),
        **{name: _tried(functools.partial(attrgetter(name), torch.backends)) for name in _TORCH_BACKENDS},
    }
