"""How large the house is: lines and modules of the package, of its core and of the tests, and public names without docstring.

.venv/bin/python tools/benchmarks/house.py [--of FOLDER]      # FOLDER: another checkout, to compare with
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

CORE = ("checks", "records", "harness", "chapters/shared")


def size(*folders: Path) -> str:
    """Lines and modules of all Python files below the folders."""
    files = [path for folder in folders for path in folder.rglob("*.py")]
    return f"{sum(len(path.read_bytes().splitlines()) for path in files):,} in {len(files)}"


def undocumented(package: Path) -> Iterator[str]:
    """Modules, and public functions, classes and methods of public classes, that have no docstring."""
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        is_faults = "faults" in (path.stem, path.parent.name)
        bodies: list[tuple[str, ast.AST]] = [(str(path), tree)] if not is_faults else []
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                bodies.append((f"{path}:{node.lineno} {node.name}", node))
                inner = node.body if isinstance(node, ast.ClassDef) else []
                bodies += [
                    (f"{path}:{each.lineno} {node.name}.{each.name}", each)
                    for each in inner
                    if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")
                ]
        yield from (name for name, node in bodies if not ast.get_docstring(node))  # type: ignore[arg-type]  # of these kinds


def main(root: Path) -> None:
    """Print the table."""
    package = root / "xpulab"
    without = list(undocumented(package))
    core = [package / room for room in CORE if (package / room).exists()]
    print("| what | lines, modules |\n|---|---|")
    print(f"| package | {size(package)} |\n| its core: {', '.join(path.name for path in core)} | {size(*core)} |")
    print(f"| tests | {size(root / 'tests')} |\n| public names without docstring | {len(without)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--of", type=Path, default=Path("."), metavar="FOLDER", help="a checkout; default: this folder")
    main(parser.parse_args().of)
