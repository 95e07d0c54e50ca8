"""What is installed is compared with what is supported; what cannot be compared is unknown, never wrong."""

from __future__ import annotations

import pytest

from xpulab.doctor.cards import Card, Reading
from xpulab.doctor.versions import SeveralFrameworks, require_one_framework, version_rows

NO_TOOL = Reading("xpu-smi", ("xpu-smi", "-q"), "missing", "xpu-smi is not on PATH")


def row_of(what, device, reading=NO_TOOL):
    return next(row for row in version_rows(device, reading) if row.what == what)


def reading_of(driver=None, firmware=()):
    cards = tuple(Card(index, "P800 OAM", "KL3", firmware=text) for index, text in enumerate(firmware))
    return Reading("xpu-smi", ("xpu-smi", "-q"), "ok", "", driver, cards)


@pytest.mark.parametrize(
    ("driver", "verdict"),
    [
        ("5.0.21.26", "ok"),
        ("5.0.21.100", "ok"),
        ("5.0.21.25", "warn"),
        ("5.0.21.20", "wrong"),
        ("4.33.0.0", "wrong"),
        ("515.58", "unknown"),
        ("N/A", "unknown"),
        (None, "unknown"),
    ],
)
def test_driver_is_compared_number_by_number(driver, verdict):
    assert row_of("XPU driver", "xpu", reading_of(driver)).verdict == verdict


@pytest.mark.parametrize(
    ("name", "version", "verdict"),
    [
        ("paddlepaddle", "3.3.1", "ok"),
        ("paddlepaddle", "3.3.0", "warn"),
        ("paddlepaddle", "3.2.2", "wrong"),
        ("paddlepaddle", "3.4.0", "wrong"),
        ("paddlenlp", "3.0.0b4", "ok"),
        ("paddlenlp", "2.8.1", "wrong"),
        ("numpy", "1.26.4", "ok"),
        ("numpy", "2.0.0", "wrong"),
        ("aistudio-sdk", "0.3.0", "wrong"),
        ("setuptools", "81.0.0", "wrong"),
        ("numpy", "not.a.version", "unknown"),
    ],
)
def test_packages_are_judged_by_their_pins(installed, name, version, verdict):
    installed({name: version})
    assert row_of(name, "cpu").verdict == verdict


@pytest.mark.parametrize(
    ("device", "version", "verdict"),
    [
        ("xpu", "3.10.13", "ok"),
        ("xpu", "3.11.7", "wrong"),
        ("cpu", "3.12.1", "ok"),
        ("cpu", "3.13.0", "wrong"),
    ],
)
def test_each_device_needs_its_releases_of_python(monkeypatch, device, version, verdict):
    monkeypatch.setattr("xpulab.doctor.versions.python_version", lambda: version)
    assert row_of("python", device).verdict == verdict


def test_two_wheels_of_paddle_are_refused_with_two_commands(installed):
    installed({"paddlepaddle": "3.3.1"})
    require_one_framework("cpu")
    installed({"paddlepaddle": "3.3.1", "paddlepaddle-xpu": "3.3.0"})
    with pytest.raises(SeveralFrameworks) as refused:
        require_one_framework("xpu")
    remove, install = refused.value.commands
    assert remove == "python -m pip uninstall --yes paddlepaddle paddlepaddle-xpu"
    assert install.startswith("python -m pip install 'paddlepaddle-xpu>=3.3.0,<=3.3.1' -i https://")
