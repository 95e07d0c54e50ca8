"""Data sheets of cards: what the file says is plausible, and what is wrong in it is refused with its line."""

from __future__ import annotations

import pytest

from xpulab.errors import InputError
from xpulab.records import hardware

ENTRY = """\
- card: a card
  models: [Card X, Card Y]
  tflops: {float32: 10, tf32: 80, float16: 160}
  memory_gb_per_s: 900
  memory_gib: 32
  link: PCIe 4.0 x16
  source: the vendor's data sheet
"""


def load(tmp_path, text):
    path = tmp_path / "hardware.yaml"
    path.write_text(text)
    return hardware.load(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("float16: 160", "fp16: 160", "line 3.*fp16"),
        ("memory_gib: 32", "memory_gib: 0", "line 5"),
        ("memory_gb_per_s", "bandwidth", "line 4.*bandwidth"),
        ("  source: the vendor's data sheet\n", "", "line 1.*'source' is a required property"),
    ],
)
def test_a_malformed_sheet_is_refused_by_line(tmp_path, old, new, message):
    with pytest.raises(InputError, match=message):
        load(tmp_path, ENTRY.replace(old, new))
