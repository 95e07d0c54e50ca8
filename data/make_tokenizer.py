"""Makes the tokenizer that all tiny models share, from data/instructions.

    python data/make_tokenizer.py

A byte-level BPE of 512 tokens, trained with the tokenizers package and saved as PaddleNLP's Qwen2Tokenizer in the folder of
each tiny model. Nothing is random: every run writes the same bytes.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from paddlenlp.transformers import Qwen2Tokenizer
from tokenizers import ByteLevelBPETokenizer

from xpulab import files

MODELS = ("tiny-qwen2", "tiny-llama")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCABULARY = 512


def main() -> None:
    """Train the tokenizer and save it next to the config of each tiny model."""
    for model in MODELS:
        save(files.DATA / "models" / model)


def save(folder: Path) -> None:
    """Train the tokenizer and write its files into the folder."""
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(texts(), vocab_size=VOCABULARY, min_frequency=2, special_tokens=SPECIAL, show_progress=False)
    if bpe.get_vocab_size() != VOCABULARY:
        raise SystemExit(f"the texts give {bpe.get_vocab_size()} tokens, not {VOCABULARY}: add more texts")
    with tempfile.TemporaryDirectory() as trained:
        bpe.save_model(trained)
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
