"""The texts that people read, in their language: English where they are made, translated where they are shown.

    reason = N_(f"{count} cells were left out")    # marked for the catalogue; English, as every record and file keeps it
    print(shown(reason))                           # the last step before a person reads it

A text often passes through JSON, another process or an exception between the two, so `shown` takes nothing but the English
text: it looks it up in the catalogue, else it finds the message with placeholders that the text is made from, and translates
the values too. A text that the catalogue does not have is shown as it is. tools/messages.py reads the marked texts.

Only the command line chooses a language, when it starts. In a notebook, and in whatever imports this package, all texts are
English but the labels of figures, which follow VARIABLE (chapters/shared/figures.py). Standard library only: the doctor needs
it where nothing else can be imported.
"""

from __future__ import annotations

import gettext
import os
import re
import string
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from xpulab.errors import InputError

ENGLISH = "en"
LANGUAGES = (ENGLISH, "zh")
VARIABLE = "XPULAB_LANG"
"""The variable that chooses the language of the command line; the option --lang counts more. The locale chooses nothing."""
LOCALE = Path(__file__).resolve().parent / "locale"
DOMAIN = "xpulab"


def N_(text: str) -> str:  # gettext's name for a text that is translated later
    """The text itself. tools/messages.py finds the call: of a literal, or of an f-string, whose fields are placeholders."""
    return text


COLON, SEMICOLON = N_(": "), N_("; ")
"""Between a label and its text, and between the sentences of a reason."""

_language = ENGLISH

NUMBERS = ("number", "count", "many")
"""Placeholders that stand for nothing but a number."""
NAMES = ("name", "names", "needs", "measured")
"""Placeholders that stand for names and values, which are the same in every language."""
_NUMBER = re.compile(r"\d[\d,.]*")

_GAP = re.compile(r"(?<=[\u3400-\u9fff]) (?=[\u3400-\u9fff])")
"""Between two Chinese characters no space stands; between one and a number or a Latin word it does."""


def choose(asked: str | None = None, environ: Mapping[str, str] = os.environ) -> None:
    """From now on texts are shown in the language asked for, else in that of VARIABLE, else in English.

    Raises InputError for a language that is not one of LANGUAGES.
    """
    global _language
    language = asked or environ.get(VARIABLE) or ENGLISH
    if language not in LANGUAGES:
        source = f"--lang {language}" if asked else f"{VARIABLE}={language}"
        raise InputError(f"{source}: no such language; choose {' or '.join(LANGUAGES)}")
    _language = language


def language() -> str:
    """The one of LANGUAGES in which texts are shown."""
    return _language


def shown(text: str) -> str:
    """The text in the chosen language; of one that the catalogue does not have the lines and sentences that it has."""
    return text if _language == ENGLISH else catalogue(_language).translate(text)


def labelled(label: str, text: str) -> str:
    """A text after its label, as "cause: ", both in the chosen language."""
    return f"{shown(label)}{shown(text)}"


def headed(head: str, text: str) -> str:
    """A text after what it is about, both in the chosen language."""
    return f"{head}{COLON if _language == ENGLISH else catalogue(_language).separator(COLON)}{text}"


def joined(texts: Iterable[str]) -> str:
    """Texts that are in the chosen language as the sentences of one line."""
    return (SEMICOLON if _language == ENGLISH else catalogue(_language).separator(SEMICOLON)).join(texts)


