"""Compare two logs of somebody's own training: where the batches part, the first step that differs, and what may explain it.

    from xpulab.align import Log          # or copy log.py beside a script: it needs the standard library only

log: writes a log while a training runs. read: the logs, and what is wrong in them. band: how large a difference noise explains.
compare: the two logs, step by step. explain: what differs between the two environments, the likeliest first. report: the
comparison for a terminal and as JSON.
"""

from xpulab.align.log import Log as Log
from xpulab.align.log import perturb as perturb
