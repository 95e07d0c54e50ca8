"""A bundle that somebody made to hurt is refused, with its name, and ends neither a comparison nor the machine's memory."""

from __future__ import annotations

import copy
import json
import os
import random
import struct
import zipfile

import pytest

from tests.fleet.compare.made_up import card, check, measurement, notebook, result, row
from xpulab.errors import InputError
from xpulab.fleet.compare.comparison import format_comparison, to_json
from xpulab.fleet.compare.machines import compare_machines
from xpulab.fleet.compare.two_runs import compare_two
from xpulab.fleet.runs import read_run

pytestmark = pytest.mark.integration

GREEN = result(notebook(check(rows=[row("one")], measurements=[measurement("rate", 2.0)])), card_facts=[card()])
MIB, MEMORY = 2**20, 2 * 2**30


def of_lzma(packed, name):
    return packed(name, GREEN, zipfile.ZIP_LZMA)


def of_damaged_lzma(packed, name):
    path = of_lzma(packed, name)
    content = bytearray(path.read_bytes())
    content[60:70] = bytes(10)
    path.write_bytes(content)
    return path


def of_zeros(packed, name):
    return packed(name, bytes(100 * MIB))


def of_millions_of_lists(packed, name):
    return packed(name, b"[" + b"[]," * (8 * MIB) + b"0]")


def with_millions_of_notes(packed, name):
    return packed(name, GREEN, notes=[""] * (3 * MIB))


def with_a_million_errors(packed, name):
    return packed(name, GREEN, entries=[0] * MIB)


def larger_than_it_says(packed, name):
    path = packed(name, bytes(100 * MIB))
    path.write_bytes(path.read_bytes().replace((100 * MIB).to_bytes(4, "little"), (3).to_bytes(4, "little")))
    return path


def with_millions_of_names(packed, name):
    path = packed(name, GREEN)
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"x"
    number = 1_000_000
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, number & 0xFFFF, number & 0xFFFF, len(entry) * number, 0, 0)
    path.write_bytes(entry * number + end)
    return path


def with_a_file_above(packed, name):
    return packed(name, GREEN, files={"run/../../evil": b"x"})


def twice_one_notebook(packed, name):
    return packed(name, {**GREEN, "notebooks": GREEN["notebooks"] * 2})


def green_with_a_red_check(packed, name):
    return packed(name, result(notebook(check(outcome="failed"), outcome="passed"), green=True, outcome="passed"))


def passed_with_a_failed_row(packed, name):
    return packed(name, result(notebook(check(rows=[row("one"), row("two", "failed")]))))


def green_with_a_lost_accelerator(packed, name):
    lost = {"id": "no-card", "device": "xpu", "since": [], "problem": "gone", "steps": [], "expected": None}
    return packed(name, {**GREEN, "lost": lost})


def with_number(number):
    """A result with this text as the value of a rate."""

    def make(packed, name):
        return packed(name, json.dumps(GREEN).replace('"values": [2.0]', f'"values": [{number}]').encode())

    make.__name__ = f"with_{number[:8]}"
    return make


def with_many_unknown_keys(packed, name):
    return packed(name, json.dumps(GREEN)[:-1].encode() + b', "x": [' + b"[]," * (5 * MIB) + b"0]}")


def a_link_to_itself(packed, name):
    path = packed(name, GREEN)
    path.unlink()
    path.symlink_to(path.with_name("all") / path.name)
    return path


def a_pipe(packed, name):
    path = packed(name, GREEN)
    path.unlink()
    os.mkfifo(path)
    return path


def endless(packed, name):
    path = packed(name, GREEN)
    path.unlink()
    path.symlink_to("/dev/zero")
    return path


HOSTILE = [
    *(of_lzma, of_damaged_lzma, of_zeros, of_millions_of_lists, with_millions_of_notes, with_a_million_errors),
    *(larger_than_it_says, with_millions_of_names, with_a_file_above, twice_one_notebook, green_with_a_red_check),
    *(a_pipe, endless, a_link_to_itself, passed_with_a_failed_row, green_with_a_lost_accelerator, with_many_unknown_keys),
    *map(with_number, ("1" + "0" * 400, "9" * 5000, "1e999", "-1e999", "NaN", "Infinity")),
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.__name__)
def test_it_is_refused_and_the_others_are_compared(xpulab, packed, tmp_path, hostile):
    (tmp_path / "all").mkdir()
    for name in ("a", "b", "c"):
        packed(name, GREEN).rename(tmp_path / "all" / f"{name}.zip")
    hostile(packed, "bad").rename(tmp_path / "all" / "bad.zip")
    code, shown = xpulab("judge", tmp_path / "all" / "bad.zip")
    assert code == 2 and "all/bad.zip" in shown, shown
    code, shown = xpulab("compare", tmp_path / "all")
    assert code == 1 and "1 finding on 1 of 4 runs: 1 unreadable" in shown and "all/bad.zip" in shown, shown


