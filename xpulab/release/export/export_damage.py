"""Damage the two files of an exported program in ways that happen: what a disk, a copy or a release process leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Files:
    """The content of <path>.json and <path>.pdiparams; None for a file that is missing."""

    program: bytes | None
    weights: bytes | None


def read(path: str | Path) -> Files:
    """Both files of an exported program."""
    return Files(Path(f"{path}.json").read_bytes(), Path(f"{path}.pdiparams").read_bytes())


def write(found: Files, path: str | Path) -> str:
    """Write what there is; returns the path as a text."""
    for suffix, content in ((".json", found.program), (".pdiparams", found.weights)):
        if content is not None:
            Path(f"{path}{suffix}").write_bytes(content)
    return str(path)


Damage = Callable[[bytes, bytes, bytes], Files]
"""From the program, its weights, and the weights of another model of the same architecture."""

ALL: Mapping[str, Damage] = {
    "program truncated": lambda program, weights, other: Files(program[: len(program) // 2], weights),
    "program empty": lambda program, weights, other: Files(b"", weights),
    "program missing": lambda program, weights, other: Files(None, weights),
    "other kind of file": lambda program, weights, other: Files(program.replace(b'"pir"', b'"xyz"'), weights),
    "operator unknown": lambda program, weights, other: Files(program.replace(b'"1.gelu"', b'"1.gelv"'), weights),
    "weights truncated": lambda program, weights, other: Files(program, weights[: len(weights) // 2]),
    "weights empty": lambda program, weights, other: Files(program, b""),
    "weights missing": lambda program, weights, other: Files(program, None),
    "weights too long": lambda program, weights, other: Files(program, weights + other),
    "header flipped": lambda program, weights, other: Files(program, bytes([weights[0] ^ 0x40]) + weights[1:]),
    # What Paddle 3.3.1 loads and runs without a message:
    "weights of another model": lambda program, weights, other: Files(program, other),
    "bit of a weight flipped": lambda program, weights, other: Files(program, _flipped(weights)),
    "last bytes missing": lambda program, weights, other: Files(program, weights[:-4]),
    "operator exchanged": lambda program, weights, other: Files(program.replace(b'"1.gelu"', b'"1.silu"'), weights),
    "version of the future": lambda program, weights, other: Files(_of_version(program, 99), weights),
}
"""What a loader must refuse, by name."""


def _flipped(weights: bytes) -> bytes:
    """A bit of the exponent of the last weight is flipped; its last byte has sign and exponent."""
    return weights[:-1] + bytes([weights[-1] ^ 0x40])


def _of_version(program: bytes, version: int) -> bytes:
    content = json.loads(program)
    content["base_code"]["version"] = version
    return json.dumps(content).encode()
