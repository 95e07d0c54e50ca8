"""How much chapter 04 trains follows from the size of the model."""

from __future__ import annotations

import pytest
from paddlenlp.transformers import AutoConfig

from xpulab import files
from xpulab.chapters.dpo.preference_plan import plan_for
from xpulab.chapters.dpo.preferences import exact_weights
from xpulab.chapters.shared import models, resources
from xpulab.errors import InputError

pytestmark = pytest.mark.integration

TINY = AutoConfig.from_pretrained(models.folder_of("tiny-qwen2-sft"))
KEYS = ("question", "chosen", "rejected")
LARGE = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 49152, "hidden_size": 576,
"intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
"tie_word_embeddings": true}"""


@pytest.fixture
def large(tmp_path):
    """The plan for a model with the configuration of SmolLM2-135M."""
    (tmp_path / "config.json").write_text(LARGE)
    return plan_for(str(tmp_path), AutoConfig.from_pretrained(str(tmp_path)), "quick")


@pytest.mark.parametrize(("level", "sizes"), [("quick", (12, 6, 2e-4)), ("standard", (24, 12, 1e-4))])
def test_a_tiny_model_uses_all_pairs(level, sizes, tmp_path):
    plan = plan_for("tiny-qwen2-sft", TINY, level)
    assert (plan.steps, plan.batch, plan.learning_rate) == sizes
    assert plan.word_for_word
    assert plan.data(str(tmp_path))["train"] == str(files.data("preferences", "train.jsonl"))


def test_a_large_model_uses_the_first_pairs(large, tmp_path):
    found = large.data(str(tmp_path))
    assert files.load_jsonl(tmp_path / "train.jsonl", KEYS) == models.preferences("train")[: large.pairs]
    assert files.load_jsonl(tmp_path / "heldout.jsonl", KEYS) == models.preferences("heldout")[: large.heldout]
    assert sorted(found) == ["heldout", "train"]


def test_a_large_model_trains_less_and_more_slowly(large):
    tiny = plan_for("tiny-qwen2-sft", TINY, "quick")
    assert large.steps < tiny.steps and large.batch < tiny.batch and large.learning_rate < tiny.learning_rate


def test_a_large_model_is_refused_where_memory_is_small(large, monkeypatch):
    monkeypatch.setattr(resources, "available_memory", lambda: 4 * 10**9)
    with pytest.raises(InputError, match="GB of memory for this model"):
        large.require()


def test_exact_weights_are_those_of_the_network():
    network = models.new_model("tiny-qwen2", 0)
    assert exact_weights(network).keys() == network.state_dict().keys()
