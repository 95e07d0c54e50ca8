"""The reference implementation: a second, independent computation that results are compared with.

model: the network, its losses, gradients and optimizer in numpy. cost: memory and communication of parallel training.
"""

from xpulab.reference.model import FAMILIES, AdamW, log_probabilities, logits, loss_and_gradients, weights_of

__all__ = ["FAMILIES", "AdamW", "log_probabilities", "logits", "loss_and_gradients", "weights_of"]
