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

from xpulab.records.record import LEVELS, OUTCOMES

SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|sshpass|credential|(?:api|access|private)_?key|auth|cookie|webhook|licen[cs]e|connection_?str"
    r"|(?:^|_)(?:pass|key|dsn|[as]k|pat|jwt|sas)(?:_|$)|_pwd",
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
    (
        *("accept", "accepted", "always", "anonymous", "default", "disabled", "enabled"),
        *("localhost", "127.0.0.1", "optional", "required"),
        *(*LEVELS, *OUTCOMES, "device", "green"),
    )
)
"""Values that say nothing: one of such a variable stays; a user with such a name is removed from paths only."""

SHORTEST_WORD = 4
"""Characters: a shorter name of a user is removed from paths and addresses only."""

_IN_A_PATH = r"[^/\s\"'\\:,;)&<>]+"
_NAME = (
    r"(?:(?:passw(?:or)?d|passphrase|sshpass|secret(?:[-_]?access)?(?:[-_]?key)?|credentials?|connection[-_]?string|webhook(?:[-_]?url)?"
    r"|(?:api|access|account|encryption|master|private|shared|signing|ssh|storage)[-_]?key|(?<=[-_])pwd|(?<!ward[-_])(?<=[-_])pass"
    r"|client[-_]key[-_]data"
    r"|(?-i:(?<=[A-Z0-9]_)(?:KEY|AK|SK|PAT|DSN|JWT|SAS|LICEN[CS]E)|(?<![\w-])PASS(?==))|_authtoken)(?:[-_]?(?:id|\d{1,3}))?)"
)
"""The end of a name whose value is a secret."""
_TOKEN = r"(?<!tik)(?<!bos_)(?<!eos_)(?<!pad_)(?<!unk_)(?<!cls_)(?<!sep_)(?<!mask_)(?<!start_)(?<!end_)token"
"""The same, and no token of a tokenizer; its value is in quotation marks, as its name is, or no word."""
_QUOTE = r"(?:\\{0,8}[\"']|&(?:quot|\#34|apos|\#39|\#x27);)"
"""A quotation mark, as JSON within JSON, and a page, spell it."""
_IS = (
    rf"{_QUOTE}?\s*(?:(?:\]\s*)?(?:=>?|:)\s*(?:[|>][-+]?\s*\n\s*)?(?P<quote>{_QUOTE})?"
    rf"|(?<=[\"';]),\s*(?P<second>{_QUOTE})|>(?=[^\s<>]+</))"
)
"""What stands between a name and its value: of an assignment, of a pair ("name", "value"), of tags."""
_AFTER_USER = rf"(?:user(?:name)?|login){_QUOTE}?\s*[=:]\s*\S{{1,64}}[\s,;]{{1,8}}"
_VALUE = (
    r"(?!<removed|(?:none|null|true|false)\b)"
    r"(?(quote)(?:(?!(?P=quote))(?:\\[^\n]|[^\n]))+|(?(second)(?:(?!(?P=second))(?:\\[^\n]|[^\n]))+|[^\s\"'\\<>]*[^\s\"'\\<>,;:.(){}\[\]]))"
)
_BY_DIGITS = r"(?=[^\s\"'\\(\[{<]{0,64}\d)(?=[^\s\"'\\(\[{<]{8})"
_KEY_LIKE = r"(?=[\w+/=-]{0,64}\d)(?=[\w+/=-]{0,64}[a-z_])(?=[\w+/=-]{16})"
"""What is no word, and what is no number either, is looked for within 64 characters: a text may be one long word."""
_BESIDE = rf"(?:[\s|,:=>-]|</?t[dhr][^<>]{{0,200}}>|\bvalue\b|{_QUOTE}){{1,60}}"
"""What stands between the name of a variable and its value in a table, a list or a manifest."""
_COOKIE = r"[^\s=;\"'\\]+(?:=(?:\\?\"[^\"\n\\]*\\?\"|[^\s;\"'\\]*))?"
PATTERNS = {
    "private key": re.compile(
        r"(?<!-)---+ ?BEGIN (?:[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?|PGP [A-Z ]+) ?---+.*?(?:(?<!-)---+ ?END [A-Z0-9 ]+---+|\Z)"
        r"|\bLS0tLS1CRUdJTi[A-Za-z0-9+/=]+"
        r"|PuTTY-User-Key-File-\d.*?(?:Private-MAC: *[0-9a-f]+|\Z)",
        re.DOTALL,
    ),
    "webhook": re.compile(
        r"(?P<kept>hooks\.slack(?:-gov)?\.com/|discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/|/bot/v2/hook/"
        r"|api\.telegram\.org/bot)(?!<removed)[^\s\"'\\<>&]+"
    ),
    "credentials": re.compile(r"(?<=://)(?!<removed)[^/\s\"'<>]+(?=@)"),
    "authorization": re.compile(
        r"(?i)(?P<kept>authorization[\"']?[:=] *[\"']?)(?!<removed)(?:[a-z]+ +)?[^\s\"'\\]+|\bbearer +[\w.~+/=-]{16,}"
    ),
    "cookie": re.compile(
        rf"(?i)(?P<kept>\b(?:set-)?cookie[\"']?\s*[:=]\s*[\"']?)(?=[\w.-]+=)(?!<removed){_COOKIE}(?:; *{_COOKIE})*"
    ),
    "query": re.compile(
        r"(?i)(?P<kept>[?&](?:amp;)?(?:[\w.-]{0,40}(?:token|signature|secret|password|credential|accesskeyid|api[-_]?key)|key|sig|sign|auth"
        r"|authorization|pwd)=)(?!<removed)[^&\s\"'\\<>]+"
    ),
    "argument": re.compile(
        r"(?i)(?P<kept>(?<![\w-])--?(?:[\w-]*[-_])?(?:token|pass(?:word|wd|phrase)?|pwd|secret|pat|[as]k|(?:api|access|secret)[-_]?key)(?:=|\s+)"
        r"|\bsshpass +-p *|\bcurl [^\n]{0,500}?(?:-u|--user) +|\b(?:docker|podman|nerdctl|skopeo) login [^\n]{0,500}?-p +"
        r"|\blogin\s+\S{1,64}\s+(?:account\s+\S{1,64}\s+)?password\s+|\bwandb login +(?=\w{20})|\bswanlab login +-k +"
        r"|\bmysql(?:dump|admin)? [^\n]{0,200}?-p(?=\S)|\bredis-cli [^\n]{0,200}?-a +"
        r"|\bidentified +by +[\"'])(?![-<])[^\s\"'\\]+"
    ),
    "token": re.compile(
        r"\b(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|gl(?:pat|rt|dt|cbt|ptt|ft|soat|agent)-[\w.-]{20,}"
        r"|A(?:KIA|SIA)[0-9A-Z]{16}|(?:bce-v3/)?ALTAK[A-Za-z0-9-]{16,}(?:/[A-Za-z0-9]+)?|LTAI[A-Za-z0-9]{12,}|STS\.[A-Za-z0-9]{16,}"
        r"|AKID[A-Za-z0-9]{13,}|AKLT[\w-]{20,}|AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}|\w{3}8Q~[\w.~-]{30,}"
        r"|npm_[A-Za-z0-9]{36}|pypi-[\w-]{50,}|dckr_[op]at_[\w-]{20,}|[sr]k_(?:live|test)_[A-Za-z0-9]{20,}|whsec_[\w+/=]{20,}"
        r"|sk-[A-Za-z0-9_-]{20,}|gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}|wandb_v1_\w{20,}|KGAT_\w{20,}|ms-[0-9a-f]{8}-[0-9a-f-]{27}"
        r"|hv[sbr]\.[\w-]{20,}|dapi[0-9a-f]{32}|do[opr]_v1_[0-9a-f]{40,}|gl(?:sa|c)_[\w=]{20,}|AT[AC]TT3[\w=-]{20,}"
        r"|nvapi-[\w-]{20,}|r8_\w{30,}|pplx-\w{30,}|tgp_v1_[\w-]{30,}|pcsk_\w{30,}|tskey-[\w-]{20,}|sntrys_[\w=-]{20,}|CCIPAT_\w{20,}"
        r"|\w{14}\.atlasv1\.[\w-]{40,}|NRAK-[A-Z0-9]{20,}|ATBB\w{28,}"
        r"|AGE-SECRET-KEY-1[0-9A-Z]{50,}|x(?:ox[abeprs]|app)-[\w-]{10,})|(?<![\w-])(?:SG\.[\w-]{16,}\.[\w-]{16,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
    ),
    "table": re.compile(
        rf"(?P<kept>(?<![A-Za-z0-9_])(?:[A-Z0-9]+_)*(?:TOKEN|SECRET|PASSWORD|PASSWD|(?<=_)KEY){_BESIDE}){_KEY_LIKE}(?!<removed)[\w+/=.-]+"
    ),
    "assignment": re.compile(
        rf"(?i)(?P<kept>(?:{_NAME}|(?-i:TOKEN)|{_AFTER_USER}pass(?=\W)){_IS}"
        rf"|user(?:name)?{_QUOTE}\s*:\s*{_QUOTE}[^\s\"']{{1,64}}{_QUOTE}\s*,\s*{_QUOTE}key{_QUOTE}\s*:\s*{_QUOTE}"
        rf"|(?:api|access) key(?: provided)?\s*[:=]\s*{_KEY_LIKE}"
        rf"|(?<=[\"'])auth[\"']\s*:\s*[\"']{_KEY_LIKE}|(?<!\w)_auth\s*=\s*)"
        rf"{_VALUE}"
    ),
    "field": re.compile(
        rf"(?i)(?P<kept>(?:{_TOKEN}|(?<![\w-])pass|(?<![A-Za-z0-9])[as]k)(?:{_QUOTE}\s*:\s*{_QUOTE}"
        rf"|(?:(?<=n)|(?<=pass)){_QUOTE}?\s*[=:]\s*{_QUOTE}?{_BY_DIGITS}|(?<=pass):[ \t]*(?=[^\s./:]+[ \t]*$)(?!test)"
        rf"|(?<=k){_QUOTE}?\s*[=:]\s*{_QUOTE}?{_KEY_LIKE}))(?!<removed)[^\s\"'\\<\[][^\s\"'\\<]*",
        re.MULTILINE,
    ),
    "e-mail": re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b"),
    "user": re.compile(
        rf"(?:(?<=[^\w.-]/home/)|(?<=^/home/)|(?<=[^\w.-]/Users/)|(?<=^/Users/)){_IN_A_PATH}"
        rf"|(?:(?<=/home/)|(?<=/Users/)|(?<=/users/)){_IN_A_PATH}(?=/)",
        re.MULTILINE,
    ),
}
"""By kind what is removed wherever it stands; the group `kept` is not. user: the name of a user in a path."""

