"""Make the font of the Chinese labels of figures: data/fonts/labels-zh.otf, with the characters of figures.po only.

    .venv/bin/python tools/make_font.py NotoSansCJK-Regular.ttc

The argument is Noto Sans CJK (github.com/notofonts/noto-cjk; package fonts-noto-cjk of Debian and Ubuntu), under the SIL Open
Font License 1.1, which data/fonts/OFL.txt holds and which is that of the result too.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTCollection, TTFont

from xpulab.chapters.shared.figures import FAMILY, FONT
from xpulab.files import DATA
from xpulab.messages import FIGURES, catalogue

SIMPLIFIED = "Noto Sans CJK SC"
FAMILY_NAME, STYLE_NAME, UNIQUE_NAME, FULL_NAME, POSTSCRIPT_NAME = 1, 2, 3, 4, 6
"""Numbers of names in a font's table of names."""


def characters() -> str:
    """Those of the labels that matplotlib's own font lacks, or draws at another width."""
    labels = "".join(catalogue("zh", FIGURES).values())
    return "".join(sorted(character for character in set(labels) if ord(character) > 0x2E80))


def made(source: Path) -> TTFont:
    """The font with these characters, by the name of FAMILY. Raises SystemExit where the source is another font."""
    fonts = [font for font in TTCollection(source).fonts if font["name"].getDebugName(FAMILY_NAME) == SIMPLIFIED]
    if not fonts:
        raise SystemExit(f"{source}: holds no {SIMPLIFIED}; give NotoSansCJK-Regular.ttc")
    options = subset.Options(layout_features=[], name_IDs=[0, 13, 14], notdef_outline=True, hinting=False)
    subsetter = subset.Subsetter(options)
    subsetter.populate(text=characters())
    subsetter.subset(fonts[0])
    plain = FAMILY.replace(" ", "")
    for number, name in (
        (FAMILY_NAME, FAMILY),
        (STYLE_NAME, "Regular"),
        (UNIQUE_NAME, plain),
        (FULL_NAME, FAMILY),
        (POSTSCRIPT_NAME, plain),
    ):
        fonts[0]["name"].setName(name, number, 3, 1, 0x409)
    cff = fonts[0]["CFF "].cff
    cff.fontNames = [plain]
    cff.topDictIndex[0].FamilyName = cff.topDictIndex[0].FullName = FAMILY
    return fonts[0]


def main(arguments: list[str]) -> None:
    """Write the font; says how large it is."""
    if len(arguments) != 1:
        raise SystemExit("usage: make_font.py NotoSansCJK-Regular.ttc")
    path = DATA.joinpath(*FONT)
    made(Path(arguments[0])).save(path)
    print(f"{path}: {len(characters())} characters, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
