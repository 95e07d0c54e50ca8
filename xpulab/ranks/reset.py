"""The state of a rank's process before its first function, to which it returns, so that the next function sees nothing of it.

Python: the attributes of the modules, classes and objects of Paddle, PaddleNLP, numpy and this package, and what their lists,
sets and dictionaries hold: patches, groups, fleet, meshes, names, the default type. Process: variables, signals, warnings,
modules of the notebook's own, Paddle's flags, random numbers, tracer, static programs and their variables, memory of the card.
Not: compiled operators, exit functions, caches of functools, loaded modules of packages, and what C++ keeps for itself.
"""

from __future__ import annotations

import collections
import gc
import logging
import os
import random
import signal
import sys
import threading
import warnings
from types import ModuleType
from typing import Any

from cloudpickle import cloudpickle

from xpulab.records import environments

_WATCHED = ("paddle", "paddlenlp", environments.SUCCESSOR, "numpy", "xpulab")
_CHANGES_BY_ITSELF = "xpulab.ranks"
_DICTIONARIES = (dict, collections.OrderedDict, collections.defaultdict)
_SEQUENCES = (list, collections.deque)
_OF_TRACER = ("_amp_level", "_amp_dtype", "_has_grad", "_use_promote")
_INSTALLED = (sys.prefix, sys.base_prefix)
_ABSENT = object()
_THREAD_SECONDS = 4.0
"""A thread that was told to end takes less."""


class State:
    """What this process returns to. Make it when Paddle and the rank's card are ready."""

    def __init__(self) -> None:
        from paddle.base import core, framework

        self._held: dict[int, tuple[Any, Any]] = {}
        self._modules: set[str] = set()
        self.extend()
        self._first = frozenset(sys.modules)
        self._variables = dict(os.environ)
        self._threads = set(threading.enumerate())
        self._handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self._filters = list(warnings.filters)
        self._flags = {name: core.globals()[name] for name in list(core.globals().keys())}
        self._tracer = framework._dygraph_tracer()
        self._of_tracer = {name: getattr(self._tracer, name) for name in _OF_TRACER}
        gc.freeze()  # what is there to stay need not be looked at in each collection

    def extend(self) -> None:
        """Keep, too, what modules hold that were imported since: call it before a function can have changed them."""
        new = sys.modules.keys() - self._modules
        self._modules |= new
        todo: list[Any] = [sys.modules[name] for name in new if is_watched(name)]
        while todo:
            owner = todo.pop()
            if id(owner) not in self._held and (held := _held_by(owner)) is not None:
                self._held[id(owner)] = owner, held
                todo += held.values() if isinstance(held, dict) else held

    def restore(self, device: str) -> bool:
        """Return to this state; whether that was possible: a thread that the function has left behind cannot be ended.

        device: whose memory is given back. Waits for threads as the end of a script does.
        """
        from paddle.base import core, framework
        from paddle.base.dygraph import base

        has_ended = self._end_threads()
        if not framework.in_dygraph_mode():
            base.enable_dygraph()
        of_mode = base.global_var._functional_dygraph_context_manager  # it can be left once
        for owner, held in self._held.values():
            _give_back(owner, held)
        base.global_var._functional_dygraph_context_manager = of_mode
        base.global_var._dygraph_tracer_ = self._tracer
        for name, value in self._of_tracer.items():
            setattr(self._tracer, name, value)
        for name, value in self._flags.items():
            if core.globals()[name] != value:
                core.globals()[name] = value
        self._restore_process()
        _begin_anew(device)
        return has_ended

    def _end_threads(self) -> bool:
        """End the threads that the function has left; whether all have ended.

        A loader is held until its thread has ended: one that is freed in that thread waits for itself, for three seconds.
        """
        from paddle.io.dataloader.dataloader_iter import _DataLoaderIterBase

        for thread in set(threading.enumerate()) - self._threads:
            loading = getattr(getattr(thread, "_target", None), "__self__", None)
            if isinstance(loading, _DataLoaderIterBase):  # a training that stops within an epoch leaves it waiting
                loading._exit_thread_unexpectedly()
            elif hasattr(thread, "exit") or not thread.daemon:  # tqdm's monitor, or what a script would wait for
                getattr(thread, "exit", thread.join)()
            thread.join(_THREAD_SECONDS)
        return not set(threading.enumerate()) - self._threads

    def _restore_process(self) -> None:
        for name in os.environ.keys() - self._variables.keys():
            del os.environ[name]
        os.environ.update({name: value for name, value in self._variables.items() if os.environ.get(name) != value})
        for number, handler in self._handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        filters: Any = warnings.filters
        filters[:] = self._filters
        for name in sys.modules.keys() - self._first:  # a script of the notebook may have another content next time
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and not file.startswith(_INSTALLED) and not is_watched(name):
                del sys.modules[name]
        self._modules &= sys.modules.keys()
        cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.clear()  # the classes of its cells are new ones in each call
        cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.clear()


