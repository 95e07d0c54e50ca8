"""Options of `generate` together, on a tiny model, beside greedy search with the decoder in double precision.

    check.grid("sft.generation-options", GENERATION, one_by_one(measure), add_row, level=level, seed=seed, means=...)

A case continues prompts of random tokens with random weights. Compared are the tokens, in each row until the two likeliest ones
of a step are too near to each other for float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from xpulab import reference
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid
from xpulab.release.tiny_training import FAMILIES, VOCABULARY, new_network

NEW, PADDING = 6, 0
"""Tokens to generate, and the token that fills up rows."""

LIKELIEST: dict[str, dict[str, Any]] = {
    "greedy": {"decode_strategy": "greedy_search"},
    "sampling with top_k 1": {"decode_strategy": "sampling", "top_k": 1},
    "sampling with a small top_p": {"decode_strategy": "sampling", "top_p": 1e-6},
}
"""By name the options that all choose the likeliest token."""

GAP = 1e-3
"""How far the likeliest token's logit must be above the second one's to be the only right choice."""

PROMPTS = {"one": (7,), "of one length": (5, 5, 5), "padded left": (6, 3, 5), "of one token": (1, 1)}
"""By name the tokens of the prompts."""

GENERATION = Grid(
    {
        "family": FAMILIES,
        "layers": (2, 11),
        "key_heads": (2, 4, 1),
        "tied": (False, True),
        "prompts": PROMPTS,
        "mask": ("given", "left out"),
        "strategy": LIKELIEST,
        "cache": (True, False),
        "end": ("never", "the first token", "the third token", "one of two tokens"),
        "least": (0, 4),
        "penalty": (1.0, 1.7),
    },
    {
        "padding needs a mask": lambda prompts, mask: prompts == PROMPTS["padded left"] and mask == "left out",
        "nothing says whether padding has a penalty": lambda prompts, penalty: (
            prompts == PROMPTS["padded left"] and penalty != 1.0
        ),
    },
    uninformative={"mask": ["left out"]},
)
"""The grid. end: which token of the first row ends every row. least: min_new_tokens."""


def measure(case: Case) -> Compared:
    """Generate on the device in use."""
    rng = case.rng()
    sizes = {"num_hidden_layers": case.layers, "num_key_value_heads": case.key_heads, "tie_word_embeddings": case.tied}
    network, config, weights = new_network(case.family, rng, **sizes, use_cache=True)
    network.eval()
    prompts, ends, right = _prompts_of(weights, config, case, rng)
    options = {**case.strategy, "max_new_tokens": NEW, "use_cache": case.cache, "repetition_penalty": case.penalty}
    if case.least:
        options["min_new_tokens"] = case.least
    length = max(map(len, prompts))
    ids = np.array([[PADDING] * (length - len(prompt)) + prompt for prompt in prompts])
    if case.mask == "given":
        options["attention_mask"] = paddle.to_tensor((ids != PADDING).astype("int64"))
    options["eos_token_id"] = list(ends) if len(ends) > 1 else ends[0]
    tokens, _ = network.generate(paddle.to_tensor(ids), pad_token_id=PADDING, bos_token_id=1, **options)

    longest = max(len(row.tokens) for row in right)
    filled = {f"prompt {number}": (row.tokens + NEW * [PADDING])[:longest] for number, row in enumerate(right)}
    pairs = [
        (name, np.array(line[: row.clear]), np.array(exact[: row.clear]))
        for (name, exact), line, row in zip(filled.items(), tokens.tolist(), right, strict=True)
    ]
    if all(row.clear == NEW for row in right):  # else whether the last row has ended is not certain
        pairs.append(("tokens", np.array(tokens.shape[1]), np.array(longest)))
    return Compared({name: found for name, found, _ in pairs}, {name: exact for name, _, exact in pairs})


def _prompts_of(
    weights: Any, config: Any, case: Case, rng: np.random.Generator
) -> tuple[list[list[int]], tuple[int, ...], list[_Row]]:
    """Random prompts whose first tokens are certain, the tokens that end a row, and what is right."""
    while True:
        prompts = [rng.integers(1, VOCABULARY, length).tolist() for length in case.prompts]
        free = [row.tokens for row in _searched(weights, config, prompts, case, ends=())]
        unused = next(token for token in range(1, VOCABULARY) if not any(token in row for row in free))
        ends = {
            "never": (unused,),
            "the first token": (free[0][0],),
            "the third token": (free[0][2],),
            "one of two tokens": (unused, free[0][1]),
        }[case.end]
        right = _searched(weights, config, prompts, case, ends)
        if all(row.clear for row in right):
            return prompts, ends, right


@dataclass(frozen=True)
class _Row:
    """A generated row: its tokens up to the end token, and before which step all of them are certain."""

    tokens: list[int]
    clear: int


def _searched(weights: Any, config: Any, prompts: list[list[int]], case: Case, ends: tuple[int, ...]) -> list[_Row]:
    """Greedy search by the reference implementation, one prompt at a time and without a cache."""
    found = []
    for prompt in prompts:
        tokens, clear = list(prompt), NEW
        for step in range(NEW):
            batch = {"input_ids": np.array([tokens]), "attention_mask": np.ones([1, len(tokens)], "int64")}
            logits = reference.logits(weights, config, batch)[0, -1]
            if step < case.least:
                logits[list(ends)] = -1e9
            seen = list(set(tokens))
            logits[seen] = np.where(logits[seen] < 0, logits[seen] * case.penalty, logits[seen] / case.penalty)
            second, best = np.sort(logits)[-2:]
            if best - second < GAP:
                clear = min(clear, step)
            token = int(logits.argmax())
            tokens.append(token)
            if token in ends:
                break
        found.append(_Row(tokens[len(prompt) :], clear))
    return found
