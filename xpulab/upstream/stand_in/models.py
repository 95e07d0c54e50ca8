"""In place of what chapters.shared.models does for pretrained models: a script uses the tiny models of its folder data/."""

from pathlib import Path
from types import SimpleNamespace

DATA = Path(__file__).resolve().parent / "data"


def _folder_of_weights(model):
    """The folder of a tiny model; the stand-in of a pretrained one has the same architecture and random weights."""
    folder = DATA / "models" / model
    return str(folder if folder.is_dir() else DATA / "models" / "tiny-smollm2")


def folder_of(model):
    """The folder from which PaddleNLP loads the model and its tokenizer."""
    return _folder_of_weights(model)


def _holds_weights(folder):
    """Whether weights are in the folder; without, they are random."""
    return any(Path(folder).glob("*.safetensors")) or any(Path(folder).glob("*.pdparams"))


def has_weights(model):
    """Whether the model comes with weights."""
    return _holds_weights(_folder_of_weights(model))


def chosen(model):
    """The folder of the model, and that it is not pretrained."""
    folder = _folder_of_weights(model)
    return SimpleNamespace(folder=folder, is_real=_holds_weights(folder), sentence="a tiny model")


def live_loss():
    """A callback that does nothing: nobody watches a script."""
    from paddlenlp.trainer import TrainerCallback

    return TrainerCallback()


def require(*, memory, disk, seconds):
    """A tiny model needs little."""


def use_all_cores():
    """A tiny model needs one."""
