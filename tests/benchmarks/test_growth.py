"""Copies of chapters can run together: no two share the name of a file or of a check."""

from __future__ import annotations

import growth
import pytest
from peers import chosen_notebooks

from xpulab.harness.plan import make_plans


def test_a_name_is_replaced_only_where_it_stands_alone():
    text = '"lora.merge" lora.merge-2 my.lora.merge lora.merge. xlora.merge lora.merge.more'
    expected = '"lora.merg1" lora.merge-2 my.lora.merge lora.merg1. xlora.merge lora.merge.more'
    assert growth.rename(text, {"lora.merge": "lora.merg1"}) == expected


@pytest.mark.integration
def test_four_times_all_chapters_can_be_planned_together(tmp_path):
    copies = growth.write_copies(chosen_notebooks("*"), tmp_path / "copies", 4)
    assert len(make_plans(list(map(str, copies)), "smoke")) == len(copies)
