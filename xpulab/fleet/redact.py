"""Removes from a text what does not belong into a file that is sent to others: secrets, proxies, names of users.

It errs on the side of removing. What it cannot know (a host name, a path of a project) stays, so the owner reads the file
before it is sent: `xpulab bundle` lists what is in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

SECRET_NAME = re.compile(r"token|secret|passw|passphrase|credential|api_?key|access_?key|private_?key|auth", re.IGNORECASE)
"""What the name of a variable holds whose value is a secret."""

PROXY_NAME = re.compile(r"^(https?|ftp|all|socks)_proxy$", re.IGNORECASE)

SHORTEST = 6
"""Characters: a shorter value of such a variable ("1", "none") is no secret, and would be found in every text."""

PATTERNS = {
    "token": re.compile(
        r"\b(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|AKIA[0-9A-Z]{16}"
        r"|xox[abprs]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,})\b"
    ),
    "credentials": re.compile(r"(?<=://)[^/\s:@\"'<>]+:[^/\s@\"'<>]+(?=@)"),
    "authorization": re.compile(r"(?i)(?<=authorization: )(?:bearer|basic|token) +\S+"),
    "user": re.compile(r"(?:(?<=[^\w.-]/home/)|(?<=^/home/)|(?<=[^\w.-]/Users/)|(?<=^/Users/))[^/\s\"'\\:,;)]+", re.MULTILINE),
}
"""By kind what is removed wherever it stands. user: the name of a user in a path."""


@dataclass(frozen=True)
class Redactor:
    """Removes the secrets of one machine. values: the secret text to what stands in its place, longest first."""

    values: Mapping[str, str]

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Redactor:
        """For a process with these variables."""
        found = {value: f"<removed: {name}>" for name, value in environ.items() if len(value) >= SHORTEST and _is_secret(name)}
        return cls(dict(sorted(found.items(), key=lambda pair: -len(pair[0]))))

    def redact(self, text: str) -> tuple[str, Counter[str]]:
        """The text without secrets, and how many were removed of each kind: the name of a variable, or a key of PATTERNS."""
        removed: Counter[str] = Counter()
        for value, place in self.values.items():
            for written in _spellings(value):
                if count := text.count(written):
                    removed[place.removeprefix("<removed: ").rstrip(">")] += count
                    text = text.replace(written, place)
        for kind, pattern in PATTERNS.items():
            text, count = pattern.subn(f"<removed: {kind}>", text)
            removed += Counter({kind: count})
        return text, removed


def _is_secret(name: str) -> bool:
    return bool(SECRET_NAME.search(name) or PROXY_NAME.match(name))


def _spellings(value: str) -> Iterator[str]:
    """The value as it is, and as it stands in JSON when that differs."""
    yield value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    if escaped != value:
        yield escaped
