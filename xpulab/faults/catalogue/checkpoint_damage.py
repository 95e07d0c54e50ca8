"""Faults of the notebook 06_checkpoint_damage."""
