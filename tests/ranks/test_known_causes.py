"""The message about ranks that failed has cause and command of a known error that one of them wrote."""

from __future__ import annotations

from xpulab.ranks.report import RankReport, RanksFailed

ABNORMAL = "[WARN][XPURT][xpu_wait:512] ioctl() fail, (713) Device abnormal due to previous error"
MISSING = "ImportError: cannot import name 'download' from 'aistudio_sdk.hub'"


def report(rank, outcome="raised", detail="", printed=""):
    return RankReport(rank, outcome, "it failed", detail, "", printed)


def test_what_a_rank_printed_or_raised_is_explained_the_root_cause_first():
    failure = str(RanksFailed(1, "", [report(0, detail=MISSING), report(1, "killed", printed=ABNORMAL)]))
    causes = [line for line in failure.splitlines() if line.startswith("cause: ")]
    assert causes == [
        "cause: an earlier error has left the card in the error state",
        "cause: aistudio-sdk 0.3 removed hub.download, which import paddlenlp needs",
    ]
    assert "\nfix: python -m pip install 'aistudio-sdk<0.3'\n" in failure


def test_what_a_rank_printed_that_has_returned_explains_nothing():
    failure = str(RanksFailed(1, "", [report(0, "returned", printed=ABNORMAL), report(1)]))
    assert "cause: " not in failure.replace("root cause: ", "")


def test_what_the_launcher_wrote_is_explained():
    failure = str(RanksFailed(None, "", [report(0, "absent")], launcher_log=f"starting\n{MISSING}"))
    assert "fix: python -m pip install 'aistudio-sdk<0.3'" in failure
