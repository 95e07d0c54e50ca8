"""Stands for setuptools in a repository of a test: its editable wheel is a line in a .pth file."""

from __future__ import annotations

import os
import zipfile


def get_requires_for_build_editable(config_settings=None):
    return []


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    files = {
        "repository.pth": f"{os.getcwd()}\n",
        "xpulab-0.dist-info/METADATA": "Metadata-Version: 2.1\nName: xpulab\nVersion: 0\n",
        "xpulab-0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files["xpulab-0.dist-info/RECORD"] = "".join(f"{name},,\n" for name in [*files, "xpulab-0.dist-info/RECORD"])
    with zipfile.ZipFile(os.path.join(wheel_directory, "xpulab-0-py3-none-any.whl"), "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return "xpulab-0-py3-none-any.whl"
