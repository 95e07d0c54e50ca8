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


def test_it_holds_run_and_machine_and_lists_them_first(made):
    out, _ = made
    names = zipfile.ZipFile(out).namelist()
    files = ["run/notebooks/00_demo.ipynb", "run/result.json", "machine/doctor.json", "machine/tools/xpu-smi_-q.txt"]
    assert names == ["manifest.json", *files]


def test_secrets_are_removed_and_counted(made):
    out, written = made
    _, contents = bundle.read(out)
    assert b"correct horse" not in b"".join(contents.values())
    assert contents["run/notebooks/00_demo.ipynb"].startswith(b'"/home/<removed: user>/x.py <removed: HF_TOKEN>')
    assert written.removed == {"HF_TOKEN": 3, "user": 1}


def test_what_is_no_report_is_left_out_and_named(made):
    assert made[1].left_out == {"weights.bin": "no report and no notebook"}


def test_what_is_read_is_what_was_written(made):
    out, written = made
    assert bundle.read(out)[0] == written


def test_a_folder_without_a_run_and_a_file_that_exists_are_refused(run, tmp_path):
    with pytest.raises(InputError, match=r"holds no result\.json"):
        bundle.make(tmp_path, [], REDACTOR, tmp_path / "x.zip")
    (tmp_path / "x.zip").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        bundle.make(run, [], REDACTOR, tmp_path / "x.zip")
    assert (tmp_path / "x.zip").read_text() == "mine"


def test_a_folder_that_is_not_there_is_refused_and_nothing_stays(run, tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        bundle.make(run, [], REDACTOR, tmp_path / "nowhere" / "x.zip")
    assert not list(tmp_path.glob("**/.x.zip*"))


def rewritten(out, change):
    """The bundle with other files: change(contents) gets them by name, with the manifest as a dict."""
    with zipfile.ZipFile(out) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents["manifest.json"] = json.loads(contents["manifest.json"])
    change(contents)
    contents["manifest.json"] = json.dumps(contents["manifest.json"])
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


def renamed(contents, name):
    """Give the first file another name, in the manifest too."""
    entry = contents["manifest.json"]["entries"][0]
    contents[name] = contents.pop(entry["name"])
    entry["name"] = name


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "run/../../evil", "run\\..\\evil", "elsewhere/evil"])
def test_a_name_that_leaves_the_folder_is_refused(made, name):
    rewritten(made[0], lambda contents: renamed(contents, name))
    with pytest.raises(InputError, match="not what its manifest says"):
        bundle.read(made[0])


def test_a_file_that_the_manifest_does_not_name_is_refused(made):
    rewritten(made[0], lambda contents: contents.update({"run/more.txt": b"more"}))
    with pytest.raises(InputError, match="not those that its manifest names"):
        bundle.read(made[0])


def test_another_content_of_the_same_size_is_refused(made):
    rewritten(made[0], lambda contents: contents.update({"run/result.json": b"[]"}))
    with pytest.raises(InputError, match="its digest is another one"):
        bundle.read(made[0])


def test_a_manifest_that_promises_another_size_is_refused(made):
    def change(contents):
        contents["run/result.json"] = b'{"a": 1}'
        digest = hashlib.sha256(contents["run/result.json"]).hexdigest()
        entry = next(each for each in contents["manifest.json"]["entries"] if each["name"] == "run/result.json")
        entry["sha256"] = digest

    rewritten(made[0], change)
    with pytest.raises(InputError, match="not what its manifest says"):
        bundle.read(made[0])


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x05\x06" + b"\0" * 18])
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(InputError, match=r"x\.zip: "):
        bundle.read(tmp_path / "x.zip")


def test_a_bundle_of_another_schema_says_which_version_made_it(made):
    rewritten(made[0], lambda contents: contents["manifest.json"].update(schema=99, xpulab="9.0"))
    with pytest.raises(InputError, match=r"made by xpulab 9\.0"):
        bundle.read(made[0])
