"""Read the files of an exported program without Paddle: its JSON form, and the parameters behind it.

Source: paddle/fluid/pir/serialize_deserialize/include/schema.h of Paddle 3, and files of 3.0.0 to 3.3.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIALECTS = {"0": "builtin", "1": "pd_op", "2": "cf", "3": "custom_op"}
"""The dialects of operators, by the number that the file has for them."""
PARAMETER = "builtin.parameter"
VERSIONS = {"3.0": 1, "3.1": 2, "3.2": 3, "3.3": 4}
"""By release, the version of the format that it writes."""
_STRUCTURE = re.compile(r'("D":")/[^"]*/("\},"N":"struct_name")')


@dataclass(frozen=True)
class ProgramFile:
    """What a program's JSON file says.

    version: of the format, see VERSIONS.
    operators: names in order, those of a loop's or condition's blocks after its own, for instance "pd_op.matmul".
    parameters: the names of the weights, in the order of the program.
    inputs: by name the shape, -1 where the size may vary.
    """

    version: int
    operators: tuple[str, ...]
    parameters: tuple[str, ...]
    inputs: Mapping[str, tuple[int, ...]]


def read(path: str | Path) -> ProgramFile:
    """The program of a path as jit.save takes it, without ".json". Raises OSError, and ValueError for another kind of file."""
    content = json.loads(Path(f"{path}.json").read_text(encoding="utf-8"))
    if content.get("base_code", {}).get("magic") != "pir":
        raise ValueError(f"{path}.json is no program: its base_code has no magic 'pir'; give a file that jit.save wrote")
    operators = list(_operators(content["program"]["regions"]))
    return ProgramFile(
        version=content["base_code"]["version"],
        operators=tuple(map(_name, operators)),
        parameters=tuple(each["A"][3] for each in operators if each["#"] == "p"),
        inputs=dict(_input(each) for each in operators if each["#"] == "1.data"),
    )


def names_in(block: Any) -> Iterator[str]:
    """The names of the operators in a block of a program that Paddle has loaded, in the order of ProgramFile.operators."""
    for operator in block.ops:
        yield operator.name()
        for inner in operator.blocks():
            yield from names_in(inner)


def without_layer_names(path: str | Path) -> str:
    """The text of a program without the names of the layers: Paddle counts these on from export to export in a process."""
    return _STRUCTURE.sub(r"\1\2", Path(f"{path}.json").read_text(encoding="utf-8"))


def _operators(regions: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for region in regions:
        for block in region["blocks"]:
            for operator in block["ops"]:
                yield operator
                yield from _operators(operator.get("regions", []))


def _name(operator: Mapping[str, Any]) -> str:
    if operator["#"] == "p":
        return PARAMETER
    dialect, _, name = operator["#"].partition(".")
    return f"{DIALECTS.get(dialect, dialect)}.{name}"


def _input(operator: Mapping[str, Any]) -> tuple[str, tuple[int, ...]]:
    given = {each["N"]: each["AT"].get("D") for each in operator["A"]}
    return given["name"], tuple(given["shape"])
