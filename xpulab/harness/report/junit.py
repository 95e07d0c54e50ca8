"""junit.xml: what came of a run, for CI systems: a test suite a notebook, a test case a check."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from xpulab.harness.report.result import PARTIAL
from xpulab.records.record import RED

_FORBIDDEN = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_xml(result: dict[str, Any]) -> str:
    """The JUnit report of a run, from the values of its result.json."""
    partial = result["outcome"] == "partial"
    root = ElementTree.Element("testsuites", name="xpulab (partial)" if partial else "xpulab", time=str(result["seconds"]))
    properties = {"device": result["device"], "level": result["level"], "scope": result["scope"]}
    if partial:
        properties["partial"] = PARTIAL
    for notebook in result["notebooks"]:
        root.append(_suite(notebook, properties))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(notebook: dict[str, Any], properties: dict[str, str]) -> ElementTree.Element:
    cases = [_case(notebook["name"], check) for check in notebook["checks"]]
    if notebook["outcome"] in ("failed", "missing") and not any(check["outcome"] in RED for check in notebook["checks"]):
        cases.append(_notebook_itself(notebook))
    suite = ElementTree.Element(
        "testsuite", name=_clean(notebook["name"]), time=str(notebook["seconds"]), tests=str(len(cases))
    )
    for kind, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(kind) is not None for case in cases)))
    stated = ElementTree.SubElement(suite, "properties")
    for name, value in properties.items():
        ElementTree.SubElement(stated, "property", name=name, value=value)
    suite.extend(cases)
    return suite


def _case(notebook: str, check: dict[str, Any]) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=_clean(notebook), name=_clean(check["name"]), time=str(check["seconds"]))
    detail = f"measured {check['measured']}, expected {check['expected']}, control {check['control']}. {check['reason']}"
    if check["outcome"] == "failed":
        ElementTree.SubElement(case, "failure", message=_clean(check["means"])).text = _clean(detail)
    elif check["outcome"] in RED:
        ElementTree.SubElement(case, "error", message=_clean(f"{check['outcome']}: {check['means']}")).text = _clean(detail)
    elif check["outcome"] == "skipped":
        ElementTree.SubElement(case, "skipped", message=_clean(check["reason"] or ""))
    elif check["outcome"] != "passed":
        ElementTree.SubElement(case, "system-out").text = _clean(f"{check['outcome']}: {check['reason']}")
    return case


def _notebook_itself(notebook: dict[str, Any]) -> ElementTree.Element:
    """A notebook that is red although no check is: it stopped, compared nothing, or shows another text."""
    case = ElementTree.Element(
        "testcase", classname=_clean(notebook["name"]), name="the notebook", time=str(notebook["seconds"])
    )
    ElementTree.SubElement(case, "error", message=_clean(notebook["reason"] or notebook["outcome"]))
    return case


def _clean(text: str) -> str:
    """Without the characters that XML 1.0 forbids (an exception's text may hold colours)."""
    return _FORBIDDEN.sub("", text)
