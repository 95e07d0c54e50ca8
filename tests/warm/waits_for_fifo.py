"""A module to preload that takes as long as the test wants: until the fifo is opened for writing."""

import os

with open(os.environ["TEST_FIFO"]) as fifo:
    fifo.read()
