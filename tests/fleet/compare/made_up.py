"""Results of made-up runs, small enough to read."""

from __future__ import annotations

import copy

from xpulab.records.record import COMPARED, RED

BITS = "00112233445566aa"


def row(case, outcome="passed", **changed):
    whole = {"case": case, "outcome": outcome, "measured": 0.25, "expected": "< 1", "control": "rejected", "reason": None}
    return {**whole, **changed}


def check(name="demo.sum", outcome="passed", **changed):
    whole = {"name": name, "outcome": outcome, "means": f"what {name} means", "measured": 0.25, "expected": "< 1",
             "control": "rejected", "capability": "demo", "seconds": 0.1, "reason": None, "digest": BITS, "measurements": [],
             "rows": [], "section": "All"}  # fmt: skip
    return {**whole, **changed}


def measurement(kind="rate", *values, case="copy", unit="GB/s", conditions=None):
    return {"case": case, "kind": kind, "unit": unit, "values": list(values), "conditions": conditions or {}}


def measuring(*measurements, name="demo.rates"):
    return check(name, digest=None, measurements=list(measurements))


def notebook(*checks, name="00_demo", outcome=None, reason=None):
    outcome = outcome or ("failed" if any(each["outcome"] in RED for each in checks) else "passed")
    compared = sum(each["outcome"] in COMPARED for each in checks)
    return {"name": name, "title": "T", "outcome": outcome, "seconds": 2.0, "reason": reason, "explanations": [], "notes": [],
            "planned": len(checks), "compared": compared, "controls_rejected": compared, "executed": None,
            "checks": list(checks)}  # fmt: skip


def card(index=0, serial=None, **changed):
    return {"index": index, "model": "P800", "serial": serial, "firmware": "1.0", "state": "normal", "temperature_c": 40.0,
            "power_w": 90.0, "memory_used_mib": 10, "memory_total_mib": 98304, "link": "32.0 GT/s x16", **changed}  # fmt: skip


def result(*notebooks, device="xpu", outcome=None, card_facts=(), versions=None, machine=None, **changed):
    outcome = outcome or ("failed" if any(each["outcome"] in ("failed", "missing") for each in notebooks) else "passed")
    usual = {"system": "Linux 6", "processor": "Xeon", "cores": 64, "memory_gib": 1007.5, "python": "3.10.1"}
    whole = {"schema": 1, "outcome": outcome, "green": outcome == "passed", "device": device, "scope": "...",
             "level": "quick", "cards": 1, "seed": 0, "seconds": 3.0, "date": "2026-11-22T12:00:00+00:00",
             "card_facts": list(card_facts), "machine": {**usual, **(machine or {})},
             "versions": versions or {"paddlepaddle-xpu": "3.3.0"}, "notebooks": list(notebooks)}  # fmt: skip
    return copy.deepcopy({**whole, **changed})


def of(*checks, **changed):
    """A run of one notebook with these checks."""
    return result(notebook(*checks), **changed)


def red(name="demo.sum", **changed):
    """A notebook with a failed check."""
    return notebook(
        check(name, "failed", measured=2.5, reason="too large", **changed), outcome="failed", reason=f"{name} failed"
    )
