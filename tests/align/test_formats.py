"""Logs as trainers write them, compared with one of xpulab.align.Log by the command: the format is recognized, and said."""

from __future__ import annotations

import json
import math

import pytest
from typer.testing import CliRunner

from xpulab import cli

STEPS = range(1, 41)
PADDLENLP = (
    "loss: {loss:.8f}, learning_rate: {rate}, global_step: {step}, interval_runtime: 1.9, ppl: 33.1, progress_or_epoch: 0.1"
)


def values(step, factor=1.0):
    """The numbers of a step."""
    loss = (4 * math.exp(-step / 30) + 0.1 * math.sin(step * step)) * factor
    return {"step": step, "loss": loss, "norm": 1 + math.sin(step) / 3, "rate": float(f"{1e-3 * (1 - step / 100):.3e}")}


def each(line, head=(), tail=(), steps=STEPS):
    """A text with a line for each step."""
    return lambda change: "\n".join([*head, *(line.format(**values(step, change(step))) for step in steps), *tail]) + "\n"


def records(make, steps=STEPS):
    """A text with a line of JSON for each step."""
    return lambda change: "".join(json.dumps(make(**values(step, change(step)))) + "\n" for step in steps)


def state(change):
    rows = [values(step, change(step)) for step in STEPS]
    history = [
        {"loss": row["loss"], "grad_norm": row["norm"], "learning_rate": row["rate"], "step": row["step"]} for row in rows
    ]
    history.insert(9, {"eval_loss": 2.5, "step": 9})
    return json.dumps({"global_step": 40, "log_history": [*history, {"train_loss": 2.0, "train_runtime": 9.0}]}, indent=2)


# what the file is called, its text for factors by step, what is said of it
FORMATS = {
    "PaddleNLP": (
        "train.log",
        each(
            "\x1b[32m[2026-05-12 09:15:01,037] [    INFO]\x1b[0m - " + PADDLENLP,
            head=["[2026-05-12] [ WARNING] - Process rank: 0, 16-bits training: False", "  - eval_loss: 3.5, eval_ppl: 33"],
            tail=["[    INFO] - train_runtime: 9.1, train_loss: 2.2, progress_or_epoch: 1.0"],
        ),
        "PaddleNLP or PaddleFormers, console",
    ),
    "trainer_state": ("trainer_state.json", state, "trainer_state.json"),
    "transformers": (
        "out.txt",
        each(
            "{{'loss': {loss:.4f}, 'grad_norm': {norm}, 'learning_rate': {rate}, 'epoch': 0.1}}",
            head=["  0%|   | 0/40 [00:00<?]"],
        ),
        "transformers, console",
    ),
    "LlamaFactory": (
        "trainer_log.jsonl",
        records(lambda step, loss, rate, norm: {"current_steps": step, "total_steps": 40, "loss": round(loss, 4), "lr": rate}),
        "LlamaFactory, JSON lines",
    ),
    "ms-swift": (
        "logging.jsonl",
        records(
            lambda step, loss, rate, norm: {
                **{"loss": round(loss, 8), "grad_norm": norm, "learning_rate": rate},
                **{"global_step/max_steps": f"{step}/40", "memory(GiB)": 4.8},
            }
        ),
        "ms-swift, JSON lines",
    ),
    "torchtitan": (
        "titan.log",
        each("[titan] - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss: {loss:8.5f}  grad_norm: {norm:7.4f}  tps: 7,9  mfu: 2%"),
        "torchtitan, console",
    ),
    "Megatron": (
        "megatron.log",
        each(
            " [2026-08-01] iteration {step:8d}/      40 | elapsed time per iteration (ms): 9.1 | learning rate: {rate:.6E} | "
            "lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {norm:.3f} | number of nan iterations:   0 |",
            tail=[" validation loss at iteration 40 | lm loss value: 9.9E+00 | lm loss PPL: 2.0E+01 |"],
        ),
        "Megatron, console",
    ),
    "a loop": ("print.txt", each("iter {step}: loss {loss:.6f}, time 9.1ms", head=["number of parameters: 9"]), "console"),
    "CSV": ("log.csv", each("{step},{loss:.6f},{norm:.6f},,{rate}", head=["Step,train/loss,grad_norm,val_loss,lr"]), "table"),
    "TensorBoard's CSV": ("tb.csv", each("17.5,{step},{loss:.6f}", head=["Wall time,Step,Value"]), "table"),
    "wandb's CSV": ("w.csv", each('"{step}","{loss:.6f}"', head=['"Step","run-7 - train/loss"']), "table"),
    "tabs": ("notebook.tsv", each("{step}\t{loss:.6f}", head=["Step\tTraining Loss"]), "table"),
}


def run(*arguments):
    """The command: exit code, what it printed, its error message."""
    done = CliRunner().invoke(cli.app, ["align", *map(str, arguments)], catch_exceptions=False)
    return done.exit_code, " ".join(done.stdout.split()), done.stderr


@pytest.fixture
def ours(tmp_path):
    """The log of xpulab.align.Log."""
    header = {"format": "xpulab.align/1", "environment": {"settings": {"dtype": "float32"}}}
    rows = [values(step) for step in STEPS]
    rows = [{"step": row["step"], "loss": row["loss"], "grad_norm": row["norm"], "learning_rate": row["rate"]} for row in rows]
    path = tmp_path / "ours.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *rows)))
    return path


def usual(step):
    return 1.0


