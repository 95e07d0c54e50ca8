"""The JSON form of a program is read without Paddle, and damaged copies of its files are what their names say."""

from __future__ import annotations

import json

import pytest

from xpulab import files
from xpulab.chapters.export import export_damage, export_files

PATH = files.DATA / "programs" / "3.3.1" / "loop"


def test_operators_of_inner_blocks_follow_their_own():
    found = export_files.read(PATH)
    assert found.operators.index("pd_op.while") < found.operators.index("pd_op.if") < found.operators.index("pd_op.tanh")
    assert found.operators[-1] == "pd_op.fetch"


def test_weights_and_inputs_have_their_names_and_shapes():
    found = export_files.read(PATH)
    assert sorted(found.parameters) == ["linear_0.b_0", "linear_0.w_0"]
    assert found.inputs == {"input_0": (-1, 8), "input_1": (1,)}


@pytest.mark.parametrize(("release", "version"), [("3.0.0", 1), ("3.1.0", 2), ("3.2.0", 3), ("3.3.1", 4)])
def test_the_version_of_the_format_is_that_of_the_release(release, version):
    assert export_files.read(files.DATA / "programs" / release / "perceptron").version == version


def test_infinity_is_a_text():
    values = [each["value"] for each in export_files.attributes(PATH.with_name("infinity"), "pd_op.full")]
    assert "INF" in values


def test_another_json_file_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ValueError, match="is no program"):
        export_files.read(tmp_path / "x")


def test_programs_are_compared_without_the_names_of_layers(tmp_path):
    path = PATH.with_name("perceptron")
    text = path.with_suffix(".json").read_text()
    (tmp_path / "x.json").write_text(text.replace('"/LayerNorm/"', '"/LayerNorm_7/"'))
    assert (tmp_path / "x.json").read_text() != text
    assert export_files.without_layer_names(tmp_path / "x") == export_files.without_layer_names(path)


@pytest.mark.parametrize("name", export_damage.ALL)
def test_every_damage_changes_a_file(name):
    path = PATH.with_name("perceptron")
    whole = export_damage.read(path)
    other = whole.weights[::-1]
    assert export_damage.ALL[name](whole.program, whole.weights, other) != whole


def test_a_missing_file_is_not_written(tmp_path):
    export_damage.write(export_damage.Files(None, b"x"), tmp_path / "x")
    assert [each.name for each in tmp_path.iterdir()] == ["x.pdiparams"]


def test_the_version_of_the_future_is_still_json():
    whole = export_damage.read(PATH)
    changed = export_damage.ALL["version of the future"](whole.program, whole.weights, b"")
    assert json.loads(changed.program)["base_code"]["version"] == 99
