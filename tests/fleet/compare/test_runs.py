"""A run is read from its folder, its result.json or its bundle; what is damaged is an error that says what to do."""

from __future__ import annotations

import json

import pytest

from tests.fleet.compare.made_up import check, measurement, notebook, result, row
from xpulab.errors import InputError
from xpulab.fleet.runs import read_run, read_runs

GREEN = result(notebook(check(rows=[row("one")], measurements=[measurement("rate", 2.0)])))


def test_a_run_is_the_same_from_its_folder_its_file_and_its_bundle_which_names_its_node(put, pack):
    (folder,) = put(night=GREEN)
    read = read_run(folder), read_run(folder / "result.json"), read_run(pack("file", GREEN, node="node7"))
    assert [run.name for run in read] == ["night", "night", "node7"]
    assert read[0].result == read[1].result == read[2].result and read_run(folder, "mine").name == "mine"


def test_a_result_of_an_earlier_version_has_no_digests_and_no_measurements(put):
    old = check()
    del old["digest"], old["measurements"]
    (folder,) = put(old=result(notebook(old)))
    ((_, read),) = read_run(folder).checks()
    assert (read["digest"], read["measurements"]) == (None, None)


def test_a_folder_of_runs_and_bundles_stands_for_all_of_them(put, pack, tmp_path):
    put(a=GREEN, b=GREEN)
    pack("c", GREEN, node="node3")
    (tmp_path / "notes.txt").write_text("")
    runs, unreadable = read_runs([tmp_path])
    assert ([run.name for run in runs], unreadable) == (["a", "b", "node3"], ())


def test_runs_with_one_name_are_told_apart_by_their_files_or_their_paths(put, pack, tmp_path):
    bundles = [pack("before", GREEN, node="node7"), pack("after", GREEN, node="node7")]
    assert [run.name for run in read_runs(bundles)[0]] == ["node7 (before)", "node7 (after)"]
    folders = [tmp_path / each / "out" for each in ("x", "y")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps(GREEN))
    names = [run.name for run in read_runs(folders)[0]]
    assert len(set(names)) == 2 and str(folders[0]) in names[0]


def test_one_damaged_bundle_of_many_is_named_with_its_reason(pack, tmp_path):
    good, bad = pack("good", GREEN), pack("bad", GREEN, digest="0" * 64)
    pack("half", GREEN)
    (tmp_path / "half.zip").write_bytes((tmp_path / "half.zip").read_bytes()[:-60])
    runs, unreadable = read_runs([good, bad, tmp_path / "half.zip"])
    assert [run.name for run in runs] == ["good"]
    assert [each.name for each in unreadable] == ["bad", "half"]
    assert "its checksum is another one" in unreadable[0].reason and "no bundle that can be read" in unreadable[1].reason


BROKEN = (
    {**GREEN, "notebooks": 3},
    {**GREEN, "device": "tpu"},
    {**GREEN, "card_facts": [{"index": 0}]},
    result(notebook(check(rows=["a"]))),
    result(notebook(check(rows=[row("a", "good")]))),
    result(notebook(check(measurements=[measurement("rate")]))),
)


@pytest.mark.parametrize("content", ["", "[]", "[" * 100_000, '{"outcome": "passed"}', *map(json.dumps, BROKEN)], ids=range(10))
def test_what_is_no_result_is_an_error_that_names_it(tmp_path, content):
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(InputError, match=r"not what `xpulab run` writes"):
        read_run(tmp_path)


def test_what_holds_nothing_or_is_named_twice_is_a_finding_and_what_is_not_there_an_error(put, tmp_path):
    (folder,) = put(night=GREEN)
    (tmp_path / "empty").mkdir()
    runs, unreadable = read_runs([folder, tmp_path / "empty", folder / "result.json", folder])
    assert [run.name for run in runs] == ["night"] and len(unreadable) == 3
    assert "holds no result.json" in unreadable[-1].reason and "named twice" in unreadable[0].reason
    with pytest.raises(InputError, match="does not exist"):
        read_runs([folder, tmp_path / "none"])
