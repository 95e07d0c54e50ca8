"""Every output format of xpu-smi is parsed; anything else is refused with a sentence."""

from __future__ import annotations

import pytest

from xpulab.doctor.cards import generation_of
from xpulab.doctor.xpu_smi.machine import parse_machine
from xpulab.doctor.xpu_smi.query import parse_query
from xpulab.doctor.xpu_smi.tables import parse_table


def test_kl3_table_gives_every_number_of_a_card(formats):
    card = parse_table((formats / "kl3_table.txt").read_text()).cards[0]
    assert (card.index, card.model, card.generation, card.pci_address) == (0, "P800 OAM", "KL3", "0000:1b:00.0")
    assert (card.temperature_c, card.power_w, card.utilisation_percent) == (41, 93, 17)
    assert (card.memory_used_mib, card.memory_total_mib) == (2112, 98304)


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


def test_process_rows_of_a_busy_card_are_not_taken_for_cards(formats):
    assert [card.index for card in parse_table((formats / "kl3_table_busy.txt").read_text()).cards] == [5]


def test_narrow_kl2_table_gives_memory_and_use(formats):
    card = parse_table((formats / "kl2_table_narrow.txt").read_text()).cards[0]
    assert (card.memory_used_mib, card.memory_total_mib, card.utilisation_percent) == (96, 32768, 12)
    assert (card.power_w, card.temperature_c, card.state) == (None, None, None)


def test_wide_table_adds_power_temperature_clock_and_firmware(formats):
    card = parse_table((formats / "kl1_kl2_table_wide.txt").read_text()).cards[0]
    assert (card.power_w, card.temperature_c, card.clock_mhz, card.firmware) == (31, 52, 1300, "0002.0004.0029")


def test_wide_table_shows_which_card_is_in_its_error_state(formats):
    cards = parse_table((formats / "kl1_kl2_table_wide.txt").read_text()).cards
    assert [card.state for card in cards] == ["normal", "error"]


def test_two_devices_of_a_k200_board_share_an_address(formats):
    cards = parse_table((formats / "kl1_table_k200.txt").read_text()).cards
    assert [(card.index, card.pci_address) for card in cards] == [(0, "0000:08:00.0"), (1, "0000:08:00.0")]


def test_machine_form_reads_the_32_documented_fields(formats):
    card = parse_machine((formats / "kl3_machine.txt").read_text()).cards[1]
    assert (card.index, card.serial, card.model, card.firmware) == (1, "02K21A901CV0041B", "P800 OAM", "1.39")
    assert (card.temperature_c, card.power_w, card.memory_total_mib, card.clock_mhz) == (39, 88, 98304, 1450)


def test_of_several_clocks_the_lowest_that_is_not_0_counts(formats):
    line = (formats / "kl3_machine.txt").read_text().splitlines()[0]
    clocks = {"1450 1450 1450 1450 1450 1450": 1450, "1450 900 0 0 0 0": 900, "0 0 0 0 0 0": None}
    cards = [parse_machine(line.replace("1450 1450 1450 1450 1450 1450", each)).cards[0] for each in clocks]
    assert [card.clock_mhz for card in cards] == list(clocks.values())


def test_machine_form_of_an_older_tool_has_22_fields(formats):
    cards = parse_machine((formats / "kl2_machine.txt").read_text()).cards
    assert [(card.model, card.memory_used_mib, card.power_w) for card in cards] == [("R300", 96, 62), ("R300", 0, 60)]


def test_power_in_milliwatts_is_understood(formats):
    assert parse_machine((formats / "kl1_machine_milliwatts.txt").read_text()).cards[0].power_w == 38.25


def test_a_model_that_lost_its_quotes_is_put_together(formats):
    text = (formats / "kl3_machine.txt").read_text().replace('"', "")
    assert parse_machine(text).cards[0].model == "P800 OAM"


def test_query_states_the_sbl_version_by_name(formats):
    assert [card.firmware for card in parse_query((formats / "kl3_query.txt").read_text()).cards] == ["1.54", "1.39"]


def test_query_distinguishes_memory_from_l3(formats):
    card = parse_query((formats / "kl3_query.txt").read_text()).cards[0]
    assert (card.memory_used_mib, card.memory_total_mib) == (2112, 98304)


def test_query_gives_driver_runtime_and_sensors(formats):
    report = parse_query((formats / "kl3_query.txt").read_text())
    assert (report.driver, report.runtime) == ("5.0.21.26", "5.0.21")
    assert [(card.power_w, card.temperature_c) for card in report.cards] == [(93.5, 41), (88, None)]


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
