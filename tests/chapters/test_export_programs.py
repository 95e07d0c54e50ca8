"""The committed programs of chapter 08, and formulas whose results are not finite or one step apart."""

from __future__ import annotations

import importlib.util

import numpy as np
import paddle
import pytest

from xpulab import files
from xpulab.chapters.export import export_attributes, export_programs
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


@pytest.mark.parametrize("name", export_attributes.FORMULAS)
def test_a_formula_gives_a_result_that_is_not_finite(name):
    for value in (float("nan"), float("inf")):
        result = export_attributes.eager(export_programs.Formula(export_attributes.FORMULAS[name](value)))
        assert not np.isfinite(result).all()


@pytest.mark.parametrize("name", export_attributes.EXACT)
def test_a_number_and_the_one_beside_it_differ_in_their_type(name):
    dtype, value, neighbour = export_attributes.EXACT[name]
    first, second = (export_attributes.eager(export_attributes.constant(dtype, each)) for each in (value, neighbour))
    assert str(first.dtype) == str(second.dtype) == dtype
    assert first.tobytes() == np.full([3, 8], value, dtype).tobytes() != second.tobytes()
