"""What AutoTrainer of the pinned versions does as it is, and with each workaround of the lesson."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddlenlp.trainer import AutoTrainingArguments, PdArgumentParser, TrainerCallback
from paddlenlp.trainer.trainer_callback import TrainerState
from paddlenlp.transformers.llama.modeling_auto import LlamaPretrainingCriterion3DAuto

from xpulab.chapters.auto_parallel.resharding import whole
from xpulab.chapters.shared import workarounds
from xpulab.checks.table import Table

AUTO_TRAINER = "paddlenlp.trainer.auto_trainer"
WORKED = "no error"

Run = tuple[list[float], dict[str, list[np.ndarray]], dict[str, int]]
"""Losses, states after each step, and how often the trainer's state was asked for and written."""


def without_and_with(
    names_of_before: Callable[[], None],
    sum_before_cut: Callable[[], None],
    trainer_class: Callable[[type], type],
    new_model: Callable[[Any], Any],
    rows: Sequence[Any],
    options: str,
    folder: str,
) -> dict[str, Any]:
    """On one of two ranks: each thing that AutoTrainer needs, as it is and with its workaround, to what was found.

    names_of_before: the workaround for the import. sum_before_cut: for a summand that is cut.
    trainer_class: for the optimizer and the order of the rows; gives the class for a class of optimizer.
    new_model: makes AutoTrainer's model from its arguments. options: they shard the optimizer over both ranks.
    folder: for a checkpoint.
    """
    dist.init_parallel_env()
    workarounds.silence_paddlenlp_log()
    workarounds.silence_checkpoint_log()
    workarounds.load_checkpoints_on_cpu()
    found: dict[str, Any] = {"import": message_of(lambda: importlib.import_module(AUTO_TRAINER))}
    found["a wrong name"] = message_of(lambda: importlib.import_module(f"{AUTO_TRAINER}s"))
    names_of_before()
    found["import, workaround"] = message_of(lambda: importlib.import_module(AUTO_TRAINER))
    found["a summand that is cut"] = cut_summand()
    sum_before_cut()
    found["a summand that is cut, workaround"] = cut_summand()
    saved: Any = {"model": {"weight": paddle.ones([2])}}  # the form in which AutoTrainer saves and loads
    dist.save_state_dict(saved, folder)
    found["a checkpoint in dicts"] = message_of(lambda: dist.load_state_dict(saved, folder))
    load_in_one_dict()
    found["a checkpoint in dicts, workaround"] = message_of(lambda: dist.load_state_dict(saved, folder))
    (args,) = PdArgumentParser(AutoTrainingArguments).parse_args_into_dataclasses(options.split(), look_for_args_file=False)
    model = new_model(args)
    given = dict(model=model, args=args, criterion=LlamaPretrainingCriterion3DAuto(model.config), train_dataset=rows)
    stock, ordered = importlib.import_module(AUTO_TRAINER).AutoTrainer, trainer_class(paddle.optimizer.SGD)
    sgd = paddle.optimizer.SGD(0.1, parameters=model.parameters())
    found["an optimizer of your own"] = message_of(lambda: stock(**given, optimizers=(sgd, None)))
    found["an optimizer of your own, workaround"] = message_of(lambda: ordered(**given).create_optimizer_and_scheduler(1))
    for title, kind in (("rows in their order", stock), ("rows in their order, workaround", ordered)):
        found[title] = [row for batch in kind(**given)._get_train_sampler() for row in batch]
    return found


def cut_summand() -> np.ndarray:
    """This rank's part of the sum of 1 to 4 on rank 0 and twice that on rank 1; zeros where Paddle refuses it."""
    mesh = dist.ProcessMesh([0, 1], dim_names=["x"])
    summand = paddle.arange(1, 5, dtype="float32") * (1 + dist.get_rank())
    try:
        placed = dist.auto_parallel.api.dtensor_from_local(summand, mesh, [dist.Partial()])
        return dist.reshard(placed, mesh, [dist.Shard(0)])._local_value().numpy()
    except NotImplementedError:
        return np.zeros(2, dtype="float32")


