"""A model of PaddleNLP as a folder for transformers: read back here, and by transformers where it is installed."""

from __future__ import annotations

import json

import numpy as np
import paddle
import pytest

from xpulab.chapters.export import export_hugging_face
from xpulab.chapters.shared import models

MODEL = "tiny-qwen2-sft"


@pytest.fixture(scope="module")
def network():
    made = models.new_model(MODEL, 0)
    made.eval()
    return made


@pytest.fixture
def folder(tmp_path, network):
    weights = {name: each.numpy() for name, each in network.named_parameters()}
    export_hugging_face.write(tmp_path / "written", network.config.to_dict(), weights)
    return tmp_path / "written"


def logits(network, ids):
    with paddle.no_grad():
        found = network(paddle.to_tensor(ids))
    return (found[0] if isinstance(found, tuple) else found).numpy()


def test_the_config_has_no_entry_of_paddlenlp_alone(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["Qwen2ForCausalLM"]
    assert not {"use_flash_attention", "tensor_parallel_degree", "paddlenlp_version"} & set(config)


def test_transformers_computes_the_same_logits(folder, network):
    if reason := export_hugging_face.lacks_transformers():
        pytest.skip(reason)
    ids = np.array([[1, 5, 9, 20]])
    found = export_hugging_face.logits_of_transformers(folder, ids)
    assert found == pytest.approx(logits(network, ids), abs=1e-4)
