"""Exports a fine-tuned language model as a program, and answers questions with it through paddle.inference.

    python export.py config.json                          # writes the program, its weights and their digests
    python export.py config.json --ask "What is a rank?"  # answers with the program

config.json: model, a folder with a Qwen2 or Llama model and its tokenizer; path, of the program without an ending; device, one
of cpu, gpu and xpu; at_most, the longest answer in tokens. sha256sum --check verifies the files too, in their own folder.
The authors ran it on the CPU only, not on a GPU or an XPU.
"""

import argparse
import hashlib
import json
import math
from pathlib import Path

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import inference
from paddle.static import InputSpec
from paddlenlp.transformers import AutoModelForCausalLM, AutoTokenizer


def prompt(tokenizer, question):
    """The text that the model reads before it answers: the same as in training; by hand where there is no chat template."""
    if tokenizer.chat_template is None:
        return f"Question: {question}\nAnswer:"
    turns = [{"role": "user", "content": question}]
    return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)


def attention(query, config, key, value, mask, output_attentions=False, **others):
    """Softmax attention; query, key and value are [rows, tokens, heads, width], the mask is added to the scores."""
    query, key, value = (each.transpose([0, 2, 1, 3]) for each in (query, key, value))
    scores = paddle.matmul(query / math.sqrt(query.shape[-1]), key.transpose([0, 1, 3, 2]))
    shares = F.softmax(scores + mask, axis=-1, dtype="float32").astype(query.dtype)
    return paddle.matmul(shares, value).transpose([0, 2, 1, 3]).flatten(2)


class Logits(paddle.nn.Layer):
    """The logits of a network, [rows, tokens, vocabulary], in float32."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, input_ids, attention_mask):
        output = self.network(input_ids=input_ids, attention_mask=attention_mask)
        return (output[0] if isinstance(output, tuple) else output).astype("float32")


def export(network, path):
    """Write <path>.json and <path>.pdiparams. Do not use the network afterwards: load it again."""
    if network.config.model_type == "qwen2":
        for layer in network.qwen2.layers:
            layer.self_attn.attn_func = attention
    network.eval()
    names = ("input_ids", "attention_mask")
    specs = [InputSpec([None, None], "int64", name=name) for name in names]
    program = paddle.jit.to_static(Logits(network), full_graph=True)
    paddle.jit.save(program, str(path), input_spec=specs)


def digests(path):
    """One line for each of the two files, as sha256sum writes it."""
    found = [Path(f"{path}{ending}") for ending in (".json", ".pdiparams")]
    return "".join(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in found)


def verified(path):
    """The path, if both files are as they were exported; else ValueError."""
    if Path(f"{path}.sha256").read_text(encoding="utf-8") != digests(path):
        raise ValueError(f"{path}: a file has changed since the export; copy both again")
    return path


def new_predictor(path, device):
    """A predictor for the program of this path."""
    config = inference.Config(f"{path}.json", f"{path}.pdiparams")
    config.disable_glog_info()
    if device == "gpu":
        config.enable_use_gpu(256, 0)  # MB that it takes at the start, number of the card
    elif device == "xpu":
        config.enable_xpu()
        config.set_xpu_device_id(0)
    elif device == "cpu":
        config.disable_mkldnn()
    else:
        config.enable_custom_device(device, 0)
    return inference.create_predictor(config)


def serve(predictor, tokenizer, questions, at_most=24):
    """The answer to each question: the most likely token each time, until the end token or `at_most` tokens."""
    asked = [prompt(tokenizer, question) for question in questions]
    by_hand = tokenizer.chat_template is None  # a template writes all special tokens itself
    batch = tokenizer(asked, padding=True, add_special_tokens=by_hand, return_attention_mask=True, return_tensors="np")
    ids, mask, end = batch["input_ids"], batch["attention_mask"], tokenizer.eos_token_id
    start = ids.shape[1]
    for _ in range(at_most):
        (logits,) = predictor.run([paddle.to_tensor(ids), paddle.to_tensor(mask)])
        following = logits.numpy()[:, -1].argmax(-1)[:, None]
        ids, mask = np.hstack([ids, following]), np.hstack([mask, np.ones_like(following)])
        if (ids[:, start:] == end).any(axis=1).all():
            break
    tokens = [[*line, end] for line in ids[:, start:].tolist()]
    return [tokenizer.decode(line[: line.index(end)], skip_special_tokens=True).strip() for line in tokens]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path, help="config.json")
    parser.add_argument("--ask", metavar="QUESTION", help="answer a question with the exported program")
    given = parser.parse_args()
    config = json.loads(given.config.read_text(encoding="utf-8"))
    paddle.set_device(config["device"])
    path = Path(config["path"])
    if given.ask:
        tokenizer = AutoTokenizer.from_pretrained(config["model"], padding_side="left")
        predictor = new_predictor(verified(path), config["device"])
        print(*serve(predictor, tokenizer, [given.ask], config["at_most"]))
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    export(AutoModelForCausalLM.from_pretrained(config["model"], dtype="float32"), path)
    Path(f"{path}.sha256").write_text(digests(path), encoding="utf-8")


if __name__ == "__main__":
    main()
