"""A bundle holds what its manifest names, no secret, and nothing that another machine could be hurt with."""

from __future__ import annotations

import hashlib
import json
import zipfile

import pytest

from xpulab.errors import InputError
from xpulab.fleet import bundle
from xpulab.fleet.redact import Redactor

REDACTOR = Redactor.of({"HF_TOKEN": "correct horse"})
EVIDENCE = [("doctor.json", '{"token": "correct horse"}'), ("tools/xpu-smi_-q.txt", "$ xpu-smi -q\nXPU 0")]


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    (folder / "notebooks").mkdir(parents=True)
    (folder / "result.json").write_text("{}")
    (folder / "notebooks" / "00_demo.ipynb").write_text('"/home/li/x.py correct horse correct horse"')
    (folder / "weights.bin").write_bytes(b"\0")
    return folder


@pytest.fixture
def made(run, tmp_path):
    out = tmp_path / "node7.zip"
    return out, bundle.make(run, EVIDENCE, REDACTOR, out)


def test_it_holds_run_and_machine_without_secrets_and_lists_them_first(made):
    out, written = made
    files = ["run/notebooks/00_demo.ipynb", "run/result.json", "machine/doctor.json", "machine/tools/xpu-smi_-q.txt"]
    assert zipfile.ZipFile(out).namelist() == ["manifest.json", *files]
    manifest, contents = bundle.read(out)
    assert manifest == written and written.left_out == {"weights.bin": "no report and no notebook"}
    assert b"correct horse" not in b"".join(contents.values())
    assert contents["run/notebooks/00_demo.ipynb"].startswith(b'"/home/<removed: user>/x.py <removed: HF_TOKEN>')
    assert written.removed == {"HF_TOKEN": 3, "user": 1}


def test_what_cannot_be_bundled_or_written_is_refused_and_nothing_stays(run, tmp_path):
    (tmp_path / "x.zip").write_text("mine")
    for folder, out, why in (
        (tmp_path, "new.zip", r"holds no result\.json"),
        (run, "x.zip", "exists already"),
        (run, "nowhere/x.zip", "cannot be written"),
    ):
        with pytest.raises(InputError, match=why):
            bundle.make(folder, [], REDACTOR, tmp_path / out)
    assert (tmp_path / "x.zip").read_text() == "mine" and not list(tmp_path.glob("**/.*.zip*"))


def stored(out, contents, compression=zipfile.ZIP_STORED):
    """Write an archive of these files."""
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


def rewritten(out, change):
    """The bundle with other files: change(contents) gets them by name, with the manifest as a dict."""
    with zipfile.ZipFile(out) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents["manifest.json"] = json.loads(contents["manifest.json"])
    change(contents)
    contents["manifest.json"] = json.dumps(contents["manifest.json"])
    stored(out, contents)


def renamed(contents, name):
    """Give the first file another name, in the manifest too."""
    entry = contents["manifest.json"]["entries"][0]
    contents[name] = contents.pop(entry["name"])
    entry["name"] = name


def other_size(contents):
    """Another content of run/result.json with its digest, and not its size, in the manifest."""
    contents["run/result.json"] = b'{"a": 1}'
    entry = next(each for each in contents["manifest.json"]["entries"] if each["name"] == "run/result.json")
    entry["sha256"] = hashlib.sha256(contents["run/result.json"]).hexdigest()


LEAVES_THE_FOLDER = ("../evil", "/etc/evil", "run/../../evil", "run\\..\\evil", "elsewhere/evil")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *((lambda contents, name=name: renamed(contents, name), "not what its manifest says") for name in LEAVES_THE_FOLDER),
        (other_size, "not what its manifest says"),
        (lambda contents: contents.update({"run/more.txt": b"more"}), "not those that its manifest names"),
        (lambda contents: contents.update({"run/result.json": b"[]\n"}), "its digest is another one"),
        (lambda contents: contents["manifest.json"].update(schema=99, xpulab="9.0"), r"made by xpulab 9\.0"),
        (lambda contents: contents["manifest.json"].pop("entries"), "no manifest that can be read"),
        (lambda contents: contents["manifest.json"]["entries"][0].update(size="large"), "no manifest that can be read"),
        (lambda contents: contents["manifest.json"]["entries"][0].update(sha256="0"), "no manifest that can be read"),
        (lambda contents: contents["manifest.json"].update(unknown=1), "no manifest that can be read"),
    ],
)
def test_a_bundle_whose_files_are_not_those_of_its_manifest_is_refused(made, change, message):
    rewritten(made[0], change)
    with pytest.raises(InputError, match=message):
        bundle.read(made[0])


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x05\x06" + b"\0" * 18])
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(InputError, match=r"x\.zip: "):
        bundle.read(tmp_path / "x.zip")


