"""Every fault that the grammar allows is read as it is meant, and whatever it does not allow is refused with its column."""

from __future__ import annotations

import pytest

from xpulab.errors import InputError
from xpulab.sim import faults


def test_no_text_is_no_fault():
    assert faults.parse("") == faults.parse(" ; ;\n") == ()


def test_a_fault_has_an_action_a_site_and_conditions():
    assert faults.parse("flip copy kind=h2d n=3 bit=7 card=1") == (
        faults.Fault("flip", "copy", {"kind": "h2d", "n": 3, "bit": 7, "card": 1}),
    )


def test_several_are_separated_by_semicolons():
    first, second = faults.parse("delay collective kind=all_reduce seconds=0.5 p=0.25 seed=9;fail alloc from=2 every=3")
    assert first.values == {"kind": "all_reduce", "seconds": 0.5, "p": 0.25, "seed": 9}
    assert second == faults.Fault("fail", "alloc", {"from": 2, "every": 3})


REFUSED = [
    ("flop copy", 1, "not an action; choose flip, fail"),
    ("flip", 5, "a site is missing after 'flip'"),
    ("fail copy; flip task", 17, "flip needs a site with output"),
    ("fail memory", 1, "site memory needs the action flip"),
    ("fail copy often", 11, "give KEY=VALUE"),
    ("fail copy colour=red", 11, "a key of kind"),
    ("fail copy n=1 n=2", 15, "n is given twice"),
    ("fail copy n=0", 11, "whole number of at least 1"),
    ("fail copy n=\u0663", 11, "whole number"),
    ("fail copy bytes=5", 11, "bytes>=VALUE"),
    ("fail copy kind=fill", 11, "kinds of copy are h2d"),
    ("fail alloc kind=h2d", 12, "alloc has no kinds"),
    ("fail copy p=nan", 11, "number from 0 to 1"),
    ("delay copy", 1, "delay needs seconds="),
    ("slow copy factor=0.5", 11, "number from 1"),
    ("fail copy seconds=1", 11, "seconds needs the action delay"),
    ("fail copy n=1 p=0.5", 1, "give only one of"),
    ("fail alloc n=1;\n fail copy n=x", 28, "whole number"),
    ("fail copy n=1x", 11, "whole number"),
    ("fail copy n=99999999999999999999999", 11, "whole number"),
]
"""Text, the column of what is wrong, and why; the plug-in refuses the same: test_faults.py."""


@pytest.mark.parametrize(("text", "column", "why"), REFUSED)
def test_is_refused_with_column_and_remedy(text, column, why):
    with pytest.raises(InputError, match=rf"column {column}, .*{why}"):
        faults.parse(text)
