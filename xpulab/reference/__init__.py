"""The reference implementation: a second, independent computation that results are compared with.

model, losses, optimizer: the network, its losses with their gradients, and AdamW, in numpy and in double precision.
rounding: how far results in single precision may be from it.
cost: memory and communication of parallel training. pipeline: bubble and memory of an order of work.
"""

from xpulab.reference.losses import log_probabilities, loss, loss_and_gradients
from xpulab.reference.model import FAMILIES, DoublePrecision, logits, weights_of
from xpulab.reference.optimizer import AdamW
from xpulab.reference.rounding import bound_of_gradients, bound_of_logits, bound_of_loss, rounding_of_a_layer

__all__ = [
    "FAMILIES",
    "AdamW",
    "DoublePrecision",
    "bound_of_gradients",
    "bound_of_logits",
    "bound_of_loss",
    "log_probabilities",
    "logits",
    "loss",
    "loss_and_gradients",
    "rounding_of_a_layer",
    "weights_of",
]
