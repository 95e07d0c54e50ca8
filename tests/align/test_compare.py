"""What two logs that were written by hand say: where they part, whether noise explains it, and what may."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from xpulab import cli
from xpulab.align.compare import DIFFERS, SAME, WITHIN, align

HALF, SINGLE = ({"weights": {"dtype": name}} for name in ("bfloat16", "float32"))
CHANGED = {
    "batch": {"batch": "f" * 16},
    "learning rate": {"learning_rate": 1.01},
    "update or forward": {"loss": 1.01, "grad_norm": 1.01},
    "backward": {"grad_norm": 1.01},
}
"""By place what differs from a step on: factors, or another digest."""


def run(*arguments):
    """The command: exit code, what it printed, its error message."""
    done = CliRunner().invoke(cli.app, ["align", *map(str, arguments)], catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


def from_step(first, **changed):
    """Changes a step from one on: by factors, or to another value."""

    def change(step):
        if step["step"] >= first:
            step.update({name: step[name] * value if isinstance(value, float) else value for name, value in changed.items()})

    return change


def test_a_log_and_itself_are_the_same_to_the_bit(log):
    found = align(log("a"), log("b"))
    assert (found.verdict, found.bit, found.beyond, found.environment) == (SAME, None, None, ())


@pytest.mark.parametrize(("place", "changed"), CHANGED.items())
def test_the_step_and_its_part_that_differ_first_are_named(log, place, changed):
    a, b = log("a"), log("b", from_step(9, **changed))
    found = align(a, b)
    assert (found.verdict, found.bit.step, found.beyond.step, found.beyond.place) == (DIFFERS, 9, 9, place)
    assert set(found.beyond.quantities) == set(changed)
    code, text, _ = run(a, b)
    assert code == 1 and "verdict: wrong: differs from step 9 on" in text
    assert "first at step 9" in text and ("look next" in text or "look at" in text)


def test_a_difference_that_grows_is_found_where_it_leaves_the_noise(log):
    def drift(step):
        step["loss"] *= 1 + 2.0**-24 * 1.5 ** step["step"]

    found = align(log("a"), log("b", drift))
    (loss,) = [quantity for quantity in found.quantities if quantity.name == "loss"]
    assert found.bit.step < found.beyond.step == loss.first_beyond < 40 and "a model" in found.band
    assert loss.difference > loss.width


def test_measured_noise_takes_the_place_of_the_model(log):
    a, noisy, other = log("a"), log("c", from_step(5, loss=1 + 1e-3)), log("b", from_step(5, loss=1 - 2e-3))
    assert (align(a, other).verdict, align(a, other, [noisy]).verdict) == (DIFFERS, WITHIN)
    assert align(a, log("d", from_step(5, loss=1.1)), [noisy]).beyond.step == 5
    assert align(a, log("e", from_step(4, loss=1 - 2e-3)), [noisy]).beyond.step == 4, "noise of later steps does not excuse it"


def test_half_types_have_a_wider_model_only_when_both_trainings_use_them(log):
    def change(step):
        step["loss"] *= 1 + 5e-4 * (-1) ** step["step"]

    assert align(log("a", environment=HALF), log("b", change, environment=HALF)).verdict == WITHIN
    assert align(log("c", environment=HALF), log("d", change, environment=SINGLE)).verdict == DIFFERS


def test_a_loss_that_is_no_number_is_red_in_both_logs(log):
    found = align(log("a", from_step(30, loss="nan")), log("b", from_step(30, loss="nan")))
    assert (found.verdict, found.beyond.step, found.bit) == (DIFFERS, 30, None)
    assert run(log("c", from_step(30, loss="nan")), log("d"))[0] == 1


def test_losses_that_a_trainer_has_rounded_are_compared_to_their_last_decimal(log):
    def rounded(step):
        step["loss"] = round(step["loss"], 4)

    found = align(log("a"), log("b", rounded))
    assert found.verdict == WITHIN and any("loss is rounded" in note for note in found.notes)
    assert align(log("c"), log("d", from_step(12, loss=1.0003))).verdict == DIFFERS


def test_after_steps_that_agree_to_the_bit_the_smallest_difference_counts(log):
    small = {"loss": 1 + 1e-8, "grad_norm": 1.01}
    assert align(log("a"), log("b", from_step(2, **small))).beyond.place == "update or forward"
    assert align(log("c"), log("d", from_step(1, **small))).beyond.place == "backward", "at the first step it may be rounding"


def test_a_resumed_log_begins_later_and_is_compared_from_there(log):
    found = align(log("a"), log("b", steps=range(11, 41)))
    assert (found.verdict, found.numbers[0], len(found.numbers)) == (SAME, 11, 30)
    assert any("a.jsonl has 10 other steps" in note for note in found.notes)


def test_only_losses_are_enough(log):
    def bare(step):
        return {"step": step["step"], "loss": step["loss"]}

    found = align(log("a", bare, environment={}), log("b", lambda step: {**bare(step), "loss": step["loss"] * 1.01}))
    assert (found.verdict, found.beyond.place, found.has_batches) == (DIFFERS, "forward", False)


# ------------------------------------------------------------------------------------------------------ the environments


def test_what_fits_the_place_comes_first_and_what_changes_nothing_last(log):
    ours = {"variables": {"XPU_VISIBLE_DEVICES": "0", "NVIDIA_TF32_OVERRIDE": "0"}, "optimizer": {"epsilon": 1e-8}}
    theirs = {"variables": {"XPU_VISIBLE_DEVICES": "1"}, "optimizer": {"epsilon": 1e-6}, "settings": {"mine": 2}}
    first = align(log("a", environment=ours), log("b", from_step(1, loss=1.01), environment=theirs)).environment
    assert [(difference.name, difference.rank) for difference in first] == [
        ("variables.NVIDIA_TF32_OVERRIDE", "likely"),
        ("optimizer.epsilon", "possible"),
        ("settings.mine", "unknown"),
        ("variables.XPU_VISIBLE_DEVICES", "unlikely"),
    ]
    printed = run(log("a", environment=ours), log("b", from_step(2, loss=1.01), environment=theirs))[1]
    assert printed.index("optimizer.epsilon: 1e-08 | 1e-06") < printed.index("settings.mine: not recorded | 2")


# ------------------------------------------------------------------------------------------------------------- bad input

HEADER = '{"format": "xpulab.align/1", "environment": {}}\n'
GOOD = '{"step": 1, "loss": 4.25}\n{"step": 2, "loss": 4.125}\n'

# the text of b, what the message says
WRONG = {
    "no file": (None, ["b.jsonl: cannot be read", "xpulab.align.Log"]),
    "an empty file": ("", ["b.jsonl line 1: empty", "xpulab.align.Log"]),
    "no step": (HEADER, ["b.jsonl: no step in it", "step,loss"]),
    "no loss among its fields": ('{"round": 1}\n', ["b.jsonl: no step with a loss", "round", "--column loss="]),
    "another format": (HEADER.replace("/1", "/9") + GOOD, ["b.jsonl line 1: format", "expected xpulab.align/1"]),
    "a damaged line": (HEADER + '{"step": 1, "lo\n{"step": 2, "loss": 4.1}\n', ["b.jsonl line 2: not JSON"]),
    "no loss": (HEADER + '{"step": 1}\n', ["b.jsonl line 2", "no loss", "align_log.schema.json"]),
    "a list": (HEADER + "[1, 4.2]\n", ["b.jsonl line 2", "align_log.schema.json"]),
    "no number": (HEADER + '{"step": 1, "loss": "much"}\n', ["b.jsonl line 2", "much"]),
    "other steps": (HEADER + '{"step": 9, "loss": 1.5}\n', ["no step in common", "1 to 4", "b.jsonl has steps 9"]),
    "not UTF-8": (HEADER.encode() + b'{"step": 1, "loss": \xff}\n' + GOOD.encode(), ["b.jsonl line 2: not JSON"]),
    "a text": ("Dear all,\nthe training is fine.\n", ["b.jsonl line 1: no loss in 'Dear all,'", "--column loss=", "step,loss"]),
    "no text": (b"\0" * 3000, ["b.jsonl line 1", "not a text"]),
}


@pytest.mark.parametrize(("text", "says"), WRONG.values(), ids=WRONG)
def test_bad_input_gives_exit_code_2_and_names_file_line_and_remedy(log, tmp_path, text, says):
    a, b = log("a", steps=range(1, 5)), tmp_path / "b.jsonl"
    if text is not None:
        b.write_bytes(text if isinstance(text, bytes) else text.encode())
    code, printed, error = run(a, b)
    assert (code, printed, [part for part in says if part not in error]) == (2, "", []), error
    assert run(b, a)[0] == 2


def test_the_steps_that_both_have_are_compared(log):
    code, printed, _ = run(log("a"), log("b", steps=range(1, 30, 2)))
    assert code == 0 and "15 steps compared, 1 to 29" in printed
