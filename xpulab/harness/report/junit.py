"""junit.xml: the result of a run for CI systems: a test suite for each notebook, a test case for each check."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from xpulab.harness.judge import Verdict
from xpulab.harness.report.result import PARTIAL, Result
from xpulab.records.record import RED, Record

_FORBIDDEN = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_xml(result: Result) -> str:
    """The JUnit report of a run."""
    name = "xpulab (partial)" if result.is_partial else "xpulab"
    root = ElementTree.Element("testsuites", name=name, time=str(round(result.seconds, 1)))
    properties = {
        "device": result.options.device,
        "level": result.options.level,
        "verdict": result.verdict,
        "scope": result.scope,
    }
    if result.is_partial:
        properties["partial"] = PARTIAL
    if result.lost:
        properties["lost"] = _clean(str(result.lost))
    root.extend(_suite(verdict, properties) for verdict in result.verdicts)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(verdict: Verdict, properties: dict[str, str]) -> ElementTree.Element:
    cases = [_case(verdict.name, record) for record in verdict.records]
    if verdict.outcome in ("failed", "missing") and not any(record.outcome in RED for record in verdict.records):
        cases.append(_notebook_itself(verdict))
    suite = ElementTree.Element("testsuite", name=_clean(verdict.name), time=str(verdict.seconds), tests=str(len(cases)))
    for kind, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(kind) is not None for case in cases)))
    stated = ElementTree.SubElement(suite, "properties")
    for name, value in properties.items():
        ElementTree.SubElement(stated, "property", name=name, value=value)
    suite.extend(cases)
    if lines := [f"{known.where}: cause: {known.cause}\nfix: {known.remedy}" for known in verdict.explanations]:
        ElementTree.SubElement(suite, "system-out").text = _clean("\n".join(lines))
    return suite


def _case(notebook: str, record: Record) -> ElementTree.Element:
    seconds = str(round(record.seconds, 4))
    case = ElementTree.Element("testcase", classname=_clean(notebook), name=_clean(record.name), time=seconds)
    detail = f"measured {record.measured}, expected {record.expected}, control {record.control}. {record.reason}"
    if record.outcome == "failed":
        ElementTree.SubElement(case, "failure", message=_clean(record.means)).text = _clean(detail)
    elif record.outcome in RED:
        ElementTree.SubElement(case, "error", message=_clean(f"{record.outcome}: {record.means}")).text = _clean(detail)
    elif record.outcome == "skipped":
        ElementTree.SubElement(case, "skipped", message=_clean(record.reason or ""))
    elif record.outcome != "passed":
        ElementTree.SubElement(case, "system-out").text = _clean(f"{record.outcome}: {record.reason}")
    return case


def _notebook_itself(verdict: Verdict) -> ElementTree.Element:
    """A notebook that is red although no check is: it stopped, compared nothing, or shows different text."""
    case = ElementTree.Element("testcase", classname=_clean(verdict.name), name="the notebook", time=str(verdict.seconds))
    ElementTree.SubElement(case, "error", message=_clean(verdict.reason or verdict.outcome))
    return case


def _clean(text: str) -> str:
    """Without the characters that XML 1.0 forbids (an exception's text may hold colours)."""
    return _FORBIDDEN.sub("", text)
