"""A module to preload that takes as long as the test wants: until somebody opens the fifo for writing."""

import os

with open(os.environ["TEST_FIFO"]) as fifo:
    fifo.read()
