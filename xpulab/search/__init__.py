"""A search for what nobody wrote a case for: random cases of the grids of operators, in processes that may die.

cases.py has the grids with all their values, worker.py the process in which cases are computed, program.py the code that a
finding is printed as, loop.py what the command does.
"""
