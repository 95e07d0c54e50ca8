"""In place of xpulab.errors."""


class InputError(Exception):
    """What was given cannot be used."""
