"""env/requirements, environment.yml and the containers: one set of pins, the same for everybody."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from xpulab.files import ROOT

REQUIREMENTS = ROOT / "env" / "requirements"
LOCKS = ("common", "formers", "book")
PYTHONS = ("3.10.0", "3.10.13", "3.11.2", "3.12.1", "3.12.12")
FRAMEWORKS = {"cpu": "paddlepaddle==3.3.1", "gpu": "paddlepaddle-gpu==3.3.1", "xpu": "paddlepaddle-xpu>=3.3.0,<=3.3.1"}


def lines(name: str) -> list[str]:
    """A requirement file without comments."""
    text = re.sub(r"(^|\s)#.*", "", (REQUIREMENTS / name).read_text())
    return [line.strip() for line in text.splitlines() if line.strip()]


def asked_for(lock: str) -> list[str]:
    """What its .in file asks for, with the file that it includes."""
    own = lines(f"{lock}.in")
    shared = [line.removeprefix("-r ") for line in own if line.startswith("-r ")]
    return [line for line in own if not line.startswith("-r ")] + [line for name in shared for line in lines(name)]


def pins(lock: str, python: str) -> list[Requirement]:
    """What a lock installs on Linux for that Python."""
    environment = {
        **default_environment(),
        "python_version": ".".join(python.split(".")[:2]),
        "python_full_version": python,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
    }
    found = (Requirement(line.partition(" --hash=")[0]) for line in lines(f"{lock}.txt"))
    return [pin for pin in found if pin.marker is None or pin.marker.evaluate(environment)]


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("python", PYTHONS)
def test_each_package_has_exactly_one_version_and_what_we_ask_for_is_there(lock, python):
    found = pins(lock, python)
    assert [name for name, count in Counter(canonicalize_name(pin.name) for pin in found).items() if count > 1] == []
    assert [str(pin) for pin in found if not re.fullmatch("==[^*,]+", str(pin.specifier))] == []
    versions = {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in found}
    asked = {canonicalize_name(ask.name): ask for ask in map(Requirement, asked_for(lock))}
    assert sorted(asked.keys() - versions.keys()) == []
    assert [str(ask) for name, ask in asked.items() if not ask.specifier.contains(versions[name], prereleases=True)] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_each_pin_has_the_hashes_of_its_files(lock):
    assert [line for line in lines(f"{lock}.txt") if not re.search(r"( --hash=sha256:[0-9a-f]{64})+$", line)] == []
    assert re.search(r" --hash=sha256:[0-9a-f]{64}$", lines("cpu.txt")[-1])


@pytest.mark.parametrize("device", FRAMEWORKS)
def test_the_sets_differ_in_the_framework_and_its_index_only(device):
    index = [line for line in lines(f"{device}.txt") if line.startswith("--extra-index-url ")]
    assert [line.partition(" --hash=")[0] for line in lines(f"{device}.txt") if line not in index] == [FRAMEWORKS[device]]
    assert len(index) == (0 if device == "cpu" else 1)
    written = [line for lock in ("common", "formers") for line in (*asked_for(lock), *lines(f"{lock}.txt"))]
    assert [line for line in written if line.startswith("paddlepaddle")] == []


def test_make_venv_and_conda_users_get_the_same_set_on_the_same_pythons(make_venv):
    accepted = SpecifierSet(re.search('requires-python = "(.*)"', (ROOT / "pyproject.toml").read_text())[1])
    supported = [".".join(map(str, version)) for version in sorted(make_venv.SUPPORTED)]
    assert [f"3.{minor}" for minor in range(8, 20) if f"3.{minor}" in accepted] == supported
    text = (ROOT / "environment.yml").read_text()
    python, *rest = yaml.safe_load(text)["dependencies"]
    assert python.removeprefix("python=") in supported
    assert rest == ["pip", {"pip": ["-r env/requirements/common.txt", "-r env/requirements/cpu.txt"]}]
    ((major, minor),) = make_venv.SUPPORTED_FOR["xpu"]
    assert re.search(rf"xpu.txt .* with python={major}.{minor},", text)
