"""The value of an option that holds several words, as a shell reads them."""

from __future__ import annotations

import shlex

from xpulab.errors import InputError


def shell_words(option: str, text: str) -> tuple[str, ...]:
    """The words of the text. option: its name, for the message of the InputError when a quotation mark is missing."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(f"{option} {text}: not what a shell reads: {error}") from error
