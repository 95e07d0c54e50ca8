"""The committed programs of chapter 08, and formulas whose results are not finite or one step apart."""

from __future__ import annotations

import importlib.util

import paddle
import pytest

from xpulab import files
from xpulab.chapters.export.export_programs import SAMPLES, written

RELEASES = ["3.0.0", "3.1.0", "3.2.0", "3.3.1"]


def test_programs_of_four_releases_are_there_with_their_digests():
    found = written()
    assert list(found) == RELEASES
    for each in found.values():
        assert each.found_digests() == each.digests
        assert set(each.results) == set(SAMPLES)


def test_the_script_writes_the_committed_programs_of_this_release_again(tmp_path):
    """In a process of its own the bytes are the same; here the names of layers are counted on."""
    spec = importlib.util.spec_from_file_location("make_programs", files.DATA / "make_programs.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.make(tmp_path)
    committed = files.DATA / "programs" / paddle.__version__
    if not committed.is_dir():
        pytest.skip(f"no programs of Paddle {paddle.__version__} are committed")
    names = sorted(each.name for each in committed.iterdir())
    assert sorted(each.name for each in (tmp_path / paddle.__version__).iterdir()) == names
    for name in (each for each in names if each.endswith(".pdiparams")):
        assert (tmp_path / paddle.__version__ / name).read_bytes() == (committed / name).read_bytes(), name
