"""Building the plug-in: once for each wheel, compiler and version of its sources, when it is first needed."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from xpulab import files
from xpulab.errors import InputError
from xpulab.messages import N_
from xpulab.records.usable import whole_cores
from xpulab.sim.limits import DEFINITIONS

LIBRARY = "libxpulab_sim.so"
SOURCES = Path(__file__).parent / "plugin"
_COMPILERS = ("g++", "c++", "clang++")
_OPTIONS = ("-std=c++17", "-O2", "-fPIC", "-Wall", "-Wextra")
_SECONDS = 300
"""The timeout of one compiler; the longest takes 7 to 11 s."""

_MOST_COMPILERS = 4
"""How many run at once, if there are as many cores: one takes up to 0.5 GB of memory."""


def built() -> Path:
    """The path of the built plug-in; builds it if needed. Its folder has no other file: Paddle loads every library there.

    If several processes call it at the same time, one builds and the others wait. Files of a killed build are never used.
    Raises InputError without a compiler or a wheel, and if the build fails.
    """
    paddle, compiler = _paddle(), _compiler()
    folder = files.cache_folder("XPULAB_SIM_CACHE", "sim").resolve() / _key(paddle, compiler)
    library = folder / LIBRARY
    if not library.exists():
        with files.built(folder, "set XPULAB_SIM_CACHE to another folder") as building:
            if building:
                _build(paddle, compiler, building)
    return library


def _build(paddle: Path, compiler: str, folder: Path) -> None:
    """Compile and link in the folder, in which only the library stays."""
    scratch = folder / "objects"
    scratch.mkdir()
    objects = [scratch / f"{source.stem}.o" for source in _translation_units()]
    include = ["-isystem", str(paddle / "include"), "-isystem", str(paddle / "include" / "third_party")]
    with ThreadPoolExecutor(max(2, min(_MOST_COMPILERS, whole_cores()))) as pool:
        commands = [
            [compiler, *_OPTIONS, *DEFINITIONS, *include, "-c", str(source), "-o", str(target)]
            for source, target in zip(_translation_units(), objects, strict=True)
        ]
        for _ in pool.map(_run, commands):
            pass
    libs = paddle / "libs"
    # nodelete: Paddle unloads plug-ins when the process ends, and threads of streams may still run then.
    link = [f"-L{libs}", "-lphi_core", "-lcommon", "-lrt", "-pthread", f"-Wl,-rpath,{libs}", "-Wl,-z,nodelete"]
    _run([compiler, "-shared", *map(str, objects), *link, "-o", str(folder / LIBRARY)])
    shutil.rmtree(scratch)


def _run(command: list[str]) -> None:
    what = Path(command[command.index("-c") + 1]).name if "-c" in command else LIBRARY
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise InputError(
            N_(
                "the simulated accelerator does not build: {command} did not finish {what} in {SECONDS} s; set CXX "
                "to another compiler",
                command=command[0],
                what=what,
                SECONDS=_SECONDS,
            )
        ) from error
    if done.returncode:
        lines = done.stderr.splitlines()
        errors = [line for line in lines if "error" in line or "cannot find" in line] or lines
        head = f"the simulated accelerator does not build: {command[0]} stopped at {what} with exit code {done.returncode}"
        raise InputError(
            "\n  ".join([head, *errors[:5], N_("It needs C++17: g++ 9 or clang++ 10, or later; set CXX to another compiler")])
        )


def _translation_units() -> list[Path]:
    """All sources; first those that take longest, because they include Paddle's own headers."""
    return sorted(SOURCES.glob("*.cc"), key=lambda source: (b'"paddle/' not in source.read_bytes(), source.name))


def _paddle() -> Path:
    """The folder of the wheel, found without importing it."""
    found = importlib.util.find_spec("paddle")
    if found is None or not found.submodule_search_locations:
        raise InputError(N_("the simulated accelerator needs paddle, which is not installed: run env/validate.sh"))
    return Path(found.submodule_search_locations[0])


def _compiler() -> str:
    wanted = (os.environ["CXX"],) if os.environ.get("CXX") else _COMPILERS
    for name in wanted:
        if found := shutil.which(name):
            return found
    source = "CXX is" if os.environ.get("CXX") else "tried"
    raise InputError(
        N_(
            "the simulated accelerator needs a C++ compiler, but none was found ({source} {wanted}). On Debian "
            "or Ubuntu: apt-get install g++. With conda: conda install gxx_linux-64",
            source=source,
            wanted=", ".join(wanted),
        )
    )


def _key(paddle: Path, compiler: str) -> str:
    """Identifies a build: the wheel and its folder, the compiler, its options and the sources."""
    digest = hashlib.sha256()
    wheel = paddle / "libs" / "libphi_core.so"
    seen = wheel.stat() if wheel.exists() else None
    tool = Path(compiler).stat()
    digest.update(repr((str(paddle), seen and (seen.st_size, seen.st_mtime_ns))).encode())
    digest.update(repr((compiler, tool.st_size, tool.st_mtime_ns, _OPTIONS, DEFINITIONS)).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:20]
