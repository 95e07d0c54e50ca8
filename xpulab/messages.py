"""The texts that people read, in their language: a message is a template and its values, and is formatted where it is shown.

    reason = N_("{count} cells were left out", count=3)    # English as a str, so that records and files for programs keep it
    print(shown(reason))                                    # the last step before a person reads it

A text without values is found by itself, also after it passed through JSON; one with values keeps its template while it is a
Message. What the catalogue does not have is shown in English. tools/messages.py reads the marked texts.

Only the command line chooses a language, when it starts. In a notebook, and in whatever imports this package, all texts are
English but the labels of figures, which follow VARIABLE (chapters/shared/figures.py). Standard library only: the doctor needs
it where nothing else can be imported.
"""

from __future__ import annotations

import ast
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from xpulab.errors import InputError

ENGLISH = "en"
LANGUAGES = (ENGLISH, "zh")
VARIABLE = "XPULAB_LANG"
"""The variable that chooses the language of the command line. The locale chooses nothing."""
LOCALE = Path(__file__).resolve().parent / "locale"
DOMAIN, FIGURES = "xpulab", "figures"
"""The catalogues: what xpulab says, and the labels of figures."""

_language = ENGLISH

_GAP = re.compile(r"(?<=[\u3400-\u9fff]) (?=[\u3400-\u9fff])")
"""Between two Chinese characters no space stands; between one and a number or a Latin word it does."""


class Message(str):
    """A text with values, in English. template: as the catalogue has it, "{count} cells were left out". values: by name."""

    template: str
    values: Mapping[str, Any]

    def __new__(cls, template: str, values: Mapping[str, Any]) -> Message:
        made = super().__new__(cls, template.format(**values))
        made.template, made.values = template, values
        return made

    def __getnewargs__(self) -> tuple[str, Mapping[str, Any]]:  # type: ignore[override]
        return self.template, self.values


def N_(template: str, /, **values: Any) -> str:  # gettext's name for a text that is translated later
    """The text, in English. tools/messages.py finds the call: the template is a literal with the names of its values."""
    return Message(template, values) if values else template


COLON, SEMICOLON = N_(": "), N_("; ")
"""Between a label and its text, and between the sentences of a reason."""


def choose(environ: Mapping[str, str] = os.environ) -> None:
    """From now on texts are shown in the language of VARIABLE, else in English.

    Raises InputError for a language that is not one of LANGUAGES.
    """
    global _language
    language = environ.get(VARIABLE) or ENGLISH
    if language not in LANGUAGES:
        raise InputError(f"{VARIABLE}={language}: no such language; choose {' or '.join(LANGUAGES)}")
    _language = language


def language() -> str:
    """The one of LANGUAGES in which texts are shown."""
    return _language


def shown(text: str) -> str:
    """The text in the chosen language, line by line where the catalogue does not have the whole; else as it is."""
    if _language == ENGLISH:
        return text
    known = catalogue(_language)
    if isinstance(text, Message):
        values = {name: shown(value) if isinstance(value, str) else value for name, value in text.values.items()}
        return _GAP.sub("", known.get(text.template, text.template).format(**values))
    if text in known:
        return known[text]
    return "\n".join(known.get(line, line) for line in text.split("\n")) if "\n" in text else text


def labelled(label: str, text: str) -> str:
    """A text after its label, as "cause: ", both in the chosen language."""
    return f"{shown(label)}{shown(text)}"


def headed(head: str, text: str) -> str:
    """A text after what it is about, both in the chosen language."""
    return f"{head}{shown(COLON)}{text}"


def joined(texts: Iterable[str]) -> str:
    """Texts that are in the chosen language as the sentences of one line."""
    return shown(SEMICOLON).join(texts)


_OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff"
    r"\U000e0000-\U000e0fff]"
)
"""What a terminal or a page obeys and does not show: control, escape and format characters, half surrogates."""


def plain(text: str) -> str:
    """A text that somebody else wrote, as a terminal, a page or a reason may have it: what they would obey is shown: "\\x1b".

    Lines and tabs stay. A text without such characters is returned itself, a Message too.
    """
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text) if _OBEYED.search(text) else text


def one_line(text: str) -> str:
    """The same in one line."""
    return plain(text).replace("\n", " ")


def width(text: str) -> int:
    """How many columns of a terminal it takes: two for each Chinese character."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def padded(text: str, columns: int) -> str:
    """The text with spaces up to so many columns of a terminal."""
    return text + " " * (columns - width(text))


@cache
def catalogue(language: str, domain: str = DOMAIN) -> Mapping[str, str]:
    """By message in English its translation, of one of LANGUAGES but English; fuzzy ones are left out."""
    path = LOCALE / language / "LC_MESSAGES" / f"{domain}.po"
    return dict(_entries(path.read_text(encoding="utf-8")))


def _entries(text: str) -> Iterable[tuple[str, str]]:
    """The translated messages of a .po file as tools/messages.py writes it: entries apart by empty lines, no plural forms."""
    for entry in text.split("\n\n"):
        parts: dict[str, str] = {}
        key = ""
        for line in entry.splitlines():
            if not line.startswith("#"):
                key = line.split(" ", 1)[0] if line.startswith("msg") else key
                parts[key] = parts.get(key, "") + ast.literal_eval(line[line.index('"') :])
        if parts.get("msgid") and parts.get("msgstr") and "#, fuzzy" not in entry:
            yield parts["msgid"], parts["msgstr"]
