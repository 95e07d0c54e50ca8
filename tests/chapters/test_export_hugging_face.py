"""A model of PaddleNLP as a folder for transformers: its config.json has nothing of PaddleNLP alone."""

from __future__ import annotations

import json

from xpulab.chapters.export import export_hugging_face
from xpulab.chapters.shared import models


def test_the_config_has_no_entry_of_paddlenlp_alone(tmp_path):
    network = models.new_model("tiny-qwen2-sft", 0)
    weights = {name: each.numpy() for name, each in network.named_parameters()}
    export_hugging_face.write(tmp_path / "written", network.config.to_dict(), weights)
    config = json.loads((tmp_path / "written" / "config.json").read_text())
    assert config["architectures"] == ["Qwen2ForCausalLM"]
    assert not {"use_flash_attention", "tensor_parallel_degree", "paddlenlp_version"} & set(config)
