"""Faults that training really has, and the proof that the notebooks detect them.

fault: what a fault is. catalogue: all of them, a module for each notebook. selftest: injects each and judges what was seen.
"""

from xpulab.faults.catalogue import CATALOGUE

__all__ = ["CATALOGUE"]
