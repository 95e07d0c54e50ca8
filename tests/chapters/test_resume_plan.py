"""How chapter 06 trains and resumes a model follows from its size."""

from __future__ import annotations

import pytest

from xpulab import files
from xpulab.chapters.checkpoints.resume_plan import plan_for
from xpulab.chapters.shared import models, resources
from xpulab.chapters.shared.training_size import parameters_of
from xpulab.errors import InputError

pytestmark = pytest.mark.integration

LARGE = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 49152, "hidden_size": 576,
"intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
"tie_word_embeddings": true}"""


@pytest.fixture
def large(tmp_path):
    """The folder of a model with the configuration of SmolLM2-135M."""
    (tmp_path / "config.json").write_text(LARGE)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    return str(tmp_path)


@pytest.mark.parametrize("model", sorted(path.name for path in (files.DATA / "models").iterdir() if path.is_dir()))
def test_the_number_of_parameters_is_that_of_the_model(model):
    assert parameters_of(model) == sum(weight.size for weight in models.new_model(model, 0).parameters())
    assert plan_for(model, "quick").is_tiny


def test_tied_embeddings_count_once(large):
    assert parameters_of(large) == 134_515_008
    assert not plan_for(large, "quick").is_tiny


def test_a_large_model_is_refused_where_memory_is_small(large, monkeypatch):
    monkeypatch.setattr(resources, "available_memory", lambda: 4 * 10**9)
    with pytest.raises(InputError, match="GB of memory for this model"):
        plan_for(large, "quick").require()
