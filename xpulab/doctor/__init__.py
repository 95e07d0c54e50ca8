"""Finds out what is installed on this machine, what is wrong with it, and which command fixes it.

`detect` and everything it imports need the standard library only: env/make_venv.py calls it before any package is
installed. `diagnosis` collects all findings. `probe` imports Paddle and computes on the cards, in a process of its own.
"""
