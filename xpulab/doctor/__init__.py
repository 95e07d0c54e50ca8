"""What is installed on this machine, what is wrong with it, and which command mends it.

`detect` and everything it imports need the standard library only: env/make_venv.py asks it before a single package is
installed. `diagnosis` puts all findings together.
"""