def test_links_to_others_and_folders_that_cannot_be_read_are_findings(xpulab, packed, tmp_path):
    folder = tmp_path / "all"
    (folder / "pipe").mkdir(parents=True)
    for name in ("a", "b", "c"):
        packed(name, GREEN).rename(folder / f"{name}.zip")
    (folder / "latest.zip").symlink_to("a.zip")
    (folder / "gone.zip").symlink_to("nothing.zip")
    (folder / "loop").symlink_to("loop")
    (folder / "file.zip").mkdir()
    os.mkfifo(folder / "pipe" / "result.json")
    code, shown = xpulab("compare", folder)
    assert code == 1 and "5 findings on 5 of 8 runs: 5 unreadable" in shown, shown
    code, shown = xpulab("compare", folder / "a.zip", folder / "b.zip", folder / "c.zip", folder / "gone.zip")
    assert code == 1 and "1 finding on 1 of 4 runs" in shown, shown
    assert xpulab("compare", folder / "a.zip", folder / "a.zip")[0] == 2
    assert xpulab("compare", folder / "a.zip", folder / "none.zip")[0] == 2


def test_many_bundles_of_what_nobody_asked_for_leave_memory_for_the_others(xpulab, packed, tmp_path):
    (tmp_path / "all").mkdir()
    bad = with_many_unknown_keys(packed, "bad").read_bytes()
    for number in range(8):
        (tmp_path / "all" / f"bad{number}.zip").write_bytes(bad)
        packed(f"good{number}", GREEN).rename(tmp_path / "all" / f"good{number}.zip")
    code, shown = xpulab("compare", tmp_path / "all", memory=MEMORY)
    assert code == 1 and "8 findings on 8 of 16 runs: 8 unreadable" in shown, shown


@pytest.mark.parametrize("of", ["pipe", "/dev/zero"])
def test_a_result_that_never_ends_is_refused(xpulab, tmp_path, of):
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / "result.json"
    os.mkfifo(path) if of == "pipe" else path.symlink_to(of)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "result.json").write_text(json.dumps(GREEN))
    code, shown = xpulab("compare", "run", "other")
    assert code == 2 and "run/result.json: is no file" in shown, shown


def places(value, path=()):
    """The path to each value in a JSON value."""
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


OTHER_VALUES = (
    None,
    True,
    -1,
    1e999,
    10**30,
    10**400,
    1.7e308,
    5e-324,
    "nan",
    "\ud800",
    json.loads("[" * 400 + "]" * 400),
    "x\x1b[31m; touch x\n",
    ["a", 1],
    {"a": []},
    [None],
)


def test_whatever_stands_in_a_result_is_compared_or_refused(tmp_path):
    good = tmp_path / "good.json"
    good.write_text(json.dumps(GREEN))
    for path in places(GREEN):
        for value in OTHER_VALUES:
            changed = copy.deepcopy(GREEN)
            part = changed
            for key in path[:-1]:
                part = part[key]
            if path:
                part[path[-1]] = value
            (tmp_path / "bad.json").write_text(json.dumps(changed if path else value))
            try:
                runs = [read_run(good, "a"), read_run(tmp_path / "bad.json", "b"), read_run(good, "c"), read_run(good, "d")]
                for compared in (compare_machines(runs, ()), compare_two(*runs[:2]), compare_two(*runs[2:0:-1])):
                    assert "\x1b" not in format_comparison(compared)
                    json.dumps(to_json(compared), allow_nan=False)
            except InputError:
                pass


@pytest.mark.parametrize("seed", range(4))
def test_whatever_byte_is_changed_a_bundle_is_read_or_refused(packed, seed):
    path, random_ = packed("node7", GREEN), random.Random(seed)
    whole = path.read_bytes()
    for _ in range(250):
        changed = bytearray(whole)
        for _ in range(random_.choice((1, 2, 8))):
            changed[random_.randrange(len(changed))] = random_.randrange(256)
        path.write_bytes(changed[: random_.choice((None, random_.randrange(len(changed))))])
        try:
            assert read_run(path).result["notebooks"][0]["name"] == "00_demo"
        except InputError as error:
            assert "node7.zip: " in str(error)
