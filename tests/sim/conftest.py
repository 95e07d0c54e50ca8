"""Simulated cards are tried in processes of their own: a probe does many things on them and prints what it saw as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from xpulab.sim.build import built

HERE = Path(__file__).parent
SECONDS = 200
"""For a probe; the longest takes 25 s on an idle core."""


@dataclass(frozen=True)
class Done:
    """A probe that has ended. saw: what it printed as JSON on its last line; None when it did not get so far."""

    code: int
    saw: Any
    out: str
    err: str


@pytest.fixture(scope="session")
def library() -> Path:
    """The built plug-in."""
    return built()


@pytest.fixture(scope="session")
def probe(library: Path) -> Callable[..., Done]:
    """Runs a probe of this folder with arguments, and with variables besides those of this process."""

    def run(name: str, *arguments: str, **variables: str) -> Done:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("XPULAB_SIM", "CUSTOM_DEVICE"))
        }
        environment |= {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **variables}
        if "XPULAB_SIM_CACHE" in os.environ:
            environment.setdefault("XPULAB_SIM_CACHE", os.environ["XPULAB_SIM_CACHE"])
        done = subprocess.run(
            [sys.executable, str(HERE / f"probe_{name}.py"), *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=environment,
        )
        return Done(done.returncode, _last_json(done.stdout), done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def seen(probe: Callable[..., Done]) -> Callable[..., Any]:
    """What a probe saw that must end well."""

    def run(name: str, *arguments: str, **variables: str) -> Any:
        done = probe(name, *arguments, **variables)
        assert done.code == 0, f"probe_{name} ended with {done.code}\n{done.out[-2000:]}\n{done.err[-4000:]}"
        return done.saw

    return run


def _last_json(out: str) -> Any:
    lines = [line for line in out.splitlines() if line.startswith(("{", "["))]
    return json.loads(lines[-1]) if lines else None
