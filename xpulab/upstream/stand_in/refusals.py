"""In place of xpulab.records.refusals: what a device lacks, as data/refusals.yaml beside the script declares it."""

from pathlib import Path

import yaml

_DECLARED = Path(__file__).resolve().parent / "data" / "refusals.yaml"


class Refusal:
    """One thing that devices lack."""

    def __init__(self, fields):
        self.reason, self.source = fields["reason"], fields["source"]

    def format_reason(self):
        """What the device lacks, and who says so."""
        return f"{self.reason} ({self.source})"


def refusal(device, call, dtype="", reduction="", form=""):
    """The entry that declares this call as one that the device lacks, or None."""
    for entry in yaml.safe_load(_DECLARED.read_text(encoding="utf-8")):
        if (
            (device in entry["devices"] and call == entry["call"])
            and dtype in entry.get("types", [dtype])
            and reduction in entry.get("reductions", [reduction])
            and form == entry.get("form", form)
        ):
            return Refusal(entry)
    return None


def format_undeclared(error, device, call, dtype="", reduction="", form=""):
    """What a row says of an error that nothing declares."""
    return error
