"""Models reach a notebook with their own weights and tokenizer, or are refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import paddle
import pytest
import safetensors.numpy

from xpulab import files
from xpulab.chapters.shared import models
from xpulab.errors import InputError
from xpulab.pretrained import cache, prepare

STAND_IN = "tiny-smollm2"


# ------------------------------------------------------------------------------------------- a model of the user, or a release


@pytest.fixture(autouse=True)
def cached(tmp_path, monkeypatch):
    """An empty cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "xpulab" / "models"


def saved(folder, **changed):
    """A folder of PaddleNLP: the stand-in with random weights and its tokenizer; `changed` goes into its config."""
    shutil.copytree(files.DATA / "models" / STAND_IN, folder)
    config = {**json.loads((folder / "config.json").read_text()), **changed}
    (folder / "config.json").write_text(json.dumps(config))
    network = models.new_model(str(folder), 0)
    weights = {name: value.numpy() for name, value in network.state_dict().items()}
    if config["tie_word_embeddings"]:
        del weights["lm_head.weight"]
    safetensors.numpy.save_file(weights, folder / "model.safetensors", metadata={"format": "np"})
    return folder


@pytest.fixture
def folder(tmp_path):
    return saved(tmp_path / "mine")


@pytest.fixture
def release(folder, cached):
    """The release, prepared in the cache: a copy of the folder."""
    target = cached / prepare._key("smollm2-135m")
    shutil.copytree(folder, target)
    return target


def altered(folder, **weights):
    """Write the file of the folder again, with these weights by name in place of its own; None removes one."""
    stored = safetensors.numpy.load_file(folder / "model.safetensors")
    for name, value in weights.items():
        if value is None:
            del stored[name]
        else:
            stored[name] = value
    safetensors.numpy.save_file(stored, folder / "model.safetensors", metadata={"format": "np"})


def test_a_folder_of_paddlenlp_is_used_where_it_is_and_its_tied_head_is_not_missed(folder, cached):
    assert models.folder_of(str(folder)) == str(folder) and not cached.exists()
    network = models.new_model(str(folder), 1)
    stored = safetensors.numpy.load_file(folder / "model.safetensors")
    assert all((parameter.numpy() == stored[name]).all() for name, parameter in network.named_parameters())


def test_a_look_at_the_weights_changes_neither_random_numbers_nor_names_of_layers(folder):
    def made_after(look):
        paddle.seed(5)
        with paddle.utils.unique_name.guard():
            look(str(folder))
            return paddle.rand([3]).tolist(), paddle.nn.Linear(2, 2).weight.name

    assert made_after(models.folder_of) == made_after(str)
    assert made_after(lambda name: models.new_model(name, 5)) != made_after(str)  # control


def test_a_missing_weight_is_refused_with_its_name(folder):
    name = "llama.layers.1.mlp.up_proj.weight"
    altered(folder, **{name: None})
    with pytest.raises(InputError, match=f"{folder}: 1 of 20 weights are missing and would be random: {name}"):
        models.folder_of(str(folder))


def test_a_weight_of_another_shape_is_refused_with_its_name(folder):
    altered(folder, **{"llama.norm.weight": np.ones(95, np.float32)})
    with pytest.raises(InputError, match=r"weight llama.norm.weight has the shape \[95\], but config.json gives \[96\]"):
        models.new_model(str(folder), 0)


def test_a_folder_without_tokenizer_is_refused(folder):
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(InputError, match=f"{folder}: has no tokenizer_config.json, so it has no tokenizer; copy"):
        models.folder_of(str(folder))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model_state.pdparams"])
def test_a_pickle_is_refused_and_not_taken_for_a_folder_without_weights(folder, name):
    (folder / "model.safetensors").rename(folder / name)
    with pytest.raises(InputError, match=r"has no model.safetensors; .* a pickle can run code"):
        models.new_model(str(folder), 0)


def test_a_release_is_found_in_the_cache(release):
    assert models.folder_of("smollm2-135m") == str(release)
    choice = models.chosen("smollm2-135m")
    assert (choice.folder, choice.is_real) == (str(release), True)
    assert choice.sentence.startswith("SmolLM2-135M-Instruct: ") and "Apache-2.0" in choice.sentence


def test_a_release_that_is_damaged_in_the_cache_says_what_to_remove(release):
    path = release / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InputError, match=f"{path}: cannot be read as safetensors: .* remove {release}, and prepare"):
        models.folder_of("smollm2-135m")


def test_a_release_that_is_not_prepared_is_refused_with_the_command_that_prepares_it(cached):
    with pytest.raises(InputError, match=r"model 'smollm2-135m' is not prepared .*`xpulab model smollm2-135m`"):
        models.folder_of("smollm2-135m")
    assert not cached.exists()


def test_a_choice_without_the_release_is_the_stand_in_and_says_so(cached):
    choice = models.chosen("smollm2-135m")
    assert (choice.folder, choice.is_real) == (models.folder_of(STAND_IN), False)
    assert "random weights" in choice.sentence and "`xpulab model smollm2-135m`" in choice.sentence
    assert not cache.root().exists()
