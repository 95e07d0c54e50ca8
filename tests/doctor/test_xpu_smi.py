"""xpu-smi is read in whatever format it answers; what is not understood is kept, and is never an alarm by itself."""

from __future__ import annotations

import pytest

from tests.doctor.conftest import FORMATS
from xpulab.doctor.xpu_smi import read_xpu_smi

P800 = {"index": 0, "model": "P800 OAM", "generation": "KL3", "pci_address": "0000:1b:00.0"}
CARDS = {
    "kl3_table": (0, {**P800, "temperature_c": 41, "power_w": 93, "memory_used_mib": 2112}),
    "kl3_table_sriov": (1, {"model": "P800 VF", "generation": "KL3", "pci_address": "0000:5e:00.1", "memory_total_mib": 49152}),
    "kl3_machine": (
        1,
        {"model": "P800 OAM", "firmware": "1.39", "serial": "02K21A901CV0041B", "power_w": 88},
    ),
    "kl2_machine": (0, {"model": "R300", "memory_used_mib": 96, "power_w": 62}),
    "kl3_query": (0, {**P800, "firmware": "1.54", "memory_used_mib": 2112, "memory_total_mib": 98304, "power_w": 93.5}),
}
OPTIONS = {"table": "", "machine": "-m", "query": "-q"}


@pytest.mark.parametrize("name", CARDS)
def test_every_format_gives_the_numbers_of_a_card(machine, name):
    index, values = CARDS[name]
    machine.answering("xpu-smi", {OPTIONS[name.split("_")[-1] if name.split("_")[-1] in OPTIONS else "table"]: f"{name}.txt"})
    reading = read_xpu_smi()
    assert (reading.outcome, reading.unread) == ("ok", ())
    assert {field: getattr(reading.cards[index], field) for field in values} == values


def test_the_first_format_that_is_understood_is_enough(p800):
    reading = read_xpu_smi()
    assert (reading.driver, [card.firmware for card in reading.cards]) == ("5.0.21.26", ["1.54", "1.39"])
    assert p800.calls.read_text().splitlines() == ["-q"]


@pytest.mark.parametrize(
    ("name", "old", "new", "cards"),
    [
        ("kl3_query", "XPU 00000000:1D:00.0", "XPU-1 at 00000000:1D:00.0", 1),
        ("kl3_query", "Attached XPUs  ", "Number of XPUs ", 2),
        ("kl3_table", "|   1  P800 OAM           N/A   |", "| one  P800 OAM  |", 1),
        ("kl3_machine", "1450 1450 1450", "", 0),
        ("kl3_table", "Persistence-M", "Persistence", 2),
    ],
)
def test_another_wording_costs_no_more_than_its_line(machine, name, old, new, cards):
    text = (FORMATS / f"{name}.txt").read_text()
    assert old in text
    (machine.bin / "text").write_text(text.replace(old, new))
    machine.tool("xpu-smi", f"exec /bin/cat {machine.bin}/text")
    reading = read_xpu_smi()
    assert len(reading.cards) == cards and bool(reading.unread) == (cards < 2)


@pytest.mark.parametrize(
    ("script", "outcome", "detail"),
    [
        (None, "missing", "neither xpu-smi nor xpu_smi is on PATH"),
        ("echo cannot open /dev/xpuctrl >&2; exit 3", "failed", "ended with status 3: cannot open /dev/xpuctrl"),
        ("exec /bin/sleep 60", "hung", "0.2 s"),
        ("echo 0x7f 0x45 0x4c 0x46", "unreadable", "no known format"),
        ("echo '0 \"unbalanced'", "unreadable", "no known format"),
        (f"exec /bin/cat {FORMATS / 'intel.txt'}", "foreign", "Intel"),
    ],
)
def test_a_tool_that_shows_no_cards_has_its_outcome(machine, script, outcome, detail):
    if script:
        machine.tool("xpu-smi", script)
    reading = read_xpu_smi(timeout=0.2 if outcome == "hung" else 10)
    assert reading.outcome == outcome and detail in reading.detail
    assert (bool(reading.unread), reading.counts_cards) == (outcome == "unreadable", False)
    assert outcome != "failed" or reading.raw == "cannot open /dev/xpuctrl\n"


MACHINE = (FORMATS / "kl3_machine.txt").read_text()
QUERY = (FORMATS / "kl3_query.txt").read_text()
TABLE = (FORMATS / "kl3_table.txt").read_text()
IN_CHINESE = {"Product Name": "产品名称", "Attached XPUs": "已连接 XPU", "Memory Usage": "显存", "Driver Version": "驱动版本"}


