"""The proofs of defects: every workaround gives what numpy gives, and what may end a process is not run here."""

from __future__ import annotations

import numpy as np
import pytest

from xpulab.chapters.shared import index_defects
from xpulab.records import known_issues

SAFE = index_defects.NEW_AXIS | index_defects.WITHOUT_STRIDES
UNSAFE = index_defects.WRITE_TO_VIEWS | index_defects.BACKWARDS


@pytest.mark.parametrize("name", SAFE | UNSAFE)
def test_the_workaround_gives_what_numpy_gives(name):
    proof = (SAFE | UNSAFE)[name]
    found = index_defects.workarounds({name: proof})[name]
    assert isinstance(found, np.ndarray), found
    assert np.array_equal(found, proof.expected())


@pytest.mark.parametrize("name", SAFE | UNSAFE)
def test_a_defect_is_a_known_issue_with_a_workaround(name):
    (issue,) = [each for each in known_issues.load() if (each.check, each.case) == ("indexing.known-defects", name)]
    assert issue.workaround
