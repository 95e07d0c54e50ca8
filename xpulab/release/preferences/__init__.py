"""Losses of preference training with their options, and KTO, compared with the formulas of their papers."""
