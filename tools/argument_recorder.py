"""What tools/argument_census.py puts into every process of a run: which arguments of public functions got which values.

sitecustomize imports it. It wraps functions and methods where a module defines them, once the module has been imported, and in
every module of Paddle and PaddleNLP that holds them by then. Each new kind of value of a parameter is a line of FILE, at once:
ranks and kernels end in many ways.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

FILE = "ARGUMENTS_RECORDED_IN"
"""The environment variable with the path of the file that gets lines: [function, parameter, kind, is its default]."""

MODULES: Mapping[str, Sequence[str]] = {
    "paddle.framework.io": ("save", "load"),
    "paddle.optimizer": (),
    "paddle.optimizer.lr": (),
    "paddle.regularizer": (),
    "paddle.nn.clip": ("ClipGradByGlobalNorm", "ClipGradByNorm", "ClipGradByValue"),
    "paddle.nn.utils": ("clip_grad_norm_", "clip_grad_value_"),
    "paddle.nn.functional": (),
    "paddle.amp": (),
    "paddle.io": (),
    "paddle.distributed": (),
    "paddle.distributed.fleet.recompute": ("recompute", "recompute_sequential", "recompute_hybrid"),
    "paddle.distributed.fleet.meta_parallel": (
        *("ColumnParallelLinear", "RowParallelLinear", "VocabParallelEmbedding", "ParallelCrossEntropy"),
        *("LayerDesc", "SharedLayerDesc", "PipelineLayer", "PipelineParallel"),
    ),
    "paddle.jit": (),
    "paddlenlp.trainer": ("Trainer", "TrainingArguments", "PdArgumentParser", "EarlyStoppingCallback"),
    "paddlenlp.trl": ("SFTConfig", "SFTTrainer", "DPOConfig", "DPOTrainer", "KTOConfig", "KTOTrainer", "DPOCriterion"),
    "paddlenlp.data": ("DataCollatorForSeq2Seq", "DataCollatorWithPadding", "DataCollatorForLanguageModeling", "Pad", "Stack"),
    "paddlenlp.datasets": ("ZeroPaddingMapDataset", "ZeroPaddingIterableDataset", "MapDataset"),
    "paddlenlp.peft": ("LoRAConfig", "LoRAModel"),
    "paddlenlp.generation.utils": ("GenerationMixin",),
    "paddlenlp.transformers.model_utils": ("PretrainedModel",),
}
"""By module the names that are recorded; all of its __all__ where none is named."""

METHODS: Mapping[str, Sequence[str]] = {
    "GenerationMixin": ("generate",),
    "PretrainedModel": ("from_pretrained", "save_pretrained"),
    "Trainer": ("train", "evaluate", "predict", "save_model"),
    "PipelineParallel": ("train_batch", "eval_batch"),
    **dict.fromkeys(("TrainingArguments", "SFTConfig", "DPOConfig", "KTOConfig"), ()),
    **dict.fromkeys(("SFTTrainer", "DPOTrainer", "KTOTrainer", "LoRAModel", "MapDataset"), ()),
    "PdArgumentParser": ("parse_json_file", "parse_dict", "parse_args_into_dataclasses"),
}
"""By class the methods beside its constructor; all public ones of a class that is not here."""


def functions(module: ModuleType, names: Sequence[str]) -> Iterator[tuple[str, Any, str, Callable[..., Any]]]:
    """Each function and method: its full name, the module or class that holds it, its name there, and itself."""
    for name in names or module.__all__:
        value = getattr(module, name, None)
        whole = f"{module.__name__}.{name}"
        if inspect.isclass(value):
            wanted = METHODS.get(name)
            for method, function in vars(value).items():
                if method == "__init__":
                    yield whole, value, method, function
                elif method in wanted if wanted is not None else not method.startswith("_"):
                    inner = function.__func__ if isinstance(function, (classmethod, staticmethod)) else function
                    if inspect.isfunction(inner):
                        yield f"{whole}.{method}", value, method, function
        elif callable(value):
            yield whole, module, name, value


CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "paddle.framework.io.save": {"use_binary_format": False, "pickle_protocol": None, "safetensors": False},
    "paddle.framework.io.load": {"return_numpy": False, "keep_name_table": False, "safetensors": False},
    "paddle.jit.save": {"output_spec": None, "combine_params": False, "skip_forward": False, "separate_parameters": False},
    "paddle.jit.load": {"model_filename": None, "params_filename": None},
}
"""By function the parameters that its `**configs` stands for, with their defaults."""


def parameters(name: str, function: Any) -> list[inspect.Parameter]:
    """The parameters of a function or method, without self and cls; of a decorated one those of what it decorates.

    name: the full one. Those that `**configs` and the `**kwargs` of generate stand for are among them.
    """
    try:
        found = list(inspect.signature(getattr(function, "__func__", function)).parameters.values())
    except (TypeError, ValueError):
        return []
    more = dict(CONFIGS.get(name, {}))
    if name == "paddlenlp.generation.utils.GenerationMixin.generate":
        from paddlenlp.generation.configuration_utils import GenerationConfig

        more = vars(GenerationConfig())
    named = {each.name for each in found}
    found = [each for each in found if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    found += [
        inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=default)
        for each, default in more.items()
        if each not in named and not each.startswith("_")
    ]
    return found[1:] if found and found[0].name in ("self", "cls") else found


def kind(value: Any) -> str:
    """What a table says of a value: its type and number of axes, whether it is None, a flag, a word, 0, below 0."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, (int, float)):
        kinds = (("0", value == 0), ("1", value == 1), ("below 0", value < 0), ("below 1", value < 1))
        return f"{type(value).__name__} {next((name for name, holds in kinds if holds), 'above 1')}"
    if isinstance(value, str):
        return value if len(value) < 24 and os.sep not in value else "text"
    if type(value).__name__ in ("Tensor", "EagerParamBase", "Value"):
        return f"{value.dtype} {len(value.shape)}-d".replace("paddle.", "")
    if isinstance(value, (list, tuple, dict, set)):
        return f"{type(value).__name__} {min(len(value), 2)}"
    return "function" if callable(value) and not inspect.isclass(value) else type(value).__name__


