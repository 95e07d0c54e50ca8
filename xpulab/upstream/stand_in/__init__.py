"""What stands in a report's script in place of xpulab's own modules: a few lines each.

xpulab.upstream.flatten copies from here what a script uses. What the suite must do alike is imported from it, and copied too.
"""
