"""Matrix products of a large model use all cores, in this process and in those that it starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from xpulab.records.usable import whole_cores

pytestmark = pytest.mark.integration

LOOK = """
import ctypes, json, os
from pathlib import Path
from xpulab.chapters.shared import resources
import paddle, threadpoolctl
found = resources.use_all_cores()
mkl = ctypes.CDLL(str(Path(paddle.__file__).parent / "libs" / "libmklml_intel.so"))
blas = [library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
print(json.dumps([found, mkl.MKL_Get_Max_Threads(), *blas, int(os.environ["MKL_NUM_THREADS"])]))
"""


@pytest.mark.parametrize(("given", "expected"), [(None, whole_cores()), ("1", 1)])
def test_products_use_all_cores_unless_the_variable_is_set(given: str | None, expected: int):
    variables = {name: value for name, value in os.environ.items() if name != "MKL_NUM_THREADS"} | {"OMP_NUM_THREADS": "1"}
    if given:
        variables["MKL_NUM_THREADS"] = given
    done = subprocess.run([sys.executable, "-c", LOOK], env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout.splitlines()[-1])) == {expected}
