"""`xpulab fleet run`: the same run on every node, and which of them are red, unlike the others or silent.

fleet_run   the way from nodes to the comparison: the status of each node, what is written and printed
engines     what starts commands on nodes: Slurm, and ssh through ClusterShell
submit      a task on each node at a time; a node that hangs or is silent delays no other one
task        what a node does, started there as `xpulab fleet task`, and the lines in which it answers
"""
