"""What the search draws is right on this machine, what is wrong is found, made smaller and written as a program of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import paddle
import pytest

from xpulab.errors import InputError
from xpulab.records.record import RED
from xpulab.search import loop
from xpulab.search.cases import searched
from xpulab.search.program import traced

CASE = {"check": "numerics.functions", "labels": {"function": "exp", "shape": "(4097,)"}, "seed": 3}


@pytest.fixture(scope="module")
def grids():
    return {grid.check: grid for grid in searched("cpu", "*")}


def test_each_grid_draws_cases_and_none_is_wrong_here(grids):
    rng, names = np.random.default_rng(0), set()
    for grid in grids.values():
        rows = [grid.row(case) for case in filter(None, (grid.draw(rng, 0) for _ in range(12)))]
        assert len(rows) >= 8
        assert not [row for row in rows if row.outcome in RED], grid.check
        names |= {row.case for row in rows}
    assert len(names) > 100


def test_a_pattern_chooses_operators_and_checks():
    assert [grid.operators for grid in searched("cpu", "softmax")] == [("softmax",)]
    assert {grid.check for grid in searched("cpu", "indexing.*")} == {f"indexing.{name}" for name in NAMES_OF_INDEXING}
    assert not searched("cpu", "no such operator")


NAMES_OF_INDEXING = ("get", "set", "moves", "selections", "writes")


def test_a_kernel_that_ends_after_4096_elements_is_found_and_nothing_but_the_length_stays(grids, monkeypatch):
    exp = paddle.exp
    monkeypatch.setattr(paddle, "exp", lambda x: paddle.concat([exp(x[:4096]), x[4096:]]) if x.ndim == 1 else exp(x))
    (grid,) = searched("cpu", "exp")
    rng = np.random.default_rng(1)
    drawn = (grid.draw(rng, 0) for _ in range(3000))
    found = next(case for case in drawn if case and grid.row(case).outcome in RED)
    smallest = grid.grid.reduce(found, lambda case: grid.row(case).outcome in RED)
    assert smallest.changed == ("shape",)
    assert smallest.shape[0] > 4096


def test_what_a_listed_defect_explains_is_known_with_a_size_that_only_the_search_has(grids):
    row = grids["numerics.norms"].row(grids["numerics.norms"].grid.case(0, shape="(127, 127)", frozen="weight"))
    assert (row.outcome, row.reason) == ("known", "layer-norm-with-a-frozen-weight")


@pytest.mark.parametrize("frozen, expected", [("nothing", "right"), ("weight", "wrong")])
def test_a_case_becomes_a_program_that_needs_paddle_and_numpy_alone(grids, tmp_path, frozen, expected):
    grid = grids["numerics.norms"]
    program = traced(lambda: grid.run([grid.grid.case(0, shape="(3, 4, 5)", frozen=frozen)])[0])
    np.savez(tmp_path / "case.npz", **program.arrays)
    (tmp_path / "case.py").write_text(program.source("case.npz", "a case", "cpu"))
    assert "xpulab" not in (tmp_path / "case.py").read_text()
    command = [sys.executable, "-I", str(tmp_path / "case.py")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    errors = {line.partition(" largest")[0]: float(line.rpartition(" ")[2]) for line in ran.stdout.splitlines()}
    assert {"result", "gradient 1"} <= {*errors}, ran.stderr
    assert errors["result"] < 1
    assert (errors["gradient 1"] > 1) == (expected == "wrong")


class TestTheLoop:
    """A process of cases that does what a test says, in the place of Paddle's."""

    @pytest.fixture
    def search(self, tmp_path, monkeypatch):
        def run(*scripts: str, seconds: float = 5.0) -> tuple[loop.Search, list[str]]:
            left, said = list(scripts), list[str]()
            monkeypatch.setattr(loop, "python_module", lambda name, job: [sys.executable, "-c", left.pop(0), job])
            asked = loop.Search("cpu", "*", 0, seconds, tmp_path / "out")
            loop.search(asked, said.append)
            return asked, said

        return run

    @staticmethod
    def says(*lines: dict, then: str = "import time; time.sleep(60)") -> str:
        text = "".join(loop.MARK + json.dumps(line) + "\n" for line in lines)
        return f"import os, sys; print({text!r}, end='', flush=True); {then}"

    def test_a_case_at_which_the_process_dies_is_made_smaller_in_processes_of_its_own_and_the_search_goes_on(
        self, search, tmp_path
    ):
        dies = "os.kill(os.getpid(), 11)"
        small = {**CASE, "labels": {"shape": "(4097,)"}}
        alone = [{"trying": case, "program": str(tmp_path / name)} for case, name in ((CASE, "whole.py"), (small, "small.py"))]
        for name in ("whole.py", "whole.npz", "small.py"):
            (tmp_path / name).touch()
        asked, said = search(
            self.says({"outcome": "passed"}, {"trying": CASE}, then=dies),
            self.says(alone[0], then=dies),
            self.says(alone[1], then=dies),
            self.says({"right": CASE}, then="pass"),
            self.says({"outcome": "passed"}),
            seconds=4,
        )
        assert asked.outcomes == {"passed": 2, "found": 1}
        assert said == [
            f"WRONG numerics.functions: shape (4097,) (seed 3): its process ended with status -11: ; {self.repeat(alone[1])}"
        ]
        assert json.loads((asked.folder / loop.FOUND).read_text())["labels"] == small["labels"]
        assert [path.name for path in tmp_path.glob("*.*")] == ["small.py"]

    @staticmethod
    def repeat(told: dict) -> str:
        return f"to repeat it: python {told['program']}"

    def test_a_case_that_does_no_harm_alone_is_found_as_one_of_several(self, search):
        dies = self.says({"trying": CASE}, then="os.kill(os.getpid(), 11)")
        asked, _ = search(dies, self.says({"right": CASE}, then="pass"), dies, self.says({"outcome": "passed"}), seconds=4)
        (found,) = asked.found
        assert found["what"] == "its process ended with status -11: ; not when the case is computed alone"
        assert asked.outcomes == {"passed": 1, "found": 2}

    def test_a_case_that_does_not_end_is_found(self, search, monkeypatch):
        monkeypatch.setattr(loop, "LIMIT", 3.0)
        hangs = self.says({"trying": CASE})
        asked, _ = search(hangs, self.says({"right": CASE}, then="pass"), self.says({"outcome": "passed"}), seconds=5)
        assert [each["what"].partition(";")[0] for each in asked.found] == ["it took more than 3 s"]

    def test_after_a_case_at_which_the_process_dies_the_others_of_an_earlier_search_are_tried(self, search, tmp_path):
        other = {**CASE, "seed": 4}
        search(self.says(*({"found": case, "what": "wrong", "program": "p.py"} for case in (CASE, other))), seconds=1)
        dies = self.says({"left": 1}, {"trying": CASE}, then="os.kill(os.getpid(), 11)")
        asked, _ = search(dies, f"import sys, json; {self.tells_again()}", seconds=2)
        assert [each["seed"] for each in asked.found] == [3]

    def test_what_an_earlier_search_found_is_tried_first_and_leaves_the_list_when_it_is_right(self, search, tmp_path):
        search(self.says({"found": CASE, "what": "1 of 3 outside", "program": "p.py"}), seconds=1)
        asked, said = search(f"import sys, json; {self.tells_again()}", seconds=1)
        assert said == ["not wrong any more: numerics.functions: function exp, shape (4097,) (seed 3)"]
        assert not asked.found
        assert (tmp_path / "out" / loop.FOUND).read_text() == ""

    @staticmethod
    def tells_again() -> str:
        return (
            "(case,) = json.loads(sys.argv[1])['again']; "
            f"print({loop.MARK!r} + json.dumps({{'right': case}}), flush=True); import time; time.sleep(60)"
        )

    def test_a_process_that_ends_before_its_first_case_is_an_error_with_its_last_line(self, search):
        with pytest.raises(InputError, match="status 3: no such device"):
            search("print('no such device'); raise SystemExit(3)")

    def test_a_file_of_somebody_else_is_an_error_with_its_line(self, search, tmp_path):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / loop.FOUND).write_text('{"check": 1}\n')
        with pytest.raises(InputError, match=r"found\.jsonl line 1"):
            search("pass")


