"""Plan, execute, judge, report: everything that happens outside the kernel."""
