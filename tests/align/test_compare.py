"""What two logs that were written by hand say: where they part, whether noise explains it, and what may."""

from __future__ import annotations

import json

import jsonschema
import pytest
from typer.testing import CliRunner

from xpulab import cli, files
from xpulab.align.compare import DIFFERS, SAME, WITHIN, align
from xpulab.align.report import format_alignment, to_json


def run(*arguments):
    """The command: exit code, what it printed, its error message."""
    done = CliRunner().invoke(cli.app, ["align", *map(str, arguments)], catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


def from_step(first, **changed):
    """Changes a step from one on: by factors, or a function of the step."""

    def change(step):
        if step["step"] >= first:
            step.update({name: step[name] * value if isinstance(value, float) else value for name, value in changed.items()})

    return change


def test_a_log_and_itself_are_the_same_to_the_bit(log):
    found = align(log("a"), log("b"))
    assert (found.verdict, found.bit, found.beyond, found.environment) == (SAME, None, None, ())
    assert run(log("a"), log("b"))[0] == 0


def test_rounding_differs_to_the_bit_and_is_within_the_model(log):
    found = align(log("a"), log("b", from_step(7, loss=1 + 2.0**-23)))
    assert (found.verdict, found.bit.step, found.bit.place, found.beyond) == (WITHIN, 7, "forward", None)
    assert found.band.kind == "model" and "not measured" in format_alignment(found)


PARTINGS = {
    "another batch": ({"batch": "f" * 16}, "batch"),
    "another learning rate": ({"learning_rate": 1.01}, "learning rate"),
    "another loss": ({"loss": 1.01}, "forward"),
    "other gradients": ({"grad_norm": 1.01}, "backward"),
    "other weights": ({"weights": 1.01, "loss": 1.01, "grad_norm": 1.01}, "update"),
}


@pytest.mark.parametrize(("changed", "place"), PARTINGS.values(), ids=PARTINGS)
def test_the_step_and_its_part_that_differ_first_are_named(log, changed, place):
    found = align(log("a"), log("b", from_step(9, **changed)))
    assert (found.verdict, found.bit.step, found.beyond.step, found.beyond.place) == (DIFFERS, 9, 9, place)
    assert set(found.beyond.quantities) == set(changed)
    assert run(log("a"), log("b", from_step(9, **changed)))[0] == 1


def test_other_weights_at_the_first_step_are_no_update(log):
    assert align(log("a"), log("b", from_step(1, weights=1.01, loss=1.01))).beyond.place == "weights"


def test_a_difference_that_grows_is_found_where_it_leaves_the_noise(log):
    def drift(step):
        step["loss"] *= 1 + 2.0**-24 * 1.5 ** step["step"]

    found = align(log("a"), log("b", drift))
    (loss,) = [quantity for quantity in found.quantities if quantity.name == "loss"]
    assert found.bit.step < found.beyond.step == loss.first_beyond < 40
    assert loss.difference > loss.width and found.trend.kind == "grows" and found.trend.above == 1


def test_measured_noise_takes_the_place_of_the_model(log):
    a = log("a")
    noisy = log("c", from_step(5, loss=1 + 1e-3))
    other = log("b", from_step(5, loss=1 - 2e-3))
    assert align(a, other).verdict == DIFFERS
    assert align(a, other, [noisy]).verdict == WITHIN
    assert align(a, log("d", from_step(5, loss=1.1)), [noisy]).beyond.step == 5
    assert align(a, log("e", from_step(4, loss=1 - 2e-3)), [noisy]).beyond.step == 4, "noise of later steps does not excuse it"


def test_a_loss_that_is_no_number_is_red_in_both_logs(log):
    found = align(log("a", from_step(30, loss="nan")), log("b", from_step(30, loss="nan")))
    assert (found.verdict, found.beyond.step, found.bit) == (DIFFERS, 30, None)
    jsonschema.validate(to_json(found), json.loads(files.data("schema", "align.schema.json").read_text()))
    assert "no number" in format_alignment(found)


def test_losses_that_a_trainer_has_rounded_are_compared_to_their_last_decimal(log):
    def rounded(step):
        step["loss"] = round(step["loss"], 4)

    found = align(log("a"), log("b", rounded))
    assert found.verdict == WITHIN and any("loss is rounded" in note for note in found.notes)
    assert align(log("a"), log("c", from_step(12, loss=1.0003))).verdict == DIFFERS


def test_batches_that_are_read_earlier_or_in_another_order_are_said_to_be(log):
    def order(step):
        step["batch"] = f"{(step['step'] + 2) % 6 if step['step'] > 12 else step['step'] % 6:016x}"

    shifted = align(log("a"), log("b", order))
    assert (shifted.batches.parts_at, shifted.batches.shift, shifted.beyond.place) == (13, 2, "batch")

    def swapped(step):
        step["batch"] = f"{ {8: 9, 9: 8}.get(step['step'], step['step']) % 6:016x}"

    exchanged = align(log("a"), log("c", swapped)).batches
    assert (exchanged.parts_at, exchanged.shift, exchanged.reordered) == (8, None, True)


def test_a_resumed_log_begins_later_and_is_compared_from_there(log):
    found = align(log("a"), log("b", steps=range(11, 41)))
    assert (found.verdict, found.numbers[0], len(found.numbers)) == (SAME, 11, 30)
    assert any("b.jsonl begins with step 11" in note for note in found.notes)


def test_only_losses_are_enough(log):
    def bare(step):
        return {"step": step["step"], "loss": step["loss"]}

    found = align(log("a", bare, environment={}), log("b", lambda step: {**bare(step), "loss": step["loss"] * 1.01}))
    assert (found.verdict, found.beyond.place, found.batches.logged) == (DIFFERS, "forward", False)
    later = align(log("a", bare), log("c", lambda step: {**bare(step), "loss": step["loss"] + (step["step"] > 5)}))
    assert later.beyond.place == "update or forward" and "a log of the weights" in format_alignment(later)


# ------------------------------------------------------------------------------------------------------ the environments


def environment(**groups):
    return {"versions": {"paddlepaddle": "3.3.1"}, **groups}


def test_what_fits_the_place_comes_first_and_what_changes_nothing_last(log):
    ours = environment(
        variables={"XPU_VISIBLE_DEVICES": "0", "NVIDIA_TF32_OVERRIDE": "0"}, optimizer={"epsilon": 1e-8}, settings={"mine": 1}
    )
    theirs = environment(variables={"XPU_VISIBLE_DEVICES": "1"}, optimizer={"epsilon": 1e-6}, settings={"mine": 2})
    update = align(log("a", environment=ours), log("b", from_step(2, weights=1.01), environment=theirs)).environment
    assert [(x.name, x.rank) for x in update] == [
        ("optimizer.epsilon", "likely"),
        ("variables.NVIDIA_TF32_OVERRIDE", "possible"),
        ("settings.mine", "unknown"),
        ("variables.XPU_VISIBLE_DEVICES", "unlikely"),
    ]
    forward = align(log("a", environment=ours), log("b", from_step(2, loss=1.01), environment=theirs))
    assert forward.environment[0].name == "variables.NVIDIA_TF32_OVERRIDE"
    assert "10 bits" in forward.environment[0].says and forward.environment[0].source
    assert "NVIDIA_TF32_OVERRIDE: 0 | not recorded" in format_alignment(forward)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("settings.data_seed", "batch"),
        ("settings.seed", "weights"),
        ("settings.bf16", "forward"),
        ("weights.dtype", "forward"),
        ("variables.XPU_PADDLE_FC_LOCAL_INT16", "forward"),
        ("flags.FLAGS_use_stride_kernel", "forward"),
        ("model.fuse_rms_norm", "forward"),
        ("model.use_flash_attention", "forward"),
        ("parallel.processes", "batch"),
        ("settings.tensor_parallel_degree", "backward"),
        ("variables.BKCL_TREE_THRESHOLD", "backward"),
        ("settings.learning_rate", "learning rate"),
        ("settings.max_grad_norm", "update"),
        ("optimizer.weight_decay", "update"),
    ],
)
def test_what_is_known_to_act_at_a_place_is_likely_there(log, name, place):
    group, _, key = name.partition(".")
    changed = {"batch": {"batch": "f" * 16}, "weights": {"weights": 1.01}, "learning rate": {"learning_rate": 1.01}}
    changed |= {"forward": {"loss": 1.01}, "backward": {"grad_norm": 1.01}, "update": {"weights": 1.01}}
    first = 1 if place == "weights" else 3
    a = log("a", environment=environment(**{group: {key: 1}}))
    b = log("b", from_step(first, **changed[place]), environment=environment(**{group: {key: 2}}))
    (difference,) = align(a, b).environment
    assert (difference.name, difference.rank) == (name, "likely") and difference.says and difference.source