@pytest.mark.parametrize("given", ["10", "0m", "ten minutes", "-1s"])
def test_a_time_that_is_none_is_refused(given):
    ran = subprocess.run(
        [sys.executable, "-m", "xpulab", "search", f"--for={given}"], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 2
    assert "as in 10m" in ran.stderr


CRASHES = """
import os, sys, paddle
exp = paddle._C_ops.exp
paddle._C_ops.exp = lambda x: os.kill(os.getpid(), 11) if x.shape and x.shape[0] > 4096 else exp(x)
"""
"""An operator that ends its process at its 4097th row."""


@pytest.mark.integration
def test_a_case_that_crashes_becomes_a_program_of_paddle_and_numpy_alone(tmp_path, monkeypatch):
    code = f"{CRASHES}\nfrom xpulab.search import worker; worker.main(sys.argv[1])"
    monkeypatch.setattr(loop, "python_module", lambda name, job: [sys.executable, "-c", code, job])
    asked = loop.Search("cpu", "exp", 1, 30.0, tmp_path)
    loop.search(asked, lambda text: None)
    found = asked.found[0]
    assert {*found["labels"]} == {"function", "shape"} and "status -11" in found["what"]
    text = (tmp_path / found["program"]).read_text()
    assert "xpulab" not in text and text.rstrip().endswith(".numpy()") and "paddle._C_ops.exp(" in text
    for injected, status in ((CRASHES, -11), ("import sys", 0)):
        code = f"{injected}\nimport runpy; runpy.run_path(sys.argv[1])"
        assert subprocess.run([sys.executable, "-I", "-c", code, found["program"]], timeout=120).returncode == status
    assert len(list(tmp_path.iterdir())) == 2 * len(asked.found) + 1


@pytest.mark.integration
def test_the_command_searches_and_keeps_nothing_where_nothing_is_wrong(tmp_path):
    command = [sys.executable, "-m", "xpulab", "search", "--operators", "softmax", "--for", "12s", "--seed", "1"]
    ran = subprocess.run([*command, "--device", "cpu"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1].endswith(": 0 wrong")
    assert not (tmp_path / "search" / "found.jsonl").exists()
