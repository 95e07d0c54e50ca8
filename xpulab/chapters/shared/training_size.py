"""How large the training of a chapter is with a model of a given size, and whether this machine has room for it.

The tiny models of data/models learn the answers by heart, and every case is tried with them. A pretrained model is judged by
its improvement over its own start. Each chapter chooses once, by the number of parameters and the level, before anything of the
model is loaded. Steps, batch and learning rate stand in the notebooks.

    size = choose("sft", AutoConfig.from_pretrained(folder), level)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paddlenlp.transformers import AutoConfig

from xpulab.chapters.shared import resources
from xpulab.chapters.shared.models import folder_of
from xpulab.messages import N_
from xpulab.reference.cost import Model

TINY = 5_000_000
"""Models with fewer parameters run every case of a chapter: their states are small, and numpy follows their computations."""
NUMPY_BELOW = 1_000_000_000
"""For a model with fewer parameters numpy computes the logits and gradients of a few examples in minutes, not hours."""


@dataclass(frozen=True)
class Needs:
    """What a chapter with a model that is not tiny needs at its peak.

    memory, disk: bytes for each parameter. other: bytes of memory for everything else.
    seconds: for each million parameters, on two cores.
    """

    memory: float
    other: float
    disk: float
    seconds: float


@dataclass(frozen=True)
class Size:
    """What the sizes of all chapters have; a chapter adds its own fields.

    parameters: of the model. needs: of the chapter.
    """

    parameters: int
    needs: Needs

    @property
    def is_tiny(self) -> bool:
        """Whether the model is tiny: every case is tried, and numpy follows every computation."""
        return self.parameters < TINY

    @property
    def has_numpy(self) -> bool:
        """Whether numpy computes log-probabilities and gradients of the model."""
        return self.parameters < NUMPY_BELOW

    @property
    def seconds(self) -> float:
        """How long the chapter takes with a model that is not tiny, on two cores."""
        return self.needs.seconds * self.parameters / 1e6

    def require(self) -> None:
        """For a model that is not tiny, print what the chapter needs. Raises InputError when memory or disk is not there."""
        if not self.is_tiny:
            resources.require(
                memory=self.needs.memory * self.parameters + self.needs.other,
                disk=self.needs.disk * self.parameters,
                seconds=self.seconds,
            )


@dataclass(frozen=True)
class TrainingSize(Size):
    """How much chapters 02 and 03 repeat, ask and compare with a model of one size.

    repeated: the steps that the proof repeats, 1 or more; also those of a short run.
    loss_share: what the last losses must stay below, as a share of the first one, between 0 and 1.
    heldout_share: the same for the loss on held-out rows.
    questions: how many training questions the model is asked.
    rows_by_numpy: how many examples numpy computes, at most.
    """

    repeated: int
    loss_share: float
    heldout_share: float
    questions: int
    rows_by_numpy: int

    @property
    def means_of_recall(self) -> str:
        """What the check of the answers to training questions states."""
        if self.is_tiny:
            return N_("every training question is answered exactly")
        return N_("the answers to training questions are nearer to the wanted ones than before")

    @property
    def means_of_learning(self) -> str:
        """What a short run does, by `heldout_share`."""
        return (
            N_("halves the loss")
            if self.is_tiny
            else N_("reduces the loss to less than {heldout_share}", heldout_share=f"{self.heldout_share:.0%}")
        )

    @property
    def means_of_new_wording(self) -> str:
        """What the check of the answers to held-out questions states."""
        if self.is_tiny:
            return N_("more than half of the questions in a new wording are answered")
        return N_("the answers to questions in a new wording are nearer to the wanted ones than before")


_SFT = Needs(memory=56, other=0.8e9, disk=6, seconds=1.4)
_LORA = Needs(memory=56, other=1.0e9, disk=8, seconds=1.7)
"""Measured on SmolLM2-135M at level quick, while other programs used the same two cores."""


def choose(chapter: str, config: Any, level: str) -> TrainingSize:
    """What a chapter does with the model of this configuration; nothing of the model has to be loaded yet.

    chapter: "sft" or "lora". level: "smoke", "quick" or "standard". For a model that is not tiny it prints the memory, disk
    and time that the chapter needs. Raises InputError when memory or disk is not there.
    """
    parameters, longer = parameters_in(config), level == "standard"
    size = {
        ("sft", True): TrainingSize(parameters, _SFT, 300 if longer else 20, 0.1, 0.5, 72, 24),
        ("sft", False): TrainingSize(parameters, _SFT, 12 if longer else 3, 0.7, 0.8, 8, 2),
        ("lora", True): TrainingSize(parameters, _LORA, 60 if longer else 12, 0.1, 0.5, 16, 16 if longer else 8),
        ("lora", False): TrainingSize(parameters, _LORA, 12 if longer else 4, 0.8, 0.95, 8, 2),
    }[chapter, parameters < TINY]
    size.require()
    return size


def format_share(share: float) -> str:
    """A share as words: "a tenth", "half", or "70%"."""
    return {0.1: N_("a tenth"), 0.5: N_("half")}.get(share, f"{share:.0%}")


def parameters_of(model: str) -> int:
    """The number of parameters of a model that `folder_of` knows; see parameters_in."""
    return parameters_in(AutoConfig.from_pretrained(folder_of(model)))


def parameters_in(config: Any) -> int:
    """The number of parameters of a decoder with this configuration, tied embeddings counted once.

    Exact for Qwen2 and Llama; other decoders have about as many.
    """
    return Model(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        vocabulary=config.vocab_size,
        tied=bool(config.tie_word_embeddings),
        qkv_bias=config.model_type == "qwen2",
    ).parameters()