def message_of(call: Callable[[], Any]) -> str:
    """The error message of a call, or WORKED."""
    try:
        call()
    except (ImportError, RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return WORKED


def load_in_one_dict() -> None:
    """Let AutoTrainer go on from a checkpoint: it gives dist.load_state_dict dicts in a dict, which Paddle 3.3 refuses.

    With it, in this process, the tensors have the names that saving made, such as model.lm_head.weight, in one dict. Source:
    Paddle 3.3.1, distributed/flex_checkpoint/dcp/utils.py, check_resumable_locally.
    """
    real = dist.load_state_dict

    def load_state_dict(state_dict: dict[str, Any], *given: Any, **named: Any) -> None:
        parts = {part: values for part, values in state_dict.items() if isinstance(values, dict)}
        flat = {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
        real(flat or state_dict, *given, **named)

    dist.load_state_dict = load_state_dict


def write_state_on_one_rank() -> dict[str, int]:
    """Let only rank 0 write trainer_state.json.

    AutoTrainer lets every rank write it, at the same time and with a text of another length, so the file may end in what is
    left of the longer one: "Extra data" when it is read. Source: PaddleNLP 3.0.0b4, trainer/training_args.py, should_save.
    Returns how often this rank was "asked" to write the file and "wrote" it, counted from now on.
    """
    real, counts = TrainerState.save_to_json, {"asked": 0, "wrote": 0}

    def save_to_json(self: Any, path: str) -> None:
        counts["asked"] += 1
        if dist.get_rank() == 0:
            counts["wrote"] += 1
            real(self, path)

    TrainerState.save_to_json = save_to_json
    return counts


class StatesOfSteps(TrainerCallback):
    """Keeps all weights and moments, whole and in one array, after each step.

    states: by "weights" and "moments" what they were after each step.
    """

    def __init__(self) -> None:
        self.states: dict[str, list[np.ndarray]] = {"weights": [], "moments": []}

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **others: Any) -> None:
        accumulators = getattr(optimizer, "_inner_opt", optimizer)._accumulators
        moments = [each for name in ("moment1", "moment2") for each in accumulators[name].values()]
        for name, tensors in (("weights", model.parameters()), ("moments", moments)):
            self.states[name].append(np.concatenate([whole(tensor).ravel() for tensor in tensors]))


def add_resumed(rows: Table, title: str, rank: int, found: Run, right: Run, coarse: float) -> None:
    """Add rows: what a rank did after the second of four steps, what it held at the end, and whether it wrote the state.

    found, right: losses, states as in StatesOfSteps, counts as in write_state_on_one_rank; right of a run that was not stopped.
    """
    (losses, states, _), (expected, of_whole, counts), title = found, right, f"{title}, rank {rank}"
    rows.close(f"losses, {title}", losses, expected[2:], rtol=1e-5 + coarse, control=expected[:2])
    for what, (*_, before_last, last) in of_whole.items():
        rows.close(f"{what}, {title}", states[what][-1], last, atol=1e-5 + coarse, control=before_last)
    rows.equal(f"written states, {title}", counts, {"asked": 2, "wrote": 2 - 2 * rank}, control={"asked": 2, "wrote": 2 * rank})


def in_stages(train: Callable[[type, str], tuple[list[float], Any]], options: str) -> tuple[list[float], dict[str, np.ndarray]]:
    """On a rank: the losses of a pipeline, and the weights of its stage. train: to losses and trainer."""
    AutoTrainingArguments.pipeline_schedule_mode = "FThenB"  # which the arguments read, and do not declare
    losses, trainer = train(paddle.optimizer.AdamW, options)
    weights = trainer.model.named_parameters()
    return losses, {name: weight._local_value().numpy() for name, weight in weights if weight._is_initialized()}


def add_stages(
    rows: Table, of_stages: Sequence[tuple[list[float], dict[str, np.ndarray]]], losses: list[float], model: Any
) -> None:
    """Add rows: losses of each rank and all weights beside those of one process. of_stages: by rank what in_stages returned."""
    for rank, (found, held) in enumerate(of_stages):
        rows.close(f"losses, rank {rank}", found, losses, rtol=1e-3, atol=1e-3, control=losses[::-1])
        rows.equal(
            f"weights of the other stage, rank {rank}", len(held.keys() & of_stages[1 - rank][1].keys()), 0, control=len(held)
        )
    for name, weight in model.named_parameters() if of_stages else ():
        last = (of_stages[0][1] | of_stages[1][1])[name]
        rows.close(name, last, weight.numpy(), atol=5e-3, control=weight.numpy() + 0.05)
