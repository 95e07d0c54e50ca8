"""Prints the perplexity of data/models/tiny-qwen2-sft by transformers, which chapter 21 compares with its own.

    python tools/perplexity_of_transformers.py         # in an environment with torch, transformers and safetensors

Maintainers run it when the model or data/instructions/xpu_heldout.jsonl changes, and write the number into the chapter.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch  # type: ignore[import-not-found]
import transformers  # type: ignore[import-not-found]
from safetensors.torch import load_file
from tokenizers import ByteLevelBPETokenizer

DATA = Path(__file__).resolve().parents[1] / "data"
FOLDER = DATA / "models" / "tiny-qwen2-sft"
FIELDS = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "num_key_value_heads")


def main() -> None:
    """The sum of the losses of all labels, divided once."""
    stored = json.loads((FOLDER / "config.json").read_text())
    config = transformers.Qwen2Config(
        vocab_size=512, rms_norm_eps=stored["rms_norm_eps"], **{name: stored[name] for name in FIELDS}
    )
    model = transformers.Qwen2ForCausalLM(config).eval()
    weights = {name.replace("qwen2.", "model."): value for name, value in load_file(FOLDER / "model.safetensors").items()}
    is_linear = {name: value.ndim == 2 and "embed" not in name for name, value in weights.items()}
    model.load_state_dict({name: value.T if is_linear[name] else value for name, value in weights.items()})
    tokenizer, total, count = ByteLevelBPETokenizer(str(FOLDER / "vocab.json"), str(FOLDER / "merges.txt")), 0.0, 0
    for line in (DATA / "instructions" / "xpu_heldout.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        asked = tokenizer.encode(f"Question: {row['question']}\nAnswer:").ids
        answered = [*tokenizer.encode(f" {row['answer']}").ids, stored["eos_token_id"]]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([asked + answered])).logits[0, len(asked) - 1 : -1]
        total += float(torch.nn.functional.cross_entropy(logits.double(), torch.tensor(answered), reduction="sum"))
        count += len(answered)
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    print(f"perplexity {math.exp(total / count):.4f} over {count} labels; {versions}")


if __name__ == "__main__":
    main()
