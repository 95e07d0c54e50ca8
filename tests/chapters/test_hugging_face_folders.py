"""A folder as Hugging Face's transformers writes it gives the same logits and tokens as the model that it was made from."""

from __future__ import annotations

import json

import numpy as np
import paddle
import pytest
import safetensors
import safetensors.numpy
from tokenizers import ByteLevelBPETokenizer

from xpulab import files
from xpulab.chapters.first_lora import chat_data
from xpulab.chapters.shared import models
from xpulab.errors import InputError
from xpulab.pretrained import torch_folder

ORIGIN = "tiny-qwen2-sft"
QUESTION = "What is gradient accumulation?"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = "{% for m in messages %}{{ '<|im_start|>' + m['content'] + '<|im_end|>' }}{% endfor %}"


@pytest.fixture(autouse=True)
def cached(tmp_path, monkeypatch):
    """An empty cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def weights_of_origin():
    return safetensors.numpy.load_file(files.DATA / "models" / ORIGIN / "model.safetensors")


def in_torch(weights):
    """The weights with the names of transformers, linear layers as [outputs, inputs]."""
    linear = ("_proj.weight", "lm_head.weight")
    return {
        name.replace("qwen2.", "model.", 1): np.ascontiguousarray(value.T) if name.endswith(linear) else value
        for name, value in weights.items()
    }


def bits_of_bfloat16(values):
    """The upper 16 bits of each number, as a rounding towards zero gives them."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def write(path, weights, kind="float32", metadata=None):
    stored = {name: bits_of_bfloat16(value) if kind == "bfloat16" else value for name, value in weights.items()}
    specs = {
        name: safetensors.TensorSpec(dtype=kind, shape=list(b.shape), data_ptr=b.ctypes.data, data_len=b.nbytes)
        for name, b in stored.items()
    }
    safetensors.serialize_file(specs, str(path), metadata=metadata)


