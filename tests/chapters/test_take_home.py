"""What a reader takes home: a script, its configuration and launch files."""

from __future__ import annotations

import subprocess

import pytest

from xpulab import files
from xpulab.chapters.shared import take_home
from xpulab.checks.ledger import ledger
from xpulab.errors import InputError

CODE = "def twice(x):\n    return 2 * x\n"


@pytest.fixture(autouse=True)
def scripts(tmp_path, monkeypatch):
    """A data folder with one script, and a notebook that has run no cell."""
    (tmp_path / "data" / "take_home").mkdir(parents=True)
    (tmp_path / "data" / "take_home" / "train.py").write_text(CODE)
    monkeypatch.setattr(files, "DATA", tmp_path / "data")
    monkeypatch.setattr(ledger, "sources", [])


def write(tmp_path, device):
    return {
        path.name: path.read_text()
        for path in take_home.write(tmp_path / "home", script="train", config={"x": 1}, device=device)
    }


@pytest.mark.parametrize("device", ["cpu", "gpu", "xpu"])
def test_a_shell_reads_the_launch_files(tmp_path, device):
    for name in write(tmp_path, device):
        if name.endswith(".sh"):
            subprocess.run(["bash", "-n", tmp_path / "home" / name], check=True, timeout=20)


def test_the_lines_for_xpu_name_its_cards_and_say_that_they_were_not_run(tmp_path):
    lines = write(tmp_path, "xpu")["launch-2-nodes.sh"]
    assert "export XPU_VISIBLE_DEVICES=0,1,2,3,4,5,6,7" in lines
    assert "--devices 0,1,2,3,4,5,6,7 --master $MASTER:8090 --nnodes 2 train.py config.json" in lines
    assert "have not run it on an XPU" in lines


def test_an_unknown_script_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(InputError, match="no script 'other' in data/take_home: choose one of train"):
        take_home.write(tmp_path, script="other", config={}, device="cpu")


def test_a_name_that_the_script_lacks_is_refused():
    def twice(x):
        return 2 * x

    ledger.sources += ["def twice(x):\n    return 2 * x"]
    with pytest.raises(InputError, match=r"train\.py defines no function or class 'twice_more'"):
        take_home.same_code(twice, "train", name="twice_more")
