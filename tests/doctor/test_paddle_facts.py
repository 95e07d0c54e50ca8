"""Facts about Paddle are read correctly: a CPU build reports missing components as the string 'False'."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from xpulab.doctor.installation import installation
from xpulab.doctor.paddle_facts import PaddleFacts, loaded_twice, paddle_facts
from xpulab.doctor.probe import Probe, Step


class Version:
    full_version, commit = "3.3.0", "abc"

    def __init__(self, **stated: str) -> None:
        for name, value in stated.items():
            setattr(self, name, lambda value=value: value)


@pytest.fixture
def pretended(monkeypatch):
    """Puts a paddle of the given parts and number of XPUs in the place of the real one."""

    def put(xpu_cards: int, **stated: str) -> None:
        def cards(number):
            return type("Device", (), {"device_count": staticmethod(lambda: number)})

        paddle = type(sys)("paddle")
        paddle.version = Version(**stated)
        paddle.device = type("device", (), {"xpu": cards(xpu_cards), "cuda": cards(0)})
        paddle.is_compiled_with_xpu = lambda: xpu_cards > 0
        paddle.is_compiled_with_cuda = lambda: False
        monkeypatch.setitem(sys.modules, "paddle", paddle)

    return put


def test_false_as_a_string_is_absent(pretended):
    pretended(0, xpu="False", xpu_xre="False", xpu_xccl="False", xpu_xhpc="False", cuda="False")
    assert paddle_facts() == PaddleFacts(version="3.3.0", commit="abc", built_for="cpu")


def test_p800_build_states_its_runtime(pretended):
    pretended(8, xpu_xre="5.0.21.15", xpu_xccl="3.0.2.3", xpu_xhpc="dev/20250220")
    facts = paddle_facts()
    assert (facts.built_for, facts.xpu_cards, facts.xre, facts.xccl) == ("xpu", 8, "5.0.21.15", "3.0.2.3")


def test_kl2_build_states_its_runtime_under_another_name(pretended):
    pretended(1, xpu="20240104", xpu_xccl="1.1.8.1", xpu_xhpc="20240312")
    assert paddle_facts().xre == "20240104"


def test_paddle_that_is_not_installed_is_an_error_not_a_crash(monkeypatch):
    monkeypatch.setitem(sys.modules, "paddle", None)
    assert paddle_facts().error.startswith("ModuleNotFoundError: ")


LINE = "7f0000000000-7f0000001000 r-xp 00000000 08:01 1234    {}"
WHEEL, DRIVER = "/venv/paddle/libs", "/usr/local/xpu/lib64"


@pytest.mark.parametrize(
    ("paths", "twice"),
    [
        ((f"{WHEEL}/libxpurt.so.4", f"{DRIVER}/libxpurt.so.4"), True),
        ((f"{WHEEL}/libxpurt.so.4", f"{DRIVER}/libxpurt.so.5"), True),
        ((f"{WHEEL}/libxpurt.so.4", f"{WHEEL}/libxpurt.so.4"), False),
        ((f"{WHEEL}/libxpurt.so.4", f"{DRIVER}/libbkcl.so"), False),
        ((f"{WHEEL}/libstdc++.so.6", f"{DRIVER}/libstdc++.so.6"), False),
        (("[heap]", "/dev/xpu0"), False),
    ],
)
def test_a_library_of_the_card_from_two_folders_is_named_with_both(tmp_path, paths, twice):
    maps = tmp_path / "maps"
    maps.write_text("\n".join([*map(LINE.format, paths), "7f0000000000-7f0000001000 rw-p 00000000 00:00 0"]))
    assert loaded_twice(maps) == (tuple(sorted(paths)) if twice else ())


def test_this_process_has_loaded_nothing_of_a_card():
    assert loaded_twice(Path("/proc/self/maps")) == ()
    assert loaded_twice(Path("/proc/none/maps")) == ()


def test_the_doctor_calls_a_library_from_two_folders_wrong_and_says_what_to_do():
    facts = PaddleFacts(version="3.3.0", built_for="cpu", loaded_twice=(f"{DRIVER}/libxpurt.so", f"{WHEEL}/libxpurt.so"))
    probed = Probe((Step("import paddle", "ok", "1 s"),), facts)
    found = [each for each in installation("cpu", None, probed, []) if each.id == "libraries-loaded-twice"]
    assert [each.verdict for each in found] == ["wrong"]
    assert WHEEL in found[0].seen and DRIVER in found[0].seen and "LD_LIBRARY_PATH" in found[0].remedy
