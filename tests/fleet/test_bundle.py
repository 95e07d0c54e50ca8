"""A bundle holds what its manifest names, no secret, and nothing that another machine could be hurt with."""

from __future__ import annotations

import hashlib
import json
import zipfile

import pytest

from xpulab.errors import InputError
from xpulab.fleet import bundle
from xpulab.records.origin import node_name

EVIDENCE = [("doctor.json", '{"token": "correct horse"}'), ("tools/xpu-smi_-q.txt", "$ xpu-smi -q\nXPU 0")]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The folder of a run on a machine with a secret, and little evidence."""
    monkeypatch.setenv("HF_TOKEN", "correct horse")
    monkeypatch.setattr(bundle.evidence, "evidence", lambda environ, device: iter([*EVIDENCE, ("device.txt", device)]))
    folder = tmp_path / "run"
    (folder / "notebooks").mkdir(parents=True)
    (folder / "result.json").write_text("{}")
    (folder / "notebooks" / "00_demo.ipynb").write_text('"/home/li/x.py correct horse correct horse"')
    (folder / "weights.bin").write_bytes(b"\0")
    return folder


@pytest.fixture
def made(run, tmp_path):
    """The bundle of the run, and its manifest."""
    out = tmp_path / "node7.zip"
    written, contents = bundle.collect(run)
    bundle.write(written, contents, out)
    return out, written


def test_it_holds_run_and_machine_without_secrets_and_lists_them(made):
    out, written = made
    files = ["run/notebooks/00_demo.ipynb", "run/result.json", "machine/doctor.json", "machine/tools/xpu-smi_-q.txt"]
    files.append("machine/device.txt")
    assert zipfile.ZipFile(out).namelist() == ["manifest.json", *files]
    manifest, contents = bundle.read(out)
    assert manifest == written and written.left_out == {"weights.bin": "no report and no notebook"}
    assert b"correct horse" not in b"".join(contents.values())
    assert contents["run/notebooks/00_demo.ipynb"].startswith(b'"/home/<removed: user>/x.py <removed: HF_TOKEN>')
    shown = bundle.format_list(written)
    assert "run/notebooks/00_demo.ipynb  (removed: HF_TOKEN 2 times, user)" in shown
    assert "left out  weights.bin: no report and no notebook" in shown


def test_what_cannot_be_bundled_or_written_is_refused_and_nothing_stays(run, tmp_path):
    (tmp_path / "x.zip").write_text("mine")
    for folder, out, why in (
        (tmp_path, "new.zip", r"holds no result\.json"),
        (run, "x.zip", "exists already"),
        (run, "nowhere/x.zip", "cannot be written"),
    ):
        with pytest.raises(InputError, match=why):
            bundle.write(*bundle.collect(folder), tmp_path / out)
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
        *((lambda contents, name=name: renamed(contents, name), "no manifest that can be read") for name in LEAVES_THE_FOLDER),
        (other_size, "not what its manifest says"),
        (lambda contents: contents.update({"run/more.txt": b"more"}), "not those that its manifest names"),
        (lambda contents: contents.update({"run/result.json": b"[]\n"}), "its checksum is another one"),
        (lambda contents: contents["manifest.json"].update(schema=99, xpulab="9.0"), r"made by xpulab 9\.0"),
        (lambda contents: contents["manifest.json"].pop("entries"), "no manifest that can be read"),
        (lambda contents: contents["manifest.json"]["entries"][0].update(size="large"), "no manifest that can be read"),
        (lambda contents: contents["manifest.json"]["entries"][0].update(sha256="0"), "no manifest that can be read"),
        (lambda contents: contents["manifest.json"].update(unknown=1), "no manifest that can be read"),
        (lambda contents: contents.pop("run/result.json"), "not those that its manifest names"),
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


@pytest.mark.parametrize("at", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_file_that_was_cut_off_is_refused_and_what_is_read_of_a_changed_one_is_what_was_written(made, at):
    whole, before = made[0].read_bytes(), bundle.read(made[0])
    position = int(len(whole) * at)
    made[0].write_bytes(whole[:position])
    with pytest.raises(InputError, match="no bundle that can be read"):
        bundle.read(made[0])
    changed = bytes(byte ^ 0xFF for byte in whole[position : position + 8])
    made[0].write_bytes(whole[:position] + changed + whole[position + 8 :])
    try:  # the times of its files may be changed, and are not read
        assert bundle.read(made[0]) == before
    except InputError as error:
        assert "node7.zip" in str(error)


@pytest.mark.parametrize(("limit", "value"), [("LARGEST_SUM", 1000 - bundle.LARGEST_MANIFEST), ("MOST_FILES", 3)])
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


def test_another_compression_whose_size_is_not_limited_is_refused(made):
    with zipfile.ZipFile(made[0]) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    stored(made[0], contents, zipfile.ZIP_BZIP2)
    with pytest.raises(InputError, match="compressed in a way"):
        bundle.read(made[0])


def test_a_link_is_refused(made):
    with zipfile.ZipFile(made[0]) as archive:
        contents = {info: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(made[0], "w") as archive:
        for info, content in contents.items():
            info.external_attr = 0o120777 << 16
            archive.writestr(info, content)
    with pytest.raises(InputError, match="not what its manifest says"):
        bundle.read(made[0])


def test_a_name_that_is_there_twice_is_refused(made):
    with zipfile.ZipFile(made[0], "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("run/result.json", b"{}\n")
    with pytest.raises(InputError, match="not those that its manifest names"):
        bundle.read(made[0])


# ------------------------------------------------------------------------------------------------ what a run's folder holds


def test_the_device_of_the_run_is_diagnosed_and_another_machines_run_gets_nothing_of_this_one(run):
    (run / "result.json").write_text(json.dumps({"node": node_name(), "device": "xpu"}))
    made, contents = bundle.collect(run)
    assert (made.node, contents["machine/device.txt"], made.notes) == (node_name(), b"xpu", ())
    (run / "result.json").write_text('{"node": "node17"}')
    made, contents = bundle.collect(run)
    assert made.node == "node17" and not any(name.startswith("machine/") for name in contents)
    assert "node17" in made.notes[0] and node_name() in made.notes[0]


@pytest.mark.parametrize("text", ['{"device": "xp', "[]"])
def test_a_result_that_cannot_be_read_is_bundled_with_a_note(run, text):
    (run / "result.json").write_text(text)
    made, contents = bundle.collect(run)
    assert {"machine/doctor.json", "run/result.json"} <= set(contents) and "cannot be read" in made.notes[0]


def test_an_excerpt_a_link_and_a_file_that_cannot_be_read_are_left_out(run, tmp_path):
    (run / "notebooks" / "00_demo.source.ipynb").write_text("{}")
    (tmp_path / "secret.txt").write_text("of somebody else")
    (run / "link.txt").symlink_to(tmp_path / "secret.txt")
    (run / "odd\\\x1b\udc80.txt").write_text("of a name that no bundle can have")
    made, contents = bundle.collect(run)
    bundle.write(made, contents, tmp_path / "x.zip")
    assert "run/odd___.txt" in bundle.read(tmp_path / "x.zip")[1]
    assert set(made.left_out) == {"weights.bin", "notebooks/00_demo.source.ipynb"} and "run/link.txt" not in contents
