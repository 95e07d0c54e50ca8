"""Makes data/models/tiny-qwen2-sft: the model that notebooks/02_sft.ipynb trains and later notebooks start from.

    python data/make_sft_model.py [FOLDER]

It runs the notebook at level quick on the CPU with its defaults and keeps what its last section saves. Nothing is random:
the same type of processor gives the same bytes, another one gives the same answers.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import papermill
from make_tokenizer import save as save_tokenizer

from xpulab import files


def make(folder: Path) -> None:
    """Train the model and save it, with its tokenizer, into the folder."""
    with tempfile.TemporaryDirectory() as scratch:
        papermill.execute_notebook(
            files.NOTEBOOKS / "02_sft.ipynb",
            Path(scratch) / "02_sft.ipynb",
            parameters={"device": "cpu", "save_to": str(folder.resolve())},
            progress_bar=False,
        )
    save_tokenizer(folder)  # the notebook's own copy names the folder that it was loaded from
    (folder / "model.safetensors").chmod(0o644)


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else files.DATA / "models" / "tiny-qwen2-sft")
