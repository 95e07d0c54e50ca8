"""Runs side by side: two of them, or the machines of a fleet."""
