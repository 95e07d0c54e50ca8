"""Stands for NVIDIA's package in tests: answers with what the JSON file says that XPULAB_TEST_NVML names.

prints: what it prints first. error: what nvmlInit raises. hangs: whether it never returns. cards: the values of each card; one
that is "lost" does not answer, one that is "reset" must be reset, and a value that is missing is not supported.
"""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

NVML_TEMPERATURE_GPU = 0
NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, NVML_AGGREGATE_ECC = 1, 0, 1
NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR = 1
nvmlClocksThrottleReasonSwThermalSlowdown, nvmlClocksThrottleReasonHwThermalSlowdown = 0x20, 0x40
SAID = json.loads(Path(os.environ["XPULAB_TEST_NVML"]).read_text())


class NVMLError(Exception):
    """What the package raises."""


class NVMLError_LibraryNotFound(NVMLError):
    """Without a driver."""


class NVMLError_ResetRequired(NVMLError):
    """Of a card that computes again after a reset only."""


def nvmlInit():
    print(end=SAID.get("prints", ""))
    if SAID.get("hangs"):
        time.sleep(600)
    if "error" in SAID:
        raise (NVMLError_LibraryNotFound if "Not Found" in SAID["error"] else NVMLError)(SAID["error"])


def nvmlSystemGetDriverVersion():
    return SAID["driver"]


def nvmlDeviceGetCount():
    return len(SAID["cards"])


def nvmlDeviceGetHandleByIndex(index):
    if SAID["cards"][index] == "lost":
        raise NVMLError("GPU is lost")
    if SAID["cards"][index] == "reset":
        raise NVMLError_ResetRequired("GPU requires restart")
    return SAID["cards"][index]


def nvmlDeviceGetName(card):
    return card["name"]


def _supported(card, name):
    if name not in card:
        raise NVMLError("Not Supported")
    return card[name]


def nvmlDeviceGetPciInfo(card):
    return SimpleNamespace(busId=_supported(card, "bus").encode())


def nvmlDeviceGetSerial(card):
    return _supported(card, "serial")


def nvmlDeviceGetMemoryInfo(card):
    return SimpleNamespace(**_supported(card, "memory"))


def nvmlDeviceGetTemperature(card, sensor):
    return _supported(card, "temperature")


def nvmlDeviceGetPowerUsage(card):
    return _supported(card, "milliwatts")


def nvmlDeviceGetTotalEccErrors(card, kind, counter):
    return _supported(card, "ecc")[counter]


def nvmlDeviceGetRemappedRows(card):
    return _supported(card, "rows")


def nvmlDeviceGetRetiredPages(card, cause):
    return _supported(card, "pages")


def nvmlDeviceGetCurrentClocksThrottleReasons(card):
    return _supported(card, "reasons")
