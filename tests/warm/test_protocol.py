"""A packet is read as it was written; what is no packet closes the connection and raises nothing."""

from __future__ import annotations

import pytest

from xpulab.warm import protocol


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (protocol.FORK, []),
        (protocol.GROUP, [9]),
        (protocol.ENDED, [2**22, -9]),
        (protocol.REAPED, [2**22, 10**15]),
        (protocol.REFUSED, [11]),
    ],
)
def test_a_packet_is_read_as_it_was_written(kind: bytes, numbers: list[int]):
    written = protocol.packet(kind, *numbers)

    assert protocol.parse(written) == (kind, numbers)
    assert len(written) <= protocol.PACKET_BYTES


@pytest.mark.parametrize("received", [b"", b"nonsense", b"signal", b"group x", b"signal 9 9", b"\xff \xfe"])
def test_what_is_no_packet_closes_the_connection(received: bytes):
    assert protocol.parse(received) == (protocol.CLOSE, [])
