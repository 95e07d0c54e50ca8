"""Groups of nodes of a Slurm job that work together: which node, or which link between two, makes a group fail.

search    the search: a pure function over a callable that tries a group of nodes
pairs     all pairs of nodes in rounds, and the rates of their links
step      the step of Slurm that runs meanwhile: a task for each card, lines in and lines out
trials    a trial of groups of nodes: starts ranks there, waits, says what was wrong
verdict   what was found, as text and as JSON

node      what runs on the nodes, in tasks of that step
links     the lines that pass between the two

One step lasts for all trials, and its tasks import Paddle once. A step for each round would need no lines to the tasks. But
with three nodes on a host of 2 cores, which others used too, a step whose tasks import Paddle took 2.8 to 4.2 s, an empty one
0.06 s, and a trial by forks of running tasks 0.6 to 1.3 s: a search of 9 trials, which took 11 s, would take about 40. On a GPU
or an XPU a rank is a new process that imports Paddle in each trial; what that costs was not measured there.
"""