def width(text: str) -> int:
    """How many columns of a terminal it takes: two for each Chinese character."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def padded(text: str, columns: int) -> str:
    """The text with spaces up to so many columns of a terminal."""
    return text + " " * (columns - width(text))


@dataclass(frozen=True)
class Template:
    """A message with placeholders.

    message: as the catalogue has it, "{count} cells were left out". literals: the texts before, between and after the
    placeholders. names: of the placeholders, in order; one that occurs twice has the same value.
    """

    message: str
    literals: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def weight(self) -> int:
        """How many characters a text must have in common with it: of two that fit, the heavier one says more."""
        return sum(map(len, self.literals))

    def values(self, text: str) -> dict[str, str] | None:
        """The values with which the message gives the text; None when it cannot. Each but the last is as short as possible."""
        return next(self.readings(text), None)

    def readings(self, text: str) -> Iterator[dict[str, str]]:
        """The values as `values` has them, then, where these are others, those of which each but the first is short.

        "a (b) (c)" is {text} ({source}) with the text a, and with the text a (b): which one is right, its translation shows.
        """
        first, *middle, last = self.literals
        if len(text) < self.weight or not text.startswith(first) or not text.endswith(last):
            return
        inner = text[len(first) : len(text) - len(last)]
        shortest = _parts(inner, middle)
        if shortest is None:
            return
        backwards = _parts(inner[::-1], [literal[::-1] for literal in reversed(middle)]) or []
        for found in dict.fromkeys((tuple(shortest), tuple(part[::-1] for part in reversed(backwards)))):
            values: dict[str, str] = {}
            if all(
                values.setdefault(name, value) == value and (name not in NUMBERS or _NUMBER.fullmatch(value))
                for name, value in zip(self.names, found, strict=True)
            ):
                yield values


def _parts(text: str, literals: Iterable[str]) -> list[str] | None:
    """What stands before, between and after the literals, each part but the last as short as possible; None without them."""
    parts = []
    for literal in literals:
        part, found, text = text.partition(literal)
        if not found:
            return None
        parts.append(part)
    return [*parts, text]


def template_of(message: str) -> Template:
    """The parts of a message, in which {{ and }} stand for braces, as in str.format."""
    literals, names = [""], []
    for literal, name, _, _ in string.Formatter().parse(message):
        literals[-1] += literal
        if name is not None:
            names.append(name)
            literals.append("")
    return Template(message, tuple(literals), tuple(names))


class Catalogue:
    """The messages of one language.

    translations: each message in English with its translation, both with the same placeholders.
    """

    def __init__(self, translations: Mapping[str, str]) -> None:
        self._translations = dict(translations)
        templates = [template_of(message) for message in translations]
        self._plain = {each.literals[0]: translations[each.message].format() for each in templates if not each.names}
        self._separators = {separator: self._plain.pop(separator, separator) for separator in (COLON, SEMICOLON)}
        self._labels = {message: text for message, text in self._plain.items() if message.endswith(COLON)}
        self._read_before: dict[str, tuple[int, str]] = {}
        self._templates = sorted((each for each in templates if each.names), key=lambda each: -each.weight)

    def template(self, text: str) -> tuple[Template, dict[str, str]] | None:
        """The message with placeholders that a text is made from, and their values; None when there is none."""
        for each in self._templates:
            if (values := each.values(text)) is not None:
                return each, values
        return None

    def translate(self, text: str) -> str:
        """The translation of a text, as `shown` describes it."""
        if "\n" not in text:
            return self._read(text)[1]
        lines = text.split("\n")
        return "\n".join(line.replace(line.strip(), self._read(line.strip())[1]) if line.strip() else line for line in lines)

    def separator(self, separator: str) -> str:
        """What stands for COLON or SEMICOLON."""
        return self._separators[separator]

    def _read(self, text: str) -> tuple[int, str]:
        """How many characters of a line are in the catalogue, and the line with these translated: the reading with the most."""
        if text in self._plain:
            return len(text), self._plain[text]
        if text.isascii() and not any(map(str.isalpha, text)):
            return 0, text
        if text not in self._read_before:
            self._read_before[text] = max(self._readings(text), key=lambda reading: reading[0])
        return self._read_before[text]

    def _readings(self, text: str) -> Iterator[tuple[int, str]]:
        """A line as it is, with a label, as each message with values that gives it, and as sentences."""
        yield 0, text
        head, colon, rest = text.partition(COLON)
        if rest:
            covered, after = self._read(rest)
            if label := self._labels.get(f"{head}{colon}"):
                yield len(head) + len(colon) + covered, f"{label}{after}"
            before, translated = self._read(head)
            yield before + covered, f"{translated}{self._separators[COLON] if before else colon}{after}"
        for template in reversed(self._templates):  # of two with the same, one that has the other as a value
            for values in template.readings(text):
                read = {name: (0, value) if name in NAMES else self._read(value) for name, value in values.items()}
                message = self._translations[template.message]
                # a space of the message may go, one of a value may be that of a path
                kept = {name: translation.replace(" ", "\0") for name, (_, translation) in read.items()}
                translated = _GAP.sub("", message.format(**kept)).replace("\0", " ")
                yield template.weight + sum(covered for covered, _ in read.values()), translated
        if SEMICOLON in text:
            separator, parts = self._separators[SEMICOLON], text.split(SEMICOLON)
            sentences = [self._read(part) for part in parts]
            yield sum(covered for covered, _ in sentences), separator.join(each for _, each in sentences)
            for count in range(1, len(parts)):  # a message may itself be two sentences
                head, rest = SEMICOLON.join(parts[:count]), SEMICOLON.join(parts[count:])
                if head in self._plain:
                    covered, after = self._read(rest)
                    yield len(head) + covered, f"{self._plain[head]}{separator}{after}"


@cache
def catalogue(language: str) -> Catalogue:
    """The catalogue of one of LANGUAGES but English."""
    path = LOCALE / language / "LC_MESSAGES" / f"{DOMAIN}.mo"
    with path.open("rb") as file:
        stored = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]  # the only way to its keys; Django's too
    return Catalogue({message: translation for message, translation in stored.items() if message})
