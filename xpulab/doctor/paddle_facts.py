"""Version and build of the installed Paddle, which is imported for it; xpulab.doctor.probe does so in another process."""

from __future__ import annotations

from dataclasses import dataclass, field

from xpulab.devices import SIMULATED
from xpulab.records.usable import whole_cores

COMPONENTS = ("xpu_xre", "xpu_xccl", "xpu_xhpc", "cuda")
"""Kunlun's runtime, collectives and kernels, and CUDA: functions of paddle.version."""


@dataclass(frozen=True)
class PaddleFacts:
    """From paddle.version and paddle.device.

    error: what the import raised, in one line, or how it ended; everything else but known is then None, 0 or empty
    version: from paddle.version
    built_for: "xpu", "gpu" or "cpu": the build, whatever the hardware
    xpu_cards, gpu_cards: how many this process sees
    components: the versions of those of COMPONENTS that this build contains
    known: id of the row in data/remedies.yaml for an error that does not show it itself
    """

    error: str | None = None
    version: str | None = None
    built_for: str | None = None
    xpu_cards: int = 0
    gpu_cards: int = 0
    components: dict[str, str] = field(default_factory=dict)
    known: str | None = None


_FAILURE: list[PaddleFacts] = []


def remember_failure(facts: PaddleFacts) -> None:
    """From now on paddle_facts() returns these: the import failed in another process, and might end or stop this one."""
    _FAILURE[:] = [facts]


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
    stated = {name: str(getattr(paddle.version, name)()) for name in COMPONENTS if hasattr(paddle.version, name)}
    return PaddleFacts(
        version=paddle.version.full_version,
        built_for=built_for,
        xpu_cards=paddle.device.xpu.device_count(),
        gpu_cards=paddle.device.cuda.device_count(),
        components={name: text for name, text in stated.items() if text not in ("False", "None", "0")},
    )


def card_count(name: str) -> int:
    """How many cards of this kind Paddle sees; for the CPU the usable cores, because ranks are processes there.

    0 where paddle_works() has found that Paddle cannot be imported.
    """
    if name == "cpu":
        return whole_cores()
    if _FAILURE:
        return 0
    import paddle

    if name == SIMULATED:
        return paddle.base.core.get_custom_device_count(SIMULATED)
    compiled = {"gpu": paddle.is_compiled_with_cuda, "xpu": paddle.is_compiled_with_xpu}[name]()
    return getattr(paddle.device, {"gpu": "cuda", "xpu": "xpu"}[name]).device_count() if compiled else 0
