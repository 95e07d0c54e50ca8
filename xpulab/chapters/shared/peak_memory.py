"""The largest memory that was in use since a moment: of this process on a CPU, of the tensors on a card elsewhere."""

from __future__ import annotations

from pathlib import Path


def reset(device: str) -> int:
    """Bytes in use now. On a CPU peak() counts from here; on a card it counts from the start of the process."""
    if device == "cpu":
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the kernel forgets the peak of this process
        return _of_process("VmRSS")
    import paddle

    return int(paddle.device.memory_allocated(paddle.get_device()))


def peak(device: str) -> int:
    """The largest number of bytes in use."""
    if device == "cpu":
        return _of_process("VmHWM")
    import paddle

    return int(paddle.device.max_memory_allocated(paddle.get_device()))


def _of_process(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(key)).split()[1])
