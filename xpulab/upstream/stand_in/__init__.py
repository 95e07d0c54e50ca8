"""What stands in a report's script in place of xpulab's own modules: a few lines each, which import nothing of xpulab.

xpulab.upstream.flatten copies from here what a script uses.
"""
