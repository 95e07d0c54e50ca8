"""Serve a fine-tuned language model: OpenAI's chat interface, Paddle's inference program, a cache of keys and values.

    python serve.py config.json                # exports the model, unless it is done, and serves it
    curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\
        -d '{"messages": [{"role": "user", "content": "What is a rank?"}], "temperature": 0}'

config.json, as for export.py: model, a folder with a Qwen2 or Llama model and its tokenizer; path, of the program; device, one
of cpu, gpu and xpu; dtype, float32 or bfloat16; host; port, 0 for a free one; at_once, requests in a batch; longest, tokens
of a prompt with its answer. A request has messages, and may have max_tokens, temperature, top_p, seed, stop and stream; other
fields are refused.

Each token is computed once: its keys and values are kept. Requests join and leave a running batch, token by token. For many
users take a server that shares the memory of the cache between them, such as FastDeploy.
The authors ran it on the CPU only, not on a GPU or an XPU. chat_data.py and export.py belong beside it.
"""

import argparse
import asyncio
import json
import queue
import socket
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import chat_data
import export
import numpy as np
import paddle
import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from paddle.static import InputSpec
from paddlenlp.transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from pydantic import BaseModel, ConfigDict, Field


class WithCache(paddle.nn.Layer):
    """Logits of the last position, [rows, vocabulary] in float32, and the cache with the new positions.

    cache: keys and values, [layers, 2, rows, positions, heads, width]; attention_mask: [rows, positions with the new ones].
    """

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, input_ids, attention_mask, position_ids, cache):
        past = [(cache[layer, 0], cache[layer, 1]) for layer in range(self.network.config.num_hidden_layers)]
        logits, present = self.network(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past,
            use_cache=True,
        )[:2]
        return logits[:, -1].astype("float32"), paddle.stack([paddle.stack(list(each)) for each in present])


def cache_shape(config):
    """Of a model: [layers, 2, rows, positions, heads, width]; None may vary."""
    heads = config.num_key_value_heads or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return [config.num_hidden_layers, 2, None, None, heads, width]


def export_with_cache(network, path):
    """Write <path>.json and <path>.pdiparams. Do not use the network afterwards: load it again."""
    if network.config.model_type == "qwen2":
        for layer in network.qwen2.layers:
            layer.self_attn.attn_func = export.attention
    network.eval()
    names = ("input_ids", "attention_mask", "position_ids")
    specs = [InputSpec([None, None], "int64", name=name) for name in names]
    specs.append(InputSpec(cache_shape(network.config), network.lm_head.weight.dtype, name="cache"))
    paddle.jit.save(paddle.jit.to_static(WithCache(network), full_graph=True), str(path), input_spec=specs)


@dataclass
class Request:
    """A prompt as token ids, how to answer it, and where its tokens go. put: gets each token, then None or an error."""

    prompt: list
    at_most: int
    put: Any
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    is_cancelled: bool = False
    tokens: list = field(default_factory=list)

    def __post_init__(self):
        self.random = np.random.default_rng(self.seed)

    def pick(self, logits):
        """The next token: the most likely one at temperature 0, else one drawn from the likeliest that have top_p together."""
        if self.temperature == 0:
            return int(logits.argmax())
        scaled = logits.astype(np.float64) / self.temperature
        shares = np.exp(scaled - scaled.max())
        order = np.argsort(-shares, kind="stable")
        sums = np.cumsum(shares[order]) / shares.sum()
        kept = order[: int(np.searchsorted(sums, self.top_p)) + 1]
        return int(self.random.choice(kept, p=shares[kept] / shares[kept].sum()))


