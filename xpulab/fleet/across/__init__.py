"""Groups of nodes of a Slurm job that work together: which node, or which link between two, makes a group fail.

search    the search: a pure function over a callable that tries a group of nodes
pairs     all pairs of nodes in rounds, and the rates of their links
step      the step of Slurm that runs meanwhile: a task for each card, lines in and lines out
trials    a trial of groups of nodes: starts ranks there, waits, says what was wrong
verdict   what was found, as text and as JSON

node      what runs on the nodes, in tasks of that step
links     the lines that pass between the two
"""
