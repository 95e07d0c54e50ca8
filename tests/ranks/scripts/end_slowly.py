"""One of two ranks that share Paddle's store. It ends when its standard input is closed: rank 0 while the process exits.

The argument is the value of FLAGS_tcp_store_using_libuv.
"""

import ctypes
import os
import sys

rank = int(os.environ["PADDLE_TRAINER_ID"])
if rank == 0:  # registered before Paddle is loaded, so it runs after the destructors of Paddle's libraries
    libc = ctypes.CDLL(None)
    libc.__cxa_atexit(ctypes.cast(libc.getchar, ctypes.c_void_p), None, None)

import paddle  # noqa: E402 - see above
from paddle.base.core import create_or_get_global_tcp_store  # noqa: E402

paddle.set_flags({"FLAGS_tcp_store_using_libuv": sys.argv[1] == "True"})
store = create_or_get_global_tcp_store()
ctypes.pythonapi.Py_IncRef(ctypes.py_object(store))  # a process group keeps its store until the process ends, too
store.add("ready", 1)
print("ready", flush=True)
if rank == 1:
    sys.stdin.read()
