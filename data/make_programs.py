"""Makes data/programs/<release>: small programs written by the release of Paddle that runs this, and what they compute.

    .venv/bin/python data/make_programs.py [FOLDER]

With an older release, from PyPI, in a folder of its own (3.0.0 needs astor too):

    .venv/bin/python -m pip install --no-deps --target /tmp/older paddlepaddle==3.0.0 astor
    PYTHONPATH=/tmp/older:. .venv/bin/python data/make_programs.py

A new process writes the same bytes each time. The results are those of the layers in eager mode.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import paddle

from xpulab import files
from xpulab.chapters.export.export_programs import compute
from xpulab.release.export.samples import SAMPLES, export


def make(folder: Path) -> None:
    """Write the programs of this release into folder/<release>, with expected.json: what they compute."""
    paddle.set_device("cpu")
    folder = folder / paddle.__version__
    folder.mkdir(parents=True, exist_ok=True)
    expected = {"paddle": paddle.__version__, "programs": {}}
    for name, sample in SAMPLES.items():
        with paddle.utils.unique_name.guard():
            layer = sample.make()
            export(layer, folder / name, sample.specs)
        results = [compute(layer, inputs) for inputs in sample.inputs]
        expected["programs"][name] = {"results": [[float(f"{each:.9g}") for each in result.ravel()] for result in results]}
    (folder / "expected.json").write_text(json.dumps(expected) + "\n", encoding="utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else files.DATA / "programs")
