"""docs/release-notes.md: each item has a status, each check that it names is in a notebook, and the counts are right.

The Chinese page has the same items, statuses, checks and counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from xpulab import files

PAGE = files.ROOT / "docs" / "release-notes.md"
CHINESE = files.ROOT / "docs" / "zh" / "release-notes.md"
STATUSES = ("covered", "covered (sim)", "taught only", "skipped here", "missing", "out of scope")
"""In the order of the columns of the counts."""
IN_CHINESE = {"已覆盖": "covered", "已覆盖（sim）": "covered (sim)", "只讲解": "taught only"}
IN_CHINESE |= {"此处跳过": "skipped here", "缺失": "missing", "范围之外": "out of scope"}
COMPARED = ("covered", "covered (sim)", "skipped here")
ITEMS = {"000": 44, "001": 26, "002": 27, "003": 77, "004": 63}
"""By note how many items the page splits it into, numbered from 1."""


@dataclass(frozen=True)
class Item:
    """A row. name: "000-01". checks: the names of checks, in its order."""

    name: str
    what: str
    status: str
    checks: tuple[str, ...]
    note: str


def rows_of(text: str, first: str) -> list[list[str]]:
    """The cells of the rows of tables whose first cell matches."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return [cells for cells in rows if re.fullmatch(first, cells[0])]


def items_of(text: str) -> list[Item]:
    rows = rows_of(text, r"\d{3}-\d{2}")
    return [Item(*cells[:3], tuple(re.findall(r"`([^`]+)`", cells[3])), cells[4]) for cells in rows]


def counts_of(items: list[Item]) -> list[list[str]]:
    """The rows of the table of counts, one for each note and one for all."""
    notes = {note: [item for item in items if item.name.startswith(note)] for note in ITEMS} | {"all": items}
    counted = {note: Counter(item.status for item in of_note) for note, of_note in notes.items()}
    return [[note, str(len(notes[note])), *(str(of[status]) for status in STATUSES)] for note, of in counted.items()]


def wrong_in(text: str, planned: Collection[str]) -> list[str]:
    """What the page says that is wrong, one line for each. planned: the names of all checks of the book."""
    items, wrong = items_of(text), []
    for item in items:
        if item.status not in STATUSES:
            wrong.append(f"{item.name}: {item.status!r} is no status")
        if unknown := sorted(set(item.checks) - set(planned)):
            wrong.append(f"{item.name}: no notebook plans {', '.join(unknown)}")
        if bool(item.checks) != (item.status in COMPARED):
            wrong.append(f"{item.name}: {item.status}, with {len(item.checks)} checks")
        if item.status not in COMPARED and not item.note:
            wrong.append(f"{item.name}: {item.status}, and no reason")
    expected = [f"{note}-{number:02d}" for note, count in ITEMS.items() for number in range(1, count + 1)]
    if [item.name for item in items] != expected:
        wrong.append("the items are not numbered from 1, each once")
    if (shown := rows_of(text, r"\d{3}|all")) != counts_of(items):
        wrong += [f"the counts must be | {' | '.join(cells)} |" for cells in counts_of(items) if cells not in shown]
    return wrong


def test_the_page_is_right(checks_of_the_book):
    assert wrong_in(PAGE.read_text(encoding="utf-8"), checks_of_the_book) == []


def test_the_chinese_page_has_the_items_statuses_checks_and_counts_of_the_english_one():
    text, translated = (page.read_text(encoding="utf-8") for page in (PAGE, CHINESE))
    facts = [(item.name, item.status, item.checks, bool(item.note)) for item in items_of(text)]
    own = items_of(translated)
    assert [(item.name, IN_CHINESE.get(item.status), item.checks, bool(item.note)) for item in own] == facts
    assert [item.name for item in own if item.what.isascii()] == []
    titles = rows_of(translated, "说明")[0][2:]
    assert [IN_CHINESE[title] for title in titles] == list(STATUSES)
    counts = [cells[1:] for cells in rows_of(translated, r"\d{3}|合计")]
    assert counts == [cells[1:] for cells in rows_of(text, r"\d{3}|all")]


def test_what_is_wrong_is_named(checks_of_the_book):
    text = PAGE.read_text(encoding="utf-8")
    for old, new, message in (
        ("`zero-cost-checkpoint.resume`", "`zero-cost-checkpoint.resumes`", "no notebook plans zero-cost-checkpoint.resumes"),
        ("| covered | `zero-cost-checkpoint.resume`", "| fine | `zero-cost-checkpoint.resume`", "'fine' is no status"),
        ("| covered | `zero-cost-checkpoint.plain-save`", "| missing | -", "000-02: missing, and no reason"),
        ("| covered | `zero-cost-checkpoint.plain-save`", "| taught only | `zero-cost-checkpoint.plain-save`", "with 1 checks"),
        ("| 000-01 |", "| 000-02 |", "each once"),
        ("| all | 237 |", "| all | 238 |", "the counts must be | all | 237 |"),
    ):
        assert old in text
        assert any(message in line for line in wrong_in(text.replace(old, new, 1), checks_of_the_book)), message
