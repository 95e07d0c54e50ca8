"""Appends to each pin on standard input the hashes of its files, which a pylock.toml has; env/lock.sh calls it.

    python3 env/hashes.py pylock.toml < pins

Python 3.11 or newer. The files are those that Python 3.10 to 3.12 may install on Linux with glibc, on x86-64 and 64-bit ARM,
and the source.
"""

import re
import sys
from pathlib import PurePosixPath

import tomllib

WHEEL = re.compile(r"-((py2\.)?py3|cp31[0-2]|cp3\d?(?=-abi3))-\w+-(any|.*(manylinux|-linux)[^-]*_(x86_64|aarch64))\.whl$")


def main(lock: str) -> None:
    with open(lock, "rb") as file:
        packages = tomllib.load(file)["packages"]
    hashes = {}
    for package in packages:
        wheels = [wheel for wheel in package.get("wheels", ()) if WHEEL.search(name_of(wheel))]
        files = [*wheels, *([package["sdist"]] if "sdist" in package else ())]
        hashes[f"{package['name']}=={package['version']}"] = sorted({file["hashes"]["sha256"] for file in files})
    for line in filter(str.strip, sys.stdin):
        pin = line.split()[0]
        print(line.strip(), *(f"--hash=sha256:{each}" for each in hashes[pin]))


def name_of(file: dict[str, str]) -> str:
    return file.get("name") or PurePosixPath(file["url"]).name


if __name__ == "__main__":
    main(sys.argv[1])
