"""The Chinese labels of figures: the font has its characters, figures show it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from fontTools.ttLib import TTFont

from xpulab import files, messages
from xpulab.chapters.shared.figures import FONT

MOST_BYTES = 300_000


def test_the_font_has_all_characters_is_small_and_has_its_licence_beside_it():
    path, known = files.data(*FONT), messages.catalogue("zh", messages.FIGURES)
    characters = {ord(character) for label in known.values() for character in label if ord(character) > 0x2E80}
    assert characters <= TTFont(path).getBestCmap().keys(), "run tools/make_font.py"
    assert path.stat().st_size < MOST_BYTES
    assert "SIL OPEN FONT LICENSE" in path.with_name("OFL.txt").read_text(encoding="utf-8")


DRAW = """
import warnings
warnings.simplefilter("error")
from xpulab.chapters.shared import figures
axes = figures.diagram(4, 2, "What a card holds")
figures.box(axes, 0, 0, 2, 1, "rank 1")
axes.figure.canvas.draw()
print(axes.get_title(loc="left"), axes.texts[0].get_text(), sep="|")
"""


@pytest.mark.parametrize(("asked", "shown"), [("zh", "一张卡持有什么|进程 1"), ("en", "What a card holds|rank 1")])
def test_a_figure_is_drawn_in_the_language_without_a_missing_character(asked, shown):
    environment = {**os.environ, messages.VARIABLE: asked, "MPLBACKEND": "agg", "PYTHONUTF8": "1"}
    done = subprocess.run([sys.executable, "-c", DRAW], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{shown}\n"), done.stderr
