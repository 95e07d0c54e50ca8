"""Damage the two files of an exported program in ways that happen: what a disk, a copy or a release process leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

Files = tuple[bytes | None, bytes | None]
"""The content of <path>.json and <path>.pdiparams; None for a file that is missing."""


def read(path: str | Path) -> tuple[bytes, bytes]:
    """Both files of an exported program."""
    return Path(f"{path}.json").read_bytes(), Path(f"{path}.pdiparams").read_bytes()


def write(found: Files, path: str | Path) -> str:
    """Write what there is; returns the path as a text."""
    for suffix, content in zip((".json", ".pdiparams"), found, strict=True):
        if content is not None:
            Path(f"{path}{suffix}").write_bytes(content)
    return str(path)


DAMAGES: Mapping[str, Callable[[bytes, bytes, bytes], Files]] = {
    "program truncated": lambda program, weights, other: (program[: len(program) // 2], weights),
    "program missing": lambda program, weights, other: (None, weights),
    "weights truncated": lambda program, weights, other: (program, weights[: len(weights) // 2]),
    "weights missing": lambda program, weights, other: (program, None),
    "weights too long": lambda program, weights, other: (program, weights + other),
    # What Paddle 3.3.1 loads and runs without a message:
    "weights of another model": lambda program, weights, other: (program, other),
    "bit of a weight flipped": lambda program, weights, other: (program, weights[:-1] + bytes([weights[-1] ^ 0x40])),
    "last bytes missing": lambda program, weights, other: (program, weights[:-4]),
    "operator exchanged": lambda program, weights, other: (program.replace(b'"1.gelu"', b'"1.silu"'), weights),
    "version of the future": lambda program, weights, other: (_of_version(program, 99), weights),
}
"""What a loader must refuse, by name: from the program, its weights, and the weights of another model of the architecture.

The bit that is flipped is of the exponent of the last weight.
"""


def _of_version(program: bytes, version: int) -> bytes:
    content = json.loads(program)
    content["base_code"]["version"] = version
    return json.dumps(content).encode()
