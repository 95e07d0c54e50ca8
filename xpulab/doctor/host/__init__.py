"""Looks at the host before a card: limits, shared memory, links, network, kernel log. Imports no Paddle and takes seconds.

    report = examine(HostRequest())
    report.outcome    # "wrong" when a training would fail or be slow here

limits: what a process may use. placement: NUMA nodes, links and settings of the PCI bus, who uses the cards. rdma: the ports
of the network. kernel_log: what the kernel said in the last minutes. facts: what must be the same on all hosts. Each
reads below a root, which is "/" except in tests.
"""

from xpulab.doctor.host.examine import HostReport as HostReport
from xpulab.doctor.host.examine import HostRequest as HostRequest
from xpulab.doctor.host.examine import examine as examine
from xpulab.doctor.host.examine import format_host as format_host
from xpulab.doctor.host.examine import format_reason as format_reason

__all__ = ["HostReport", "HostRequest", "examine", "format_host", "format_reason"]
