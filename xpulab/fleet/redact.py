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
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, unquote, urlsplit

SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|credential|(?:api|access|private)_?key|auth|cookie|(?:^|_)(?:pass|key|dsn)(?:_|$)|_pwd",
    re.IGNORECASE,
)
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
_NAME = (
    r"(?:passw(?:or)?d|passphrase|secret(?:[-_]?access)?(?:[-_]?key)?|credentials?"
    r"|(?:api|access|account|encryption|private|signing|ssh)[-_]?key|(?<=[-_])pwd|(?<!ward[-_])(?<=[-_])pass|(?-i:(?<=[A-Z0-9]_)KEY)|_authtoken)"
)
"""The end of a name whose value is a secret."""
_TOKEN = r"(?<!tik)(?<!bos_)(?<!eos_)(?<!pad_)(?<!unk_)(?<!cls_)(?<!sep_)(?<!mask_)(?<!start_)(?<!end_)token"
"""The same, and no token of a tokenizer; its value is in quotation marks, as its name is, or no word."""
_IS = r"(?:\\*[\"'])?\s*(?:=>?|:)\s*(?:\\*(?P<quote>[\"']))?"
_VALUE = r"(?!<removed|(?:none|null|true|false)\b)(?:(?(quote)(?:(?!\\*(?P=quote))[^\n])+|[^\s\"'\\,;&<>(){}\[\]]+))"
_TOKENS_VALUE = r"(?:\\*[\"']\s*:\s*\\*[\"']|\\*[\"']?\s*[=:]\s*\\*[\"']?(?=[^\s\"'\\(\[{]*\d)(?=[^\s\"'\\(\[{]{8}))"
PATTERNS = {
    "private key": re.compile(
        r"---+ ?BEGIN (?:[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?|PGP [A-Z ]+) ?---+.*?(?:---+ ?END [A-Z0-9 ]+---+|\Z)", re.DOTALL
    ),
    "token": re.compile(
        r"\b(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|A(?:KIA|SIA)[0-9A-Z]{16}"
        r"|(?:bce-v3/)?ALTAK[A-Za-z0-9-]{16,}(?:/[A-Za-z0-9]+)?|AIza[\w-]{35}|LTAI[A-Za-z0-9]{12,}|AKID[A-Za-z0-9]{13,}"
        r"|npm_[A-Za-z0-9]{36}|pypi-[\w-]{50,}|dckr_pat_[\w-]{20,}|[sr]k_live_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}"
        r"|xox[abeprs]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
    ),
    "credentials": re.compile(r"(?<=://)(?!<removed)[^/\s\"'<>]+(?=@)"),
    "authorization": re.compile(
        r"(?i)(?P<kept>authorization[\"']?[:=] *[\"']?)(?!<removed)(?:[a-z]+ +)?[^\s\"'\\]+|\bbearer +[\w.~+/=-]{16,}"
    ),
    "argument": re.compile(
        r"(?i)(?P<kept>(?<![\w-])--?(?:[\w-]*[-_])?(?:token|pass(?:word|wd|phrase)?|pwd|secret|(?:api|access)[-_]?key)(?:=|\s+)"
        r"|\bsshpass +-p *|\bcurl .*?(?:-u|--user) +)(?![-<])[^\s\"'\\]+"
    ),
    "assignment": re.compile(rf"(?i)(?P<kept>(?:{_NAME}|(?-i:TOKEN)){_IS}){_VALUE}"),
    "field": re.compile(rf"(?i)(?P<kept>{_TOKEN}{_TOKENS_VALUE})(?!<removed)[^\s\"'\\<\[][^\s\"'\\]*"),
    "e-mail": re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b"),
    "user": re.compile(
        rf"(?:(?<=[^\w.-]/home/)|(?<=^/home/)|(?<=[^\w.-]/Users/)|(?<=^/Users/)){_IN_A_PATH}"
        rf"|(?:(?<=/home/)|(?<=/Users/)|(?<=/users/)){_IN_A_PATH}(?=/)",
        re.MULTILINE,
    ),
}
"""By kind what is removed wherever it stands; the group `kept` is not. user: the name of a user in a path."""

