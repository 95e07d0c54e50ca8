"""A soak repeats runs, and names the round in which a value differs or a check is red first."""

from __future__ import annotations

import json
import subprocess
import sys

import jsonschema
import pytest
from rich.console import Console

from tests.conftest import make, save, section
from xpulab import files
from xpulab.errors import InputError
from xpulab.fleet.gate import gate
from xpulab.harness import fork_server
from xpulab.harness.execute import RunOptions
from xpulab.harness.plan import read_plan
from xpulab.search.loop import MARK
from xpulab.soak.loop import Soak, seed_of
from xpulab.soak.loop import soak as run_rounds

COUNTED = """
from pathlib import Path
counter = Path(COUNTER)
number = len(counter.read_text()) if counter.exists() else 0
counter.write_text("x" * (number + 1))
"""


class Ends(Console):
    """A console at which somebody presses Ctrl-C after so many rounds."""

    def __init__(self, rounds):
        super().__init__(quiet=True)
        self.rounds = rounds

    def print(self, *objects, **options):
        self.rounds -= 1
        if self.rounds == 0:
            raise KeyboardInterrupt


def soak(folder, value, rounds=4, searches=False):
    """A soak of a notebook with one check of a value, an expression of `number`, which counts rounds from 0."""
    cell = f'{COUNTED.replace("COUNTER", repr(str(folder / "counter")))}check.equal("demo.value", {value}, 2, control=9)'
    path = save(make(section("value"), cell), folder / "demo.ipynb")
    asked = Soak((read_plan(path, "quick"),), RunOptions("cpu", "quick", 1), 1, None, folder / "out", searches)
    with fork_server.started("cpu", cold=True) as begun:
        code = run_rounds(asked, Ends(rounds), begun)
    lines = [json.loads(line) for line in (folder / "out" / "soak.jsonl").read_text().splitlines()]
    return code, lines, json.loads((folder / "out" / "soak.json").read_text())


pytestmark = pytest.mark.integration


def test_every_second_round_has_the_first_seed_and_the_others_take_turns():
    assert [seed_of(number, 5) for number in range(1, 8)] == [5, 5, 6, 5, 7, 5, 8]


def test_what_repeats_is_green_until_ctrl_c_and_only_the_last_round_keeps_its_reports(tmp_path):
    code, lines, summary = soak(tmp_path, "2")
    assert (code, summary["outcome"], summary["repeated"], len(lines)) == (130, "passed", 2, 4)
    assert [line["problems"] for line in lines] == [[]] * 4
    assert [path.name for path in (tmp_path / "out/rounds").iterdir()] == ["0004"]


@pytest.mark.parametrize(
    ("value", "bad", "said"),
    [("2 if number < 3 else 3", 4, "failed, measured 3"), ("2 if number != 1 else 2.0", 2, "differ from those of round 1")],
    ids=["a check that fails later", "a value that is right and another one"],
)
def test_the_first_round_that_is_wrong_is_named_and_kept(tmp_path, value, bad, said):
    code, _, summary = soak(tmp_path, value, rounds=5)
    assert (code, summary["first_bad_round"]) == (1, bad)
    assert summary["problems"][0]["check"] == "demo.value" and said in summary["problems"][0]["reason"]
    assert (tmp_path / "out/rounds" / f"{bad:04d}" / "index.html").exists()
    answer = gate(tmp_path / "out", 24)
    assert answer.state == "red" and f"demo.value in round {bad} of a soak" in answer.reason and said in answer.reason


FOUND = {"check": "numerics.functions", "labels": {"function": "exp"}, "seed": 3}


@pytest.mark.parametrize(
    "lines, red", [([{"outcome": "passed"}], False), ([{"outcome": "passed"}, {"outcome": "found"}], True)]
)
def test_what_the_search_between_rounds_finds_is_in_the_record_and_red(tmp_path, monkeypatch, lines, red):
    more = [{"found": FOUND, "what": "1 of 3 outside", "program": "p.py"}] if red else []
    text = "".join(f"{MARK}{json.dumps(line)}\n" for line in [*more, *lines])
    script = f"import time; print({text!r}, end='', flush=True); time.sleep(60)"
    monkeypatch.setattr("xpulab.search.loop.python_module", lambda name, job: [sys.executable, "-c", script])
    monkeypatch.setattr("xpulab.soak.loop.LEAST_SECONDS", 3.0)
    code, rounds, summary = soak(tmp_path, "2", rounds=3, searches=True)
    assert (code, summary["outcome"]) == ((1, "failed") if red else (130, "passed"))
    assert summary["searched"] == sum(line["searched"] for line in rounds) == len(lines) * len(rounds)
    assert "search" in summary["checks"]
    jsonschema.validate(summary, json.loads(files.data("schema", "soak_result.schema.json").read_text()))
    if red:
        (problem, *_) = summary["problems"]
        assert problem["reason"] == "numerics.functions: function exp (seed 3): 1 of 3 outside; to repeat it: python p.py"
        answer = gate(tmp_path / "out", 24)
        assert answer.state == "red" and "search in round 1 of a soak" in answer.reason
        assert answer.reason.endswith(f"rerun: xpulab search --device cpu --out {tmp_path / 'out' / 'search'}")


def test_a_round_that_met_a_full_disk_is_no_problem_and_ends_the_soak_without_a_verdict(tmp_path):
    full = "(_ for _ in ()).throw(OSError(28, 'No space left on device'))"
    with pytest.raises(InputError, match="no verdict: demo: cell"):
        soak(tmp_path, f"2 if number < 2 else {full}")
    summary = json.loads((tmp_path / "out" / "soak.json").read_text())
    assert (summary["rounds"], summary["problems"]) == (2, [])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--hours", "0"], "above 0"), (["18_tensors"], "--check"), (["--out", "."], "holds another run")],
)
def test_what_cannot_be_is_refused(tmp_path, arguments, said):
    (tmp_path / "result.json").write_text("{}")
    command = [sys.executable, "-m", "xpulab", "soak", "--device", "cpu", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2 and said in " ".join(done.stderr.split()) and "--resume" not in done.stderr
