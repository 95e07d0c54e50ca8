"""Rates of links as a matrix, and what the vendor's tool calls them."""

from __future__ import annotations

import pytest

from xpulab.chapters.collectives import link_map

TOPOLOGY = """\
\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity
GPU0\t X \tNV12\tSYS\tPIX\t0-31
GPU1\tNV12\t X \tSYS\tSYS\t0-31
GPU2\tSYS\tSYS\t X \tSYS\t32-63
NIC0\tPIX\tSYS\tSYS\t X \t
"""


def test_links_have_the_names_of_the_tool():
    assert link_map.named_links(TOPOLOGY, [0, 1, 2]) == {(0, 1): "NV12", (0, 2): "SYS", (1, 2): "SYS"}


def test_links_are_those_of_the_visible_cards():
    assert link_map.named_links(TOPOLOGY, [2, 1]) == {(0, 1): "SYS"}


@pytest.mark.parametrize("text", ["", "Failed to initialize NVML", "\tGPU0\tGPU1\nGPU0\n"])
def test_a_text_without_a_matrix_names_no_link(text):
    assert link_map.named_links(text, [0, 1]) == {}


def test_visible_cards_are_read_from_the_variables_of_the_launcher(monkeypatch):
    monkeypatch.delenv("XPULINK_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("XPU_VISIBLE_DEVICES", "4,5,6,7")
    assert link_map.cards_of_ranks("xpu", 2) == [4, 5]


def test_cards_named_by_their_uuid_count_from_zero(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1234,GPU-5678")
    assert link_map.cards_of_ranks("gpu", 2) == [0, 1]