class Engine:
    """Answers requests with a program, several at once. Rows of a batch are padded on the left."""

    def __init__(self, predictor, config, ends, at_once=8, dtype="float32"):
        self.predictor, self.ends, self.at_once = predictor, set(ends), at_once
        self.shape, self.dtype = cache_shape(config), dtype
        self.waiting, self.rows = queue.SimpleQueue(), []
        self.mask, self.cache = np.zeros([0, 0], dtype=np.int64), self.empty(0, 0)

    def empty(self, rows, positions):
        layers, two, _, _, heads, width = self.shape
        return paddle.zeros([layers, two, rows, positions, heads, width], dtype=self.dtype)

    def run(self):
        """Answer for ever."""
        while True:
            try:
                self.step()
            except Exception as error:  # whatever the program raises, each waiting reader gets it
                for row in self.rows:
                    row.put(error)
                self.rows, self.mask, self.cache = [], self.mask[:0, :0], self.empty(0, 0)

    def step(self):
        """Let a request join, or wait for one when there is none; then one token for each row."""
        if not self.rows or (not self.waiting.empty() and len(self.rows) < self.at_once):
            self.join(self.waiting.get())
        if self.rows:
            last = np.array([[row.tokens[-1]] for row in self.rows])
            positions = self.mask.sum(axis=1, keepdims=True)
            self.mask = np.hstack([self.mask, np.ones_like(last)])
            logits, self.cache = self.compute(last, self.mask, positions, self.cache)
            self.give(logits)

    def join(self, request):
        """Compute a prompt, and put its keys and values beside those of the batch."""
        ids = np.array([request.prompt])
        self.rows.append(request)  # so that an error of its prompt reaches it
        logits, cache = self.compute(ids, np.ones_like(ids), np.arange(ids.shape[1])[None], self.empty(1, 0))
        longest = max(self.mask.shape[1], ids.shape[1])
        self.mask = np.vstack([_padded(self.mask, longest), _padded(np.ones_like(ids), longest)])
        missing = [self.empty(each.shape[2], longest - each.shape[3]) for each in (self.cache, cache)]
        both = [paddle.concat(pair, axis=3) for pair in zip(missing, (self.cache, cache), strict=True)]
        self.cache = paddle.concat(both, axis=2)
        self.give(logits, first=len(self.rows) - 1)

    def compute(self, *inputs):
        """Logits as an array, and the cache; both are copies: the next run of a predictor writes over its last results."""
        tensors = [each if isinstance(each, paddle.Tensor) else paddle.to_tensor(each) for each in inputs]
        logits, cache = self.predictor.run(tensors)
        return logits.numpy().copy(), cache.clone()

    def give(self, logits, first=0):
        """Pick the next token of the rows from the first on; who has ended leaves the batch."""
        stay = list(range(first))
        for number, (row, values) in enumerate(zip(self.rows[first:], logits, strict=True), start=first):
            token = row.pick(values)
            row.tokens.append(token)
            if token not in self.ends:
                row.put(token)
            if token in self.ends or len(row.tokens) == row.at_most or row.is_cancelled:
                row.put(None)
            else:
                stay.append(number)
        if len(stay) < len(self.rows):
            self.rows, self.mask = [self.rows[number] for number in stay], self.mask[stay]
            unused = int(self.mask.argmax(axis=1).min()) if stay else self.mask.shape[1]
            self.mask = self.mask[:, unused:]
            rows = paddle.to_tensor(stay, dtype="int64")
            self.cache = (
                paddle.index_select(self.cache, rows, axis=2)[:, :, :, unused:].contiguous() if stay else self.empty(0, 0)
            )


def _padded(mask, length):
    return np.pad(mask, [(0, 0), (length - mask.shape[1], 0)])


def _begun(text, stops):
    """How many characters at the end of a text may be the beginning of a stop."""
    return max((size for stop in stops for size in range(1, len(stop)) if text.endswith(stop[:size])), default=0)


class Message(BaseModel):
    """Of OpenAI's interface."""

    model_config = ConfigDict(extra="forbid")
    role: Literal["system", "user", "assistant", "tool"]
    content: str


class Asked(BaseModel):
    """What a request may say; another field is an error, since it would have no effect."""

    model_config = ConfigDict(extra="forbid")
    messages: list[Message] = Field(min_length=1)
    model: str = ""
    max_tokens: int = Field(default=256, ge=1)
    temperature: float = Field(default=1.0, ge=0, le=2)
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int | None = Field(default=None, ge=0)
    stop: list[str] | str = []
    stream: bool = False