# -------------------------------------------------------------------------------------- damage, and files that would hurt


@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
def test_a_file_that_was_cut_off_or_changed_on_the_way_is_refused(made, at):
    whole = made[0].read_bytes()
    position = int(len(whole) * at)
    made[0].write_bytes(whole[:position])
    with pytest.raises(InputError, match="no bundle that can be read"):
        bundle.read(made[0])
    made[0].write_bytes(
        whole[:position] + bytes(byte ^ 0xFF for byte in whole[position : position + 8]) + whole[position + 8 :]
    )
    with pytest.raises(InputError):
        bundle.read(made[0])


@pytest.mark.parametrize(("limit", "value"), [("LARGEST_SUM", 1000), ("MOST_FILES", 3)])
def test_an_archive_of_too_much_or_too_many_files_is_refused_before_it_is_unpacked(made, monkeypatch, limit, value):
    rewritten(made[0], lambda contents: contents.update({"run/zeros.txt": b"\0" * 2000}))
    monkeypatch.setattr(bundle, limit, value)
    with pytest.raises(InputError, match=r"it is no bundle of one run|more than 3 files"):
        bundle.read(made[0])


def test_a_file_that_says_that_it_is_smaller_than_it_is_is_refused(made):
    rewritten(made[0], lambda contents: contents.update({"run/result.json": b"0" * 5000}))
    made[0].write_bytes(made[0].read_bytes().replace((5000).to_bytes(4, "little"), (3).to_bytes(4, "little")))
    with pytest.raises(InputError):
        bundle.read(made[0])


def test_another_compression_is_refused(made):
    with zipfile.ZipFile(made[0]) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    stored(made[0], contents, zipfile.ZIP_BZIP2)
    with pytest.raises(InputError, match="compressed in a way"):
        bundle.read(made[0])


def test_a_name_that_is_there_twice_is_refused(made):
    with zipfile.ZipFile(made[0], "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("run/result.json", b"{}\n")
    with pytest.raises(InputError, match="not those that its manifest names"):
        bundle.read(made[0])


# ------------------------------------------------------------------------------------------------ what a run's folder holds


def test_the_run_in_short_is_in_the_manifest(run, tmp_path):
    about = {"device": "xpu", "cards": 2, "level": "quick"}
    machine = {"card_facts": [{"model": "P800"}] * 2, "machine": {"driver": "5"}}
    (run / "result.json").write_text(json.dumps({"node": "node17", **about, **machine}))
    made = bundle.make(run, [], REDACTOR, tmp_path / "x.zip")
    assert (made.node, made.about) == ("node17", {**about, "card_models": ["P800", "P800"], "driver": "5"})


def test_a_cut_off_result_a_soak_without_one_and_the_folder_of_a_machine_that_died_are_bundled(run, tmp_path):
    (run / "result.json").write_text('{"device": "xp')
    assert bundle.make(run, [], REDACTOR, tmp_path / "cut.zip").about == {}
    (run / "result.json").rename(run / "soak.jsonl")
    assert bundle.make(run, [], REDACTOR, tmp_path / "soak.zip").node
    (run / "soak.jsonl").unlink()
    entries = bundle.make(run, [], REDACTOR, tmp_path / "died.zip").entries
    assert [entry.name for entry in entries] == ["run/notebooks/00_demo.ipynb"]


def test_an_excerpt_a_link_and_a_file_that_cannot_be_read_are_left_out(run, tmp_path):
    (run / "notebooks" / "00_demo.source.ipynb").write_text("{}")
    (tmp_path / "secret.txt").write_text("of somebody else")
    (run / "link.txt").symlink_to(tmp_path / "secret.txt")
    made = bundle.make(run, [], REDACTOR, tmp_path / "x.zip")
    assert set(made.left_out) == {"weights.bin", "notebooks/00_demo.source.ipynb"}
    assert "run/link.txt" not in {entry.name for entry in made.entries}


def test_a_summary_has_what_a_comparison_needs(run):
    evidence = [*EVIDENCE, ("versions.json", "{}")]
    names = {entry.name for entry in bundle.collect(run, evidence, REDACTOR, bundle.SUMMARY).bundle.entries}
    assert names == {"run/result.json", "machine/doctor.json", "machine/versions.json"}
