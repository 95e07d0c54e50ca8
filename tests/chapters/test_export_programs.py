"""The committed programs that older releases wrote."""

from __future__ import annotations

from xpulab.release.export.samples import SAMPLES, written

RELEASES = ["3.0.0", "3.1.0", "3.2.0", "3.3.1"]


def test_programs_of_four_releases_are_there_with_their_digests():
    found = written()
    assert list(found) == RELEASES
    for each in found.values():
        assert each.found_digests() == each.digests
        assert set(each.results) == set(SAMPLES)
