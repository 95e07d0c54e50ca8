"""Removes from a text what does not belong into a file that is sent to others: secrets, proxies, names of users.

It errs on the side of removing. What it cannot know (a host name, a serial number, the name of a project) stays, so the owner
reads the file before it is sent: `xpulab bundle` lists what is in it and what was removed.
"""

from __future__ import annotations

import html
import json
import os
import pwd
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, unquote, urlsplit

SECRET_NAME = re.compile(r"token|secret|passw|passphrase|credential|api_?key|access_?key|private_?key|auth", re.IGNORECASE)
"""What the name of a variable holds whose value is a secret."""

PROXY_NAME = re.compile(r"^(https?|ftp|all|socks|no)_proxy$", re.IGNORECASE)
USER_NAME = ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "SLURM_JOB_USER", "JUPYTERHUB_USER")

SHORTEST = 6
"""Characters: a shorter value of such a variable ("1", "none") is no secret, and would be found in every text."""

NO_PERSON = frozenset(
    {"admin", "centos", "debian", "docker", "jovyan", "nobody", "paddle", "root", "runner", "slurm", "ubuntu"}
)
"""Users that are no person."""

ORDINARY = frozenset(
    {"always", "anonymous", "default", "disabled", "enabled", "localhost", "127.0.0.1", "optional", "required"}
)
"""Values that say nothing: one of such a variable stays; a user with such a name is removed from paths only."""

SHORTEST_WORD = 4
"""Characters: a shorter name of a user is removed from paths and addresses only."""

_IN_A_PATH = r"[^/\s\"'\\:,;)&<>]+"
PATTERNS = {
    "private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    "token": re.compile(
        r"\b(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|AKIA[0-9A-Z]{16}"
        r"|ALTAK[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{20,}|xox[abprs]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,})\b"
    ),
    "credentials": re.compile(r"(?<=://)(?!<removed)[^/\s@\"'<>]+(?=@)"),
    "authorization": re.compile(r"(?i)(?P<kept>authorization: *)(?:bearer|basic|token) +[^\s\"'\\]+"),
    "argument": re.compile(
        r"(?i)(?P<kept>(?<![\w-])--?(?:[\w-]*[-_])?(?:token|password|passwd|secret|api[-_]?key)(?:=|\s+))(?!<removed)[^\s\"'\\]+"
    ),
    "assignment": re.compile(
        r"(?P<kept>\b[A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|API_KEY|ACCESS_KEY|CREDENTIALS?)=[\"']?)(?!<removed)[^\s\"'\\]+"
    ),
    "e-mail": re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b"),
    "user": re.compile(
        rf"(?:(?<=[^\w.-]/home/)|(?<=^/home/)|(?<=[^\w.-]/Users/)|(?<=^/Users/)){_IN_A_PATH}"
        rf"|(?:(?<=/home/)|(?<=/Users/)|(?<=/users/)){_IN_A_PATH}(?=/)",
        re.MULTILINE,
    ),
}
"""By kind what is removed wherever it stands; the group `kept` is not. user: the name of a user in a path."""

_JSON = (".json", ".jsonl", ".ipynb")
_PICTURES = ("image/png", "image/jpeg")


def of_this_process() -> Redactor:
    """Removes the secrets of this process, its user and its home folder."""
    try:
        account = pwd.getpwuid(os.getuid())
    except KeyError:  # a container, whose user has a number only
        return Redactor.of(os.environ)
    return Redactor.of(os.environ, account.pw_name, account.pw_dir)


