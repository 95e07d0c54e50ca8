"""junit.xml: the result of a run for CI systems: a test suite for each notebook, a test case for each check."""

from __future__ import annotations

from xml.etree import ElementTree

from xpulab.harness.judge import Verdict
from xpulab.harness.report.result import PARTIAL, Result
from xpulab.messages import plain
from xpulab.records.record import RED, Record


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
        properties["lost"] = str(result.lost)
    root.extend(_suite(verdict, properties) for verdict in result.verdicts)
    ElementTree.indent(root)
    return plain(ElementTree.tostring(root, encoding="unicode", xml_declaration=True)) + "\n"  # XML forbids such characters


def _suite(verdict: Verdict, properties: dict[str, str]) -> ElementTree.Element:
    cases = [_case(verdict.name, record) for record in verdict.records]
    if verdict.outcome in ("failed", "missing") and not any(record.outcome in RED for record in verdict.records):
        cases.append(_notebook_itself(verdict))
    suite = ElementTree.Element("testsuite", name=verdict.name, time=str(verdict.seconds), tests=str(len(cases)))
    for kind, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(kind) is not None for case in cases)))
    stated = ElementTree.SubElement(suite, "properties")
    for name, value in properties.items():
        ElementTree.SubElement(stated, "property", name=name, value=value)
    suite.extend(cases)
    if lines := [f"{known.where}: cause: {known.cause}\nfix: {known.remedy}" for known in verdict.explanations]:
        ElementTree.SubElement(suite, "system-out").text = "\n".join(lines)
    return suite


def _case(notebook: str, record: Record) -> ElementTree.Element:
    seconds = str(round(record.seconds, 4))
    case = ElementTree.Element("testcase", classname=notebook, name=record.name, time=seconds)
    detail = f"measured {record.measured}, expected {record.expected}, control {record.control}. {record.reason}"
    if record.outcome == "failed":
        ElementTree.SubElement(case, "failure", message=record.means).text = detail
    elif record.outcome in RED:
        ElementTree.SubElement(case, "error", message=f"{record.outcome}: {record.means}").text = detail
    elif record.outcome == "skipped":
        ElementTree.SubElement(case, "skipped", message=record.reason or "")
    elif record.outcome != "passed":
        ElementTree.SubElement(case, "system-out").text = f"{record.outcome}: {record.reason}"
    return case


def _notebook_itself(verdict: Verdict) -> ElementTree.Element:
    """A notebook that is red although no check is: it stopped, compared nothing, or shows different text."""
    case = ElementTree.Element("testcase", classname=verdict.name, name="the notebook", time=str(verdict.seconds))
    ElementTree.SubElement(case, "error", message=verdict.reason or verdict.outcome)
    return case