def _begin_anew(device: str) -> None:
    """New random numbers, static programs, variables and memory, and no hooks on saved tensors."""
    import numpy as np
    import paddle
    from paddle.base import core, executor, framework
    from paddle.pir import core as pir

    random.seed()
    np.random.seed()
    paddle.seed(random.SystemRandom().randrange(2**31))
    core.default_cpu_generator().set_state_index(0)
    core.eager.reset_saved_tensors_hooks()
    framework._main_program_, framework._startup_program_ = framework.Program(), framework.Program()
    pir.switch_main_program(paddle.pir.Program())
    pir.switch_startup_program(paddle.pir.Program())
    executor.g_scope = core.Scope()
    gc.collect()
    if device != "cpu":
        card = paddle.device.get_device()
        paddle.device.synchronize(card)
        paddle.device.empty_cache()
        paddle.device.reset_max_memory_allocated(card)
        paddle.device.reset_max_memory_reserved(card)


def is_watched(module: object) -> bool:
    """Whether what this module holds is reset."""
    return isinstance(module, str) and module.partition(".")[0] in _WATCHED and not module.startswith(_CHANGES_BY_ITSELF)


def _held_by(owner: Any) -> Any:
    """A copy of what a module, a class, an object or a container holds; None for what does not count."""
    kind = type(owner)
    if kind in _DICTIONARIES:
        return dict(owner)
    if kind in _SEQUENCES or kind in (set, tuple):
        return list(owner)
    defined = owner if isinstance(owner, type) else kind
    module = owner.__name__ if isinstance(owner, ModuleType) else getattr(defined, "__module__", "")
    namespace = getattr(owner, "__dict__", None) if is_watched(module) or kind is logging.Logger else None
    return None if namespace is None else dict(namespace)


def _give_back(owner: Any, held: Any) -> None:
    """Let the owner hold what it held, nothing more; modules that a package has got stay."""
    kind = type(owner)
    if kind is tuple:
        return
    if kind is set or kind in _SEQUENCES:
        if len(owner) != len(held) or any(one is not other for one, other in zip(owner, held, strict=True)):
            owner.clear()
            (owner.update if kind is set else owner.extend)(held)
        return
    namespace = owner if kind in _DICTIONARIES else owner.__dict__
    changed = {name: value for name, value in held.items() if namespace.get(name, _ABSENT) is not value}
    added = [name for name in namespace if name not in held] if len(namespace) + len(changed) != len(held) else []
    for name, value in changed.items():
        type.__setattr__(owner, name, value) if isinstance(owner, type) else namespace.__setitem__(name, value)
    for name in added:
        if isinstance(owner, ModuleType) and isinstance(namespace[name], ModuleType):
            continue
        type.__delattr__(owner, name) if isinstance(owner, type) else namespace.__delitem__(name)
