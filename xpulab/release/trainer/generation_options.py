"""Options of `generate` together, on a tiny model, beside the same search with the decoder in double precision.

    check.grid("sft.generation-options", GENERATION, one_by_one(measure), add_row, level=level, seed=seed, means=...)
    check.grid("sft.sampling-options", SAMPLING, one_by_one(measure_shares), add_row, level=level, seed=seed, means=...)

A case continues prompts of random tokens with random weights. Compared are tokens and scores; prompts are drawn until no choice
depends on rounding. The second grid draws one token many times, and counts.

The score of a row is the mean over its tokens, with the one that ends it: of their logits in greedy search, of their
log-probabilities in sampling, before temperature, top_k and top_p. That of beam search is the sum of the log-probabilities,
divided by ((n + 5) / 6) ** length_penalty, where n tokens come before the one that ends the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import paddle
from paddlenlp.generation import BaseStreamer, GenerationConfig

from xpulab import reference
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid
from xpulab.reference.operators import log_softmax
from xpulab.release.tiny_training import FAMILIES, VOCABULARY, new_network

NEW, PADDING = 6, VOCABULARY - 1
"""Tokens to generate, and the token that fills up rows."""

STRATEGIES: dict[str, dict[str, Any]] = {
    "greedy": {"decode_strategy": "greedy_search"},
    "sampling with top_k 1, twice": {"decode_strategy": "sampling", "top_k": 1, "num_return_sequences": 2},
    "sampling with a small top_p": {"decode_strategy": "sampling", "top_p": 1e-6, "top_k": 2 * VOCABULARY},
    "sampling with a low temperature": {"decode_strategy": "sampling", "temperature": 1e-5, "top_k": 0},
    "beams": {"decode_strategy": "beam_search", "num_beams": 2, "length_penalty": 0.0},
    "best two of three beams": {
        **{"decode_strategy": "beam_search", "num_beams": 3, "num_return_sequences": 2, "early_stopping": True},
        "length_penalty": 2.0,
    },
    "beams apart from siblings": {"decode_strategy": "beam_search", "num_beams": 3, "diversity_rate": 0.7},
    "groups of beams": {"decode_strategy": "beam_search", "num_beams": 4, "num_beam_groups": 2, "diversity_rate": 0.7},
    "beams, whole rows": {"decode_strategy": "beam_search", "num_beams": 2, "trunc_input": False},
}
"""By name the options of a search whose result does not depend on random numbers."""

FEW = {"six": NEW, "one": 1, "six by max_length": -NEW}
"""By name max_new_tokens; below 0: max_length and min_length in its place, in a GenerationConfig."""

GAP = 1e-3
"""How far logits may be off. Where that changes a choice, other prompts are drawn."""

LOWEST = -1e30
"""The logit of a token that must not come; PaddleNLP takes the least number of float32."""

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
        "strategy": STRATEGIES,
        "cache": (True, False),
        "end": ("never", "the first token", "the third token", "one of two tokens", "also in the prompt"),
        "new": FEW,
        "least": (0, 4),
        "penalty": (1.0, 1.7),
        "ngram": (0, 2),
        "forced": ("none", "last", "first"),
        "result": ("new tokens", "whole rows", "a stream"),
    },
    {
        "padding needs a mask": lambda prompts, mask: prompts == PROMPTS["padded left"] and mask == "left out",
        "nothing says whether padding has a penalty": lambda prompts, penalty, ngram: (
            prompts == PROMPTS["padded left"] and (penalty != 1.0 or ngram > 0)
        ),
        "only a prompt of one token has a first token": lambda prompts, forced: (
            forced == "first" and prompts != PROMPTS["of one token"]
        ),
        "all beams would begin with the same token": lambda strategy, forced, new: (
            "num_beams" in strategy and (forced == "first" or (forced == "last" and new == 1))
        ),
        "whole rows of beams are a strategy of their own, and no stream has them": lambda strategy, result: (
            result != "new tokens" and "num_beams" in strategy
        ),
    },
    uninformative={"mask": ["left out"], "end": ["one of two tokens"], "strategy": ["beams, whole rows"]},
)
"""The grid. end: which token of the first row ends every row. least: min_new_tokens. ngram: no_repeat_ngram_size. forced: where
a token must come, by forced_bos_token_id or forced_eos_token_id. result: of trunc_input, or what a streamer gets."""

DRAWS = 4000
"""How often a token is drawn. Five standard deviations of its share are at most 0.04."""

SAMPLING = Grid(
    {
        "temperature": (1.0, 0.5, 2.0),
        "top_k": (0, 1, 5, VOCABULARY, 2 * VOCABULARY),
        "top_p": (1.0, 0.7, 0.2, 0.0),
        "penalty": (1.0, 1.7),
    }
)
"""The grid of sampling. top_p is a share of all tokens, also of those that top_k excludes; the token that crosses it counts."""

Row = tuple[list[int], float]
"""A generated row: its tokens up to the end token, and its score."""

Logits = Callable[[Sequence[int]], np.ndarray]
"""From the tokens so far to the logits of the next one, [words]."""


def measure(case: Case) -> Compared:
    """Generate on the device in use."""
    rng = case.rng()
    sizes = {"num_hidden_layers": case.layers, "num_key_value_heads": case.key_heads, "tie_word_embeddings": case.tied}
    network, config, weights = new_network(case.family, rng, **sizes, use_cache=True)
    network.eval()
    prompts, forced, ends, right = _prompts_of(weights, config, case, rng)
    has_prompts = case.result == "whole rows" or "trunc_input" in case.strategy
    options = {**case.strategy, "use_cache": case.cache, "repetition_penalty": case.penalty, "trunc_input": not has_prompts}
    options["no_repeat_ngram_size"] = case.ngram or None
    options |= {"pad_token_id": PADDING, "bos_token_id": 1, "eos_token_id": list(ends) if len(ends) > 1 else ends[0]}
    if case.forced != "none":
        options["forced_bos_token_id" if case.forced == "first" else "forced_eos_token_id"] = forced
    unit = "length" if case.new < 0 else "new_tokens"
    options |= {f"max_{unit}": abs(case.new), **({f"min_{unit}": case.least} if case.least else {})}
    length = max(map(len, prompts))
    ids = np.array([[PADDING] * (length - len(prompt)) + prompt for prompt in prompts])
    given: dict[str, Any] = {"streamer": _Stream() if case.result == "a stream" else None}
    if case.mask == "given":
        given["attention_mask"] = paddle.to_tensor((ids != PADDING).astype("int64"))
    if case.new < 0 and case.cache:
        given["use_cache"] = options.pop("use_cache")
        options = {"generation_config": GenerationConfig(**options)}
    tokens, scores = network.generate(paddle.to_tensor(ids), **given, **options)
    if given["streamer"]:
        tokens = paddle.concat(given["streamer"].steps, axis=1)
    rows = [row for of_prompt in right for row in of_prompt]
    longest = max(len(found) for found, _ in rows)
    lines = np.array([(found + NEW * [PADDING])[:longest] for found, _ in rows])
    if has_prompts:
        lines = np.concatenate([ids.repeat(len(right[0]), axis=0), lines], axis=1)
    expected = {"tokens": lines, "scores": np.array([[score] for _, score in rows])}
    return Compared({"tokens": tokens.numpy(), "scores": scores.numpy()}, expected, {"tokens": 0.25, "scores": 2 * GAP})


class _Stream(BaseStreamer):
    """Keeps the tokens of each step, [rows, 1], when the end is reported."""

    def __init__(self) -> None:
        self.open: list[Any] = []
        self.steps: list[Any] = []
        self.put, self.end = self.open.append, lambda: self.steps.extend(self.open)


def measure_shares(case: Case) -> Compared:
    """Draw on the device in use: how often each token comes, and the score of each."""
    rng = case.rng()
    network, config, weights = new_network(FAMILIES["qwen2"], rng)
    network.eval()
    shares = np.array([np.nan])
    while np.isnan(shares).any():
        prompt = rng.integers(0, PADDING, 5).tolist()
        logits = _penalized(_logits_of(weights, config)(prompt), prompt, case.penalty)
        shares = _shares(logits, case)
    paddle.seed(case.seed)
    options = {"temperature": case.temperature, "top_k": case.top_k, "top_p": case.top_p, "repetition_penalty": case.penalty}
    given = {"attention_mask": paddle.ones([1, 5], "int64"), "num_return_sequences": DRAWS, "max_new_tokens": 1}
    tokens, scores = network.generate(paddle.to_tensor([prompt]), decode_strategy="sampling", **given, **options)
    drawn = tokens.numpy()[:, 0]
    found = {"shares": np.bincount(drawn, minlength=VOCABULARY) / DRAWS, "scores": scores.numpy()[:, 0]}
    right = {"shares": shares, "scores": log_softmax(logits)[drawn]}
    bound = {"shares": 5 * np.sqrt(shares * (1 - shares) / DRAWS) + 1e-9, "scores": 2 * GAP}
    return Compared(found, right, bound)


def _shares(logits: np.ndarray, case: Case) -> np.ndarray:
    """The probability of each token; NaN where top_k or top_p depends on rounding."""
    likely = np.exp(log_softmax(logits / case.temperature))
    order = np.argsort(-likely)
    before = np.cumsum(likely[order]) - likely[order]
    keeps = (np.arange(VOCABULARY) < (case.top_k or VOCABULARY)) & ((before <= case.top_p) | (case.top_p == 1.0))
    keeps[0] = True
    near = np.abs(before[1:] - case.top_p) < GAP
    if (case.top_p < 1.0 and near.any()) or (-np.diff(likely[order]) < 1e-6).any():
        return np.full(VOCABULARY, np.nan)
    likely[order[~keeps]] = 0.0
    return likely / likely.sum()


def _prompts_of(
    weights: Any, config: Any, case: Case, rng: np.random.Generator
) -> tuple[list[list[int]], int, tuple[int, ...], list[list[Row]]]:
    """Random prompts for which no choice depends on rounding, a token to force, those that end a row, and what is right."""
    while True:
        prompts = [rng.integers(0, PADDING, length).tolist() for length in case.prompts]
        logits = _logits_of(weights, config)
        free = [_searched(logits, case, prompt, (PADDING,), PADDING)[0][0] for prompt in prompts]
        unused = (each for each in range(1, PADDING) if not any(each in row for row in (*free, *prompts)))
        forced, other = next(unused), next(unused)
        third, second, first = (free[0][min(place, len(free[0]) - 1)] for place in (2, 1, 0))
        ends: dict[str, tuple[int, ...]] = {"never": (other,), "the first token": (first,), "the third token": (third,)}
        ends |= {"one of two tokens": (other, second), "also in the prompt": (prompts[0][-1],)}
        noise = [np.zeros(VOCABULARY), *rng.uniform(-GAP, GAP, (3, VOCABULARY))]
        found = [[_searched(_off(logits, by), case, each, ends[case.end], forced) for each in prompts] for by in noise]
        tokens = [[[row for row, _ in of_prompt] for of_prompt in rows] for rows in found]
        if all(each == tokens[0] for each in tokens):
            return prompts, forced, ends[case.end], found[0]


def _off(logits: Logits, by: np.ndarray) -> Logits:
    return lambda tokens: logits(tokens) + by


def _logits_of(weights: Any, config: Any) -> Logits:
    """By the reference implementation, without a cache of keys and values, each row of tokens once."""

    @cache
    def logits(*tokens: int) -> np.ndarray:
        batch = {"input_ids": np.array([tokens]), "attention_mask": np.ones([1, len(tokens)], "int64")}
        last: np.ndarray = reference.logits(weights, config, batch)[0, -1]
        return last

    return lambda tokens: logits(*tokens)


def _penalized(logits: np.ndarray, tokens: Sequence[int], penalty: float) -> np.ndarray:
    seen, changed = list(set(tokens)), logits.copy()
    changed[seen] = np.where(changed[seen] < 0, changed[seen] * penalty, changed[seen] / penalty)
    return changed


def _searched(logits: Logits, case: Case, prompt: Sequence[int], ends: tuple[int, ...], forced: int) -> list[Row]:
    """The rows of one prompt, the best one first."""

    def processed(values: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
        """Logits of the next token, or log-probabilities, with all that the options change of them."""
        step, values = len(tokens) - len(prompt), values.copy()
        if step < case.least:
            values[list(ends)] = LOWEST
        values = _penalized(values, tokens, case.penalty)
        if case.ngram:
            values[[after for before, after in pairwise(tokens) if before == tokens[-1]]] = LOWEST
        if (case.forced == "first" and len(tokens) == 1) or (case.forced == "last" and step == abs(case.new) - 1):
            values[:], values[forced] = LOWEST, 0.0
        return values

    if "num_beams" in case.strategy:
        return _beams(lambda tokens: processed(log_softmax(logits(tokens)), tokens), case, prompt, ends)
    tokens, scores = list(prompt), list[float]()
    while len(tokens) < len(prompt) + abs(case.new) and not (scores and tokens[-1] in ends):
        values = processed(logits(tokens), tokens)
        tokens.append(int(values.argmax()))
        scores.append(float((values if case.labels["strategy"] == "greedy" else log_softmax(values)).max()))
    return [(tokens[len(prompt) :], float(np.mean(scores)))] * case.strategy.get("num_return_sequences", 1)


def _beams(logps: Logits, case: Case, prompt: Sequence[int], ends: tuple[int, ...]) -> list[Row]:
    """Beam search. In groups, each takes its tokens after the others, which makes those that are taken less likely."""
    options, finished, steps = case.strategy, list[Row](), abs(case.new)
    width, apart = options["num_beams"], options.get("diversity_rate", 0.0)
    size = width // options.get("num_beam_groups", 1)
    groups = [[(list(prompt), 0.0)] for _ in range(width // size)]

    def score(total: float, length: int) -> float:
        return float(total / ((length + 5) / 6) ** options.get("length_penalty", 1.0))

    def candidates(beam: Row, taken: Sequence[int]) -> Iterator[tuple[float, float, list[int], int]]:
        """The likeliest next tokens of a beam: what they are chosen by, their sum, the beam's tokens, the token."""
        values = beam[1] + logps(beam[0])
        if size < width:
            values = values - apart * np.bincount(taken, minlength=VOCABULARY)
        for rank, token in enumerate(np.argsort(-values)[: 2 * width].tolist(), 1):
            yield values[token] - (apart * rank if size == width else 0.0), float(values[token]), beam[0], token

    for step in range(steps):
        taken: list[int] = []
        for number, beams in enumerate(groups):
            best = sorted((each for beam in beams for each in candidates(beam, taken)), key=lambda each: -each[0])[: 2 * size]
            groups[number] = [([*before, token], total) for _, total, before, token in best if token not in ends][:size]
            taken += [tokens[-1] for tokens, _ in groups[number]]
            kept = 0
            for rank, (_, total, before, token) in enumerate(best):
                if token in ends and rank < size and kept < size:
                    finished.append(([*before[len(prompt) :], token], score(total, step)))
                kept += token not in ends
            finished = sorted(finished, key=lambda row: -row[1])[:width]
            highest = score(max(total for _, total, _, _ in best), step)
            if len(finished) == width and (options.get("early_stopping") or finished[-1][1] >= highest):
                return finished[: options.get("num_return_sequences", 1)]
    finished += [(tokens[len(prompt) :], score(total, steps)) for beams in groups for tokens, total in beams]
    return sorted(finished, key=lambda row: -row[1])[: options.get("num_return_sequences", 1)]