def in_chinese(text: str) -> str:
    for word, translated in IN_CHINESE.items():
        text = text.replace(word, translated)
    return text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00\x7f" * 9000,
        "<xpu_smi_log><xpu/></xpu_smi_log>",
        "\n".join(" ".join(reversed(line.split())) for line in MACHINE.splitlines()),  # another order of columns
        MACHINE.replace("98304 0 1.0", "0 98304 1.0").replace("98304 17 1.0", "17 98304 1.0"),
        MACHINE.replace(" 41 0 44", " heiß 0 44"),
        QUERY[: QUERY.index("XPU 00000000:1D:00.0")],  # two are attached, one is shown
        QUERY.replace("Attached XPUs                             : 2", "Attached XPUs                             : 8"),
    ],
    ids=["empty", "binary", "xml", "reversed", "two columns", "words", "cut", "more attached"],
)
def test_what_is_not_understood_counts_no_cards_is_kept_and_bounded(machine, text):
    (machine.bin / "text").write_text(text)
    machine.tool("xpu-smi", f"exec /bin/cat {machine.bin}/text")
    reading = read_xpu_smi()
    assert not reading.counts_cards
    assert reading.raw == text[:4000]


def test_a_listing_in_another_language_keeps_its_cards_and_a_format_that_is_understood_is_preferred(machine):
    (machine.bin / "text").write_text(in_chinese(QUERY))
    machine.tool("xpu-smi", f"exec /bin/cat {machine.bin}/text")
    reading = read_xpu_smi()
    assert [(card.pci_address, card.model) for card in reading.cards] == [
        ("0000:1b:00.0", "unknown"),
        ("0000:1d:00.0", "unknown"),
    ]
    assert (reading.counts_cards, reading.raw) == (False, in_chinese(QUERY)[:4000])
    machine.tool("xpu-smi", f'test "$1" = -m && exec /bin/cat {FORMATS}/kl3_machine.txt\nexec /bin/cat {machine.bin}/text')
    assert [card.model for card in read_xpu_smi().cards] == ["P800 OAM", "P800 OAM"]


ECC = """    ECC Errors
        Volatile
            DRAM Correctable              : 120
            DRAM Uncorrectable            : 3
        Aggregate
            DRAM Correctable              : 120
            DRAM Uncorrectable            : 17
    Processes                             : None
"""


LAST = "    Processes                             : None\n"  # of the second card
WITH_ERRORS = QUERY.replace(LAST, ECC)


def more(line: str) -> str:
    """The query with one more line about the first card."""
    return QUERY.replace("    L3 Usage", f"    {line}\n    L3 Usage", 1)


@pytest.mark.parametrize(
    ("text", "field", "values"),
    [
        (WITH_ERRORS, "uncorrectable_errors", [None, 3]),
        (WITH_ERRORS, "uncorrectable_ever", [None, 17]),
        (WITH_ERRORS.replace(": 3", ": N/A"), "uncorrectable_errors", [None, None]),
        (WITH_ERRORS.replace(": 3", ": 3 (see the log)"), "uncorrectable_errors", [None, 3]),
        (TABLE.replace("                    0 |", "                    2 |", 1), "uncorrectable_errors", [2, 0]),
        (TABLE.replace("Volatile Uncorr. ECC", "    Something else  "), "uncorrectable_errors", [None, None]),
        (
            WITH_ERRORS.replace("    ECC Errors\n        Volatile\n", "    Volatile ECC Errors\n").replace(
                "        Aggregate\n", "    Aggregate ECC Errors\n"
            ),
            "uncorrectable_errors",
            [None, 3],
        ),
        (WITH_ERRORS.replace("DRAM Uncorrectable", "DRAM Double Bit   "), "uncorrectable_errors", [None, 3]),
        (more("Compute Mode                          : GPU requires reset"), "state", ["requires reset", None]),
        (f"{QUERY}\nWARNING: XPU 00000000:1D:00.0 requires reset\n", "state", [None, "requires reset"]),
        (f"{QUERY}\nxpu 0: uncorrectable error, the card requires a reset\n", "state", ["requires reset", None]),
        (
            TABLE.replace("1D:00.0 N/A |                    0 |", "1D:00.0 N/A |       requires reset |"),
            "state",
            [None, "requires reset"],
        ),
        (more("Retired Pages                         : 4"), "retired_pages", [4, None]),
        (more("HW Thermal Slowdown                   : Active"), "is_throttled", [True, None]),
    ],
)
def test_health_is_read_where_it_is_shown(machine, text, field, values):
    (machine.bin / "text").write_text(text)
    machine.tool("xpu-smi", f'test "$1" = -m && exit 2\nexec /bin/cat {machine.bin}/text')
    reading = read_xpu_smi()
    assert (reading.outcome, [getattr(card, field) for card in reading.cards]) == ("ok", values)


def test_kunluns_tool_is_found_behind_intels_and_only_harmless_options_are_used(machine):
    machine.answering("xpu-smi", {"": "intel.txt"})
    machine.answering("xpu_smi", {"": "kl3_table.txt"})
    assert (read_xpu_smi().tool, read_xpu_smi().outcome) == ("xpu_smi", "ok")
    assert set(machine.calls.read_text().splitlines()) == {"-q", "-m", ""}
