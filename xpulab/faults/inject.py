"""Bring a fault into the process of a notebook, before its first cell.

The fault's function travels as a pickle: IPython runs the script in its startup folder, which loads it and calls it.
"""

from __future__ import annotations

import pickle
from pathlib import Path

from xpulab.chapters.shared.fault import Fault
from xpulab.devices import SIMULATED

_STARTUP = """\
from xpulab.faults.inject import inject_from
inject_from({pickled!r}, {failure!r})
del inject_from
"""


def prepare(fault: Fault, folder: Path) -> dict[str, str]:
    """Write what a kernel needs below `folder`; returns the environment variables that make the kernel inject the fault."""
    import cloudpickle

    startup = folder / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    pickled = folder / "fault.pickle"
    pickled.write_bytes(cloudpickle.dumps(fault.inject))
    script = _STARTUP.format(pickled=str(pickled), failure=str(_failure(folder)))
    (startup / "fault.py").write_text(script, encoding="utf-8")
    cards = {"XPULAB_SIM_FAULTS": fault.sim_faults} if fault.device == SIMULATED else {}
    return {"IPYTHONDIR": str(folder / "ipython"), **cards}


def why_not_injected(folder: Path) -> str | None:
    """The error that kept the fault out of the kernel; None when it was injected."""
    failure = _failure(folder)
    return failure.read_text(encoding="utf-8") if failure.exists() else None


def inject_from(pickled: str, failure: str) -> None:
    """In the kernel: load the function and call it. An error is written into the file `failure`: IPython would go on."""
    try:
        pickle.loads(Path(pickled).read_bytes())()
    except BaseException as error:
        Path(failure).write_text(f"{type(error).__name__}: {error}", encoding="utf-8")


def _failure(folder: Path) -> Path:
    return folder / "failure.txt"