@pytest.fixture
def folder(tmp_path):
    """config.json and tokenizer as transformers writes them, without weights."""
    made = tmp_path / "mine"
    made.mkdir()
    origin = files.DATA / "models" / ORIGIN
    kept = (
        "architectures model_type vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
        "num_key_value_heads max_position_embeddings rms_norm_eps rope_theta hidden_act tie_word_embeddings eos_token_id"
    )
    config = json.loads((origin / "config.json").read_text())
    config = {name: config[name] for name in kept.split()}
    config |= {"torch_dtype": "bfloat16", "transformers_version": "4.57.6", "rope_scaling": None, "use_cache": True}
    (made / "config.json").write_text(json.dumps(config))
    (made / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0], "transformers_version": "4.57.6"}))
    bpe = ByteLevelBPETokenizer(str(origin / "vocab.json"), str(origin / "merges.txt"))
    bpe.add_special_tokens(list(SPECIAL))
    bpe.save(str(made / "tokenizer.json"))
    described = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    added = {str(number): {"content": token, **described} for number, token in enumerate(SPECIAL)}
    tokenizer = {
        "added_tokens_decoder": added,
        "additional_special_tokens": [added["1"], "<|im_end|>"],
        "chat_template": TEMPLATE,
        "eos_token": added["2"],
        "pad_token": "<|endoftext|>",
        "extra_special_tokens": {},
        "model_max_length": 128,
        "padding_side": "right",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (made / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (made / "special_tokens_map.json").write_text(json.dumps({"eos_token": added["2"], "pad_token": "<|endoftext|>"}))
    return made


def change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def logits(network):
    network.eval()
    tokens = models.new_tokenizer(ORIGIN)(models.prompt_by_hand(QUESTION))["input_ids"]
    with paddle.no_grad():
        found = network(paddle.to_tensor([tokens]))
    return (found[0] if isinstance(found, tuple) else found).numpy()


def expected(weights):
    """The logits of PaddleNLP's own model with these weights, in PaddleNLP's layout."""
    network = models.new_model(ORIGIN, 0)
    network.set_state_dict({name: paddle.to_tensor(value) for name, value in weights.items()})
    return logits(network)


def same(folder, weights):
    """Whether the folder gives these logits to the bit; a control is that the weights reversed give others."""
    found = logits(models.new_model(str(folder), 0))
    other = {name: np.ascontiguousarray(value[::-1]) for name, value in weights.items()}
    assert not (found == expected(other)).all()
    return (found == expected(weights)).all()


@pytest.mark.parametrize("metadata", [{"format": "pt"}, {"other": "x"}, None], ids=["pt", "no format", "no metadata"])
def test_single_precision_gives_the_logits_of_the_origin(folder, metadata):
    write(folder / "model.safetensors", in_torch(weights_of_origin()), metadata=metadata)
    assert same(folder, weights_of_origin())


def test_bfloat16_gives_the_logits_of_the_rounded_weights(folder):
    write(folder / "model.safetensors", in_torch(weights_of_origin()), "bfloat16", {"format": "pt"})
    rounded = {
        name: (bits_of_bfloat16(value).astype(np.uint32) << 16).view(np.float32) for name, value in weights_of_origin().items()
    }
    assert same(folder, rounded)


def test_shards_give_the_logits_of_the_origin(folder):
    every = list(in_torch(weights_of_origin()).items())
    names = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    where = {}
    for place, name in enumerate(names):
        part = dict(every[place::3])
        where.update(dict.fromkeys(part, name))
        write(folder / name, part, metadata={"format": "pt"})
    index = {"metadata": {"total_size": 1}, "weight_map": where}
    (folder / torch_folder.INDEX).write_text(json.dumps(index))
    assert same(folder, weights_of_origin())


@pytest.mark.parametrize("head", [False, True], ids=["once", "twice"])
def test_a_tied_output_layer_is_the_embedding_whether_the_file_holds_it_once_or_twice(folder, head):
    change(folder / "config.json", tie_word_embeddings=True)
    weights = weights_of_origin()
    weights["lm_head.weight"] = np.ascontiguousarray(weights["qwen2.embed_tokens.weight"].T)
    written = in_torch(weights)
    if not head:
        del written["lm_head.weight"]
    write(folder / "model.safetensors", written, metadata={"format": "pt"})
    found = logits(models.new_model(str(folder), 0))
    np.testing.assert_allclose(found, expected(weights), rtol=0, atol=1e-5)  # the product is computed in another order
    assert not np.allclose(found, expected(weights_of_origin()), rtol=0, atol=1e-3)  # control: its own output layer


# ----------------------------------------------------------------------------------------------------------- the tokenizer


@pytest.fixture
def whole(folder):
    write(folder / "model.safetensors", in_torch(weights_of_origin()), metadata={"format": "pt"})
    return folder


TEXT = f"{models.prompt_by_hand(QUESTION)} <|im_end|>"


@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "GPT2Tokenizer", "Qwen2Tokenizer", "TokenizersBackend", None])
def test_the_tokenizer_gives_the_tokens_of_the_origin_under_any_class_name_of_transformers(whole, kind):
    change(whole / "tokenizer_config.json", tokenizer_class=kind)
    tokenizer = models.new_tokenizer(str(whole))
    assert tokenizer(TEXT)["input_ids"] == models.new_tokenizer(ORIGIN)(TEXT)["input_ids"]
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.padding_side) == (2, 0, "left")
    assert tokenizer.decode(tokenizer(TEXT)["input_ids"]) == TEXT


def test_the_chat_template_is_found_in_each_place_where_transformers_writes_it(whole):
    path = whole / "tokenizer_config.json"
    prompts = []
    for given in (TEMPLATE, None):
        change(path, chat_template=given)
        if given is None:
            (whole / "chat_template.jinja").write_text(TEMPLATE)
        prompts.append(chat_data.chat_prompt(models.new_tokenizer(str(whole)), QUESTION))
    assert prompts == [f"<|im_start|>{QUESTION}<|im_end|>"] * 2


# --------------------------------------------------------------------------------------------------------- the configuration


def test_the_rotary_embedding_of_transformers_5_is_read(whole):
    config = json.loads((whole / "config.json").read_text())
    theta = config.pop("rope_theta")
    del config["rope_scaling"]
    (whole / "config.json").write_text(json.dumps(config))
    change(whole / "config.json", rope_parameters={"rope_theta": theta * 100, "rope_type": "default"})
    network = models.new_model(str(whole), 0)
    assert network.config.rope_theta == theta * 100 != theta
    assert not (logits(network) == expected(weights_of_origin())).all()  # control: another base of the rotary embedding


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "ignores a rotary embedding of type 'linear'"),
        ({"rope_parameters": {"rope_theta": 1.0, "rope_type": "yarn"}}, "ignores a rotary embedding of type 'yarn'"),
        ({"hidden_act": "gelu"}, "ignores hidden_act 'gelu'"),
    ],
)
def test_what_paddlenlp_would_ignore_is_refused(whole, changed, said):
    change(whole / "config.json", **changed)
    with pytest.raises(InputError, match=f"{whole}: config.json: PaddleNLP's Qwen2ForCausalLM {said}; choose another model"):
        models.folder_of(str(whole))
