"""The three answers of a comparison. Whoever gives one prints beside it what share was compared, or how much it allows.

right: what was compared agrees, and it is enough to say so. wrong: it differs. undecided: too little was compared, or more is
allowed than what would be wrong; then what would decide it is printed. Advice is for wrong and undecided only.
"""

RIGHT, WRONG, UNDECIDED = "right", "wrong", "undecided"


def exit_code(verdict: str) -> int:
    """0 for RIGHT, 1 for WRONG and UNDECIDED."""
    return 0 if verdict == RIGHT else 1
