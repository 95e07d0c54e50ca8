"""The reference implementation: a second, independent computation that results are compared with.

model, losses, optimizer: the network, its losses with their gradients, and AdamW, in numpy and in double precision.
cost: memory and communication of parallel training. pipeline: bubble and memory of an order of work.
"""

from xpulab.reference.losses import log_probabilities, loss_and_gradients
from xpulab.reference.model import FAMILIES, logits, weights_of
from xpulab.reference.optimizer import AdamW

__all__ = ["FAMILIES", "AdamW", "log_probabilities", "logits", "loss_and_gradients", "weights_of"]