def test_when_nothing_recorded_differs_the_next_thing_to_look_at_is_named(log):
    printed = run(log("a"), log("b", from_step(3, grad_norm=1.01)))[1]
    assert "nothing recorded differs" in printed and "look next" in printed and "xpulab shapes" in printed


def test_half_types_have_a_wider_model_only_when_both_trainings_use_them(log):
    half, single = ({"weights": {"dtype": name}} for name in ("bfloat16", "float32"))
    change = from_step(1, loss=1 + 5e-4)
    assert align(log("a", environment=half), log("b", change, environment=half)).verdict == WITHIN
    assert align(log("a", environment=half), log("b", change, environment=single)).verdict == DIFFERS


# ---------------------------------------------------------------------------------------------------------- the command


def test_the_report_as_json_fits_its_schema_and_says_what_the_text_says(log):
    code, printed, _ = run(log("a"), log("b", from_step(9, loss=1.01)), "--json")
    report = json.loads(printed)
    jsonschema.validate(report, json.loads(files.data("schema", "align.schema.json").read_text()))
    assert (code, report["verdict"], report["first_beyond"]["step"]) == (1, DIFFERS, 9)
    text = run(log("a"), log("b", from_step(9, loss=1.01)))[1]
    assert text.splitlines()[-1] == f"verdict: {report['summary']}" and "first at step 9" in text


