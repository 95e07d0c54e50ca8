"""Environments that do not work, broken in the ways that people meet: the doctor names the cause and the command that fixes it.

Packages and libraries are really missing, truncated or of another release, so that the messages are the real ones. Only the
line of an XPU runtime without a card, an import that hangs and the vendor's tool are made up: see the tests.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from xpulab import files

pytestmark = pytest.mark.environments

REINSTALL = "python -m pip install paddlepaddle==3.3.1 --force-reinstall --no-deps"


def renamed(library, name, other):
    """Make a library ask for another one than it does; the names are equally long, or the new one is shorter."""
    wanted, given = name.encode() + b"\0", other.encode().ljust(len(name), b"\0") + b"\0"
    content = library.read_bytes()
    assert wanted in content and len(wanted) == len(given)
    library.write_bytes(content.replace(wanted, given))


def cut(library, size):
    library.write_bytes(library.read_bytes()[:size])


def mixed(environment):
    library = environment.library("libcommon.so")
    library.write_bytes((library.parent / "libphi.so").read_bytes())


def numpy_of_another_python(environment):
    for library in environment.own("numpy/core").glob("*.cpython-*"):
        python = f"cpython-3{sys.version_info.minor}"
        library.rename(library.with_name(library.name.replace(python, "cpython-39")))


def without_download(environment):
    """As aistudio-sdk 0.3 does."""
    module = environment.own("aistudio_sdk/hub.py")
    module.write_text(module.read_text(encoding="utf-8").replace("def download", "def download_of_0_2"))


def home_that_is_not_writable(environment):
    """As every user's permissions have no effect on root, it is a folder in which not even root can make one."""
    environment.variables["HOME"] = "/proc"


BROKEN = {
    "libpaddle.so is missing": (
        lambda environment: environment.remove("paddle/base/libpaddle.so"),
        "libpaddle-missing",
        REINSTALL,
    ),
    "a library of the wheel is missing": (
        lambda environment: environment.library("libphi_core.so").unlink(),
        "paddle-library",
        REINSTALL,
    ),
    "libgomp of the system is missing": (  # .so.1 is installed here
        lambda environment: renamed(environment.library("libcommon.so"), "libgomp.so.1", "libgomp.so.7"),
        "libgomp",
        "apt-get install libgomp1",
    ),
    "a library is empty": (
        lambda environment: cut(environment.library("libcommon.so"), 0),
        "library-truncated",
        f"df -h . && {REINSTALL} --no-cache-dir",
    ),
    "a library is half there": (
        lambda environment: cut(environment.library("libcommon.so"), 300_000),
        "import-crashed",
        f"{REINSTALL} --no-cache-dir",
    ),
    "libraries of two wheels are mixed": (mixed, "paddle-mixed-libraries", "python -m pip uninstall --yes paddlepaddle "),
    "numpy is for another Python": (
        numpy_of_another_python,
        "numpy-other-python",
        "unset PYTHONPATH; python -m pip install --force-reinstall --no-deps 'numpy>=1.26,<2'",
    ),
    "setuptools is missing": (
        lambda environment: environment.remove("setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence.pth"),
        "setuptools-missing",
        "python -m pip install 'setuptools<81'",
    ),
    "protobuf is too old": (
        lambda environment: environment.remove("google/protobuf/internal/builder.py"),
        "protobuf",
        "python -m pip install --force-reinstall --no-deps 'protobuf>=3.20.2'",
    ),
    "paddlenlp is missing": (
        lambda environment: environment.remove("paddlenlp"),
        "paddlenlp-missing",
        "python -m pip install paddlenlp==3.0.0b4",
    ),
    "aistudio-sdk is 0.3": (without_download, "aistudio-sdk", "python -m pip install 'aistudio-sdk<0.3'"),
    "the home folder is not writable": (home_that_is_not_writable, "cache-not-writable", "export HOME=$(mktemp -d)"),
}


def test_a_copy_that_is_not_broken_is_healthy(environment):
    diagnosed = environment.doctor("--device", "cpu")
    assert (diagnosed.code, [thing for thing in diagnosed.things if thing["verdict"] != "ok"]) == (0, [])


