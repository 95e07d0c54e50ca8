"""docs/schedulers.md names every metric with its labels."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from prometheus_client.parser import text_string_to_metric_families

from xpulab.files import ROOT
from xpulab.harness.execute import Run, RunOptions
from xpulab.harness.judge import Group, Verdict
from xpulab.harness.report.metrics import to_metrics
from xpulab.harness.report.result import Result
from xpulab.records.record import Measurement, Record

PAGE = (ROOT / "docs/schedulers.md").read_text(encoding="utf-8")


def test_the_table_of_metrics_is_that_of_the_code():
    documented = {}
    for name, labels in re.findall(r"^\| `(xpulab_\w+)` \| ([\w, ]*)\|", PAGE, re.MULTILINE):
        documented[name] = set(filter(None, re.split(r"[, ]+", labels)))
    assert documented == written_labels()


def written_labels():
    """By metric its labels, of a run that has all of them."""
    rate = Measurement("add", "rate", "GFLOP/s", (1.0,))
    record = Record("demo.rate", "failed", "as before", control="rejected", measurements=(rate,))
    groups = (Group("the section", "lesson", (record,)),)
    verdict = Verdict("00_demo", "A demo", "failed", Run("xpu", "quick", 1, 2.0, 30.0, None), groups)
    now = datetime.now(timezone.utc).isoformat()
    families = text_string_to_metric_families(
        to_metrics(Result(RunOptions("xpu", "quick", 8), (verdict,), 12.5, None, date=now))
    )
    return {family.name: set(family.samples[0].labels) for family in families}
