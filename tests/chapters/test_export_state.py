"""The state of a program: named, set, saved and loaded, on the device and in the mode of before."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from xpulab.chapters.export import export_programs, export_state

X = export_programs.numbers(5, 8)


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    return export_state.observe(X, tmp_path_factory.mktemp("state") / "x")


def test_three_steps_are_those_of_eager_mode(seen):
    expected = export_state.eager_steps(seen.first, X)
    assert {name: value.tolist() for name, value in seen.moved.items()} == {
        name: pytest.approx(value, abs=1e-5) if value.ndim == 1 else [pytest.approx(row, abs=1e-5) for row in value]
        for name, value in expected.items()
    }


def test_what_was_set_is_read(seen):
    assert {float(each) for value in seen.taken.values() for each in value.ravel()} == {export_state.HALF}


def test_what_was_saved_is_loaded(seen):
    assert all(np.array_equal(seen.reloaded[name], value) for name, value in seen.saved.items())


def test_an_executor_runs_what_was_exported(seen):
    assert np.allclose(export_state.execute(seen.served, X), paddle.jit.load(str(seen.served))(paddle.to_tensor(X)).numpy())
    assert paddle.in_dynamic_mode()


def test_an_unknown_name_is_refused(seen):
    assert seen.refused[export_state.UNKNOWN]


def test_tensors_are_computed_at_once_afterwards(seen):
    assert paddle.in_dynamic_mode()
    assert paddle.to_tensor([1.0]).place.is_cpu_place()
