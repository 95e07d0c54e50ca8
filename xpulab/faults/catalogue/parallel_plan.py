"""Faults of the notebook 09_parallel_plan."""
