"""What a difference looks like is named, with its first step and what to look at: a fault for each pattern."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from xpulab import cli
from xpulab.align.band import fall
from xpulab.align.compare import DIFFERS, SAME, UNDECIDED, WITHIN, align

STEPS = 60
RIGHT = (SAME, WITHIN)


def rows_of(count=STEPS):
    """The steps of a training that goes well, with a schedule that warms up."""
    return [
        {
            "step": step,
            "loss": 0.5 + 3 * math.exp(-step / 25) + 0.02 * math.sin(7 * step),
            "grad_norm": 1 + math.sin(step) / 3,
            "learning_rate": 1e-3 * min(step / 10, 1) * (1 - step / 200),
        }
        for step in range(1, count + 1)
    ]


def written(path, rows, **settings):
    header = {"format": "xpulab.align/1", "environment": {"settings": settings}}
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *rows)))
    return path


def scaled(rows, first=1, **factors):
    return [{**row, **{name: row[name] * factor for name, factor in factors.items() if row["step"] >= first}} for row in rows]


def added(rows, **terms):
    return [{**row, **{name: row[name] + term for name, term in terms.items()}} for row in rows]


def renumbered(rows, by):
    return [{**row, "step": row["step"] + by} for row in rows]


def rate_again(rows):
    return [
        {**row, "learning_rate": rows[max(0, row["step"] - 31)]["learning_rate"]} if row["step"] > 30 else row for row in rows
    ]


def last_group(rows):
    return [{**row, "loss": row["loss"] * (0.5 if row["step"] % 12 == 0 else 1)} for row in rows]


def slow(rows):
    return [{**row, "loss": row["loss"] + 1e-7 * 1.35 ** row["step"]} for row in rows]


def each(rows, **values):
    return [{**row, **values} for row in rows]


def no_numbers(rows):
    return [{**row, "loss": "nan"} if row["step"] >= 20 else row for row in rows]


# what both logs have, what b has besides; exit code, what is printed of it
PATTERNS = {
    "the loss is a sum": (
        None,
        lambda rows: scaled(rows, loss=4.0),
        1,
        ["loss of b is 4.00 times that of a at every step", "gradients agree"],
    ),
    "gradients are a sum": (
        None,
        lambda rows: scaled(rows, grad_norm=8.0),
        1,
        ["gradients of b is 8.00 times that of a at every step"],
    ),
    "an offset": (
        None,
        lambda rows: added(rows, loss=0.25),
        1,
        ["the loss of b is that of a +0.25 at every step", "auxiliary loss"],
    ),
    "another scale from a step on": (
        None,
        lambda rows: scaled(rows, 21, loss=1.3),
        1,
        ["1.30 times that of a from step 21 on, and before it they agree", "what happened at that step"],
    ),
    "counted from 0": (None, lambda rows: renumbered(rows, -1), 0, ["shifted by 1: step n of a is step n - 1 of b", "right"]),
    "ahead by two": (
        None,
        lambda rows: renumbered(rows[2:], -2),
        1,
        ["shifted by 2: step n of a is step n - 2 of b", "skipped"],
    ),
    "the rate begins again": (
        None,
        rate_again,
        1,
        ["the learning rate of b begins again at step 31", "schedule was not loaded"],
    ),
    "the last group of an epoch": (None, last_group, 1, ["differs at each 12th step only, first at step 12, by a factor 0.50"]),
    "a slow divergence": (None, slow, 1, ["the loss parts slowly", "--noise"]),
    "no number on both sides": (no_numbers, None, 1, ["the loss of a and b is no number from step 20 on", "labels"]),
    "no label counts": (
        lambda rows: each(rows, loss=0.0, grad_norm=0.0),
        None,
        1,
        ["the loss of a and b is 0 at every step", "label"],
    ),
    "nothing is trained": (lambda rows: each(rows, loss=2.5), None, 1, ["the loss of a and b is 2.5 at every step"]),
    "no gradients": (
        lambda rows: each(rows, grad_norm=0.0),
        None,
        1,
        ["the norm of the gradients of a and b is 0 at every step"],
    ),
    "no rate": (lambda rows: each(rows, learning_rate=0.0), None, 1, ["the learning rate of a and b is 0 at every step"]),
}


def run(*arguments):
    """The command: exit code, what it printed."""
    done = CliRunner().invoke(cli.app, ["align", *map(str, arguments)], catch_exceptions=False)
    return done.exit_code, " ".join(done.stdout.split())


@pytest.mark.parametrize(("both", "other", "code", "says"), PATTERNS.values(), ids=PATTERNS)
def test_a_pattern_is_named_before_any_cause(tmp_path, both, other, code, says):
    rows = rows_of() if both is None else both(rows_of())
    a, b = written(tmp_path / "a.jsonl", rows), written(tmp_path / "b.jsonl", other(rows) if other else rows)
    exit_code, printed = run(a, b)
    assert (exit_code, [text for text in says if text not in printed]) == (code, []), printed
    assert "look at:" in printed and ("look next" not in printed)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_training_without_a_defect_has_no_pattern_and_no_advice(tmp_path, dtype):
    rows = rows_of()
    noisy = [{**row, "loss": row["loss"] * (1 + 1e-6 * math.sin(row["step"]))} for row in rows]
    a, b = written(tmp_path / "a.jsonl", rows, dtype=dtype), written(tmp_path / "b.jsonl", noisy, dtype=dtype, mine=2)
    code, printed = run(a, b)
    assert code == 0 and "verdict: right: within the noise" in printed and "of what it falls by" in printed
    assert "pattern" not in printed and "look" not in printed and "environments" not in printed


# -------------------------------------------------------------------------------------------------------------- the rule


def test_a_band_that_is_a_large_part_of_the_loss_decides_nothing(tmp_path):
    rows = rows_of()
    a = written(tmp_path / "a.jsonl", rows, bf16=True)
    b = written(tmp_path / "b.jsonl", [{**row, "loss": row["loss"] + row["step"] / 200} for row in rows], bf16=True)
    code, printed = run(a, b)
    assert (
        code == 1 and "verdict: undecided" in printed and "--noise" in printed and "more steps" in printed and "look" in printed
    )


def test_without_a_type_what_only_a_half_type_explains_is_undecided(tmp_path):
    lines = ["step,loss", *(f"{row['step']},{row['loss']:.9f}" for row in rows_of())]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    noisy = (f"{row['step']},{row['loss'] * (1 + 1e-3 * math.sin(row['step'])):.9f}" for row in rows_of())
    (tmp_path / "b.csv").write_text("\n".join(["step,loss", *noisy]))
    verdicts = [
        run(tmp_path / "a.csv", tmp_path / "b.csv", *dtype) for dtype in ([], ["--dtype", "bfloat16"], ["--dtype", "float32"])
    ]
    assert [code for code, _ in verdicts] == [1, 0, 1] and "undecided" in verdicts[0][1] and "--dtype" in verdicts[0][1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda loss: loss + 0.01, "that of a +0.01 at every step"),
        (lambda loss: loss * 1.002, "1.002 times that of a at every step"),
    ],
)
def test_an_exact_level_is_no_noise_within_any_band(tmp_path, change, says):
    rows = rows_of()
    a = written(tmp_path / "a.jsonl", rows, bf16=True)
    b = written(tmp_path / "b.jsonl", [{**row, "loss": change(row["loss"])} for row in rows], bf16=True)
    code, printed = run(a, b)
    assert code == 1 and f"verdict: wrong: the loss of b is {says}" in printed
    rounded = [{**row, "loss": round(row["loss"], 2)} for row in rows]  # a level of two units may be rounding
    lines = [["step,loss", *(f"{row['step']},{row['loss'] + more:.2f}" for row in rounded)] for more in (0, 0.02)]
    for path, text in zip((a, b), lines, strict=True):
        path.write_text("\n".join(text))
    assert "loss of b is" not in run(a, b, "--dtype", "bfloat16")[1]


def defects(random, rows, falls_by):
    """A training that is wrong by more than a twentieth of what the loss falls by, in one of several ways."""
    first, size = int(random.integers(1, len(rows))), falls_by * float(random.uniform(0.051, 3)) * random.choice([-1, 1])
    loss = np.array([row["loss"] for row in rows])
    changed = [
        lambda: np.where(np.arange(len(rows)) >= first, loss + size, loss),
        lambda: loss + size * np.linspace(0, 1.1, len(rows)),
        lambda: np.where(np.arange(len(rows)) == first, loss + size, loss),
        lambda: np.full(len(rows), loss[0]),
        lambda: loss + size * random.uniform(1, 2, len(rows)),
    ][random.integers(5)]()
    return [{**row, "loss": float(value)} for row, value in zip(rows, changed, strict=True)]


def random_rows(random):
    count = int(random.integers(3, 200))
    falls = random.uniform(0, 4) * np.exp(-np.arange(count) / random.uniform(2, 100))
    loss = falls + random.uniform(0, 2) + random.choice([0, 1e-3, 0.1]) * random.normal(size=count)
    norms = random.uniform(0.5, 2, count)
    return [{"step": step, "loss": float(loss[step - 1]), "grad_norm": float(norms[step - 1])} for step in range(1, count + 1)]


def test_a_difference_beyond_a_twentieth_of_the_fall_is_never_right_whatever_the_band_is(tmp_path):
    random, verdicts = np.random.default_rng(0), set()
    for _ in range(300):
        rows = random_rows(random)
        wrong = defects(random, rows, fall(np.array([row["loss"] for row in rows])))
        settings = [{"dtype": "bfloat16"}, {"dtype": "float32"}][random.integers(2)]
        a, b = written(tmp_path / "a.jsonl", rows, **settings), written(tmp_path / "b.jsonl", wrong, **settings)
        noise = [written(tmp_path / "n.jsonl", scaled(rows, loss=1.2, grad_norm=1.2))] if random.integers(2) else []
        found = align(a, b, noise)
        verdicts.add(found.verdict)
        assert found.verdict not in RIGHT, (rows, wrong)
    assert verdicts == {DIFFERS, UNDECIDED}


def test_gradients_that_are_twice_as_large_are_never_right(tmp_path):
    random = np.random.default_rng(1)
    for _ in range(100):
        rows = random_rows(random)
        a = written(tmp_path / "a.jsonl", rows, dtype="bfloat16")
        first, factor = int(random.integers(1, len(rows))), float(random.uniform(1.2, 10))
        b = written(tmp_path / "b.jsonl", scaled(rows, first, grad_norm=factor), dtype="bfloat16")
        assert align(a, b).verdict not in RIGHT, (first, factor)


@pytest.mark.parametrize("value", [0.0, 1.25, "nan", "inf"])
@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_a_series_that_does_not_change_is_a_finding_on_both_sides_whatever_it_equals(tmp_path, name, value):
    a = written(tmp_path / "a.jsonl", each(rows_of(), **{name: value}))
    assert align(a, a).verdict == DIFFERS


# ---------------------------------------------------------------------------------------------------------------- --within


def test_an_accepted_mean_difference_takes_the_place_of_the_band(tmp_path):
    rows = rows_of()
    a, b = written(tmp_path / "a.jsonl", rows), written(tmp_path / "b.jsonl", scaled(rows, loss=1.01))
    assert run(a, b)[0] == 1 and "relative difference of the losses: 1.00%" in run(a, b)[1]
    assert run(a, b, "--within", "2%")[0] == 0 and run(a, b, "--within", "0.5%")[0] == 1
    late = written(tmp_path / "late.jsonl", scaled(rows, 31, loss=1.04))
    assert [run(a, late, "--within", "2.5%", *after)[0] for after in ([], ["--after", "30"])] == [0, 1]
    zero = written(tmp_path / "zero.jsonl", each(rows, loss=0.0))
    assert run(zero, zero, "--within", "2%")[0] == 1
    flat = written(tmp_path / "flat.jsonl", each(rows, loss=3.0, grad_norm=1.0))
    assert run(flat, a, "--within", "99%")[0] == 1 and run(a, b, "--within", "2x")[0] == 2


def test_a_smooth_loss_that_is_scaled_is_not_shifted(tmp_path):
    smooth = [{**row, "loss": 3.5 * math.exp(-row["step"] / 40) + 0.4} for row in rows_of()]
    for other, says in ((scaled(smooth, loss=1.3), "1.30 times that of a"), (added(smooth, loss=0.3), "that of a +0.3")):
        a, b = written(tmp_path / "a.jsonl", smooth), written(tmp_path / "b.jsonl", other)
        code, printed = run(a, b)
        assert (code, says in printed, "shifted" in printed) == (1, True, False), printed
