"""Stacks and tracebacks of ranks, read and shown: the main thread's frames, and cells by their number instead of a file."""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

_HERE = str(Path(__file__).parent)
_THREAD = re.compile(r"(?m)^(?:Current thread|Thread) 0x[0-9a-f]+(?: \[[^\]]*\])? \(most recent call first\):\n")
_FRAME = re.compile(r'(?m)^  File "(?P<file>[^"]*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)$')
_IN_TRACEBACK = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]
_COLLECTIVE_FILES = (
    "/paddle/distributed/communication/",
    "/paddle/distributed/collective.py",
    "/paddle/distributed/parallel.py",
    "/paddle/distributed/fleet/fleet.py",
    "/paddle/distributed/fleet/base/topology.py",
    "/paddle/distributed/fleet/meta_parallel/pp_utils/p2p_communication.py",
    "/paddle/distributed/fleet/utils/hybrid_parallel_util.py",
    str(Path(_HERE) / "rendezvous.py"),
)

_READS_DEVICE = re.compile(r"\.(numpy|item|tolist|synchronize|wait)\(")
"""On a card a collective is only queued: a rank waits for it where it next wants to see what the card has computed."""


@dataclass(frozen=True)
class Frame:
    """A place in a stack: the file, the line (0: unknown) and the function's name."""

    file: str
    line: int
    name: str


@dataclass(frozen=True)
class Stack:
    """What faulthandler wrote. main: the frames of the main thread, innermost first; text: all of it, for a reader."""

    main: tuple[Frame, ...]
    text: str


NONE = Stack((), "")


def read(written: str) -> Stack:
    """The stack in what faulthandler wrote last; no frames when it wrote none."""
    if not written:
        return NONE
    threads = _THREAD.split(written)[1:]
    if not threads:
        return Stack((), written.strip())
    main = _of_reader(_frames(threads[-1]))  # the threads are written newest first
    others = [frames for frames in map(_frames, threads[:-1]) if frames]
    shown = ["".join(map(_shown, main)) or "  it has not entered the function\n"]
    shown += ["another thread:\n" + "".join(map(_shown, frames)) for frames in others]
    return Stack(main, "most recent call first:\n" + "".join(shown).rstrip())


def waits(stack: Stack) -> bool:
    """Whether the main thread waits for other ranks: in a collective, or for the card that is to do one."""
    if in_collective(tuple((frame.file, frame.name) for frame in stack.main)):
        return True
    reader = next((frame for frame in stack.main if "site-packages" not in frame.file), None)
    if reader is None or not _READS_DEVICE.search(linecache.getline(reader.file, reader.line)):
        return False
    return all("/paddle" in frame.file for frame in stack.main[: stack.main.index(reader)])


def in_collective(frames: tuple[tuple[str, str], ...]) -> bool:
    """Whether a stack of (file, function), innermost first, stands in one of Paddle's collectives or waits for its ranks.

    What Paddle and the standard library call from there is looked through; what a reader's own function does is not.
    """
    for file, name in frames:
        if any(part in file for part in _COLLECTIVE_FILES) and name != "forward":
            return True
        if "/paddle/" not in file and not ("site-packages" not in file and file.startswith((_STANDARD_LIBRARY, "<frozen "))):
            return False
    return False


def place_of_reader(stack: Stack) -> str:
    """The innermost line that is the reader's own: "Cell In[3], line 7, in work"; "" when there is none."""
    for frame in stack.main:
        if "site-packages" not in frame.file and not frame.file.startswith((_STANDARD_LIBRARY, _HERE)):
            return f"{_file_as_shown(frame.file)}, line {frame.line}, in {frame.name}"
    return ""


def with_cells(trace: str) -> str:
    """A traceback in which a cell is named by its number, as the notebook itself names it."""
    return _IN_TRACEBACK.sub(lambda found: f"{_file_as_shown(found['file'])}, line {found['line']}", trace)


def sources_of_cells() -> dict[str, tuple]:
    """The lines of all cells, by the name of the file that IPython invents for each: linecache cannot read them again."""
    return {name: entry for name, entry in linecache.cache.items() if len(entry) == 4 and entry[1] is None}


def _frames(text: str) -> tuple[Frame, ...]:
    return tuple(
        Frame(found["file"], int(found["line"]) if found["line"].isdigit() else 0, found["name"])
        for found in _FRAME.finditer(text)
    )


def _of_reader(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames above those that started the rank."""
    start = str(Path(_HERE) / "inside.py")
    return frames[: next((at for at, frame in enumerate(frames) if frame.file == start), len(frames))]


def _shown(frame: Frame) -> str:
    source = linecache.getline(frame.file, frame.line).strip()
    return f"  {_file_as_shown(frame.file)}, line {frame.line}, in {frame.name}\n" + (f"    {source}\n" if source else "")


def _file_as_shown(file: str) -> str:
    if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()) is not None:
        label_and_name = shell.compile.format_code_name(file)
        if label_and_name is not None:
            return " ".join(label_and_name)
    return f'File "{file}"'
