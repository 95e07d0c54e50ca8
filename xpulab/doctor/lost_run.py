"""result.json and junit.xml of a run of which nothing ran, since the accelerator is lost, where nothing is installed yet.

Standard library only: env/make_venv.py calls it. With an environment `xpulab run` writes them, and all other reports.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from fnmatch import fnmatch
from itertools import zip_longest
from pathlib import Path
from xml.etree import ElementTree

from xpulab.devices import JUDGED
from xpulab.doctor.meant import Lost
from xpulab.errors import InputError
from xpulab.records.node import node_name
from xpulab.records.record import LEVELS


def option(arguments: Sequence[str], name: str) -> str | None:
    """The value of an option among the arguments of a command, the last one; None when it is not given."""
    found = None
    for argument, following in zip_longest(arguments, arguments[1:]):
        if argument == name:
            found = following
        elif argument.startswith(f"{name}="):
            found = argument.partition("=")[2]
    return found


def write(lost: Lost, arguments: Sequence[str], notebooks: Path) -> Path:
    """Write both files into the folder that --out names, else a new one below out/; returns the folder.

    arguments: of `xpulab run`. notebooks: the folder of the committed ones; those that an argument names are reported as
    missing, without one all. Raises InputError when the folder holds another run or cannot be written.
    """
    folder = Path(option(arguments, "--out") or Path("out") / datetime.now().strftime("%Y-%m-%d-%H%M%S")).resolve()
    if (folder / "result.json").exists() and "--resume" not in arguments:
        raise InputError(f"{folder}: holds another run; name another folder with --out, or remove that one")
    chosen = _chosen(arguments, notebooks)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "junit.xml").write_text(_junit(lost, chosen), encoding="utf-8")
        (folder / "result.json").write_text(json.dumps(_result(lost, arguments, chosen), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}; name another folder with --out") from error
    return folder


def _chosen(arguments: Sequence[str], notebooks: Path) -> list[Path]:
    paths = sorted(notebooks.glob("*.ipynb"))
    named = [path for path in paths if any(fnmatch(path.stem, Path(each).stem) for each in arguments)]
    return named or paths


def _result(lost: Lost, arguments: Sequence[str], chosen: Sequence[Path]) -> dict[str, object]:
    level, cards, seed = (option(arguments, name) for name in ("--level", "--cards", "--seed"))
    return {
        "schema": 1,
        "outcome": "failed",
        "green": False,
        "verdict": _verdict(lost),
        "device": lost.device,
        "scope": f"Nothing ran: {lost.headline}",
        "level": level if level in LEVELS else "quick",
        "cards": int(cards) if cards and cards.isdigit() and int(cards) else 1,
        "seed": int(seed) if seed and seed.isdigit() else 0,
        "seconds": 0.0,
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "node": node_name(),
        "proof": None,
        "lost": asdict(lost),
        "card_facts": [],
        "machine": {},
        "versions": {},
        "notebooks": [_notebook(path, lost) for path in chosen],
    }


def _notebook(path: Path, lost: Lost) -> dict[str, object]:
    return {
        "name": path.stem,
        "title": json.loads(path.read_text(encoding="utf-8"))["metadata"]["xpulab"]["title"],
        "outcome": "missing",
        "seconds": 0.0,
        "reason": _reason(lost),
        "explanations": [],
        "notes": [],
        "planned": 0,
        "compared": 0,
        "controls_rejected": 0,
        "executed": None,
        "checks": [],
    }


def _junit(lost: Lost, chosen: Sequence[Path]) -> str:
    root = ElementTree.Element("testsuites", name="xpulab", time="0.0")
    for path in chosen:
        suite = ElementTree.SubElement(root, "testsuite", name=path.stem, time="0.0", tests="1", failures="0", errors="1")
        stated = ElementTree.SubElement(suite, "properties")
        for name, value in {"device": lost.device, "verdict": _verdict(lost), "lost": str(lost)}.items():
            ElementTree.SubElement(stated, "property", name=name, value=value)
        case = ElementTree.SubElement(suite, "testcase", classname=path.stem, name="the notebook", time="0.0")
        ElementTree.SubElement(case, "error", message=_reason(lost)).text = str(lost)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _reason(lost: Lost) -> str:
    return f"not run: {lost.headline}"


def _verdict(lost: Lost) -> str:
    return f"{JUDGED[lost.device]}: NOT READY"
