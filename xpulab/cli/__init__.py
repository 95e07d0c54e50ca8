"""The commands of xpulab, a module each; the order of the imports is that of `xpulab --help`."""

from xpulab.cli.console import ending

# isort: off
with ending(Exception):  # what cannot be imported is no verdict either
    from xpulab.cli import run as run
    from xpulab.cli import gate as gate
    from xpulab.cli import doctor as doctor
    from xpulab.cli import host as host
    from xpulab.cli import bundle as bundle
    from xpulab.cli import judge as judge
    from xpulab.cli import compare as compare
    from xpulab.cli import fleet as fleet
    from xpulab.cli import soak as soak
    from xpulab.cli import operations as operations
    from xpulab.cli import lab as lab
    from xpulab.cli import exercise as exercise
    from xpulab.cli import model as model
    from xpulab.cli import data as data
    from xpulab.cli import align as align
    from xpulab.cli import shapes as shapes
    from xpulab.cli import search as search
    from xpulab.cli import report as report
    from xpulab.cli import selftest as selftest
    from xpulab.cli import baseline as baseline

    from xpulab.cli.app import app, main

__all__ = ["app", "main"]
