"""What the installed Paddle says about itself. The only place of the doctor that imports it, which takes 5 s."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PaddleFacts:
    """Of paddle.version and paddle.device; a part that this build was made without is None.

    error: what importing it raised, in one line; everything else is then None or 0
    version, commit: as paddle.version states them
    built_for: "xpu", "gpu" or "cpu": the build, which says nothing about the hardware
    xpu_cards, gpu_cards: how many this process sees
    xre, xccl, xhpc: Kunlun's runtime, collectives and kernels; a KL2 build states its runtime as `xpu`
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


def paddle_facts() -> PaddleFacts:
    """Imports paddle and asks it. Measured on the CPU build of 3.3.1; XPU and GPU fields as documented."""
    try:
        import paddle
    except Exception as error:
        # A broken installation is what the doctor is for, and it breaks in many ways: ImportError, OSError, TypeError.
        return PaddleFacts(error=f"{type(error).__name__}: {error}".splitlines()[0])
    built_for = "xpu" if paddle.is_compiled_with_xpu() else "gpu" if paddle.is_compiled_with_cuda() else "cpu"
    return PaddleFacts(
        version=paddle.version.full_version,
        commit=paddle.version.commit,
        built_for=built_for,
        xpu_cards=paddle.device.xpu.device_count(),
        gpu_cards=paddle.device.cuda.device_count(),
        xre=_stated(paddle.version, "xpu_xre") or _stated(paddle.version, "xpu"),
        xccl=_stated(paddle.version, "xpu_xccl"),
        xhpc=_stated(paddle.version, "xpu_xhpc"),
        cuda=_stated(paddle.version, "cuda"),
    )


def _stated(version: object, name: str) -> str | None:
    """What paddle.version.NAME() returns; a build without that part returns the string 'False', which is true."""
    ask = getattr(version, name, None)
    stated = str(ask()) if ask else "False"
    return None if stated in ("False", "None", "0") else stated