@pytest.mark.parametrize(("name", "text", "said"), FORMATS.values(), ids=FORMATS)
def test_a_format_is_recognized_and_a_loss_that_changes_is_found(ours, tmp_path, name, text, said):
    (tmp_path / name).write_text(text(usual))
    code, printed, error = run(ours, tmp_path / name)
    assert (
        (code, error) == (0, "") and f"({said}" in printed and "40 steps compared" in printed and "verdict: right: " in printed
    ), printed
    (tmp_path / name).write_text(text(lambda step: 1.0 if step < 20 else 1.3))
    code, printed, _ = run(ours, tmp_path / name)
    assert code == 1 and "differs from step 20 on: the loss of b is 1.30 times that of a" in printed


LINES = FORMATS["PaddleNLP"][1](usual).splitlines(keepends=True)
RANKED = "".join(f"[rank{rank}]: {line}" for line in LINES for rank in (0, 1))
TEXTS = {
    "BOM": (b"\xef\xbb\xbf" + "".join(LINES).encode(), ""),
    "UTF-16": ("".join(LINES).encode("utf-16"), ""),
    "UTF-16 without BOM": ("".join(LINES).encode("utf-16-le"), ""),
    "CRLF": ("".join(LINES).replace("\n", "\r\n").encode(), ""),
    "ranks with names": (RANKED.encode(), "lines of 2 processes"),
    "ranks without": ("".join(line + line for line in LINES).encode(), "lines of 2 processes"),
    "a restart": ("".join([*LINES[:32], *LINES[22:]]).encode(), "begins again, at last at step 21: the 10 lines before"),
}


@pytest.mark.parametrize(("text", "said"), TEXTS.values(), ids=TEXTS)
def test_encodings_ends_of_lines_ranks_and_restarts(ours, tmp_path, text, said):
    (tmp_path / "b.log").write_bytes(text)
    code, printed, error = run(ours, tmp_path / "b.log")
    assert (code, error) == (0, "") and "40 steps compared" in printed and said in printed


@pytest.mark.parametrize("tag", ["train/loss", "loss"])
def test_event_files_of_visualdl_are_read_by_visualdl(ours, tmp_path, tag):
    from visualdl import LogWriter

    with LogWriter(logdir=str(tmp_path / "vdl")) as writer:
        for step in STEPS:
            writer.add_scalar(tag, values(step)["loss"], step)
            writer.add_scalar("learning_rate", values(step)["rate"], step)
    code, printed, error = run(ours, tmp_path / "vdl")
    assert (code, error) == (0, "") and "(event files of visualdl, 40 steps)" in printed and "learning_rate" in printed


def test_event_files_of_tensorboard_are_read_by_tensorboard_or_it_is_named(ours, tmp_path):
    (tmp_path / "tb").mkdir()
    (tmp_path / "tb" / "events.out.tfevents.1").write_bytes(b"")
    code, _, error = run(ours, tmp_path / "tb")
    assert code == 2 and ("pip install tensorboard" in error or "no step in it" in error)


def test_a_column_that_cannot_be_guessed_is_named(ours, tmp_path):
    path = tmp_path / "b.csv"
    path.write_text(each("{step},{loss:.6f}", head=["n,objective"])(usual))
    code, _, error = run(ours, path)
    assert code == 2 and "n, objective" in error and "--column loss=NAME" in error
    assert run(ours, path, "--column", "loss=objective", "--column", "step=n")[0] == 0
    (tmp_path / "b.log").write_text(each("n={step} objective={loss:.6f}")(usual))
    assert run(ours, tmp_path / "b.log", "--column", "loss=objective", "--column", "step=n")[0] == 0
    assert run(ours, path, "--column", "objective")[0] == 2


def test_a_mean_of_ten_steps_is_compared_with_the_mean_of_ten_steps(ours, tmp_path):
    rows = [
        {"step": last, "loss": round(sum(values(step)["loss"] for step in range(last - 9, last + 1)) / 10, 8)}
        for last in range(10, 41, 10)
    ]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
    code, printed, _ = run(ours, tmp_path / "trainer_state.json")
    assert code == 0 and "the mean of 1 steps in a and of 10 in b" in printed
    rows[2]["loss"] *= 1.01
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
    assert run(ours, tmp_path / "trainer_state.json")[0] == 1


def test_digits_are_those_of_the_file(ours, tmp_path):
    (tmp_path / "b.csv").write_text(each("{step},{loss:.3g},{rate:.2e}", head=["step,loss,lr"])(usual))
    code, printed, _ = run(ours, tmp_path / "b.csv")
    assert code == 0 and "loss is rounded" in printed
    (tmp_path / "b.csv").write_text(each("{step},{loss:.6f},{rate:.2e}", head=["step,loss,lr"])(lambda step: 1.001))
    assert run(ours, tmp_path / "b.csv")[0] == 1


def test_an_empty_history_says_what_has_the_losses(ours, tmp_path):
    (tmp_path / "trainer_state.json").write_text('{"log_history": []}')
    code, _, error = run(ours, tmp_path / "trainer_state.json")
    assert code == 2 and "log_history is empty" in error and "console" in error


def test_progress_bars_and_decimal_commas_are_read_and_a_long_first_line_is_refused(tmp_path):
    bar = "".join(f"\rEpoch 1: {step}%|## | {step}/40 [00:01<00:50, 1.2it/s, loss={4 - step / 20:.3f}]" for step in STEPS)
    table = "step;loss\n" + "".join(f"{step};{4 - step / 20:.3f}\n".replace(".", ",") for step in STEPS)
    (tmp_path / "bar.log").write_text(bar, newline="")
    (tmp_path / "table.csv").write_text(table)
    (tmp_path / "long.csv").write_text("x" * 200_000 + "\n")
    read, refused = (
        CliRunner().invoke(cli.app, ["align", str(tmp_path / name), str(tmp_path / "table.csv")])
        for name in ("bar.log", "long.csv")
    )
    assert read.exit_code == 0, read.output
    assert refused.exit_code == 2 and "long.csv" in refused.output and "_csv" not in refused.output
