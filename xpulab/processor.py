"""The host's processor, as Linux describes it.

    lacks("avx512f")            # True: a kernel that uses AVX-512 ends the process here
    first_core()["model name"]  # "AMD EPYC 7763 64-Core Processor"

Standard library only.
"""

from __future__ import annotations

DESCRIBED = "/proc/cpuinfo"
"""Where Linux describes each core."""


def first_core(path: str = DESCRIBED) -> dict[str, str]:
    """The names and values of the first core; none where the file cannot be read."""
    fields: dict[str, str] = {}
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if not line.strip():
                    break
                name, _, value = line.partition(":")
                fields[name.strip()] = value.strip()
    except OSError:
        pass
    return fields


def lacks(feature: str, path: str = DESCRIBED) -> bool:
    """Whether this is an x86 processor whose features, "avx2" or "avx512f", are known and do not include this one."""
    features = first_core(path).get("flags", "").split()
    return bool(features) and feature not in features
