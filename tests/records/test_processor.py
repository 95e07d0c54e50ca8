"""The processor time of a cell passes from a reply to a cell as it was measured, beside what the cell holds."""

from __future__ import annotations

from xpulab.records.processor import ProcessorSeconds, add_to_cell, from_metadata, to_metadata

USED = ProcessorSeconds(kernel=1.5, ranks=2.25, children=0.125)


def test_metadata_holds_what_was_measured_or_none():
    assert from_metadata(to_metadata(USED)) == USED
    assert from_metadata({"xpulab": {"section": "one"}}) is None


def test_a_cell_keeps_its_own_metadata():
    metadata = {"xpulab": {"cell": 7}, "tags": ["proof"]}
    add_to_cell(metadata, USED)
    assert metadata["xpulab"]["cell"] == 7 and metadata["tags"] == ["proof"] and from_metadata(metadata) == USED
