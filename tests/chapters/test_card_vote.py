"""The vote of the cards: who is a suspect, and that a step is the same whenever it is repeated."""

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


@pytest.mark.parametrize("cards", [2, 3, 8])
def test_an_altered_vote_has_a_suspect(cards):
    agreed = {f"xpu:{number}": "a" for number in range(cards)}
    assert card_vote.suspects(agreed) == ["none"]
    assert f"xpu:{cards - 1}" in card_vote.suspects(card_vote.altered(agreed))


def test_a_cpu_has_no_cards_to_vote():
    assert card_vote.cards_of(Device("cpu", 4, "cpu")) == []


def test_all_cards_that_paddle_sees_vote_not_only_those_in_use(monkeypatch):
    monkeypatch.setattr(card_vote, "card_count", lambda name: 3)
    assert card_vote.cards_of(Device("xpu", 1, "xpu:0")) == ["xpu:0", "xpu:1", "xpu:2"]


def test_a_step_repeats_its_bits_and_another_seed_gives_others():
    first, again, other = card_vote.step(0), card_vote.step(0), card_vote.step(1)
    assert first == again
    assert all(first[part] != other[part] for part in first)


def test_a_step_has_a_hash_for_each_part():
    assert list(card_vote.step(0)) == ["losses", "gradients", "weights", "product, float32", "product, float64"]


def test_the_example_has_one_suspect_in_one_part():
    suspects = {part: card_vote.suspects(cards) for part, cards in card_vote.by_part(card_vote.example(0)).items()}
    assert suspects.pop("weights") == ["card 1"]
    assert list(suspects.values()) == [["none"]] * len(suspects)
