"""On the PYTHONPATH of all tests: Jupyter kernels listen on files of their own instead of ports of the machine.

jupyter_client picks free ports, and the kernel binds them a second later. When another kernel, of a test that runs at the
same time, has taken the port for output, the kernel neither answers nor ends (seen with ipykernel 7). Everything else
about the tools stays as it is.
"""

import importlib.abc
import importlib.machinery
import itertools
import os
import sys
import tempfile

_count = itertools.count()
_MODULE = "jupyter_client.connect"


def _ip(connection):
    name = f"kernel-{os.getpid()}-{next(_count)}"
    return os.path.join(tempfile.gettempdir(), name) if connection.transport == "ipc" else "127.0.0.1"


class _Finder(importlib.abc.MetaPathFinder):
    """Imports jupyter_client.connect as ever, then changes its default."""

    def find_spec(self, name, path, target=None):
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            module.ConnectionFileMixin.transport.default_value = "ipc"
            # the default is relative, and a kernel may run in another folder than its client
            module.ConnectionFileMixin._ip_default = _ip

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Finder())
