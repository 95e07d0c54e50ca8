"""A bundle says who made it: signed with an SSH key, verified with a file of signers, refused for every other one."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile

import pytest

from xpulab.errors import InputError
from xpulab.fleet import bundle, signature
from xpulab.fleet.redact import Redactor

pytestmark = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="there is no ssh-keygen (Debian: openssh-client)")


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Keys of ann and bob, and one with a passphrase; `signers` names ann, `expired` until 2020, `other-use` for git only."""
    folder = tmp_path_factory.mktemp("keys")
    for name, passphrase in (("ann", ""), ("bob", ""), ("locked", "word")):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", name, "-f", str(folder / name)]
        subprocess.run(command, check=True, timeout=30, stdin=subprocess.DEVNULL)
    public = (folder / "ann.pub").read_text()
    (folder / "signers").write_text(f"ann@site {public}")
    (folder / "expired").write_text(f'ann@site valid-before="20200101" {public}')
    (folder / "other-use").write_text(f'ann@site namespaces="git" {public}')
    return folder


@pytest.fixture
def run(tmp_path):
    """The folder of a run."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "result.json").write_text(json.dumps({"node": "node17", "outcome": "passed"}))
    return tmp_path / "run"


def written(run, key=None):
    """The file of its bundle."""
    out = run.with_suffix(".zip")
    bundle.write(bundle.collect(run, [], Redactor({})), out, key)
    return out


def examined(path, signers=None):
    bundle.read(path)
    return signature.examine(*bundle.signed(path), signers)


def change(path, name, edit):
    """Replace the content of one file of a bundle."""
    with zipfile.ZipFile(path) as archive:
        contents = {each: archive.read(each) for each in archive.namelist()}
    contents[name] = edit(contents[name])
    with zipfile.ZipFile(path, "w") as archive:
        for each, content in contents.items():
            archive.writestr(each, content)


def test_a_signed_bundle_names_its_signer(run, keys):
    found = examined(written(run, keys / "ann"), keys / "signers")
    assert (found.outcome, found.signer) == ("valid", "ann@site") and "SHA256:" in found.key


def test_without_signers_it_names_the_key_and_without_a_signature_it_says_so(run, keys, tmp_path):
    assert examined(written(run)).outcome == "none"
    run.with_suffix(".zip").unlink()
    found = examined(written(run, keys / "ann"))
    assert (found.outcome, found.signer) == ("unverified", "") and "--signers" in found.format() and "SHA256:" in found.format()


@pytest.mark.parametrize(
    ("key", "signers", "reason"),
    [
        (None, "signers", "not signed"),
        ("bob", "signers", "names nobody"),
        ("ann", "expired", "names nobody"),
        ("ann", "other-use", "does not allow ann@site"),
    ],
)
def test_what_none_of_the_signers_signed_is_refused(run, keys, key, signers, reason):
    found = examined(written(run, key and keys / key), keys / signers)
    assert found.outcome == "refused" and reason in found.reason


@pytest.mark.parametrize("signers", [None, "signers"])
def test_a_changed_byte_of_the_manifest_is_refused(run, keys, signers):
    path = written(run, keys / "ann")
    change(path, bundle.MANIFEST, lambda content: content.replace(b"node17", b"node18"))
    found = examined(path, signers and keys / signers)
    assert found.outcome == "refused" and "does not fit" in found.reason


def test_a_changed_byte_of_a_file_is_refused_by_its_digest(run, keys):
    path = written(run, keys / "ann")
    change(path, "run/result.json", lambda content: content.replace(b"passed", b"Passed"))
    with pytest.raises(InputError, match=r"run/result.json is damaged"):
        examined(path, keys / "signers")


def test_a_signature_of_another_use_of_the_key_is_refused(run, keys, tmp_path):
    path = written(run, keys / "ann")
    manifest = tmp_path / "manifest"
    manifest.write_bytes(bundle.signed(path)[0])
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-n", "git", "-f", keys / "ann", manifest], check=True, timeout=30)
    change(path, bundle.SIGNATURE, lambda _: manifest.with_name("manifest.sig").read_bytes())
    assert examined(path, keys / "signers").outcome == "refused"


def test_a_signature_that_is_none_is_refused(run, keys):
    path = written(run, keys / "ann")
    change(path, bundle.SIGNATURE, lambda _: b"no signature")
    assert examined(path, keys / "signers").outcome == "refused"


@pytest.mark.parametrize(
    ("key", "message"), [("nobody", "ssh-keygen -t ed25519"), ("locked", "passphrase"), ("signers", "cannot sign")]
)
def test_a_key_that_cannot_sign_is_named_and_nothing_is_written(run, keys, key, message):
    with pytest.raises(InputError, match=message) as raised:
        written(run, keys / key)
    assert str(keys / key) in str(raised.value) and not run.with_suffix(".zip").exists()


def test_a_file_of_signers_that_is_not_there_is_named(run, keys):
    path = written(run, keys / "ann")
    with pytest.raises(InputError, match=r"nowhere.*ssh-ed25519"):
        examined(path, keys / "nowhere")
