"""Faults of the notebook 14_zero_cost_checkpoints."""
