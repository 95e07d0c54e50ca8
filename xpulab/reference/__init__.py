"""The reference implementation: a second, independent computation that results are compared with.

model, losses, optimizer: the network, its losses with their gradients, and optimizers, in numpy and in double precision.
rounding: how far results in single precision may be from it.
cost: memory and communication of parallel training. pipeline: bubble and memory of an order of work.
"""

from xpulab.reference.losses import log_probabilities as log_probabilities
from xpulab.reference.losses import loss as loss
from xpulab.reference.losses import loss_and_gradients as loss_and_gradients
from xpulab.reference.model import FAMILIES as FAMILIES
from xpulab.reference.model import DoublePrecision as DoublePrecision
from xpulab.reference.model import logits as logits
from xpulab.reference.model import weights_of as weights_of
from xpulab.reference.optimizer import OPTIMIZERS as OPTIMIZERS
from xpulab.reference.optimizer import AdamW as AdamW
from xpulab.reference.optimizer import State as State
from xpulab.reference.rounding import bound_of_gradients as bound_of_gradients
from xpulab.reference.rounding import bound_of_logits as bound_of_logits
from xpulab.reference.rounding import bound_of_loss as bound_of_loss
from xpulab.reference.rounding import rounding_of_a_layer as rounding_of_a_layer
