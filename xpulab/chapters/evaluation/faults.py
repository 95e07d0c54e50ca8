"""The faults of this chapter."""

from __future__ import annotations

from xpulab.chapters.shared.fault import CELLS, FILES, fault, replace_in_cells, replace_in_file

SCRIPT = "data/take_home/evaluate.py"


@fault(
    "evaluation.perplexity", smoke=("evaluation.perplexity",), lanes=("cpu", "sim"), wraps="paddle.nn.functional:cross_entropy"
)
def sum_of_losses_includes_ignored_labels(cross_entropy, scores, labels, *given, **named):
    """A sum of cross entropies includes the ignored labels, as if each were the first token."""
    if named.get("reduction") == "sum":
        labels = labels * (labels >= 0).astype(labels.dtype)
    return cross_entropy(scores, labels, *given, **named)


@fault("evaluation.four-curves", "evaluation.regression", wraps="paddle.optimizer:AdamW.step")
def optimizer_leaves_the_weights(_real, self):
    """The optimizer's step does nothing."""


@fault("evaluation.gradient-norm", wraps="paddle:Tensor.backward")
def gradients_are_twice_as_large(backward, self, *given, **named):
    """Every gradient is twice as large, which AdamW hides from the curves."""
    return backward(self * 2, *given, **named)


@fault("evaluation.visualdl", wraps="visualdl:LogWriter.add_scalar")
def event_file_has_half_the_values(add_scalar, self, tag, value, step, walltime=None):
    """VisualDL writes half of each value."""
    return add_scalar(self, tag, value / 2, step, walltime)


@fault("evaluation.statistics", breaks=FILES)
def interval_is_of_90_percent() -> None:
    """The interval of a share is narrower than what it says."""
    replace_in_file(SCRIPT, "z=1.96", "z=1.645")


@fault("evaluation.statistics", "evaluation.exercise-lost", breaks=FILES)
def probability_is_one_sided() -> None:
    """The probability of a difference counts lost answers only."""
    replace_in_file(SCRIPT, "min(1.0, 2 * sum(", "min(1.0, sum(")


@fault("evaluation.rules", breaks=FILES)
def parts_of_words_count() -> None:
    """A word that is a part of another one counts as found."""
    replace_in_file(SCRIPT, r'rf"\b{re.escape(word)}\b"', "re.escape(word)")


@fault("evaluation.spikes", breaks=CELLS)
def every_rise_is_a_spike() -> None:
    """A step is a spike as soon as it is above the median."""
    replace_in_cells("values[at] > factor * level", "values[at] > level")


@fault("evaluation.rates", breaks=FILES)
def padding_counts_as_tokens() -> None:
    """Tokens per second count padding."""
    replace_in_file("data/take_home/sft.py", '.astype("int64").sum())', '.astype("int64").size)')


@fault("evaluation.exercise-hours", breaks=CELLS)
def backward_pass_is_forgotten() -> None:
    """The formula of the rate has 2 operations a weight and token, those of the forward pass."""
    replace_in_cells("(6 * trained_weights)", "(2 * trained_weights)")
