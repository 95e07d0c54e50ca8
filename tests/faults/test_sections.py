"""What a check depends on is kept, what it does not depend on is left out; in doubt a statement is kept."""

from __future__ import annotations

from functools import cache

import nbformat
import pytest

from xpulab import files
from xpulab.faults import CATALOGUE
from xpulab.faults.sections import sliced
from xpulab.records.planned import planned_checks

SET_UP = (
    "seed = 0",
    "import numpy as np\nimport paddle\nimport shutil\nfrom pathlib import Path\nhere = use_device('cpu', 1)\nwork = Path('w')",
)
CHECK = 'check.equal("demo.end", wanted, 1, control=2)'


def kept(*cells, check="demo.end"):
    """The statements that are left of these cells, which stand between the set-up and a check of `wanted`."""
    sources = (*SET_UP, *cells, CHECK)
    return list(filter(None, sliced(sources, frozenset({check})).sources[2:-1]))


def test_the_cell_with_the_check_is_kept():
    assert sliced((*SET_UP, "wanted = 1", CHECK), frozenset({"demo.end"})).sources[-1] == CHECK


def test_what_is_not_needed_is_left_out():
    assert kept("unused = 2", "wanted = 1") == ["wanted = 1"]


def test_of_a_cell_only_what_is_needed_is_kept():
    assert kept('check.equal("demo.other", 1, 1, control=2)\nwanted = 1\nunused = 2') == ["wanted = 1"]


def test_what_comes_after_the_check_is_left_out():
    assert sliced((*SET_UP, "wanted = 1", CHECK, "wanted = 2"), frozenset({"demo.end"})).sources[-1] == ""


def test_each_cell_keeps_its_place():
    assert sliced((*SET_UP, "unused = 2", "wanted = 1", CHECK), frozenset({"demo.end"})).sources[2:4] == ("", "wanted = 1")


def test_parameters_and_set_up_are_kept_whole():
    assert sliced((*SET_UP, "wanted = 1", CHECK), frozenset({"demo.end"})).sources[:2] == SET_UP


def test_a_check_that_no_cell_holds_is_refused():
    with pytest.raises(ValueError, match=r"no cell holds demo\.nowhere"):
        sliced(SET_UP, frozenset({"demo.nowhere"}))


def test_a_skip_of_the_check_elsewhere_is_kept():
    assert kept('wanted = 1\nif wanted > 1:\n    check.skip("demo.end", "too many")')[0].endswith(
        'check.skip("demo.end", "too many")'
    )


def test_the_names_that_were_cut_away_are_told():
    cut = sliced((*SET_UP, "unused = 2\nwanted = 1", CHECK), frozenset({"demo.end"})).cut
    assert cut == {"unused"}


# ------------------------------------------------------------------------------------------------------- names and values


@pytest.mark.parametrize(
    "binds",
    [
        "wanted = 1",
        "wanted: int = 1",
        "wanted, other = 1, 2",
        "[*wanted] = [1]",
        "for wanted in [1]:\n    pass",
        "with open('x') as wanted:\n    pass",
        "print(wanted := 1)",
        "if here:\n    wanted = 1",
        "try:\n    pass\nexcept ValueError as wanted:\n    pass",
        "def wanted():\n    pass",
        "@np.vectorize\ndef wanted(x):\n    pass",
        "class wanted:\n    pass",
        "import wanted",
        "from somewhere import thing as wanted",
        "match here:\n    case [wanted]:\n        pass",
    ],
)
def test_whatever_binds_the_name_is_kept(binds):
    assert kept(binds) == [binds]


def test_a_value_that_is_overwritten_is_left_out():
    assert kept("wanted = expensive()", "wanted = 1") == ["wanted = 1"]


def test_a_value_that_may_be_overwritten_is_kept():
    assert kept("wanted = 1", "if here:\n    wanted = 2") == ["wanted = 1", "if here:\n    wanted = 2"]


