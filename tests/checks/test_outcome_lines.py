"""A check prints one line, the same on every machine, unless it is red."""

from __future__ import annotations

from xpulab.checks import check


def make_all(measured: float):
    """One check of each kind, with numbers that depend on `measured`, between 0.1 and 0.4."""
    check.close("a.close", measured, 0.25, atol=0.2, control=1.0, means="close")
    check.equal("a.equal", measured, measured, control=2.0, means="equal")
    check.bitwise("a.bitwise", measured, measured, control=2.0, means="the same")
    check.below("a.below", measured, 2 * measured, control=1.0, means="small")
    check.above("a.above", measured, measured / 2, control=0.0, means="large")
    check.between("a.between", measured, measured / 2, 0.5, control=1.0, means="between")
    check.finite("a.finite", [measured], control=[float("nan")], means="finite")
    check.raises("a.raises", ValueError, lambda: int(f"x{measured}"), control=lambda: None, means="refused")
    with check.table("a.table", means="all of them") as rows:
        rows.below("case", measured, 2 * measured, control=1.0)


def texts(shown):
    return [data["text/plain"] for data, _ in shown.outputs]


def test_a_passed_check_prints_the_same_for_all_numbers(shown):
    make_all(0.2)
    first = texts(shown)
    shown.outputs.clear()
    make_all(0.3)
    assert texts(shown) == first


def test_a_measured_value_cannot_inject_html(shown):
    check.equal("a.b", "<script>", "x", control="y")
    assert "<script>" not in shown.html