_JSON = (".json", ".jsonl", ".ipynb")
_PICTURES = ("image/png", "image/jpeg")
_COLOUR = re.compile(r"(?:\x1b|\\u001b)\[[0-9;]*m")
"""As a traceback in a notebook has it between the words of a line."""
_PLAIN = re.compile(r"[a-z][a-z_]{0,40}")
_BASE64 = re.compile(r"(?:iVBORw0KGgo|/9j/)[A-Za-z0-9+/=\s]*")
_FIELD = re.compile(rf"(?i)(?:{_NAME}|{_TOKEN}|^(?:pass|auth|[as]k))$")
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
        user = re.compile(f"{_of_people(people)}|{PATTERNS['user'].pattern}", re.MULTILINE)
        written = {spelled: place for value, place in values.items() for spelled in _spellings(value)}
        return cls(dict(sorted(written.items(), key=lambda pair: -len(pair[0]))), {**PATTERNS, "user": user})

    def redact_file(self, name: str, text: str) -> tuple[str, Counter[str]]:
        """As `redact`, for the text of a file of this name: in JSON each string for itself, so that it stays JSON.

        Pictures stay.
        """
        suffix = PurePosixPath(name).suffix
        if suffix not in _JSON:
            return self.redact(text)
        removed: Counter[str] = Counter()
        texts, indent = (text.rstrip("\n").split("\n"), None) if suffix == ".jsonl" else ([text], 1)
        try:
            stored = [self._in_json(json.loads(each), removed) for each in texts]
            return "".join(f"{json.dumps(each, indent=indent, ensure_ascii=False)}\n" for each in stored), removed
        except (ValueError, TypeError, KeyError, RecursionError):  # a file that a full disk cut off, or no notebook
            return self.redact(text)

    def redact(self, text: str) -> tuple[str, Counter[str]]:
        """The text without secrets, and how many were removed of each kind: the name of a variable, or a key of PATTERNS.

        Colours, which stand between a name and its value, go with them.
        """
        if (plain := _COLOUR.sub("", text)) != text:
            plain, removed = self.redact(plain)
            return (plain, removed) if removed else (text, removed)
        removed = Counter()
        for written, place in self.values.items():
            if count := text.count(written):
                removed[place.partition("<removed: ")[2].rstrip(">")] += count
                text = text.replace(written, place)
        for kind, pattern in self.patterns.items():
            text, count = pattern.subn(partial(_place, kind), text)
            removed += Counter({kind: count})
        return text, removed

    def _in_json(self, value: Any, removed: Counter[str]) -> Any:
        """The value with every string redacted, also within strings that are JSON; what was removed is counted in `removed`."""
        if isinstance(value, str):
            return self._lines([value], removed)[0]
        if isinstance(value, list):
            is_text = value and all(isinstance(each, str) for each in value)
            return self._lines(value, removed) if is_text else [self._in_json(each, removed) for each in value]
        if isinstance(value, dict):
            return {self._name(name, removed): self._field(name, each, removed) for name, each in value.items()}
        return value

    def _lines(self, texts: list[str], removed: Counter[str]) -> list[str]:
        """Texts, redacted as the one that they are together: the lines of a cell or of a traceback, the words of a command."""
        inner: Counter[str] = Counter()
        texts = [self._within(text, inner) for text in texts]
        between = "" if all(text.endswith("\n") for text in texts[:-1]) else "\n"
        text, found = self.redact(between.join(texts))
        removed.update(found + inner)
        if not found:
            return texts
        return text.split("\n") if between else [text]

    def _within(self, text: str, removed: Counter[str]) -> str:
        """The text, redacted as JSON where it is JSON."""
        inner: Counter[str] = Counter()
        with suppress(ValueError, RecursionError):
            if text[:1] in ("{", "[", '"') and (redacted := json.dumps(self._in_json(json.loads(text), inner))) and inner:
                removed.update(inner)
                return redacted
        return text

    def _name(self, name: str, removed: Counter[str]) -> str:
        """The name of a field, redacted: of a large file few are different. A plain one is a name of ours, and no secret."""
        if _PLAIN.fullmatch(name):
            return name
        if name not in self._names:
            self._names[name] = self.redact(name)
        removed.update(self._names[name][1])
        return self._names[name][0]

    def _field(self, name: str, value: Any, removed: Counter[str]) -> Any:
        """The value of a field: nothing of it stays where its name says that it is a secret; a picture stays."""
        if name in _PICTURES and isinstance(value, str) and _BASE64.fullmatch(value):
            return value
        if not _FIELD.search(name) or value is None or isinstance(value, bool):
            return self._in_json(_joined(value) if name == "outputs" else value, removed)
        if isinstance(value, list):
            return [self._field(name, each, removed) for each in value]
        if isinstance(value, dict):
            return {self._name(part, removed): self._field(name, each, removed) for part, each in value.items()}
        removed["field"] += 1
        return "<removed: field>"


