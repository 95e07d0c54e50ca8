"""A folder of a model that would run code when it is loaded is refused before anything of it is loaded."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import safetensors.numpy

from xpulab import files

pytestmark = pytest.mark.integration
TINY = files.DATA / "models" / "tiny-qwen2-sft"


class Touches:
    """Its pickle is a call of Path.touch."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def model(tmp_path):
    """The folder of a model without weights, and the content of a pickle that makes the file `ran`."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in TINY.iterdir():
        if "safetensors" not in path.name:
            (folder / path.name).write_bytes(path.read_bytes())
    return folder, pickle.dumps({"lm_head.weight": Touches(tmp_path / "ran")}, protocol=4)


def index(folder, file, name="model.safetensors.index.json"):
    (folder / name).write_text(json.dumps({"metadata": {}, "weight_map": {"lm_head.weight": file}}))


def alone(folder, content):
    (folder / "model_state.pdparams").write_bytes(content)


def behind_an_index(folder, content):
    (folder / "other.pdparams").write_bytes(content)
    index(folder, "other.pdparams")


def behind_the_index_of_ranks(folder, content):
    weights = safetensors.numpy.load_file(TINY / "model.safetensors")
    safetensors.numpy.save_file(weights, folder / "model.safetensors", metadata={"format": "np"})
    (folder / "other.pdparams").write_bytes(content)
    index(folder, "other.pdparams", "model.safetensors.index.tp00.json")


@pytest.mark.parametrize("hidden", [alone, behind_an_index, behind_the_index_of_ranks], ids=lambda hidden: hidden.__name__)
def test_a_pickle_is_refused(xpulab, model, tmp_path, hidden):
    folder, content = model
    hidden(folder, content)
    code, shown = xpulab("model", folder, variables={"XDG_CACHE_HOME": str(tmp_path / "cache")}, memory=20 * 2**30)
    assert code == 2 and "can run code" in shown, shown
    assert not (tmp_path / "ran").exists()
