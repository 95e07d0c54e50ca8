"""Models reach a notebook with their own weights and tokenizer, or are refused."""

from __future__ import annotations

import importlib.util

from paddlenlp.transformers import LlamaForCausalLM

from xpulab import files
from xpulab.notebook import models

STAND_IN = "tiny-smollm2"
SYSTEM = "<|im_start|>system\nYou are a helpful assistant<|im_end|>\n"


def test_the_tokenizer_script_makes_the_files_of_the_stand_in_again(tmp_path):
    path = files.DATA / "make_tokenizer.py"
    spec = importlib.util.spec_from_file_location("make_tokenizer", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.save_with_chat(tmp_path)
    for made in tmp_path.iterdir():
        assert made.read_bytes() == (files.DATA / "models" / STAND_IN / made.name).read_bytes(), made.name


def test_the_stand_in_is_a_tied_llama_with_three_query_heads_for_a_key_value_head():
    network = models.new_model(STAND_IN, 0)
    assert isinstance(network, LlamaForCausalLM) and network.config.tie_word_embeddings
    assert network.config.num_attention_heads == 3 * network.config.num_key_value_heads
    assert sum(parameter.size for parameter in network.parameters()) == 246_240  # data/README.md says so


def test_the_chat_template_of_the_stand_in_adds_a_system_message_where_there_is_none():
    tokenizer = models.new_tokenizer(STAND_IN)
    asked = [{"role": "user", "content": "What is DPO?"}]
    text = SYSTEM + "<|im_start|>user\nWhat is DPO?<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True) == text
    own = [{"role": "system", "content": "Be brief."}, *asked]
    assert tokenizer.apply_chat_template(own, tokenize=False).startswith(
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user"
    )


def test_the_tokenizer_of_the_stand_in_keeps_every_character_and_ends_an_answer_with_one_token():
    tokenizer = models.new_tokenizer(STAND_IN)
    text = SYSTEM + "Gradients: 128 ranks, 0.5 s <|im_end|>"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert (ids[0], ids[-1]) == (tokenizer.bos_token_id, tokenizer.eos_token_id)
