"""Store what chapters 02 to 04 reached with a pretrained model, from notebooks that were executed with it.

.venv/bin/xpulab model smollm2-135m
.venv/bin/python -m papermill notebooks/03_lora.ipynb build/03_lora.ipynb -p device cpu -p model smollm2-135m
.venv/bin/python tools/pretrained_results.py build/03_lora.ipynb

A notebook is refused when a check failed in it, or when its model is one of data/models. The results of other chapters stay.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import nbformat

from xpulab import files
from xpulab.chapters.shared.pretrained_results import KEY, Result, load
from xpulab.records.record import METADATA_KEY, record_in

FILE = files.DATA / "pretrained_results.json"
RED = ("failed", "broken", "missing")


def result_of(path: Path) -> Result:
    """The result in an executed notebook. Raises SystemExit where it must not be stored."""
    notebook = nbformat.read(path, as_version=4)
    found = [output.get("metadata", {}) for cell in notebook.cells for output in cell.get("outputs", ())]
    results = [Result(**row) for metadata in found if (row := metadata.get(METADATA_KEY, {}).get(KEY))]
    red = [record.name for record in map(record_in, found) if record and record.outcome in RED]
    if red:
        raise SystemExit(f"{path}: not green: {', '.join(red)}")
    if len(results) != 1:
        raise SystemExit(f"{path}: holds {len(results)} results, not one")
    if (files.DATA / "models" / results[0].model).is_dir():
        raise SystemExit(f"{path}: {results[0].model} is not a pretrained model; execute it with -p model smollm2-135m")
    return results[0]


def main(paths: list[Path]) -> None:
    """Replace the results of the chapters that these notebooks are."""
    if not paths:
        raise SystemExit(__doc__)
    results = {result.chapter: result for result in (*(load() if FILE.exists() else ()), *map(result_of, paths))}
    rows = [asdict(results[chapter]) for chapter in sorted(results)]
    FILE.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{FILE.relative_to(files.ROOT)}: {', '.join(sorted(results))}")


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
