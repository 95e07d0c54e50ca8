"""Gives texts to the plug-in itself, past the check in Python. Arguments: the library. Prints what it said to each."""

import ctypes
import json
import sys

import paddle  # noqa: F401 - the cards are loaded after it

from xpulab import sim

sim.load()
library = ctypes.CDLL(sys.argv[1])
library.xpulab_sim_last_error.restype = ctypes.c_char_p
answers = {}
for text in json.loads(sys.argv[2]):
    refused = library.xpulab_sim_set_faults(text.encode())
    answers[text] = library.xpulab_sim_last_error().decode() if refused else ""
print(json.dumps(answers))
