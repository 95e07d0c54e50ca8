"""A report's script and the suite answer alike when they compare alike, also for NaN, for empty values and for errors."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from xpulab.checks.ledger import Ledger, ledger
from xpulab.records.record import RED
from xpulab.upstream.flatten import flatten

HEAD = "import numpy as np\nimport paddle\nfrom xpulab.checks import check\nnan, inf = float('nan'), float('inf')\n"
LINES = {
    "right": "check.equal('right', [1, 2.5, 'a'], [1, 2.5, 'a'], control=[1, 2.5, 'b'])",
    "nan-equal": "check.equal('nan-equal', [1.0, nan], [1.0, nan], control=[2.0, nan])",
    "nan-close": "check.close('nan-close', np.array([nan, 1.0]), np.array([nan, 1.0]), atol=1, control=np.array([9.0, 9.0]))",
    "nan-bits": "check.bitwise('nan-bits', np.float32(nan), np.float32(nan), control=np.float32(1))",
    "nan-tensor": "check.equal('nan-tensor', paddle.to_tensor([nan]), np.array([nan]), control=np.array([1.0]))",
    "nan-below": "check.below('nan-below', [1.0, nan], 2, control=3.0)",
    "infinite": "check.close('infinite', inf, inf, rtol=1e-3, control=1.0)",
    "about-nan": "check.equal('about-nan', [1.0, nan], [1.0, nan], control=[nan, 1.0], about_nonfinite=True)",
    "nan-elsewhere": "check.equal('nan-elsewhere', [nan, 1.0], [1.0, nan], control=[2.0, nan], about_nonfinite=True)",
    "empty-lists": "check.equal('empty-lists', [], [], control=[1])",
    "empty-inside": "check.equal('empty-inside', {'a': [], 'b': 1}, {'a': [], 'b': 1}, control={'a': [1], 'b': 1})",
    "empty-arrays": "check.close('empty-arrays', np.zeros(0), np.zeros(0), atol=1, control=np.ones(1))",
    "empty-tensors": "check.bitwise('empty-tensors', paddle.zeros([0]), paddle.zeros([0]), control=paddle.ones([1]))",
    "empty-text": "check.equal('empty-text', '', '', control='a')",
    "nothing": "check.equal('nothing', None, None, control=1)",
    "empty-finite": "check.finite('empty-finite', np.zeros(0), control=np.array([nan]))",
    "empty-above": "check.above('empty-above', np.zeros(0), 0, control=-1.0)",
    "one-as-true": "check.true('one-as-true', 1, control=False)",
    "array-as-true": "check.true('array-as-true', np.array(True), control=np.array(False))",
    "large": "check.equal('large', 2**53 + 1, 2**53, control=1)",
    "one-as-number": "check.equal('one-as-number', {1, 2}, {1, 2}, control={1, 3})",
    "large-beside-a-float": "check.equal('large-beside-a-float', 2**53 + 1, float(2**53), control=1)",
    "bfloat16": "check.close('bfloat16', paddle.ones([2], 'bfloat16'), np.ones(2), atol=1e-3, control=np.zeros(2))",
    "no-bound": "with check.table('no-bound', means='') as rows: rows.close('a', 1, 1, control=2)",
    "raises": "check.raises('raises', ValueError, lambda: int('a'), match='invalid', control=lambda: 1)",
    "raises-another": "check.raises('raises-another', ValueError, lambda: {}['a'], control=lambda: 1)",
    "measuring-raises": "check.equal('measuring-raises', lambda: [][1], 'IndexError: list index out of range', control=1)",
    "no-rows": "with check.table('no-rows', means=''): pass",
    "row": "with check.table('row', means='') as rows: rows.equal('a', [nan], [nan], control=[1.0])",
}
"""By the name of a check the line that compares. The rules about NaN and empty values are in xpulab/checks/compare.py."""


@pytest.fixture
def own_ledger(monkeypatch):
    """No records of other tests."""
    monkeypatch.setattr(ledger, "__dict__", vars(Ledger()))
    return ledger


def test_the_script_answers_like_the_suite(tmp_path, own_ledger):
    source = HEAD + "\n".join(LINES.values())
    exec(compile(source, "lines", "exec"), {})
    red = {record.name for record in own_ledger.records.values() if record.outcome in RED}
    (tmp_path / "xpulab.py").write_text("raise ImportError('xpulab is not here')")
    (tmp_path / "made.py").write_text(flatten(ast.parse(source).body))
    done = subprocess.run([sys.executable, "made.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    answers = {line[13:].split(":")[0].split(",")[0]: line[:7] for line in done.stdout.splitlines() if line[11:13] == "  "}
    assert {name: answers.get(name) for name in LINES} == {name: "DIFFERS" if name in red else "as expe" for name in LINES}
    assert {"nan-equal", "empty-lists", "large"} < red and {"right", "about-nan"}.isdisjoint(red)