def test_a_value_that_both_branches_overwrite_is_left_out():
    both = "if here:\n    wanted = 1\nelse:\n    wanted = 2"
    assert kept("wanted = expensive()", both) == [both]


def test_an_earlier_value_that_was_used_in_between_is_kept():
    assert kept("x = 1", "wanted = x", "x = 2") == ["x = 1", "wanted = x"]


def test_an_augmented_assignment_keeps_what_it_adds_to():
    assert kept("wanted = 1", "wanted += 1") == ["wanted = 1", "wanted += 1"]


def test_the_variable_of_a_comprehension_is_no_name_of_the_notebook():
    assert kept("x = expensive()", "wanted = [x for x in range(3)]") == ["wanted = [x for x in range(3)]"]


def test_what_a_comprehension_runs_over_is_kept():
    assert kept("x = [1]", "wanted = [each for each in x]") == ["x = [1]", "wanted = [each for each in x]"]


def test_a_parameter_is_no_name_of_the_notebook():
    assert kept("x = expensive()", "wanted = (lambda x: x)(1)") == ["wanted = (lambda x: x)(1)"]


def test_a_variable_of_a_loop_is_bound_in_its_body():
    loop = "wanted = []\nfor x in range(3):\n    wanted.append(x)"
    assert kept("x = expensive()", loop) == [loop]


# -------------------------------------------------------------------------------------------------------------- functions


def test_a_function_keeps_what_its_body_uses():
    cells = ["x = 1", "def f():\n    return x", "wanted = f()"]
    assert kept(*cells) == cells


def test_functions_in_functions_are_followed():
    cells = ["x = 1", "def g():\n    return x", "def f():\n    return g()", "wanted = f()"]
    assert kept(*cells) == cells


def test_what_a_function_uses_may_be_bound_after_it():
    cells = ["def f():\n    return g()", "def g():\n    return 1", "wanted = f()"]
    assert kept(*cells) == cells


def test_what_a_function_uses_may_be_bound_anew_between_its_calls():
    cells = ["x = [1]", "def f():\n    return x", "x = [2]", "wanted = f()"]
    assert kept(*cells) == cells[1:]


def test_the_methods_of_a_class_are_followed():
    cells = ["x = 1", "class C:\n    def f(self):\n        return x", "wanted = C().f()"]
    assert kept(*cells) == cells


def test_a_method_that_is_added_later_is_kept():
    cells = ["class C:\n    pass", "def f(self):\n    return 1", "C.f = f", "wanted = C().f()"]
    assert kept(*cells) == cells


def test_a_table_of_functions_is_followed():
    cells = ["def f():\n    return x", "table = {'f': f}", "x = 1", "wanted = table['f']()"]
    assert kept(*cells) == cells


# ---------------------------------------------------------------------------------------------------------------- changes


@pytest.mark.parametrize(
    "changes",
    [
        "wanted.append(1)",
        "wanted[0] = 1",
        "wanted.x = 1",
        "del wanted[0]",
        "fill(wanted)",
        "np.add.at(wanted, 0, 1)",
        "first = wanted.pop()",
        "result = wanted.train()",
        "for each in wanted:\n    each.clear()",
        "alias = wanted\nalias.clear()",
        "def f():\n    wanted.clear()\nf()",
        "def f(x):\n    x.clear()\nanswer = f(wanted)",
        "def f(x):\n    y = Wrapper(x)\n    y.train()\n    return y\nanswer = f(wanted)",
        "def f():\n    wanted.clear()\nanswer = list(map(f, [1]))",
        "optimizer = AdamW(parameters=wanted.parameters())\noptimizer.step()",
        "Trainer(wanted).train()",
    ],
)
def test_what_may_change_the_object_is_kept(changes):
    assert kept("wanted = start()", changes) == ["wanted = start()", changes]