@pytest.mark.parametrize(("broken", "known", "command"), BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_imported_leads_to_its_remedy(environment, broken, known, command):
    broken(environment)
    diagnosed = environment.doctor()
    found = diagnosed.find(known)
    assert (diagnosed.code, found["verdict"]) == (1, "wrong")
    assert found["seen"].startswith("import paddle") and found["cause"] and found["remedy"].startswith(command)


def empty_library(folder, name):
    """A folder that has an empty file in the place of a library."""
    folder.mkdir()
    (folder / name).write_text("")
    return str(folder)


def numpy_that_is_another_program(folder):
    folder.mkdir()
    (folder / "numpy.py").write_text("raise ImportError('this numpy is for another program')\n")
    return f"{folder}:{files.ROOT}"


BEFORE = {
    "LD_LIBRARY_PATH": lambda folder: empty_library(folder, "libgomp.so.1"),
    "PYTHONPATH": numpy_that_is_another_program,
}


@pytest.mark.parametrize("variable", BEFORE)
def test_what_a_variable_puts_before_the_environment_is_not_mended_by_an_installation(environment, variable, tmp_path):
    environment.variables[variable] = BEFORE[variable](tmp_path / "elsewhere")
    diagnosed = environment.doctor()
    found = diagnosed.find("paddle")
    assert (diagnosed.code, found["verdict"]) == (1, "wrong")
    assert f"without {variable} it works" in found["seen"] and found["remedy"].startswith(f"unset {variable}")
    assert not any("install" in (thing["remedy"] or "") or "rm -rf" in (thing["remedy"] or "") for thing in diagnosed.things)


def test_a_plug_in_of_another_vendor_that_ends_the_import_is_named(environment, tmp_path):
    environment.variables["CUSTOM_DEVICE_ROOT"] = empty_library(tmp_path / "plugins", "libpaddle-custom-npu.so")
    diagnosed = environment.doctor()
    found = diagnosed.find("foreign-plugin")
    assert diagnosed.code == 1 and "libpaddle-custom-npu.so" in found["seen"]
    assert found["remedy"].startswith("unset CUSTOM_DEVICE_ROOT") and "pip uninstall paddle-custom-npu" in found["remedy"]


def test_an_import_that_hangs_is_ended_and_its_place_is_shown(environment):
    environment.before("paddle/version/__init__.py", "import threading; threading.Event().wait()")
    diagnosed = environment.doctor("--timeout", "2")
    found = diagnosed.find("import-hung")
    assert (diagnosed.code, found["id"]) == (1, "paddle")
    assert "it did not end within 2 s" in found["seen"] and "paddle/version/__init__.py" in found["seen"]


CARDS = {
    "computes a wrong value": ("flip copy kind=d2h card=0 n=1 bit=30", (), "card-computation", "differ from numpy's"),
    "is lost": ("lose task card=0 n=1", (), "card-computation", "raised"),
    "ends the process": ("drop task card=0 n=1", (), "card-computation", "the process ended with status 113"),
    "hangs": ("hang task card=0 n=1", ("--timeout", "5"), "card-hung", "it did not end within 5 s"),
}


@pytest.mark.parametrize(("fault", "options", "known", "seen"), CARDS.values(), ids=CARDS)
def test_a_card_that_fails_is_named_and_the_next_one_is_tried(environment, fault, options, known, seen):
    environment.python = Path(sys.executable)  # nothing of it is broken, and the simulated cards are built for it already
    environment.variables["XPULAB_SIM_FAULTS"] = fault
    diagnosed = environment.doctor("--device", "sim", *options)
    found = diagnosed.find(known)
    assert (diagnosed.code, found["id"], found["seen"].startswith("sim:0: a computation ")) == (1, "card", True)
    assert seen in found["seen"]
    assert [thing["seen"] for thing in diagnosed.things if thing.get("id") == "card" and thing["verdict"] == "ok"] == [
        "the computation is right on sim:1"
    ]
