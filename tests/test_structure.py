"""The package's structure: no import cycle, the kernel's side and the harness apart, nothing shipped that reads from tests/."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import TopologicalSorter

from xpulab import files

PACKAGE = files.ROOT / "xpulab"
TEXTS = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "env/**/*.*",
    "data/*.*",
    "notebooks/*.ipynb",
    "tools/**/*.py",
    "xpulab/**/*.py",
)
LAYERS = (
    {"errors", "files", "devices", "processor", "child", "messages", "records", "sim", "verdict", "warm"},
    {"doctor", "reference", "pretrained"},
    {"checks"},
    {"ranks"},
    {"chapters"},
    {"release"},
    {"harness", "operators", "align", "search"},
    {"faults", "soak"},
    {"fleet"},
    {"cli", "__main__"},
)
"""The rooms, each layer imports only from those before it and from its own; CONTRIBUTING.md draws them."""
INSIDE = {"checks", "chapters", "release", "ranks", "reference"}
"""The packages that run inside the kernel."""
OUTSIDE = {"harness", "faults", "soak", "fleet", "cli"}
"""What runs outside of it: only the executed notebook passes from one side to the other."""


@cache
def modules():
    """By module name its file, as ("xpulab.harness.plan", path)."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(files.ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def nodes_of(name):
    """All nodes of a module's source."""
    return tuple(ast.walk(ast.parse(modules()[name].read_text(encoding="utf-8"))))


@cache
def imported_by(name):
    """The modules of the package that a module imports anywhere, also inside its functions and for its types."""
    found = []
    for node in nodes_of(name):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in modules()]
        elif isinstance(node, ast.ImportFrom) and node.module in modules():
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [each if each in modules() else node.module for each in inner]
    return tuple(found)


def package_of(name):
    return [*name.split("."), ""][1]


def test_no_module_imports_itself_through_others():
    graph = {name: set(imported_by(name)) - {name} for name in modules()}
    assert len(graph) > 80
    assert list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


def test_packages_import_only_from_the_layers_below_them():
    layer = {room: number for number, rooms in enumerate(LAYERS) for room in rooms}
    pairs = {(package_of(name), package_of(each)) for name in modules() for each in imported_by(name)}
    used = {(room, other) for room, other in pairs if other and room != other}
    assert [(room, other) for room, other in sorted(used) if layer[room] < layer[other]] == []
    graph = {room: {other for other in layer if (room, other) in used} for room in layer}
    assert list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


def test_neither_side_imports_the_other():
    crossing = [
        (name, each)
        for name in modules()
        for each in imported_by(name)
        if (package_of(name) in INSIDE and package_of(each) in OUTSIDE)
        or (package_of(name) in {"harness", "cli"} and package_of(each) in INSIDE)
    ]
    assert crossing == []


def test_a_chapter_imports_only_its_own_room_and_the_shared_one():
    rooms = {name: name.split(".")[2] for name in modules() if name.startswith("xpulab.chapters.")}
    others = [
        (name, each)
        for name, room in rooms.items()
        for each in imported_by(name)
        if each in rooms and rooms[each] not in (room, "shared")
    ]
    assert others == []


def test_a_notebook_of_the_release_imports_only_its_own_room_of_those():
    rooms = {name: name.split(".")[2] for name in modules() if name.startswith("xpulab.release.")}
    del rooms["xpulab.release.tiny_training"]
    assert [(name, each) for name, room in rooms.items() for each in imported_by(name) if rooms.get(each, room) != room] == []


def test_nothing_that_is_shipped_reads_from_the_tests():
    strings = {name: [node.value for node in nodes_of(name) if is_short_text(node)] for name in modules()}
    assert {name for name, texts in strings.items() if any(text == "tests" or "tests/" in text for text in texts)} == set()


def test_chapters_are_named_with_their_present_numbers():
    named = re.compile(rf"\b(\d\d)_({'|'.join(files.chapters())})\b")
    labelled = re.compile(rf"\[(\d\d)[^\]\[]*\]\([./a-z]*(\d\d)_({'|'.join(files.chapters())})\.ipynb")
    texts = [path for pattern in TEXTS for path in files.ROOT.glob(pattern)]
    wrong = []
    for path in texts:
        text = path.read_text(encoding="utf-8", errors="replace")
        wrong += [(path.name, found[0]) for found in named.finditer(text) if files.chapters()[found[2]] != found[0]]
        wrong += [(path.name, found[0]) for found in labelled.finditer(text) if found[1] != found[2]]
    assert len(texts) > 400
    assert wrong == []


def is_short_text(node):
    """A literal text of one line, so no docstring of several."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value
