"""Makes the tokenizer that all tiny models share, from data/instructions.

    python data/make_tokenizer.py

A byte-level BPE of 512 tokens, trained with the tokenizers package and saved as PaddleNLP's Qwen2Tokenizer in the folder of
each tiny model. tiny-smollm2 gets the same tokens in the files of a prepared SmolLM2: tokenizer.json, and a chat template.
Nothing is random: every run writes the same bytes.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from paddlenlp.transformers import Qwen2Tokenizer
from tokenizers import ByteLevelBPETokenizer

from xpulab import files
from xpulab.pretrained import tokenizer as prepared

MODELS = ("tiny-qwen2", "tiny-llama")
CHAT_MODEL = "tiny-smollm2"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCABULARY = 512
CHAT_TEMPLATE = (  # ChatML, as SmolLM2 has it: a conversation that does not begin with a system message gets this one
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant<|im_end|>\n' }}"
    "{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def main() -> None:
    """Train the tokenizer and save it next to the config of each tiny model."""
    for model in MODELS:
        save(files.DATA / "models" / model)
    save_with_chat(files.DATA / "models" / CHAT_MODEL)


def save(folder: Path) -> None:
    """Train the tokenizer and write its files into the folder."""
    with tempfile.TemporaryDirectory() as trained:
        trained_bpe().save_model(trained)
        tokenizer = Qwen2Tokenizer(
            f"{trained}/vocab.json",
            f"{trained}/merges.txt",
            eos_token="<|im_end|>",
            pad_token="<|endoftext|>",
            additional_special_tokens=SPECIAL[1:],
            model_max_length=128,
        )
        tokenizer.save_pretrained(str(folder))
    _sorted(folder / "tokenizer_config.json")


def save_with_chat(folder: Path) -> None:
    """Train the tokenizer and write it into the folder in the files of a prepared model, with the chat template."""
    bpe = trained_bpe()
    with tempfile.TemporaryDirectory() as trained:
        bpe.save_model(trained)
        merges = (Path(trained) / "merges.txt").read_text(encoding="utf-8").splitlines()[1:]  # the first one is the version
    vocabulary = bpe.get_vocab()
    config = json.loads((files.DATA / "models" / CHAT_MODEL / "config.json").read_text())
    prepared.write_from_tokens(
        folder, sorted(vocabulary, key=vocabulary.__getitem__), merges, SPECIAL, "smollm", config, CHAT_TEMPLATE
    )


def trained_bpe() -> ByteLevelBPETokenizer:
    """The byte-level BPE, trained on the texts."""
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(texts(), vocab_size=VOCABULARY, min_frequency=2, special_tokens=SPECIAL, show_progress=False)
    if bpe.get_vocab_size() != VOCABULARY:
        raise SystemExit(f"the texts give {bpe.get_vocab_size()} tokens, not {VOCABULARY}: add more texts")
    return bpe


def texts() -> list[str]:
    """Every question and answer, in the form in which the notebooks train on them."""
    rows = [
        row
        for split in ("train", "heldout", "xpu_train", "xpu_heldout")
        for row in files.load_jsonl(files.data("instructions", f"{split}.jsonl"), ("question", "answer"))
    ]
    return [f"Question: {row['question']}\nAnswer: {row['answer']}" for row in rows]


def _sorted(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()), indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
