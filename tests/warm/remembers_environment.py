"""A module to preload: keeps the environment in which it was imported."""

import os

SEEN = dict(os.environ)
