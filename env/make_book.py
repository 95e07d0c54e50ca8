"""Builds the book into build/book: chapters, pages of docs/ and search; `bash env/book.sh [RUN]` calls it.

It copies what the book shows to build/book-work/source, into the folders that it has in the repository, changes only the
copies, and lets Sphinx read them with docs/conf.py. The front page is README.md. Nothing is built when nothing changed.

Only the standard library is used. Exit codes: 0 built without a warning, 1 otherwise, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "book"
WORK = ROOT / "build" / "book-work"
SOURCE = WORK / "source"
BUILT_FROM = WORK / "built-from"
"""Holds the digest of what the site was built from; missing while it is built, and after a build with warnings."""

CONTENTS = {
    "I. Ready?": ["docs/start.md", "notebooks/00_*", "docs/from-pytorch.md"],
    "II. One model": ["notebooks/0[1-8]_*"],
    "III. Many cards": ["notebooks/09_*", "notebooks/1[0-6]_*"],
    "IV. Underneath": ["notebooks/1[78]_*"],
    "V. Onward": ["notebooks/*"],
    "Guides": ["docs/running.md", "docs/devices.md", "docs/detection.md", "docs/*"],
    "Reference": [
        "docs/glossary.md",
        "docs/capabilities.md",
        "docs/faults.md",
        "docs/grids.md",
        "docs/operators.md",
        "docs/field.md",
        "docs/releases.md",
        "docs/performance.md",
        "docs/xpu-environment.md",
    ],
    "Project": ["CONTRIBUTING.md", "CHANGELOG.md"],
}
"""The groups of the navigation. A page is in the group that names it, else in the first one with a pattern that fits."""
COLLAPSED = {"proof": ("hide-cell", "Code of the proof"), "helper": ("hide-input", "Helper code")}
"""For each tag of ours the one by which myst-nb collapses the whole cell, or its code only, and what it shows instead."""
GOOD = ("passed", "known", "fixed", "skipped")
"""Outcomes of checks that may be collapsed; a red one stays visible."""
LINK = re.compile(r"(?<=\]\()([^)\s#]*)(#[^)\s]*)?(?=\))")
WRITTEN_BY_TOOLS = re.compile(r"<!-- (contents|next) -->.*?<!-- /\1 -->\n?", re.DOTALL)
"""Links to the headings and the neighbours of a chapter, which the book has beside and below each page."""
PICTURES = (".png", ".svg", ".jpg", ".gif")


class InputError(Exception):
    """The input is wrong; the message says where, and what to do."""


def main(arguments: list[str]) -> int:
    try:
        prepare(Path(arguments[0]) if arguments else None)
        digest = digest_of_sources()
        if not (BUILT_FROM.exists() and BUILT_FROM.read_text() == digest and (SITE / "index.html").exists()):
            BUILT_FROM.unlink(missing_ok=True)
            if not build(of_a_run=bool(arguments)):
                print("xpulab: the book was not built without a warning; correct what is named above", file=sys.stderr)
                return 1
            BUILT_FROM.write_text(digest)
    except InputError as error:
        print(f"xpulab: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    print(SITE / "index.html")
    return 0


def build(of_a_run: bool) -> bool:
    """Whether Sphinx builds the site, all of it, without a warning. If so, it replaces the last one."""
    print(f"xpulab: building {SITE}", file=sys.stderr, flush=True)
    fresh = WORK / "site"
    shutil.rmtree(fresh, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "--builder", "html", "--conf-dir", str(ROOT / "docs"), "--fresh-env"]
    command += ["--fail-on-warning", "--keep-going", "--quiet", "--jobs", "auto", "--doctree-dir", str(WORK / "doctrees")]
    if of_a_run:
        command += ["-D", "suppress_warnings=myst.xref_missing"]  # to sections that are not in the level of the run
    if subprocess.run([*command, str(SOURCE), str(fresh)]).returncode != 0:
        return False
    shutil.rmtree(SITE, ignore_errors=True)
    fresh.rename(SITE)
    return True


def digest_of_sources() -> str:
    """Of all that the site depends on: the copies, the configuration, the pinned packages."""
    digest = hashlib.sha256()
    for path in sorted(
        [*SOURCE.rglob("*"), *ROOT.glob("docs/conf.py"), *ROOT.glob("docs/*.css"), ROOT / "env/requirements/book.txt"]
    ):
        if path.is_file():
            digest.update(f"{path}\0".encode() + path.read_bytes())
    return digest.hexdigest()


# ------------------------------------------------------------------------------------------------------------- the copies


def prepare(run: Path | None) -> None:
    """Write the copies. Raises InputError where the run cannot be shown."""
    when, executed = read_run(run) if run else ("", {})
    paths = [*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("docs/*.md"), *(ROOT / page for page in CONTENTS["Project"])]
    pages = sorted(path.relative_to(ROOT).as_posix() for path in paths)
    shutil.rmtree(SOURCE, ignore_errors=True)
    titles = {}
    for page in pages:
        if page.endswith(".md"):
            write(page, with_links((ROOT / page).read_text(encoding="utf-8"), page, pages))
            continue
        notebook = read_json(executed.get(page, ROOT / page))
        titles[page] = f"{Path(page).name[:2]} {notebook['metadata']['xpulab']['title']}"
        write(page, json.dumps(for_the_book(notebook, page, pages, origin(page, when, executed))))
    front = with_links((ROOT / "README.md").read_text(encoding="utf-8"), "README.md", pages)
    if when:
        front += f"\n```{{note}}\nThe chapters show the run of {when}.\n```\n"
    write("index.md", front + format_contents(pages, titles))


def read_run(folder: Path) -> tuple[str, dict[str, Path]]:
    """Day and verdict of a run, and the executed notebook of each chapter, by the page that it replaces."""
    path = folder / "result.json"
    result = read_json(path)
    try:
        when = f"{result['date'][:10]} ({result['verdict']})"
        ran = {f"notebooks/{each['name']}.ipynb": folder / each["executed"] for each in result["notebooks"] if each["executed"]}
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: it is not one that `xpulab run` wrote: {error!r}") from error
    executed = {page: notebook for page, notebook in ran.items() if (ROOT / page).exists()}
    if not executed:
        raise InputError(f"{path}: this run executed no chapter of the book")
    return when, executed


def read_json(path: Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def origin(page: str, when: str, executed: dict[str, Path]) -> str:
    """Where the outputs of a chapter come from, in a book of a run; otherwise empty."""
    if page in executed:
        return f"Executed by the run of {when}."
    return "The run did not execute this chapter: these outputs are the committed ones, from a CPU." if when else ""


def for_the_book(notebook: dict, page: str, pages: list[str], note: str) -> dict:
    """The notebook with tags by which myst-nb collapses cells, links that work in the book, and a note below its title."""
    texts = [cell for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    for cell in texts:
        cell["source"] = with_links(WRITTEN_BY_TOOLS.sub("", "".join(cell["source"])), page, pages)
    if note:
        title, _, rest = texts[0]["source"].partition("\n")
        texts[0]["source"] = f"{title}\n\n```{{note}}\n{note}\n```\n{rest}"
    for cell in notebook["cells"]:
        for tag in COLLAPSED.keys() & set(cell["metadata"].get("tags", [])):
            collapse(cell, *COLLAPSED[tag])
    return notebook


def collapse(cell: dict, tag: str, prompt: str) -> None:
    """Collapse a cell in the book; the outputs of one with an error, or a check that is not good, stay visible."""
    outputs = cell.get("outputs", [])
    checks = [output.get("metadata", {}).get("xpulab", {}).get("check", {}) for output in outputs]
    outcomes = Counter(check["outcome"] for check in checks if "outcome" in check)
    if outcomes.keys() - GOOD or any(output["output_type"] == "error" for output in outputs):
        tag = "hide-input"
    if tag == "hide-cell" and outcomes:
        prompt += ": " + ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    cell["metadata"]["tags"].append(tag)
    cell["metadata"]["mystnb"] = {"code_prompt_show": prompt, "code_prompt_hide": prompt}


def with_links(text: str, page: str, pages: list[str]) -> str:
    """The Markdown text of a page with links that work in the book. A picture that it shows is copied beside.

    A link to a page stays, one to README.md leads to the front page, one to another file of the repository to that file:
    on GitHub where GITHUB_REPOSITORY says which one this is, else in this clone. Anchors of chapters are written as JupyterLab
    makes them, those of the book are written as GitHub's.
    """

    def in_the_book(link: re.Match[str]) -> str:
        target, anchor = link[1], link[2] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) if target else page
        if path.endswith(".ipynb"):
            anchor = re.sub(r"[^\w\-#]", "", anchor.lower())
        if path == "README.md" and target:
            return posixpath.relpath("index.md", posixpath.dirname(page) or ".") + anchor
        if path in pages or ":" in target or not (ROOT / path).exists():
            return target + anchor
        if path.endswith(PICTURES):
            (SOURCE / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, SOURCE / path)
            return target
        return file_of_repository(path) + anchor

    return LINK.sub(in_the_book, text)


def file_of_repository(path: str) -> str:
    """The address of a file or folder that is not in the book."""
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    server, repository = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    if server and repository:
        return f"{server}/{repository}/{kind}/{os.environ.get('GITHUB_SHA', 'HEAD')}/{path}"
    return (ROOT / path).as_uri()


def format_contents(pages: list[str], titles: dict[str, str]) -> str:
    """The navigation as directives of Sphinx, a hidden one for each group; titles are the short ones of chapters."""
    named = {name for names in CONTENTS.values() for name in names}
    left, text = list(pages), ""
    for caption, names in CONTENTS.items():
        group = [page for name in names for page in left if page == name or (fnmatch(page, name) and page not in named)]
        group = list(dict.fromkeys(group))
        left = [page for page in left if page not in group]
        lines = [f"{titles[page]} <{page}>" if page in titles else page for page in group]
        text += "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", *lines, "```", ""]) if lines else ""
    return text


def write(page: str, text: str) -> None:
    (SOURCE / page).parent.mkdir(parents=True, exist_ok=True)
    (SOURCE / page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