def test_a_picture_is_written_where_it_is_asked_for(log, tmp_path):
    code, _, _ = run(log("a"), log("b", from_step(9, loss=1.01)), "--picture", tmp_path / "p.png")
    assert code == 1 and (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    code, _, error = run(log("a"), log("b"), "--picture", tmp_path / "nowhere" / "p.png")
    assert code == 2 and "nowhere" in error and "name a .png" in error


HEADER = '{"format": "xpulab.align/1", "environment": {}}\n'
GOOD = '{"step": 1, "loss": 4.25}\n{"step": 2, "loss": 4.125}\n'

# the text of b, what the message says
WRONG = {
    "no file": (None, ["b.jsonl: cannot be read", "xpulab.align.Log"]),
    "an empty file": ("", ["b.jsonl line 1: empty"]),
    "no step": (HEADER, ["b.jsonl line 1: no step follows"]),
    "another file": ('{"round": 1}\n', ["b.jsonl line 1: not a log of a training", "xpulab.align.Log"]),
    "another format": (HEADER.replace("/1", "/9") + GOOD, ["b.jsonl line 1: format", "align_log.schema.json"]),
    "text": ("loss 4.2\n", ["b.jsonl line 1: not JSON"]),
    "a damaged line": (HEADER + '{"step": 1, "lo\n{"step": 2, "loss": 4.1}\n', ["b.jsonl line 2: not JSON", "copy it again"]),
    "a line that was cut": (HEADER + GOOD + '{"step": 3, "lo', ["b.jsonl line 4: not JSON", "remove this line"]),
    "no loss": (HEADER + '{"step": 1}\n', ["b.jsonl line 2", "'loss' is a required property"]),
    "an unknown field": (HEADER + '{"step": 1, "loss": 4.2, "los": 1}\n', ["b.jsonl line 2", "'los' was unexpected"]),
    "a loss as text": (HEADER + '{"step": 1, "loss": "4.2"}\n', ["b.jsonl line 2: loss"]),
    "a list": (HEADER + "[1, 4.2]\n", ["b.jsonl line 2: expected an object, found list"]),
    "steps backwards": (HEADER + GOOD + GOOD, ["b.jsonl line 4: step 1 comes after step 2", "log of its own"]),
    "two logs in one file": (HEADER + GOOD + HEADER, ["b.jsonl line 4", "split it"]),
    "an early end": (HEADER + GOOD, ["b.jsonl line 3: the log ends with step 2", "to step 4", "--common"]),
    "a gap": (
        HEADER + GOOD + '{"step": 4, "loss": 3.9}\n',
        ["b.jsonl line 4: step 3, which", "a.jsonl has, is missing", "--common"],
    ),
    "other steps": (
        HEADER + '{"step": 9, "loss": 1.5}\n',
        ["no step in common", "a.jsonl has steps 1 to 4", "b.jsonl has steps 9"],
    ),
    "not UTF-8": (HEADER.encode() + b'{"step": 1, "loss": \xff}\n', ["b.jsonl line 2: not UTF-8"]),
}


@pytest.mark.parametrize(("text", "says"), WRONG.values(), ids=WRONG)
def test_bad_input_gives_exit_code_2_and_names_file_line_and_remedy(log, tmp_path, text, says):
    a, b = log("a", steps=range(1, 5)), tmp_path / "b.jsonl"
    if text is not None:
        b.write_bytes(text if isinstance(text, bytes) else text.encode())
    code, printed, error = run(a, b)
    assert (code, printed) == (2, "")
    assert all(part in error for part in says), error
    assert run(b, a)[0] == 2


def test_only_common_steps_are_compared_when_asked_for(log):
    a, b = log("a"), log("b", steps=range(1, 30, 2))
    assert run(a, b)[0] == 2
    code, printed, _ = run(a, b, "--common")
    assert code == 0 and "15 steps compared, 1 to 29" in printed


def test_a_log_of_noise_must_be_of_the_same_training(log):
    a, b = log("a"), log("b", from_step(2, loss=1.001))
    for change, says in (
        (from_step(6, batch="f" * 16), "another batch"),
        (from_step(6, learning_rate=2.0), "another learning"),
    ):
        code, _, error = run(a, b, "--noise", log("c", change))
        assert code == 2 and "c.jsonl line 7" in error and says in error and "perturb" in error
    code, _, error = run(a, b, "--noise", log("c", steps=range(1, 20)))
    assert code == 2 and "c.jsonl line 20: the log ends with step 19" in error
    code, printed, _ = run(a, b, "--noise", log("c"))
    assert code == 1 and "measures no noise" in printed


def test_samples_of_other_weights_are_not_compared(log):
    a = log("a", environment={"weights": {"sampled": "10 elements of 1 tensors"}})
    b = log("b", from_step(1, weights=2.0), environment={"weights": {"sampled": "20 elements of 2 tensors"}})
    found = align(a, b)
    assert found.verdict == SAME and any("weights is not compared" in note for note in found.notes)


def test_after_steps_that_agree_to_the_bit_the_smallest_difference_counts(log):
    small = {"weights": 1 + 1e-8, "grad_norm": 1.01}
    assert align(log("a"), log("b", from_step(2, **small))).beyond.place == "update"
    assert align(log("a"), log("c", from_step(1, **small))).beyond.place == "backward", "at the first step it may be rounding"


def test_what_one_framework_does_not_have_is_less_likely_than_what_both_have(log):
    ours = {
        "flags": {"cuda.matmul.allow_tf32": False},
        "model": {"use_flash_attention": False},
        "weights": {"dtype": "float32"},
    }
    theirs = {"model": {"use_flash_attention": True}, "weights": {"dtype": "bfloat16"}}
    found = align(log("a", environment=ours), log("b", from_step(1, loss=1.1), environment=theirs)).environment
    assert [(difference.name, difference.rank) for difference in found] == [
        ("weights.dtype", "likely"),
        ("model.use_flash_attention", "likely"),
        ("flags.cuda.matmul.allow_tf32", "possible"),
    ]
