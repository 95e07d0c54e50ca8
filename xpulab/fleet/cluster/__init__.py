"""`xpulab fleet run`: the same run on every node, and which of them are red, unlike the others or silent.

fleet_run   the way from nodes to the comparison, and the commands that drain nodes
engine      what starts commands on nodes: ssh, and in slurm Slurm
submit      a task on each node at a time, with deadlines; progress shows it
task        what a node does, started there as `xpulab fleet task`; messages: the lines in which it answers
answer      what came back from a node, and how it is read again
summary     the status of each node, from the answers and from the comparison of the runs
"""