@pytest.mark.parametrize(
    "reads", ["print(wanted)", "figures.curves(wanted)", "y = len(wanted)", "y = wanted.mean()", "y = f(wanted)"]
)
def test_what_only_reads_the_object_is_left_out(reads):
    assert kept("def f(x):\n    return x + 1", "wanted = start()", reads) == ["wanted = start()"]


@pytest.mark.parametrize(
    "lasts",
    [
        "paddle.seed(0)",
        "np.random.seed(seed)",
        "paddle.set_flags({'x': 1})",
        "paddle.save = print",
        "np.lib.x['y'] = 1",
        "%env X=1",
        "!touch x",
    ],
)
def test_what_changes_the_process_is_kept(lasts):
    assert len(kept(lasts, "wanted = 1")) == 2


def test_what_changes_the_process_after_the_check_is_left_out():
    assert sliced((*SET_UP, "wanted = 1", CHECK, "paddle.seed(0)"), frozenset({"demo.end"})).sources[-1] == ""


# ------------------------------------------------------------------------------------------------------------------ files


def test_a_file_keeps_what_wrote_it():
    cells = ["paddle.save({}, str(work / 'x'))", "wanted = paddle.load(str(work / 'x'))"]
    assert kept(*cells) == cells


def test_another_file_in_the_same_folder_is_left_out():
    assert kept("paddle.save({}, str(work / 'y'))", "wanted = paddle.load(str(work / 'x'))") == [
        "wanted = paddle.load(str(work / 'x'))"
    ]


def test_a_file_under_a_name_that_varies_may_be_any_file():
    cells = ["for name in 'xy':\n    paddle.save({}, str(work / name))", "wanted = paddle.load(str(work / 'x'))"]
    assert kept(*cells) == cells


def test_what_a_function_writes_is_followed():
    cells = ["def f(path):\n    paddle.save({}, str(path))", "done = f(work / 'x')", "wanted = paddle.load(str(work / 'x'))"]
    assert kept(*cells) == cells


def test_what_ranks_write_is_followed():
    cells = [
        "def f(path):\n    paddle.save({}, path)",
        "path = work / 'x'",
        "ranks.run(f, 2, path)",
        "wanted = paddle.load(path)",
    ]
    assert kept(*cells) == cells


def test_what_ranks_do_in_their_memory_is_left_out():
    cells = ["def f(x):\n    x.clear()", "ranks.run(f, 2, wanted)"]
    assert kept("wanted = [1]", *cells) == ["wanted = [1]"]


# ------------------------------------------------------------------------------------------------------ the real notebooks


@cache
def sources_of(name):
    notebook = nbformat.read(files.NOTEBOOKS / f"{name}.ipynb", as_version=4)
    return tuple(cell.source for cell in notebook.cells if cell.cell_type == "code")


NOTEBOOKS = sorted(path.stem for path in files.NOTEBOOKS.glob("*.ipynb"))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_slice_of_a_check_holds_the_check(name):
    for check in planned_checks(sources_of(name), name):
        left = sliced(sources_of(name), frozenset({check.name})).sources
        assert check.name in {each.name for each in planned_checks(left, name)}, check.name


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_slice_needs_all_of_itself(name):
    for checks in {frozenset(fault.seen_by) for fault in CATALOGUE if fault.notebook == name}:
        left = sliced(sources_of(name), checks).sources
        assert sliced(left, checks).sources == left, checks


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_slice_of_all_checks_holds_all_checks(name):
    checks = frozenset(check.name for check in planned_checks(sources_of(name), name))
    assert {each.name for each in planned_checks(sliced(sources_of(name), checks).sources, name)} == checks


def test_most_faults_need_less_than_half_of_their_notebook():
    shares = []
    for fault in CATALOGUE:
        cells = sources_of(fault.notebook)
        shares.append(sum(map(bool, sliced(cells, frozenset(fault.seen_by)).sources)) / len(cells))
    assert sorted(shares)[len(shares) // 2] < 0.5
