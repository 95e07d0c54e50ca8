"""The vote of the cards: who is a suspect."""

from __future__ import annotations

import pytest

from xpulab.chapters.environment import card_vote
from xpulab.chapters.shared.device import Device


@pytest.mark.parametrize(
    ("hashes", "suspects"),
    [
        ({"xpu:0": "a", "xpu:1": "a", "xpu:2": "a"}, ["none"]),
        ({"xpu:0": "a", "xpu:1": "b", "xpu:2": "a"}, ["xpu:1"]),
        ({"xpu:0": "b", "xpu:1": "a", "xpu:2": "a"}, ["xpu:0"]),
        ({"xpu:0": "a", "xpu:1": "b"}, ["xpu:0", "xpu:1"]),
        ({"xpu:0": "a", "xpu:1": "a", "xpu:2": "b", "xpu:3": "c"}, ["xpu:0", "xpu:1", "xpu:2", "xpu:3"]),
        ({"xpu:0": "a", "xpu:1": "a", "xpu:2": "a", "xpu:3": "c"}, ["xpu:3"]),
    ],
    ids=["all agree", "one of three", "the first", "two cards", "no majority", "one of four"],
)
def test_a_suspect_differs_from_more_than_half_of_the_cards(hashes, suspects):
    assert card_vote.suspects(hashes) == suspects


def test_a_cpu_has_no_cards_to_vote():
    assert card_vote.cards_of(Device("cpu", 4, "cpu")) == []


def test_all_cards_that_paddle_sees_vote_not_only_those_in_use(monkeypatch):
    monkeypatch.setattr(card_vote, "card_count", lambda name: 3)
    assert card_vote.cards_of(Device("xpu", 1, "xpu:0")) == ["xpu:0", "xpu:1", "xpu:2"]
