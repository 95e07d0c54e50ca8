"""What AutoTrainer of the pinned versions does as it is, and with each workaround of the lesson."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddlenlp.trainer import AutoTrainingArguments, PdArgumentParser
from paddlenlp.transformers.llama.modeling_auto import LlamaPretrainingCriterion3DAuto

from xpulab.chapters.shared import workarounds

AUTO_TRAINER = "paddlenlp.trainer.auto_trainer"
WORKED = "no error"


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
