"""Level soak: the same checks again and again for hours, the first difference named by its round.

selection: what a round runs. values: which rounds must measure the same, and where they differ. rounds: a round, with
temperatures and clocks. loop: the rounds, and what is kept of them. report: what is said at the end.
"""

LEVEL = "soak"
"""The name of the level on the command line; the rounds run at selection.ROUND_LEVEL."""
