"""What Linux says of the processor."""

from __future__ import annotations

import pytest

from xpulab.processor import first_core, lacks

pytestmark = pytest.mark.unit

TWO_CORES = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nmodel name\t: another\n"


@pytest.fixture
def described(tmp_path):
    return tmp_path / "cpuinfo"


def test_the_fields_are_those_of_the_first_core(described):
    described.write_text(TWO_CORES)
    assert first_core(str(described)) == {"processor": "0", "model name": "AMD EPYC", "flags": "fpu avx2"}


@pytest.mark.parametrize(
    ("text", "lacked"),
    [
        (TWO_CORES, True),
        (TWO_CORES.replace("avx2", "avx2 avx512f"), False),
        ("processor\t: 0\nCPU implementer\t: 0x41\nFeatures\t: asimd\n", False),
        (None, False),
    ],
)
def test_a_feature_is_lacked_where_the_known_ones_do_not_include_it(described, text, lacked):
    if text is not None:
        described.write_text(text)
    assert lacks("avx512f", str(described)) is lacked