@dataclass(frozen=True)
class Redactor:
    """Removes the secrets of one machine.

    values: the secret text to what stands in its place, longest first. patterns: by kind what else is removed, in order.
    """

    values: Mapping[str, str]
    patterns: Mapping[str, re.Pattern[str]] = field(default_factory=lambda: PATTERNS)

    @classmethod
    def of(cls, environ: Mapping[str, str], account: str = "", home: str = "") -> Redactor:
        """For a process with these variables, of the user with this name and home folder; "" for one that is not known."""
        found = {secret: name for name, value in environ.items() if _is_secret(name) for secret in _secrets(name, value)}
        values = {value: f"<removed: {name}>" for value, name in found.items() if value not in ORDINARY}
        people = {account, *(environ.get(name, "") for name in USER_NAME)}
        for folder in {home, environ.get("HOME", "")}:
            parts = PurePosixPath(folder).parts
            if len(parts) > 2 and parts[-1] not in NO_PERSON:  # /root and / say nothing
                values[str(PurePosixPath(folder))] = f"{PurePosixPath(folder).parent}/<removed: user>"
                people.add(parts[-1])
        patterns = {"user": _of_people(people), "users": PATTERNS["user"]}
        others = {kind: pattern for kind, pattern in PATTERNS.items() if kind != "user"}
        return cls(dict(sorted(values.items(), key=lambda pair: -len(pair[0]))), {**others, **patterns})

    def redact_file(self, name: str, text: str) -> tuple[str, Counter[str]]:
        """As `redact`, for the text of a file of this name: in JSON each string for itself, so that it stays JSON.

        Names of fields stay, and so do pictures.
        """
        suffix = PurePosixPath(name).suffix
        if suffix not in _JSON:
            return self.redact(text)
        removed: Counter[str] = Counter()
        try:
            if suffix == ".jsonl":
                lines = [
                    json.dumps(self._in_json(json.loads(line), removed), ensure_ascii=False)
                    for line in text.rstrip("\n").split("\n")
                ]
                return "".join(f"{line}\n" for line in lines), removed
            return json.dumps(self._in_json(json.loads(text), removed), indent=1, ensure_ascii=False) + "\n", removed
        except (ValueError, RecursionError):  # a file that a full disk cut off
            return self.redact(text)

    def redact(self, text: str) -> tuple[str, Counter[str]]:
        """The text without secrets, and how many were removed of each kind: the name of a variable, or a key of PATTERNS."""
        removed: Counter[str] = Counter()
        for value, place in self.values.items():
            for written in _spellings(value):
                if count := text.count(written):
                    removed[place.partition("<removed: ")[2].rstrip(">")] += count
                    text = text.replace(written, place)
        for key, pattern in self.patterns.items():
            kind = "user" if key == "users" else key
            text, count = pattern.subn(partial(_place, kind), text)
            removed += Counter({kind: count})
        return text, removed

    def _in_json(self, value: Any, removed: Counter[str]) -> Any:
        """The value with every string redacted; what was removed is counted in `removed`."""
        if isinstance(value, str):
            text, found = self.redact(value)
            removed.update(found)
            return text
        if isinstance(value, list):
            return [self._in_json(each, removed) for each in value]
        if isinstance(value, dict):
            return {key: each if key in _PICTURES else self._in_json(each, removed) for key, each in value.items()}
        return value


def _place(kind: str, found: re.Match[str]) -> str:
    """What stands in the place of a match."""
    return f"{found.groupdict().get('kept') or ''}<removed: {kind}>"


def _is_secret(name: str) -> bool:
    return bool(SECRET_NAME.search(name) or PROXY_NAME.match(name))


def _secrets(name: str, value: str) -> Iterator[str]:
    """The texts that such a variable makes secret: its value; of a proxy also host, port, user and password."""
    parts = {value}
    if PROXY_NAME.match(name):
        for each in value.split(","):
            address = urlsplit(each.strip() if "://" in each else f"//{each.strip()}")
            parts |= {address.netloc, address.netloc.rpartition("@")[2], address.hostname or "", address.password or ""}
            parts |= {unquote(address.password or ""), unquote(address.username or "")}
    yield from (part for part in parts if len(part) >= SHORTEST)


def _of_people(names: Collection[str]) -> re.Pattern[str]:
    """These names of users: in a path, before an @, after "user"; longer ones wherever they stand."""
    people = sorted(name for name in names if name and name not in NO_PERSON)
    if not people:
        return re.compile(r"(?!)")
    every = "|".join(map(re.escape, people))
    rare = "|".join(re.escape(name) for name in people if len(name) >= SHORTEST_WORD and name not in ORDINARY)
    anywhere = rf"|(?<![A-Za-z0-9_])(?:{rare})(?![A-Za-z0-9_])" if rare else ""
    return re.compile(rf"(?<=/)(?:{every})(?![\w.-])|(?<![\w.-])(?:{every})(?=@)|(?<=[Uu]ser[=: ])(?:{every})\b{anywhere}")


def _spellings(value: str) -> Iterator[str]:
    """The value as it is, and as it stands in JSON, in HTML and in a URL where that differs."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    in_page = html.escape(value, quote=False).replace("'", "&#39;").replace('"', "&#34;")
    yield from dict.fromkeys(
        (value, escaped, html.escape(value), html.escape(value, quote=False), in_page, quote(value, safe=""))
    )