def new_app(engine, tokenizer, name, longest):
    """The web application. longest: tokens of a prompt with its answer."""
    app = FastAPI(title=name)

    def request_of(asked):
        """The request, and the queue of its tokens. Raises HTTPException for a prompt that is too long or in a wrong order."""
        turns = [chat_data.Turn(each.role, each.content, False) for each in asked.messages]
        try:
            text = "".join(piece for piece, _ in chat_data.pieces(turns, tokenizer, "messages", is_asked=True))
        except chat_data.DataError as error:
            raise HTTPException(400, str(error)) from None
        prompt = tokenizer(text, add_special_tokens=not tokenizer.chat_template)["input_ids"]
        if len(prompt) >= longest:
            raise HTTPException(400, f"the messages have {len(prompt)} tokens, and the longest text {longest}")
        loop, tokens = asyncio.get_running_loop(), asyncio.Queue()
        return Request(
            prompt,
            min(asked.max_tokens, longest - len(prompt)),
            lambda token: loop.call_soon_threadsafe(tokens.put_nowait, token),
            asked.temperature,
            asked.top_p,
            asked.seed,
        ), tokens

    async def texts(asked, request, tokens):
        """What is new of the answer, each time; last why it ended: "stop" or "length"."""
        stops = [asked.stop] if isinstance(asked.stop, str) else asked.stop
        said, text, why, found = "", "", "length", []
        engine.waiting.put(request)
        try:
            while (token := await tokens.get()) is not None:
                if isinstance(token, Exception):
                    raise HTTPException(500, f"the program failed: {token}")
                found.append(token)
                text = tokenizer.decode(found, skip_special_tokens=True)
                if places := [text.find(stop) for stop in stops if stop in text]:
                    text, why = text[: min(places)], "stop"
                    break
                if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # a character may have several tokens
                    sure = len(text) - _begun(text, stops)
                    yield text[len(said) : sure], None
                    said = text[:sure]
            if request.tokens and request.tokens[-1] in engine.ends:
                why = "stop"
            yield text[len(said) :], None
        finally:
            request.is_cancelled = True
        yield "", why

    @app.get("/v1/models")
    def models():
        return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "local"}]}

    @app.post("/v1/chat/completions")
    async def complete(asked: Asked):
        request, tokens = request_of(asked)
        about = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": name}
        if asked.stream:
            return StreamingResponse(events(about, texts(asked, request, tokens)), media_type="text/event-stream")
        pieces = [piece async for piece in texts(asked, request, tokens)]
        message = {"role": "assistant", "content": "".join(text for text, _ in pieces)}
        counts = {"prompt_tokens": len(request.prompt), "completion_tokens": len(request.tokens)}
        return about | {
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": pieces[-1][1]}],
            "usage": counts | {"total_tokens": sum(counts.values())},
        }

    return app


async def events(about, pieces):
    """The answer as server-sent events."""
    delta = {"role": "assistant"}
    async for text, why in pieces:
        delta = delta | {"content": text}
        choice = {"index": 0, "delta": delta, "finish_reason": why}
        yield f"data: {json.dumps(about | {'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n"
        delta = {}
    yield "data: [DONE]\n\n"


def prepare(folder, path, dtype):
    """Export the model of a folder to a path, unless this was done and the folder is still the same."""
    files = sorted(each for each in Path(folder).resolve().iterdir() if each.suffix in (".json", ".safetensors"))
    source = "".join(f"{each} {each.stat().st_size} {each.stat().st_mtime_ns} {dtype}\n" for each in files)
    written, digests = Path(f"{path}.source"), Path(f"{path}.sha256")
    if digests.is_file() and written.is_file() and written.read_text(encoding="utf-8") == source:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    digests.unlink(missing_ok=True)
    export_with_cache(AutoModelForCausalLM.from_pretrained(folder, dtype=dtype), path)
    digests.write_text(export.digests(path), encoding="utf-8")
    written.write_text(source, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path, help="config.json")
    file = parser.parse_args().config
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SystemExit(f"{file}: {error}; give a file of JSON with model, path and device") from None
    if missing := [name for name in ("model", "path", "device") if name not in config]:
        raise SystemExit(f"{file}: has no {missing[0]!r}; it needs model, path and device")
    paddle.set_device(config["device"])
    path, folder, dtype = Path(f"{config['path']}-with-cache"), config["model"], config.get("dtype", "float32")
    if not Path(folder, "config.json").is_file():
        raise SystemExit(f"{file}: the model {folder!r} is no folder with a config.json; name one")
    prepare(folder, path, dtype)
    try:
        predictor = export.new_predictor(export.verified(path), config["device"])
    except ValueError as error:
        raise SystemExit(f"{error}, or remove both: they are exported again") from None
    tokenizer, of_model = AutoTokenizer.from_pretrained(folder), AutoConfig.from_pretrained(folder)
    engine = Engine(predictor, of_model, {tokenizer.eos_token_id}, config.get("at_once", 8), dtype)
    threading.Thread(target=engine.run, daemon=True).start()
    app = new_app(engine, tokenizer, Path(folder).name, config.get("longest", 2048))
    host, port = config.get("host", "127.0.0.1"), config.get("port", 8000)
    with socket.create_server((host, port)) as listening:
        print(f"serving {Path(folder).name} at http://{host}:{listening.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main()