class _Recorder:
    def __init__(self, path: str) -> None:
        self.path = path
        self.seen: set[tuple[str, str, str, bool]] = set()
        self.wrapped: set[str] = set()

    def note(self, name: str, parameter: str, value: Any, default: Any) -> None:
        is_default = value is default or (isinstance(value, (bool, int, float, str)) and value == default)
        entry = name, parameter, kind(value), is_default
        if entry not in self.seen:
            self.seen.add(entry)
            with open(self.path, "a", encoding="utf-8") as file:  # no descriptor that a forked process may close
                file.write(json.dumps(entry) + "\n")

    def wrap(self, module: ModuleType, names: Sequence[str]) -> None:
        """Wrap the functions of a module that has been imported, there and wherever else they are by now."""
        for name, holder, attribute, function in list(functions(module, names)):
            if name in self.wrapped:
                continue
            self.wrapped.add(name)
            new = self._wrapped(name, function)
            if inspect.isclass(holder):
                setattr(holder, attribute, new)
                continue
            for each in [loaded for path, loaded in sys.modules.items() if path.startswith("paddle")]:
                for place, value in list(vars(each).items()):
                    if value is function:
                        setattr(each, place, new)

    def _wrapped(self, name: str, given: Any) -> Any:
        function = getattr(given, "__func__", given)
        known = parameters(name, given)
        defaults = {each.name: each.default for each in known}
        order = [each.name for each in known if each.kind != each.KEYWORD_ONLY]
        skipped = 0 if isinstance(given, staticmethod) or "." not in function.__qualname__ else 1

        @functools.wraps(function)
        def recorded(*arguments: Any, **named: Any) -> Any:
            try:
                for parameter, value in zip(order, arguments[skipped:], strict=False):
                    self.note(name, parameter, value, defaults[parameter])
                for parameter, value in named.items():
                    self.note(name, parameter, value, defaults.get(parameter, inspect.Parameter.empty))
                if not arguments[skipped:] and not named:
                    self.note(name, "", None, None)
            except Exception:  # a value that cannot be looked at must not end a run
                pass
            return function(*arguments, **named)

        return type(given)(recorded) if isinstance(given, (classmethod, staticmethod)) else recorded


class _AfterImport(importlib.abc.MetaPathFinder):
    """Wraps the functions of a module when it has been imported."""

    def __init__(self, recorder: _Recorder) -> None:
        self.recorder = recorder

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname not in MODULES:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        finally:
            sys.meta_path.insert(0, self)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def then_wrap(module: ModuleType) -> None:
                execute(module)
                self.recorder.wrap(module, MODULES[fullname])

            spec.loader.exec_module = then_wrap  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Record in this process and in those forked from it, where FILE names a file."""
    if path := os.environ.get(FILE):
        sys.meta_path.insert(0, _AfterImport(_Recorder(path)))
