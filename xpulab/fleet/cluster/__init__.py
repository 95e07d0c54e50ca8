"""`xpulab fleet run`: the same run on every node, and which are red, unlike the others or silent; and `xpulab fleet links`.

fleet_run   the way from nodes to the comparison: the status of each node, what is written and printed
engines     what starts commands on nodes: Slurm, and ssh through ClusterShell
submit      a task on each node at a time; a node that hangs or is silent delays no other one
task        what a node does, started there as `xpulab fleet task`, and the lines in which it answers
links       which smallest groups of nodes do not work together; exchange: what their ranks do
"""
