"""Version and build of the installed Paddle, which is imported for it; xpulab.doctor.probe does so in another process."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePath

from xpulab.devices import SIMULATED
from xpulab.records.usable import whole_cores

VENDOR_LIBRARY = re.compile(r"lib(xpurt|xpuapi|xpuml|xpucuda|bkcl|cudart|cublas|cudnn|nccl)\b")
"""The vendors' runtime, kernels and collectives, by the beginning of the library's name."""


@dataclass(frozen=True)
class PaddleFacts:
    """From paddle.version and paddle.device; None for a component that this build does not contain.

    error: what the import raised, in one line, or how it ended; everything else but known is then None or 0
    loaded_twice: paths of a vendor's libraries that this process has loaded from two folders, each pair in order
    known: id of the row in data/remedies.yaml for an error that does not show it itself
    version, commit: from paddle.version
    built_for: "xpu", "gpu" or "cpu": the build, whatever the hardware
    xpu_cards, gpu_cards: how many this process sees
    xre, xccl, xhpc: versions of Kunlun's runtime, collectives and kernels; a KL2 build names its runtime `xpu`
    cuda: version of CUDA
    """

    error: str | None = None
    version: str | None = None
    commit: str | None = None
    built_for: str | None = None
    xpu_cards: int = 0
    gpu_cards: int = 0
    xre: str | None = None
    xccl: str | None = None
    xhpc: str | None = None
    cuda: str | None = None
    known: str | None = None
    loaded_twice: tuple[str, ...] = ()


_FAILURE: list[PaddleFacts] = []


def remember_failure(facts: PaddleFacts) -> None:
    """From now on paddle_facts() returns these: the import failed in another process, and might end or stop this one."""
    _FAILURE[:] = [facts]


def failed() -> bool:
    """Whether remember_failure() was called."""
    return bool(_FAILURE)


def paddle_facts() -> PaddleFacts:
    """Imports paddle and reads its facts. Verified with the CPU build of 3.3.1; XPU and GPU fields as documented."""
    if _FAILURE:
        return _FAILURE[0]
    try:
        return facts_of_imported()
    except Exception as error:
        # The doctor reports broken installations, which raise anything: ImportError, OSError, TypeError.
        return PaddleFacts(error=f"{type(error).__name__}: {error}".splitlines()[0])


def facts_of_imported() -> PaddleFacts:
    """The same, but raises what the import raises."""
    import paddle

    built_for = "xpu" if paddle.is_compiled_with_xpu() else "gpu" if paddle.is_compiled_with_cuda() else "cpu"
    return PaddleFacts(
        version=paddle.version.full_version,
        commit=paddle.version.commit,
        built_for=built_for,
        xpu_cards=paddle.device.xpu.device_count(),
        gpu_cards=paddle.device.cuda.device_count(),
        xre=_version_of(paddle.version, "xpu_xre") or _version_of(paddle.version, "xpu"),
        xccl=_version_of(paddle.version, "xpu_xccl"),
        xhpc=_version_of(paddle.version, "xpu_xhpc"),
        cuda=_version_of(paddle.version, "cuda"),
        loaded_twice=loaded_twice(Path("/proc/self/maps")),
    )


def card_count(name: str) -> int:
    """How many cards of this kind Paddle sees; for the CPU the usable cores, because ranks are processes there.

    0 where paddle_works() has found that Paddle cannot be imported.
    """
    if name == "cpu":
        return whole_cores()
    if failed():
        return 0
    import paddle

    if name == SIMULATED:
        return paddle.base.core.get_custom_device_count(SIMULATED)
    compiled = {"gpu": paddle.is_compiled_with_cuda, "xpu": paddle.is_compiled_with_xpu}[name]()
    return getattr(paddle.device, {"gpu": "cuda", "xpu": "xpu"}[name]).device_count() if compiled else 0


def loaded_twice(maps: Path) -> tuple[str, ...]:
    """The vendors' libraries that a process has loaded from two folders, by path in alphabetical order; often none.

    maps: /proc/PID/maps of the process. Two copies of a runtime do not share their state: symbols are undefined, or calls fail.
    """
    try:
        lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    paths = {line.split(maxsplit=5)[5] for line in lines if line.count("/") and len(line.split(maxsplit=5)) == 6}
    of_library: dict[str, set[str]] = {}
    for path in paths:
        if VENDOR_LIBRARY.match(name := PurePath(path).name):
            of_library.setdefault(name.partition(".so")[0], set()).add(path)
    folders = {name: {PurePath(path).parent for path in found} for name, found in of_library.items()}
    return tuple(sorted(path for name, found in of_library.items() if len(folders[name]) > 1 for path in found))


def _version_of(version: object, name: str) -> str | None:
    """The result of paddle.version.NAME(). A build without that component returns the string 'False': None here."""
    function = getattr(version, name, None)
    text = str(function()) if function else "False"
    return None if text in ("False", "None", "0") else text
