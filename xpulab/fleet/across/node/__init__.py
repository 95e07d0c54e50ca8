"""Ranks on several nodes, as tasks of a Slurm step: started there by `xpulab fleet links`, which talks to them in lines.

    task       the process that srun starts for each card: it starts a rank for each trial, and ends it at the time limit
    rank       one rank of one trial
    job        what it is to do, and what it has found
    meeting    all ranks reach the node of rank 0 before Paddle tries to
    sections   what the ranks of a trial do: collectives, a training, rates

It was tested on the CPU and on simulated cards, with three nodes on one host: not yet on a GPU or an XPU, or over a network.
"""
