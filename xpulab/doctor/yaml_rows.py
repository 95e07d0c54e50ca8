"""Reads a YAML file that is a list of flat entries, and says by line what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from xpulab.errors import InputError
from xpulab.files import ROOT


@dataclass(frozen=True)
class YamlRow:
    """One entry. place: "data/remedies.yaml line 12", where it begins. values: by key, as the file has them."""

    place: str
    values: dict[str, object]


def read_rows(path: Path, required: Mapping[str, type], optional: Mapping[str, type]) -> tuple[YamlRow, ...]:
    """The entries of the file, each with all required keys, perhaps optional ones, and no others.

    required and optional: the type of the value by key. Raises InputError with file, line and what is wrong.
    """
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    try:
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
        top = loader.get_single_node()
        if not isinstance(top, yaml.SequenceNode):
            raise InputError(f"{shown} line 1: the file must be a list, each entry beginning with '- '")
        return tuple(_row(node, loader, shown, required, optional) for node in top.value)
    except yaml.MarkedYAMLError as error:
        raise InputError(f"{shown} line {error.problem_mark.line + 1}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{shown}: not YAML: {error}") from error


def _row(
    node: yaml.Node, loader: yaml.SafeLoader, shown: Path, required: Mapping[str, type], optional: Mapping[str, type]
) -> YamlRow:
    place = _place(shown, node)
    if not isinstance(node, yaml.MappingNode):
        raise InputError(f"{place}: an entry must be 'key: value' lines")
    types = {**required, **optional}
    values: dict[str, object] = {}
    for key_node, value_node in node.value:
        key, value = str(key_node.value), loader.construct_object(value_node, deep=True)
        if key not in types:
            raise InputError(f"{_place(shown, key_node)}: unknown key {key!r}; known are {', '.join(types)}")
        if key in values:
            raise InputError(f"{_place(shown, key_node)}: key {key!r} for the second time")
        if not isinstance(value, types[key]):
            raise InputError(f"{_place(shown, key_node)}: {key!r} must be a {types[key].__name__}, not {value!r}")
        values[key] = value
    for key in required:
        if key not in values:
            raise InputError(f"{place}: no key {key!r}")
    return YamlRow(place, values)


def _place(shown: Path, node: yaml.Node) -> str:
    return f"{shown} line {node.start_mark.line + 1}"
