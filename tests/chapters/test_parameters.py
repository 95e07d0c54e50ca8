"""A parameter that a chapter does not take, or a value that does not fit, is an error that says so."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import IPython
import pytest

from tests.conftest import make, save
from xpulab.chapters.shared.parameters import check_parameters
from xpulab.errors import InputError

RIGHT = {"device": "auto", "level": "quick", "cards": 1, "seed": 0}
DEFAULTS = 'device = "auto"  # or cpu\nlevel = "quick"\ncards = 1\nseed = 0\nrate = None\nlimit = 2\nmodel = "tiny"'


@pytest.fixture
def notebook(monkeypatch):
    """notebook("name = 1", **values): this process is a kernel where papermill has injected that."""

    def run(*injected, **values):
        cells = ["", DEFAULTS, *(f"# Parameters\n{cell}\n" for cell in injected), "use_device(device, cards)"]
        shell = SimpleNamespace(user_ns={**RIGHT, **values, "In": cells})
        monkeypatch.setattr(IPython, "get_ipython", lambda: shell)

    return run


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"device": "xyz"}, "no device 'xyz': choose auto"),
        ({"level": "quik"}, "no level 'quik': choose smoke, quick, standard"),
        ({"cards": -1}, "cards = -1: give a whole number from 1"),
        ({"cards": "two"}, "cards = 'two'"),
        ({"cards": True}, "cards = True"),
        ({"seed": -1}, "seed = -1: give a whole number from 0"),
        ({"seed": 0.5}, "seed = 0.5"),
    ],
)
def test_a_wrong_value_is_named(notebook, values, said):
    notebook(**values)
    with pytest.raises(InputError, match=said):
        check_parameters()


@pytest.mark.parametrize(
    ("injected", "said"),
    [
        ('levle = "smoke"', r"unknown parameter 'levle', 'level' was probably meant: this notebook takes device, level, cards"),
        ("zzz = 1", r"unknown parameter 'zzz': this notebook takes"),
        ('limit = "two"', r"limit = 'two': give a value like the default, 2"),
        ("model = 3", r"model = 3: give a value like the default, 'tiny'"),
        ("limit = True", r"limit = True"),
    ],
)
def test_what_papermill_injects_is_compared_with_the_defaults(notebook, injected, said):
    notebook(injected)
    with pytest.raises(InputError, match=said):
        check_parameters()


def test_a_notebook_of_a_reader_has_parameters_of_its_own(notebook, monkeypatch):
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(user_ns={"level": 3, "In": []}))
    check_parameters()
    monkeypatch.setattr(IPython, "get_ipython", lambda: None)
    check_parameters()


@pytest.mark.integration
def test_plain_papermill_fails_at_the_first_cell(tmp_path):
    uses = "from xpulab.chapters.shared.device import use_device\nuse_device(device, cards)"
    save(make(uses, parameters=DEFAULTS, ends=False), tmp_path / "a.ipynb")
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", "a.ipynb", "b.ipynb", "-p", "levle", "smoke"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode != 0 and "unknown parameter 'levle'" in done.stderr
