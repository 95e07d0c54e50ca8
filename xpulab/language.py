"""The languages of the book: XPULAB_LANG names the one that a person reads."""

from __future__ import annotations

import os
from pathlib import Path

from xpulab import files
from xpulab.errors import InputError

VARIABLE = "XPULAB_LANG"
LANGUAGES = ("en", "zh")


def chosen() -> str:
    """The language that the variable names, one of LANGUAGES; English where it is not set, or names another one."""
    asked = os.environ.get(VARIABLE, "")
    return asked if asked in LANGUAGES else "en"


def notebooks(language: str) -> Path:
    """The folder with the notebooks in a language. Raises InputError for one that the book does not have."""
    if language not in LANGUAGES:
        raise InputError(f"--lang {language}: the book has no such language; choose {' or '.join(LANGUAGES)}")
    return files.NOTEBOOKS if language == "en" else files.NOTEBOOKS / language
