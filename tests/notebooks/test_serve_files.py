"""data/take_home/serve.py and to_transformers.py: rows of a running batch are answered as alone, over HTTP too; a folder that
goes to transformers and back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import paddle
import pytest

from xpulab import files
from xpulab.chapters.shared import models, take_home
from xpulab.pretrained import torch_folder
from xpulab.pretrained.prepare import prepare

pytestmark = pytest.mark.integration

MODEL = files.DATA / "models" / "tiny-qwen2-sft"
serve = take_home.load_script("serve")
chat_data, export = sys.modules["chat_data"], sys.modules["export"]
AT_MOST = 24


@pytest.fixture(scope="module")
def tokenizer():
    return models.new_tokenizer(str(MODEL))


@pytest.fixture(scope="module")
def prompts(tokenizer) -> list[str]:
    turns = [[chat_data.Turn("user", row["question"], False)] for row in models.instructions("heldout")]
    return ["".join(text for text, _ in chat_data.pieces(each, tokenizer, is_asked=True)) for each in turns]


@pytest.fixture(scope="module")
def answers(tokenizer, prompts) -> list[str]:
    network = serve.AutoModelForCausalLM.from_pretrained(str(MODEL), dtype="float32")
    tokenizer.padding_side = "left"
    return chat_data.answers(network, tokenizer, prompts, AT_MOST)


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    """The path of the exported program."""
    path = tmp_path_factory.mktemp("program") / "model-with-cache"
    serve.prepare(str(MODEL), path, "float32")
    return path


@pytest.fixture(scope="module")
def engine(program, tokenizer):
    config = serve.AutoConfig.from_pretrained(str(MODEL))
    return serve.Engine(export.new_predictor(program, "cpu"), config, {tokenizer.eos_token_id}, at_once=3)


def asked(tokenizer, prompt, **settings):
    """A request, and the list that gets what it is answered."""
    said: list[Any] = []
    return serve.Request(tokenizer(prompt)["input_ids"], settings.pop("at_most", AT_MOST), said.append, **settings), said


def answered(engine, *requests) -> None:
    """Each request joins after a step of those before it."""
    for request in requests:
        engine.waiting.put(request)
    engine.step()
    while engine.rows or not engine.waiting.empty():
        engine.step()


def test_rows_that_join_and_leave_a_batch_are_answered_as_generate_answers(engine, tokenizer, prompts, answers):
    requests, said = zip(*(asked(tokenizer, prompt) for prompt in prompts), strict=True)
    answered(engine, *requests)
    found = [tokenizer.decode(tokens[:-1], skip_special_tokens=True).strip() for tokens in said]
    assert found == answers and len(set(answers)) > 3 and len({len(tokens) for tokens in said}) > 3
    assert all(tokens[-1] is None for tokens in said) and engine.cache.shape[2] == 0


def test_with_the_cache_logits_are_those_of_the_whole_text(engine, tokenizer, prompts):
    ids = np.array([tokenizer(prompts[0])["input_ids"]])
    length, cache = ids.shape[1], engine.empty(1, 0)
    for place in range(length):
        mask, at = np.ones([1, place + 1], dtype=np.int64), np.array([[place]])
        step, cache = engine.compute(ids[:, place : place + 1], mask, at, cache)
    whole, _ = engine.compute(ids, np.ones_like(ids), np.arange(length)[None], engine.empty(1, 0))
    alone, _ = engine.compute(ids[:, -1:], mask[:, :1], np.zeros([1, 1], dtype=np.int64), engine.empty(1, 0))
    assert np.abs(step - whole).max() < 1e-5 < np.abs(alone - whole).max()


def test_the_results_of_a_predictor_are_overwritten_by_its_next_run(engine, tokenizer, prompts):
    """Why the engine copies them; when this fails, it need not."""
    ids = np.array([tokenizer(prompts[0])["input_ids"]])
    inputs = [paddle.to_tensor(each) for each in (ids, np.ones_like(ids), np.arange(ids.shape[1])[None], engine.empty(1, 0))]
    cache = engine.predictor.run(inputs)[1]
    before = cache.numpy().copy()
    engine.predictor.run([inputs[0] + 1, *inputs[1:]])
    assert np.abs(cache.numpy() - before).max() > 0.01


def test_a_seed_repeats_an_answer_and_top_p_leaves_the_likeliest(engine, tokenizer, prompts):
    def tokens(**settings):
        request, said = asked(tokenizer, prompts[0], **settings)
        answered(engine, request)
        return said

    drawn = [tokens(temperature=2.0, seed=seed) for seed in (1, 1, 2, 3)]
    assert drawn[0] == drawn[1] and len({tuple(each) for each in drawn}) == 3
    assert tokens(temperature=2.0, top_p=1e-6, seed=1) == tokens() != drawn[0]


def test_the_share_of_tokens_that_are_drawn_is_that_of_the_softmax():
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))
    request = serve.Request([], 1, None, temperature=1.0, top_p=0.8, seed=0)
    drawn = np.bincount([request.pick(logits) for _ in range(4000)], minlength=4) / 4000
    assert drawn[2:].sum() == 0 and abs(drawn[0] - 0.625) < 0.03  # two tokens have 0.8 together


def test_who_hangs_up_leaves_the_batch_and_an_error_reaches_all(engine, tokenizer, prompts, monkeypatch):
    (first, heard), (second, other) = (asked(tokenizer, prompt) for prompt in prompts[:2])
    first.is_cancelled = True
    answered(engine, first, second)
    assert len(first.tokens) == 1 and heard[-1] is None and len(other) > 3
    third, said = asked(tokenizer, prompts[2])
    monkeypatch.setattr(engine, "compute", lambda *inputs: 1 / 0)
    engine.waiting.put(third)
    with pytest.raises(ZeroDivisionError):
        engine.step()
    assert third in engine.rows and said == []  # run() gives the error to every row
    engine.rows, engine.mask = [], engine.mask[:0, :0]


def test_a_model_that_was_trained_again_is_exported_again(tmp_path, monkeypatch):
    folder, path, exported = tmp_path / "model", tmp_path / "program" / "model", []

    def export_with_cache(network, target):
        exported.append(target)
        for ending in (".json", ".pdiparams"):
            Path(f"{target}{ending}").write_text("program")

    monkeypatch.setattr(serve, "export_with_cache", export_with_cache)
    monkeypatch.setattr(serve.AutoModelForCausalLM, "from_pretrained", lambda *given, **named: None)
    shutil.copytree(MODEL, folder)
    for _ in range(2):
        serve.prepare(str(folder), path, "float32")
    assert len(exported) == 1 and export.verified(path) == path
    os.utime(folder / "model.safetensors", ns=(1, 1))
    serve.prepare(str(folder), path, "float32")
    serve.prepare(str(folder), path, "bfloat16")
    assert len(exported) == 3


@pytest.fixture(scope="module")
def server(program, tmp_path_factory) -> Iterator[str]:
    """The address of a server, in a folder of its own beside copies of the scripts."""
    folder = tmp_path_factory.mktemp("home")
    config = {"model": str(MODEL), "path": str(program).removesuffix("-with-cache"), "port": 0, "longest": 64}
    take_home.write(folder, script="serve", config=config, device="cpu")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    command = [sys.executable, "serve.py", "config.json"]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            said = next((line for line in process.stdout or () if line.startswith("serving ")), "")
            assert said, "the server ended"
            yield said.split()[-1]
        finally:
            process.kill()


def post(server, **body):
    return httpx.post(f"{server}/v1/chat/completions", json=body, timeout=120)


def question(text):
    return [{"role": "user", "content": text}]


def test_a_server_answers_two_requests_at_once_like_generate(server, answers):
    questions = [row["question"] for row in models.instructions("heldout")]
    with ThreadPoolExecutor(len(questions)) as pool:
        found = list(
            pool.map(lambda text: post(server, messages=question(text), temperature=0, max_tokens=AT_MOST).json(), questions)
        )
    assert [each["choices"][0]["message"]["content"].strip() for each in found] == answers
    assert found[0]["choices"][0]["finish_reason"] == "stop" and found[0]["usage"]["completion_tokens"] > 1
    assert httpx.get(f"{server}/v1/models", timeout=60).json()["data"][0]["id"] == "tiny-qwen2-sft"


def test_a_stream_has_the_same_text_and_ends_where_it_is_stopped(server, answers):
    text = models.instructions("heldout")[0]["question"]
    lines = post(server, messages=question(text), temperature=0, stream=True).text.split("\n\n")
    chunks = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines if line.startswith("data: {")]
    assert "".join(chunk["delta"].get("content", "") for chunk in chunks).strip() == answers[0] and "data: [DONE]" in lines
    word = answers[0].split()[1]
    stopped = post(server, messages=question(text), temperature=0, stop=word).json()["choices"][0]
    assert stopped["message"]["content"].strip() == answers[0].split(word)[0].strip() and stopped["finish_reason"] == "stop"
    cut = post(server, messages=question(text), temperature=0, max_tokens=2).json()
    assert cut["choices"][0]["finish_reason"] == "length" and cut["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ({"messages": question("a"), "n": 2}, 422, '"n"'),
        ({"messages": []}, 422, "messages"),
        ({"messages": question("word " * 100)}, 400, "the longest text 64"),
        ({"messages": question("a"), "temperature": -1}, 422, "temperature"),
    ],
)
def test_what_would_have_no_effect_or_does_not_fit_is_refused(server, body, code, says):
    found = post(server, **body)
    assert found.status_code == code and says in found.text


@pytest.mark.parametrize("name", ["tiny-qwen2-sft", "tiny-llama", "tiny-smollm2"])
def test_a_folder_goes_to_transformers_and_back_to_the_bit(tmp_path, name):
    converter, trained = take_home.load_script("to_transformers"), tmp_path / "trained"
    network = models.new_model(name, seed=1)
    network.save_pretrained(str(trained), safe_serialization=True, max_shard_size="300KB")
    for file in ("tokenizer.json", "tokenizer_config.json"):  # a fast one, as transformers writes it
        shutil.copy(files.DATA / "models" / "tiny-smollm2" / file, trained)
    converter.write(trained, tmp_path / "torch")
    read = {
        each.name: each.values
        for path in torch_folder.weight_files(tmp_path / "torch")
        for each in torch_folder.weights_in(path)
    }
    first = network.state_dict()[f"{network.base_model_prefix}.layers.0.mlp.gate_proj.weight"].numpy()
    assert (
        np.array_equal(read["model.layers.0.mlp.gate_proj.weight"], first.T)
        and len(list((tmp_path / "torch").glob("model-*"))) > 1
    )
    back = serve.AutoModelForCausalLM.from_pretrained(str(prepare(str(tmp_path / "torch"))), dtype="float32")
    assert all(np.array_equal(back.state_dict()[key].numpy(), value.numpy()) for key, value in network.state_dict().items())


def test_weights_of_bfloat16_that_paddlenlp_calls_integers_are_bfloat16_for_transformers(tmp_path):
    converter, trained = take_home.load_script("to_transformers"), tmp_path / "trained"
    network = serve.AutoModelForCausalLM.from_pretrained(str(MODEL), dtype="bfloat16")
    network.save_pretrained(str(trained), safe_serialization=True)
    converter.write(trained, tmp_path / "torch")
    weights = [each for path in torch_folder.weight_files(tmp_path / "torch") for each in torch_folder.weights_in(path)]
    assert {each.kind for each in weights} == {"bfloat16"}
    found = converter.load_file(tmp_path / "torch" / "model.safetensors")["model.norm.weight"]
    assert bool((found == network.qwen2.norm.weight).all())


def test_what_is_no_whole_model_is_refused(tmp_path):
    converter = take_home.load_script("to_transformers")
    with pytest.raises(SystemExit, match=r"has no config\.json"):
        converter.write(tmp_path, tmp_path / "out")
    with pytest.raises(SystemExit, match="an adapter is merged first"):
        converter.renamed({"lora_A": None}, {"weight": ("weight", False)})
