"""The table of tools says what each one used and compared, and names those that are not installed."""

from __future__ import annotations

import json
import sys

import nbformat
import peers
import pytest
from nbformat import v4
from processes import Measured


def measured(seconds=10.0, exit_code=0, left_behind=0, output=""):
    return Measured(exit_code, seconds, 2 * seconds, 100.0, left_behind, output)


@pytest.fixture
def job(tmp_path):
    """Two notebooks: a cell that is compared, one that is ignored, one without outputs."""
    shown = [v4.new_output("stream", text="1\n")]
    cells = [
        v4.new_code_cell("print(1)", outputs=shown),
        v4.new_code_cell("print(1)", outputs=shown, metadata={"tags": [peers.IGNORED]}),
        v4.new_code_cell("pass"),
    ]
    paths = tuple(tmp_path / name for name in ("01_one.ipynb", "02_two.ipynb"))
    for path in paths:
        nbformat.write(v4.new_notebook(cells=cells), path)
    return peers.Job(paths, 2)


def tool(name):
    return next(each for each in peers.TOOLS if each.name == name)


def test_nbval_compares_the_outputs_of_cells_that_are_not_ignored(job):
    assert peers.compared_by_nbval(job, "6 passed in 1.0s") == "outputs of 2 of 6 cells"


def test_nbval_says_how_many_cells_failed(job):
    assert "; 2 cells differ or raised" in peers.compared_by_nbval(job, "2 failed, 4 passed in 1.0s")


def test_xpulab_compares_checks_whose_control_it_rejected(job):
    (job.folder / "out").mkdir()
    notebooks = [{"controls_rejected": 3}, {"controls_rejected": 4}]
    (job.folder / "out" / "result.json").write_text(json.dumps({"notebooks": notebooks}))
    assert peers.compared_by_xpulab(job, "").startswith("7 checks, each with a control")


def test_a_run_of_xpulab_that_wrote_no_result_compared_nothing(job):
    assert peers.compared_by_xpulab(job, "").startswith("nothing")


def test_a_loop_runs_one_notebook_after_another(job):
    assert len(tool("papermill in a loop").commands("python", job)) == 2


@pytest.mark.parametrize("name", ["xpulab run", "nbmake -n", "nbval -n"])
def test_other_tools_get_all_notebooks_at_once(name, job):
    [command] = tool(name).commands("python", job)
    assert set(map(str, job.notebooks)) <= set(command)
    assert ("2" in command) == ("-n" in name)


def test_a_loop_is_added_up():
    whole = peers.added([measured(1.0), measured(2.0, exit_code=3), measured(4.0, left_behind=1)])
    assert (whole.seconds, whole.processor_seconds, whole.exit_code, whole.left_behind) == (7.0, 14.0, 3, 1)


def test_a_loop_with_a_timeout_is_a_timeout():
    assert peers.added([measured(exit_code=1), measured(exit_code=None)]).exit_code is None


def test_a_row_has_the_median_and_the_spread():
    row = peers.Row("demo", tuple(measured(seconds) for seconds in (3.0, 1.0, 2.0)), "only that no cell raises")
    table = peers.format_rows([row], [])
    assert "| demo | 2.0 (1.0 to 3.0) | 4.0 (2.0 to 6.0) | 100 | only that no cell raises | green |" in table


def test_a_tool_that_is_not_installed_is_named_with_its_command():
    assert "not installed" in peers.format_rows([], [tool("ploomber-engine in a loop")])
    assert "pip install ploomber-engine" in peers.format_rows([], [tool("ploomber-engine in a loop")])


def test_a_red_run_and_what_it_left_are_named():
    runs = [measured(), measured(exit_code=1), measured(exit_code=None, left_behind=2)]
    assert peers.format_result(runs) == "exit code 1, timeout in 2 of 3 runs; left 2 processes running"


def test_a_chapter_that_is_not_there_is_an_error():
    with pytest.raises(SystemExit, match="no notebook"):
        peers.chosen_notebooks("no-such-chapter")


def test_every_tool_gets_the_sections_of_level_quick_only(tmp_path):
    [copy] = peers.write_quick(peers.chosen_notebooks("16_tensors"), tmp_path)
    levels = {cell.metadata.get("xpulab", {}).get("level") for cell in nbformat.read(copy, as_version=4).cells}
    assert "quick" in levels and "standard" not in levels


@pytest.mark.integration
def test_a_tool_is_found_where_it_can_be_imported():
    assert peers.python_with(tool("nbval -n"), [sys.executable]) == sys.executable
