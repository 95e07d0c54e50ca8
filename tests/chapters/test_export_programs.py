"""The small layers of chapter 17: the same in each release, exported without a change of the layer."""

from __future__ import annotations

import importlib.util

import numpy as np
import paddle
import pytest

from xpulab import files
from xpulab.chapters.export import export_attributes, export_programs
from xpulab.chapters.export.export_programs import SAMPLES, compute, export, with_fixed_weights, written

RELEASES = ["3.0.0", "3.1.0", "3.2.0", "3.3.1"]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_has_the_same_weights_each_time(name):
    first, second = (SAMPLES[name].make().state_dict() for _ in range(2))
    assert list(first) == list(second)
    assert all((first[each].astype("float32").numpy() == second[each].astype("float32").numpy()).all() for each in first)


def test_weights_differ_from_each_other():
    layer = with_fixed_weights(export_programs.Attention())
    assert not np.array_equal(layer.query.weight.numpy(), layer.key.weight.numpy())


def test_an_export_leaves_the_layer_in_eager_mode(tmp_path):
    layer = SAMPLES["perceptron"].make()
    forward = layer.forward.__func__
    export(layer, tmp_path / "x", SAMPLES["perceptron"].specs)
    assert layer.forward.__func__ is forward


def test_bfloat16_results_are_widened():
    x = np.ones([2, 8], "float32")
    assert compute(lambda given: given.astype("bfloat16"), [x]).dtype == np.float32


def test_two_branches_are_loaded_from_files_of_their_own(tmp_path):
    branches, x = with_fixed_weights(export_programs.TwoBranches()), paddle.ones([3, 8])
    paddle.jit.save(branches, str(tmp_path / "x"))
    assert np.array_equal(export_programs.hidden_of(str(tmp_path / "x"), x), branches.eager(x).numpy())


def test_files_that_cannot_be_loaded_give_nan(tmp_path):
    paddle.jit.save(with_fixed_weights(export_programs.TwoBranches()), str(tmp_path / "x"))
    weights = tmp_path / "x.hidden.pdiparams"
    weights.write_bytes(weights.read_bytes() + b"more")
    assert np.isnan(export_programs.hidden_of(str(tmp_path / "x"), paddle.ones([3, 8]))).all()


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


def test_kinds_name_what_is_not_finite():
    found = np.array([[1.0, np.nan, np.inf, -np.inf]])
    assert export_attributes.kinds(found) == [["finite", "NaN", "+inf", "-inf"]]
    assert export_attributes.kinds(export_attributes.REFUSED) == "refused"


@pytest.mark.parametrize("name", export_attributes.EXACT)
def test_a_number_and_the_one_beside_it_differ_in_their_type(name):
    dtype, value, neighbour = export_attributes.EXACT[name]
    first, second = (export_attributes.eager(export_attributes.constant(dtype, each)) for each in (value, neighbour))
    assert str(first.dtype) == str(second.dtype) == dtype
    assert first.tobytes() == np.full([3, 8], value, dtype).tobytes() != second.tobytes()
