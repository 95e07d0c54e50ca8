"""Prompts of the grid of generation: what comes first after each must be certain, so that a row has something to compare."""

from __future__ import annotations

import numpy as np
import pytest
from xpulab.chapters.sft.generation_options import GENERATION, _Row

from xpulab.chapters.sft import generation_options

pytestmark = pytest.mark.unit


def test_prompts_are_drawn_again_until_their_first_tokens_are_certain(monkeypatch):
    searched = []

    def search(weights, config, prompts, case, ends):
        searched.append(prompts)
        return [_Row([1, 2, 3], 0 if len(searched) < 3 else 3) for _ in prompts]

    monkeypatch.setattr(generation_options, "_searched", search)
    case = GENERATION.case(seed=0)
    prompts, ends, right = generation_options._prompts_of({}, None, case, np.random.default_rng(0))
    assert prompts == searched[-1] != searched[0]
    assert len(searched) == 4
    assert ends == (4,)
    assert [row.clear for row in right] == [3]
