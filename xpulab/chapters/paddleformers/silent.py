"""What the successor does silently: files that do not fit, options that change nothing. Each case says what is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from safetensors.numpy import load_file

from xpulab.chapters.paddleformers import moved, same_model, successor
from xpulab.chapters.shared.processes import run_each_apart

_NORM, _UP = "model.norm.weight", "model.layers.0.mlp.up_proj.weight"
Found = dict[str, tuple[str, str]]
Train = Callable[..., tuple[Any, list[float]]]
"""The function of the lesson: it takes a network and settings, and returns the trainer and the losses."""


def kind(loaded: Any, wanted: np.ndarray) -> str:
    """Of a load: "the model", "another model", or "refused" where it raised. loaded: logits, or the name of an error."""
    if isinstance(loaded, str):
        return "refused"
    return "the model" if np.abs(loaded - wanted).max() < 1e-4 else "another model"


class Damaged:
    """Folders with a model whose file does not fit, and what loading them does."""

    def __init__(self, folder: Path, start: Path, logits: Callable[[Any], np.ndarray], new_model: Callable[..., Any]) -> None:
        """start: the right folder. logits: of a network. new_model: loads a folder."""
        self._folder, self._start, self._logits, self._new = folder, start, logits, new_model
        self._wanted = logits(new_model(start))
        stored = load_file(start / "model.safetensors")
        without = {name: value for name, value in stored.items() if name != _UP}
        shorter = {**stored, _NORM: stored[_NORM][:32].copy(), _UP: stored[_UP][:64].copy()}
        for name, content in (("whole", stored), ("shared", stored), ("missing", without), ("other shape", shorter)):
            same_model.write(folder / name, content)

    def loads(self, name: str) -> str:
        """What the default load of a folder gives."""
        return kind(successor.outcome(lambda: self._logits(self._new(self._folder / name))), self._wanted)

    def defects(self) -> Found:
        """By case what it does and what is right; all of them are known issues of 1.2.0."""
        missing = self._folder / "missing"
        unchecked = successor.outcome(lambda: self._logits(moved.load(missing, load_checkpoint_format="")))
        return {
            "another shape": (self.loads("other shape"), "refused"),
            "a weight is missing, format ''": (kind(unchecked, self._wanted), "refused"),
            "the right file after a failed load": (self._after_failure(), "the model"),
            "the folder afterwards": (self._folder_after_load(), "as it was"),
        }

    def wrong_of(self, case: str) -> str:
        """What must not pass for the result of a case."""
        return {"the right file after a failed load": "refused", "the folder afterwards": "a new file"}.get(case, "the model")

    def after_failure(self) -> np.ndarray:
        """The logits of the right file, loaded after a failed load with the workaround between them."""
        successor.outcome(lambda: self._new(self._folder / "missing"))
        with successor.quiet():
            return self._logits(self._new(self._start))

    def files_of_a_shared_folder(self, load_a_copy: bool) -> list[str]:
        """The files of a folder with the right model after a copy of it was loaded, or the folder itself."""
        shared = self._folder / "shared"
        successor.outcome(lambda: self._new(successor.copied(shared, self._folder / "copy") if load_a_copy else shared))
        return sorted(path.name for path in shared.iterdir())

    def _after_failure(self) -> str:
        with successor.quiet():
            for folder in ("missing", "whole"):
                try:
                    found: Any = self._logits(self._new(self._folder / folder))
                except Exception as error:  # of any class
                    found = type(error).__name__
        successor.forget_failed_load()
        return kind(found, self._wanted)

    def _folder_after_load(self) -> str:
        copy = successor.copied(self._folder / "whole", self._folder / "looked-at")
        before = {path.name for path in copy.iterdir()}
        successor.outcome(lambda: self._new(copy))
        return "as it was" if {path.name for path in copy.iterdir()} == before else "a new file"


def types_after(new_model: Callable[..., Any], train: Train, **settings: Any) -> list[str]:
    """The types of the weights after a step of training with these settings."""
    network = new_model()
    train(network, max_steps=1, **settings)
    return sorted({str(value.dtype) for value in network.parameters()})


def options(
    new_model: Callable[..., Any],
    add_adapter: Callable[..., Any],
    train: Train,
    trainers: Any,
    at_start: np.ndarray,
    logits: Callable[[Any], np.ndarray],
) -> dict[str, tuple[Any, Any, Any]]:
    """By case what happens, what is right and what is wrong; all of them are known issues of 1.2.0."""
    refused_or = {str: "refused"}

    def of(call: Callable[[], Any], otherwise: str) -> str:
        return refused_or.get(type(successor.outcome(call)), otherwise)

    nowhere = of(lambda: add_adapter(new_model(), targets=["llama.layers.0.self_attn.q_proj"]), "accepted")
    ignored = kind(successor.outcome(lambda: logits(new_model(attn_impl="no such attention"))), at_start)
    bare = of(lambda: trainers.TrainingArguments(output_dir="out"), "accepted")
    level = {"fp16_opt_level": "O2", "amp_master_grad": True}
    half, other_half = (
        successor.outcome(lambda: ", ".join(types_after(new_model, train, bf16=True, **level))),
        successor.outcome(lambda: ", ".join(types_after(new_model, train, fp16=True, **level))),
    )
    flex = successor.outcome(lambda: _resumed_flex(new_model, train))
    history = _history_after(new_model, train)
    return {
        "adapter with targets that match nothing": (nowhere, "refused", "accepted"),
        "attention that does not exist, attn_impl": (ignored, "refused", "the model"),
        "TrainingArguments without options": (bare, "accepted", "refused"),
        "bf16 on this device": (half, "paddle.bfloat16", "paddle.float32"),
        "fp16 on this device": (other_half, "paddle.float16", "AttributeError"),
        "resume from flex_checkpoint": (flex if isinstance(flex, str) else "resumed", "resumed", "AttributeError"),
        "entries of log_history": (history, 1, 0),
    }


def _resumed_flex(new_model: Callable[..., Any], train: Train) -> list[float]:
    trainer, _ = train(new_model(), save_strategy="steps", save_steps=1, max_steps=2)
    return train(new_model(), resume=f"{trainer.args.output_dir}/checkpoint-1", max_steps=2)[1]


def _history_after(new_model: Callable[..., Any], train: Train) -> int:
    """How many losses the state of a trainer keeps after a step."""
    trainer, _ = train(new_model(), max_steps=1)
    return sum("loss" in entry for entry in trainer.state.log_history)


def resumed_with_fleet(start: str, folder: Path, device: str) -> Mapping[str, Sequence[float]]:
    """The losses of four steps, and of two after a resume from the default format, in a new process that called fleet.init."""
    return run_each_apart(_resume_with_fleet, [(start, str(folder))], device)[0]


def _resume_with_fleet(given: tuple[str, str]) -> dict[str, list[float]]:
    start, folder = given
    with successor.quiet():
        models, trainers = (successor.module(name) for name in ("transformers", "trainer"))
        successor.silence_log()
        from paddle.distributed import fleet

        fleet.init(is_collective=True)
        tokenizer = models.AutoTokenizer.from_pretrained(start)
        rows = same_model.examples(tokenizer, same_model.instructions())

        class Rows(paddle.io.Dataset):
            def __len__(self) -> int:
                return len(rows)

            def __getitem__(self, index: int) -> Any:
                return rows[index]

        class Losses(trainers.TrainerCallback):  # type: ignore[name-defined]
            def __init__(self) -> None:
                self.losses: list[float] = []

            def on_log(self, args: Any, state: Any, control: Any, logs: dict | None = None, **others: Any) -> None:
                if logs and logs.get("loss") is not None:
                    self.losses.append(float(logs["loss"]))

        def collate(examples: Any) -> dict[str, Any]:
            return {name: paddle.to_tensor(value) for name, value in same_model.batch(examples).items()}

        found = {}
        saving = {"save_strategy": "steps", "save_steps": 3}
        for name, resume in (("whole", None), ("resumed", f"{folder}/checkpoint-3")):
            args = trainers.TrainingArguments(output_dir=folder, amp_master_grad=False, **{**same_model.SFT, **saving})
            history = Losses()
            with paddle.utils.unique_name.guard():
                trainer = trainers.Trainer(
                    model=moved.load(Path(start)), args=args, train_dataset=Rows(), data_collator=collate, callbacks=[history]
                )
                trainer.train(resume_from_checkpoint=resume)
            found[name] = history.losses
        return found
