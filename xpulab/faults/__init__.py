"""Faults that training really has, and the proof that the notebooks detect them.

catalogue: all of them, found in the rooms of the chapters. selftest: injects each and judges what was seen.
"""

from xpulab.faults.catalogue import CATALOGUE

__all__ = ["CATALOGUE"]
