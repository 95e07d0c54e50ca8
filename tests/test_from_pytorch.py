"""docs/from-pytorch.md: every name of Paddle in its tables is there."""

from __future__ import annotations

import importlib
import importlib.util
import operator
import re

import pytest

from xpulab import files

PAGE = (files.ROOT / "docs" / "from-pytorch.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `.*\|$", PAGE, re.MULTILINE)
NAMES = sorted(
    {name for row in ROWS for name in re.findall(r"\b(?:paddle|paddlenlp|dist)(?:\.[a-zA-Z]\w*)+", row.split("|")[2])}
)


@pytest.mark.integration
@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_right_column_is_there(name):
    full = re.sub(r"^dist\.", "paddle.distributed.", name)
    if full == "paddle.distributed.launch":
        assert importlib.util.find_spec(full)
    else:
        package = importlib.import_module(".".join(full.split(".")[:2]) if full.startswith("paddlenlp") else "paddle")
        assert callable(operator.attrgetter(full.removeprefix(f"{package.__name__}."))(package))