_WITH = {
    "private key": ("begin",),
    "credentials": ("://",),
    "authorization": ("authorization", "bearer"),
    "argument": ("--", "sshpass", "curl"),
    "assignment": ("pass", "pwd", "secret", "credential", "key", "token"),
    "field": ("token",),
    "e-mail": ("@",),
    "users": ("/home/", "/users/"),
}
"""By kind what a text has, in lower case, in which such a pattern is found: most texts have none of it, and are long."""

_JSON = (".json", ".jsonl", ".ipynb")
_PICTURES = ("image/png", "image/jpeg")
_BASE64 = re.compile(r"(?:iVBORw0KGgo|/9j/)[A-Za-z0-9+/=\s]*")
_FIELD = re.compile(rf"(?i)(?:{_NAME}|{_TOKEN}|^pass)$")
"""The name of a field of JSON whose value is a secret, as a whole."""


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

    values: the secret text, in each spelling, to what stands in its place, longest first.
    patterns: by kind what else is removed, in order.
    """

    values: Mapping[str, str]
    patterns: Mapping[str, re.Pattern[str]] = field(default_factory=lambda: PATTERNS)
    _names: dict[str, tuple[str, Counter[str]]] = field(default_factory=dict, init=False)

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
        written = {spelled: place for value, place in values.items() for spelled in _spellings(value)}
        return cls(dict(sorted(written.items(), key=lambda pair: -len(pair[0]))), {**others, **patterns})

    def redact_file(self, name: str, text: str) -> tuple[str, Counter[str]]:
        """As `redact`, for the text of a file of this name: in JSON each string for itself, so that it stays JSON.

        Pictures stay.
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
        for written, place in self.values.items():
            if count := text.count(written):
                removed[place.partition("<removed: ")[2].rstrip(">")] += count
                text = text.replace(written, place)
        lower = text.lower()
        for key, pattern in self.patterns.items():
            if key not in _WITH or any(part in lower for part in _WITH[key]):
                kind = "user" if key == "users" else key
                text, count = pattern.subn(partial(_place, kind), text)
                removed += Counter({kind: count})
        return text, removed

    def _in_json(self, value: Any, removed: Counter[str]) -> Any:
        """The value with every string redacted, also within strings that are JSON; what was removed is counted in `removed`."""
        if isinstance(value, str):
            inner: Counter[str] = Counter()
            with suppress(ValueError, RecursionError):
                if value[:1] in ("{", "[", '"') and (text := json.dumps(self._in_json(json.loads(value), inner))) and inner:
                    value = text
            text, found = self.redact(value)
            removed.update(found + inner)
            return text
        if isinstance(value, list):
            return [self._in_json(each, removed) for each in value]
        if isinstance(value, dict):
            return {self._name(name, removed): self._field(name, each, removed) for name, each in value.items()}
        return value

    def _name(self, name: str, removed: Counter[str]) -> str:
        """The name of a field, redacted: of a large file few are different."""
        if name not in self._names:
            self._names[name] = self.redact(name)
        removed.update(self._names[name][1])
        return self._names[name][0]

    def _field(self, name: str, value: Any, removed: Counter[str]) -> Any:
        """The value of a field: nothing of it stays where its name says that it is a secret; a picture stays."""
        if name in _PICTURES and isinstance(value, str) and _BASE64.fullmatch(value):
            return value
        if not _FIELD.search(name) or value is None or isinstance(value, (bool, dict)):
            return self._in_json(value, removed)
        if isinstance(value, list):
            return [self._field(name, each, removed) for each in value]
        removed["field"] += 1
        return "<removed: field>"


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
    escaped = [json.dumps(value, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)]
    in_page = html.escape(value, quote=False).replace("'", "&#39;").replace('"', "&#34;")
    yield from dict.fromkeys(
        (value, *escaped, html.escape(value), html.escape(value, quote=False), in_page, quote(value, safe=""))
    )
