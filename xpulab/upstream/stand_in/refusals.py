"""In place of xpulab.records.refusals: what a device lacks, as data/refusals.yaml beside the script declares it."""

from pathlib import Path

import yaml

from xpulab.processor import lacks

_DECLARED = Path(__file__).resolve().parent / "data" / "refusals.yaml"


class Refusal:
    """One thing that devices lack."""

    def __init__(self, fields):
        self.reason, self.source, self.without = fields["reason"], fields["source"], fields.get("without", "")

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
            and ("without" not in entry or lacks(entry["without"]))
        ):
            return Refusal(entry)
    return None


def format_undeclared(error, device, call, dtype="", reduction="", form=""):
    """What a row says of an error that nothing declares."""
    return error
