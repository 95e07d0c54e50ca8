"""Runs notebooks on older releases of Paddle, whose defects are known, and shows that they turn red there and not here.

    .venv/bin/python tools/releases.py [VERSION ...]

Each release gets an environment of its own, build/releases/VERSION, made once (about 1.5 GB and two minutes each), with
everything else pinned as usual. Exit codes: 0 when every defect is seen, 1 when one is not, 2 when an environment could not be
made. No part of env/test.sh: it takes too long, and tests nothing that changes here from day to day.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ("00_environment", "10_auto_parallel", "17_numerics", "18_tensors")
_MASKS = "a mask of two axes with a slice is refused"
_BATCHES = "shard_dataloader fails on texts in a batch, and in its second epoch"
DEFECTS = {
    "3.0.0": {
        "numerics.gradients": "gather(axis=1) gives every row the last row's gradient",
        "numerics.random": "bernoulli_(0.3) has mean 0.7",
        "numerics.edges": "[2, 0] @ [0, 3] is garbage; maximum drops NaN; a sum of 4096 ones in bfloat16 is 1024; "
        "a two-dimensional mask with an index is refused",
        "shard-dataloader.rows": _BATCHES,
        "index-gradients.read": "gather(axis=1) gives every row the last row's gradient",
        "indexing.get": _MASKS,
    },
    "3.1.0": {
        "numerics.gradients": "the gradient of a value that is set under a mask is 0 or garbage",
        "numerics.edges": "a two-dimensional mask with an index is refused",
        "shard-dataloader.rows": _BATCHES,
        "indexing.set": "the gradient of a value that is set under a mask is 0 or garbage",
        "indexing.get": _MASKS,
    },
    "3.1.1": {"indexing.get": _MASKS},
    "3.2.0": {
        "shard-dataloader.rows": _BATCHES,
        "index-gradients.known-defects": "the gradient of one value that is set under a mask is 0",
    },
}
"""By release: which check must fail, and why. What else fails or never runs there is shown and not judged.

What 18_tensors must detect follows from measurements of single expressions; it has not been run on these releases yet.
"""

INSTALL_SECONDS, RUN_SECONDS = 1800, 600


def main(versions: list[str]) -> int:
    """Try each release, then the environment that this runs in, where none of these checks may fail."""
    unknown = [version for version in versions if version not in DEFECTS]
    if unknown:
        print(f"no defects are listed for {unknown[0]}; choose of {', '.join(DEFECTS)}", file=sys.stderr)
        return 2
    missed = 0
    for version in versions or list(DEFECTS):
        try:
            python = environment(version)
        except (subprocess.SubprocessError, OSError) as error:
            print(f"{version}: the environment could not be made: {error}", file=sys.stderr)
            return 2
        outcomes = outcomes_with(python)
        red = {name for name, outcome in outcomes.items() if outcome in ("failed", "broken")}
        print(f"{version}: failing {', '.join(sorted(red)) or 'nothing'}; {list(outcomes.values()).count('missing')} never ran")
        for check, defect in DEFECTS[version].items():
            missed += check not in red
            print(f"    {'detected' if check in red else 'MISSED  '}  {check}: {defect}")
        if "install.versions" not in red:
            missed += 1
            print("    MISSED    install.versions: it accepts this release as a supported one")
    here = {name for name, outcome in outcomes_with(Path(sys.executable)).items() if outcome in ("failed", "broken", "missing")}
    print(f"this environment: failing {', '.join(sorted(here)) or 'nothing'}")
    return 1 if missed or here else 0


def environment(version: str) -> Path:
    """The Python of an environment with this release; made when it is not there whole."""
    folder = ROOT / "build" / "releases" / version
    python, whole = folder / "bin" / "python", folder / "whole"
    if whole.exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    requirements = ["-r", str(ROOT / "env" / "requirements" / "common.txt"), f"paddlepaddle=={version}"]
    if uv := shutil.which("uv"):
        done([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
        install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    else:
        done([sys.executable, "-m", "venv", str(folder)])
        install = [str(python), "-m", "pip", "install", "--quiet"]
    done([*install, *requirements])
    done([*install, "--no-deps", "--editable", str(ROOT)])
    whole.touch()
    return python


def outcomes_with(python: Path) -> dict[str, str]:
    """By check the outcome when this Python runs the notebooks on the CPU."""
    with tempfile.TemporaryDirectory(prefix="xpulab-releases-") as scratch:
        out = Path(scratch) / "out"
        command = [str(python), "-m", "xpulab", "run", *NOTEBOOKS, "--device", "cpu", "--cold", "--out", str(out)]
        # in the scratch folder, so that no module of the folder that this was started in is imported
        subprocess.run(
            command, cwd=scratch, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, timeout=RUN_SECONDS
        )
        result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    return {check["name"]: check["outcome"] for notebook in result["notebooks"] for check in notebook["checks"]}


def done(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=INSTALL_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