def _joined(outputs: Any) -> Any:
    """The outputs of a cell, where what was printed piece by piece is one text, as it is shown."""
    joined: list[Any] = []
    for output in outputs if isinstance(outputs, list) else [outputs]:
        if joined and isinstance(output, dict) and output.get("output_type") == "stream":
            last = joined[-1]
            if isinstance(last, dict) and (last.get("output_type"), last.get("name")) == ("stream", output.get("name")):
                joined[-1] = {**last, "text": "".join((*last["text"], *output["text"]))}
                continue
        joined.append(output)
    return joined if isinstance(outputs, list) else outputs


def _place(kind: str, found: re.Match[str]) -> str:
    """What stands in the place of a match."""
    return f"{found.groupdict().get('kept') or ''}<removed: {kind}>"


def _is_secret(name: str) -> bool:
    return bool(SECRET_NAME.search(name) or PROXY_NAME.match(name))


def _secrets(name: str, value: str) -> Iterator[str]:
    """The texts that such a variable makes secret: its value; of a proxy also host, port, user and password."""
    parts = {value, *map(str.strip, value.splitlines())}
    if PROXY_NAME.match(name):
        for each in value.split(","):
            address = urlsplit(each.strip() if "://" in each else f"//{each.strip()}")
            parts |= {address.netloc, address.netloc.rpartition("@")[2], address.hostname or "", address.password or ""}
            parts |= {unquote(address.password or ""), unquote(address.username or "")}
    yield from (part for part in parts if len(part) >= SHORTEST)


def _of_people(names: Collection[str]) -> str:
    """The pattern of these names of users: in a path, before an @, after "user"; longer ones wherever they stand."""
    people = sorted(name for name in names if name and name not in NO_PERSON)
    if not people:
        return "(?!)"
    every = "|".join(map(re.escape, people))
    rare = "|".join(re.escape(name) for name in people if len(name) >= SHORTEST_WORD and name not in ORDINARY)
    anywhere = rf"|(?<![\w.])(?:{rare})(?!\w|\.\w)" if rare else ""  # and not in "hang.slow", the name of a check
    return rf"(?<=/)(?:{every})(?![\w.-])|(?<![\w.-])(?:{every})(?=@)|(?<=[Uu]ser[=: ])(?:{every})\b{anywhere}"


def _spellings(value: str) -> Iterator[str]:
    """The value as it is, and as it stands in JSON, in HTML and in a URL where that differs."""
    escaped = [json.dumps(value, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)]
    in_page = html.escape(value, quote=False).replace("'", "&#39;").replace('"', "&#34;")
    yield from dict.fromkeys(
        (value, *escaped, html.escape(value), html.escape(value, quote=False), in_page, quote(value, safe=""))
    )
