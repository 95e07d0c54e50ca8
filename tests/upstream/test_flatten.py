"""What a script uses of xpulab is copied into it, with its own names, and nothing else."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap

import pytest

from xpulab.upstream.flatten import flatten
from xpulab.upstream.modules import CannotFollow


def script(source):
    """The script that these lines become."""
    return flatten(ast.parse(textwrap.dedent(source)).body)


def printed(source, tmp_path):
    """What the script prints where xpulab cannot be imported."""
    (tmp_path / "xpulab.py").write_text("raise ImportError('xpulab is not here')")
    (tmp_path / "made.py").write_text(source)
    done = subprocess.run([sys.executable, "made.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


SOFTMAX = """
    from xpulab.reference import model
    import numpy as np
    print(model.softmax(np.zeros([1, 2])).tolist())
"""
DATACLASS = """
    from xpulab.records.record import Measurement
    print(Measurement("a", "loss", "nats", (1.0,)))
"""
INSIDE = """
    def rounded():
        from xpulab.reference.rounding import rounding_of_a_layer
        return rounding_of_a_layer
    print(callable(rounded()))
"""


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        (SOFTMAX, "[[0.5, 0.5]]\n"),
        (DATACLASS, "Measurement(case='a', kind='loss', unit='nats', values=(1.0,), conditions={})\n"),
        (INSIDE, "True\n"),
    ],
    ids=["a function", "a dataclass", "an import inside a function"],
)
def test_what_is_imported_comes_with_what_it_uses_and_with_nothing_else(tmp_path, source, shown):
    made = script(source)
    assert "xpulab" not in made and "def forward" not in made and printed(made, tmp_path) == shown


def test_a_local_variable_with_the_name_of_a_copied_function_hides_it_no_longer(tmp_path):
    made = script("""
        from xpulab.records import format as numbers
        def shown(format_value):
            return numbers.format_value(format_value)
        print(shown(2.0))
    """)
    assert "def format_format_value(" in made
    assert printed(made, tmp_path) == printed(
        script("from xpulab.records.format import format_value\nprint(format_value(2.0))"), tmp_path
    )


def test_a_check_is_printed_with_measured_and_expected(tmp_path):
    made = script("""
        from xpulab.checks import check
        check.close("demo.sum", 3.5, 3.0, atol=0.1, control=9.0, means="the sum")
        with check.table("demo.rows", means="rows") as rows:
            rows.equal("good", [1, 2], [1, 2], control=[2, 1])
            rows.below("bad", 7, 5, control=9)
            raise ValueError("stop")
    """)
    shown = printed(made, tmp_path)
    lines = [line for line in shown.splitlines() if line.startswith(("DIFFERS", "as expected"))]
    assert [line.split(":")[0] for line in lines] == [
        "DIFFERS      demo.sum",
        "as expected  demo.rows, good",
        "DIFFERS      demo.rows, bad",
        "DIFFERS      demo.rows",
    ]
    assert "3.5 (1 of 1 outside" in shown and "within 0.1: 3.0" in shown and "ValueError: stop" in shown


@pytest.mark.parametrize(
    ("measured", "expected", "outcome"),
    [
        ("np.float32(-0.0)", "np.float32(0.0)", "DIFFERS"),
        ("np.int64(2**53 + 1)", "np.int64(2**53)", "DIFFERS"),
        ("np.float32(1)", "np.float64(1)", "DIFFERS"),
        ('{"a": [np.float32("nan"), 2]}', '{"a": [np.float32("nan"), 2]}', "DIFFERS"),
        ('{"a": [np.float32(1), np.float32(2)]}', '{"a": [np.float32(1), np.float32(2)]}', "as expected"),
        ("[1, 2]", "[1, 2, 3]", "DIFFERS"),
    ],
)
def test_bits_are_compared_as_bits(tmp_path, measured, expected, outcome):
    line = f'check.bitwise("demo.bits", {measured}, {expected}, control=1)'
    made = script(f"import numpy as np\nfrom xpulab.checks import check\n{line}")
    assert printed(made, tmp_path).startswith(outcome)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("from xpulab.reference import losses\nprint(losses)", "hands the module xpulab.reference.losses on"),
        ("print(unknown)", "uses unknown, which is not defined there"),
        ("from xpulab.reference import losses\nlosses.loss = 3", "sets loss of xpulab.reference.losses"),
        ("from xpulab.reference.losses import nothing\nprint(nothing)", "xpulab.reference.losses has no nothing"),
    ],
)
def test_what_cannot_be_copied_is_refused_with_the_reason(source, why):
    with pytest.raises(CannotFollow, match=why):
        script(source)
