"""Every output format of xpu-smi is parsed; anything else is refused with a sentence."""

from __future__ import annotations

import pytest

from xpulab.doctor.cards import generation_of
from xpulab.doctor.xpu_smi.machine import parse_machine
from xpulab.doctor.xpu_smi.query import parse_query
from xpulab.doctor.xpu_smi.tables import parse_table

CARDS = {
    "a table, every number": (
        "kl3_table",
        0,
        dict(
            **dict(index=0, model="P800 OAM", generation="KL3", pci_address="0000:1b:00.0", temperature_c=41, power_w=93),
            **dict(utilisation_percent=17, memory_used_mib=2112, memory_total_mib=98304),
        ),
    ),
    "a table with rows of processes": ("kl3_table_busy", 0, {"index": 5}),
    "a narrow table": (
        "kl2_table_narrow",
        0,
        dict(memory_used_mib=96, memory_total_mib=32768, utilisation_percent=12, power_w=None, temperature_c=None, state=None),
    ),
    "a wide table": (
        "kl1_kl2_table_wide",
        0,
        dict(power_w=31, temperature_c=52, clock_mhz=1300, firmware="0002.0004.0029", state="normal"),
    ),
    "a wide table, error state": ("kl1_kl2_table_wide", 1, {"state": "error"}),
    "a board of two": ("kl1_table_k200", 0, dict(index=0, pci_address="0000:08:00.0")),
    "a board of two, the other": ("kl1_table_k200", 1, dict(index=1, pci_address="0000:08:00.0")),
    "32 fields": (
        "kl3_machine",
        1,
        dict(
            **dict(index=1, serial="02K21A901CV0041B", model="P800 OAM", firmware="1.39", temperature_c=39, power_w=88),
            **dict(memory_total_mib=98304, clock_mhz=1450),
        ),
    ),
    "22 fields": ("kl2_machine", 0, dict(model="R300", memory_used_mib=96, power_w=62)),
    "22 fields, the other": ("kl2_machine", 1, dict(model="R300", memory_used_mib=0, power_w=60)),
    "milliwatts": ("kl1_machine_milliwatts", 0, {"power_w": 38.25}),
    "a query": (
        "kl3_query",
        0,
        dict(firmware="1.54", memory_used_mib=2112, memory_total_mib=98304, power_w=93.5, temperature_c=41),
    ),
    "a query, the other": ("kl3_query", 1, dict(firmware="1.39", power_w=88, temperature_c=None)),
}
PARSERS = {"table": parse_table, "machine": parse_machine, "query": parse_query}


@pytest.mark.parametrize(("name", "index", "fields"), CARDS.values(), ids=CARDS)
def test_every_form_gives_the_numbers_of_a_card(formats, name, index, fields):
    (parse,) = (parse for form, parse in PARSERS.items() if form in name)
    card = parse((formats / f"{name}.txt").read_text()).cards[index]
    assert {field: getattr(card, field) for field in fields} == fields


def test_a_table_of_a_busy_card_has_no_other_and_a_query_gives_driver_and_runtime(formats):
    assert len(parse_table((formats / "kl3_table_busy.txt").read_text()).cards) == 1
    report = parse_query((formats / "kl3_query.txt").read_text())
    assert (report.driver, report.runtime) == ("5.0.21.26", "5.0.21")


@pytest.mark.parametrize(
    ("name", "driver", "runtime", "models"),
    [
        ("kl3_table", "5.0.21.26", "5.0.21", ["P800 OAM", "P800 OAM"]),
        ("kl3_table_older", "515.58", None, ["P800 PCIe"]),
        ("kl3_table_busy", "5.19.0.0", "10.2", ["P800 OAM"]),
        ("kl3_table_sriov", "5.0.21.40", "5.0.21", ["P800 OAM", "P800 VF", "P800 VF"]),
        ("kl2_table_narrow", "4.0", "4.31", ["R300", "R300"]),
        ("kl1_kl2_table_wide", "4.0", "4.0", ["R200", "K100"]),
        ("kl1_table_k200", "4.0", "4.0", ["K200", "K200"]),
        ("kl2_table_sriov", "4.0", "4.0", ["R200-PF", "R200-VF-5G"]),
    ],
)
def test_tables_of_both_generations_give_versions_and_models(formats, name, driver, runtime, models):
    report = parse_table((formats / f"{name}.txt").read_text())
    assert (report.driver, report.runtime, [card.model for card in report.cards]) == (driver, runtime, models)


def test_virtual_functions_of_a_p800_are_cards_with_half_its_memory(formats):
    cards = parse_table((formats / "kl3_table_sriov.txt").read_text()).cards
    assert [(card.generation, card.memory_total_mib) for card in cards] == [("KL3", 98304), ("KL3", 49152), ("KL3", 49152)]
    assert [(card.pci_address, card.memory_used_mib) for card in cards[1:]] == [("0000:5e:00.1", 1536), ("0000:5e:00.2", 0)]


def test_of_several_clocks_the_lowest_that_is_not_0_counts(formats):
    line = (formats / "kl3_machine.txt").read_text().splitlines()[0]
    clocks = {"1450 1450 1450 1450 1450 1450": 1450, "1450 900 0 0 0 0": 900, "0 0 0 0 0 0": None}
    cards = [parse_machine(line.replace("1450 1450 1450 1450 1450 1450", each)).cards[0] for each in clocks]
    assert [card.clock_mhz for card in cards] == list(clocks.values())


def test_a_model_that_lost_its_quotes_is_put_together(formats):
    text = (formats / "kl3_machine.txt").read_text().replace('"', "")
    assert parse_machine(text).cards[0].model == "P800 OAM"


def test_query_that_announces_more_cards_than_it_lists_is_refused(formats):
    text = (formats / "kl3_query.txt").read_text().replace("Attached XPUs                             : 2", "Attached XPUs : 8")
    with pytest.raises(ValueError, match=r"'Attached XPUs : 8.*', but it lists 2 cards"):
        parse_query(text)


def test_table_that_ends_within_a_card_is_refused(formats):
    text = "\n".join((formats / "kl3_table.txt").read_text().splitlines()[:10])
    with pytest.raises(ValueError, match="in the middle of card 0"):
        parse_table(text)


@pytest.mark.parametrize("parse", [parse_query, parse_machine, parse_table])
@pytest.mark.parametrize("text", ["", "Segmentation fault\n", "\ufffd\ufffd|\ufffd\n", '0 "unbalanced\n'])
def test_garbage_is_refused_by_every_parser(parse, text):
    with pytest.raises(ValueError):
        parse(text)


@pytest.mark.parametrize(
    ("model", "generation"),
    [("K200", "KL1"), ("R200-8F", "KL2"), ("R200-VF-5G", "KL2"), ("RG800", "KL2"), ("P800 PCIe", "KL3"), ("X1", None)],
)
def test_a_model_belongs_to_its_generation(model, generation):
    assert generation_of(model) == generation
