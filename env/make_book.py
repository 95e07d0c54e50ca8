"""Builds the book into build/book: chapters, pages of docs/ and search; `bash env/book.sh [RUN]` calls it.

It copies what the book shows to build/book-work/source, into the folders that it has in the repository, changes only the
copies, and lets Sphinx read them with docs/conf.py. The front page is README.md. The Chinese book, below zh/ in the site, has
the same pages by the same names, as far as they are translated. Nothing is built when nothing changed.

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
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "book"
WORK = ROOT / "build" / "book-work"
SOURCES = {"en": WORK / "source", "zh": WORK / "source-zh"}
BOTH = WORK / "pages-in-both-languages"
WORDS = WORK / "words-of-the-glossary"
BUILT_FROM = WORK / "built-from"
"""Holds the digest of what the site was built from; missing while it is built, and after a build with warnings."""

CONTENTS = {
    "I. Ready?": ["docs/start.md", "notebooks/00_*", "docs/from-pytorch.md"],
    "II. One model": ["notebooks/0[1-8]_*"],
    "III. Many cards": ["notebooks/09_*", "notebooks/1[0-6]_*"],
    "IV. Underneath": ["notebooks/1[78]_*"],
    "V. At work": ["notebooks/2[012]_*"],
    "VI. Onward": ["notebooks/*"],
    "Guides": [
        "docs/first-day.md",
        "docs/operate.md",
        "docs/schedulers.md",
        "docs/evidence.md",
        "docs/devices.md",
        "docs/detection.md",
        "docs/*",
    ],
    "Reference": [
        "docs/glossary.md",
        "docs/capabilities.md",
        "docs/arguments.md",
        "docs/faults.md",
        "docs/field.md",
        "docs/releases.md",
        "docs/release-notes.md",
        "docs/performance.md",
        "docs/xpu-environment.md",
    ],
    "Project": ["CONTRIBUTING.md", "CHANGELOG.md"],
}
"""The groups of the navigation. A page is in the group that names it, else in the first one with a pattern that fits."""
COLLAPSED = {"proof": "hide-cell", "helper": "hide-input"}
"""For each tag of ours the one by which myst-nb collapses the whole cell, or its code only."""
TEXTS = {
    "en": {
        "proof": "Code of the proof",
        "helper": "Helper code",
        "of": ": ",
        ", ": ", ",
        "count": "{count} {outcome}",
        "run": "The chapters show the run of {when}.",
        "executed": "Executed by the run of {when}.",
        "committed": "The run did not execute this chapter: these outputs are the committed ones, from a CPU.",
    },
    "zh": {
        "proof": "验证部分的代码",
        "helper": "辅助代码",
        "of": "：",
        ", ": "，",
        "count": "{count} 项{outcome}",
        "author": "xpulab 的贡献者",
        "run": "各章显示的是 {when} 的运行。",
        "executed": "由 {when} 的运行执行。",
        "committed": "这次运行没有执行本章：这里的输出是仓库中提交的，来自 CPU。",
        "passed": "通过",
        "known": "已知问题",
        "fixed": "已修复",
        "skipped": "跳过",
        "I. Ready?": "一、准备好了吗？",
        "II. One model": "二、一个模型",
        "III. Many cards": "三、多卡",
        "IV. Underneath": "四、底层",
        "V. At work": "五、实战",
        "VI. Onward": "六、继续",
        "Guides": "指南",
        "Reference": "参考",
        "Project": "项目",
    },
}
"""What a book adds to its pages; a group or an outcome that is not here keeps its name."""
GOOD = ("passed", "known", "fixed", "skipped")
"""Outcomes of checks that may be collapsed; a red one stays visible."""
LINK = re.compile(r"(?<=\]\()([^)\s#]*)(#[^)\s]*)?(?=\))")
WRITTEN_BY_TOOLS = re.compile(r"<!-- (contents|next) -->.*?<!-- /\1 -->\n?", re.DOTALL)
"""Links to the headings and the neighbours of a chapter, which the book has beside and below each page."""
FRONT = "index.md"
PICTURES = (".png", ".svg", ".jpg", ".gif")


class InputError(Exception):
    """The input is wrong; the message says where, and what to do."""


@dataclass(frozen=True)
class Book:
    """One language of the book.

    pages: the name of each page in the sources of Sphinx, by its path in the repository. elsewhere: for each page of the other
    book its address in the site, by its path in the repository.
    """

    language: str
    pages: Mapping[str, str]
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        """Where its copies are."""
        return SOURCES[self.language]

    @property
    def site(self) -> str:
        """Its folder in the site."""
        return "zh" if self.language == "zh" else "."

    def text(self, name: str) -> str:
        """A text that the book adds, in its language."""
        return TEXTS[self.language].get(name, name)


def main(arguments: list[str]) -> int:
    try:
        books = prepare(Path(arguments[0]) if arguments else None)
        digest = digest_of_sources()
        if not (BUILT_FROM.exists() and BUILT_FROM.read_text() == digest and (SITE / "index.html").exists()):
            BUILT_FROM.unlink(missing_ok=True)
            if not build(books, of_a_run=bool(arguments)):
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


def build(books: list[Book], of_a_run: bool) -> bool:
    """Whether Sphinx builds the site, all of it, without a warning. If so, it replaces the last one."""
    print(f"xpulab: building {SITE}", file=sys.stderr, flush=True)
    fresh = WORK / "site"
    shutil.rmtree(fresh, ignore_errors=True)
    for book in books:
        command = [sys.executable, "-I", "-m", "sphinx", "--builder", "html", "--conf-dir", str(ROOT / "docs"), "--fresh-env"]
        command += ["--fail-on-warning", "--keep-going", "--quiet", "--jobs", "auto"]
        command += ["--doctree-dir", str(WORK / f"doctrees-{book.language}"), "-D", f"pages_in_both_languages={BOTH}"]
        if book.language == "zh":
            command += [
                "-D",
                "language=zh_CN",
                "-D",
                f"html_search_options.dict={WORDS}",
                "-D",
                f"author={book.text('author')}",
            ]
        if of_a_run:
            command += ["-D", "suppress_warnings=myst.xref_missing"]  # to sections that are not in the level of the run
        if subprocess.run([*command, str(book.source), str(fresh / book.site)]).returncode != 0:
            return False
    shutil.rmtree(SITE, ignore_errors=True)
    fresh.rename(SITE)
    return True


def digest_of_sources() -> str:
    """Of all that the site depends on: the copies, the configuration, the pinned packages."""
    digest = hashlib.sha256()
    copies = [path for source in SOURCES.values() for path in source.rglob("*")]
    settings = [*ROOT.glob("docs/conf.py"), *ROOT.glob("docs/book.*"), ROOT / "env/requirements/book.txt"]
    for path in sorted([*copies, *settings]):
        if path.is_file():
            digest.update(f"{path}\0".encode() + path.read_bytes())
    return digest.hexdigest()


# ------------------------------------------------------------------------------------------------------------- the copies


def prepare(run: Path | None) -> list[Book]:
    """Write the copies of both books, and return these. Raises InputError where the run cannot be shown."""
    when, executed = read_run(run) if run else ("", {})
    books = both_books()
    for book in books:
        shutil.rmtree(book.source, ignore_errors=True)
        copy(book, when, executed)
    WORK.mkdir(parents=True, exist_ok=True)
    BOTH.write_text("".join(f"{name}\n" for name in sorted(set.intersection(*(set(book.pages.values()) for book in books)))))
    glossary = ROOT / "docs/zh/glossary.md"
    headings = re.findall(r"^#+ +(.*)", glossary.read_text(encoding="utf-8"), re.M)
    WORDS.write_text("".join(f"{word}\n" for word in re.findall(r"[\u4e00-\u9fff]{2,}", "\n".join(headings))), encoding="utf-8")
    return books


def both_books() -> list[Book]:
    """The English and the Chinese book, each with the pages that it has."""
    chinese = {
        path: re.sub(r"^(docs|notebooks)/zh/", r"\1/", path) for path in paths_of("notebooks/zh/*.ipynb", "docs/zh/*.md")
    }
    english = {path: path for path in [*paths_of("notebooks/*.ipynb", "docs/*.md"), *CONTENTS["Project"]]} | {
        "README.md": FRONT
    }
    chinese["README_cn.md"] = FRONT
    addresses = {path: re.sub(r"\.\w+$", ".html", name) for path, name in english.items()}
    other_addresses = {path: re.sub(r"\.\w+$", ".html", f"zh/{name}") for path, name in chinese.items()}
    return [Book("en", english, other_addresses), Book("zh", chinese, addresses)]


def paths_of(*patterns: str) -> list[str]:
    """The paths in the repository that match, sorted."""
    return sorted(path.relative_to(ROOT).as_posix() for pattern in patterns for path in ROOT.glob(pattern))


def copy(book: Book, when: str, executed: dict[str, Path]) -> None:
    """Write the copies of one book; when, executed: of the run that it shows."""
    titles = {}
    for page, name in book.pages.items():
        if page.endswith(".md"):
            text = with_links((ROOT / page).read_text(encoding="utf-8"), page, book)
            write(book, name, text)
            continue
        notebook = read_json(executed.get(page, ROOT / page))
        titles[name] = f"{Path(page).name[:2]} {notebook['metadata']['xpulab']['title']}"
        write(book, name, json.dumps(for_the_book(notebook, page, book, origin(book, page, when, executed))))
    front = (book.source / FRONT).read_text(encoding="utf-8")
    if when:
        front += f"\n```{{note}}\n{book.text('run').format(when=when)}\n```\n"
    write(book, FRONT, front + format_contents(book, [name for name in book.pages.values() if name != FRONT], titles))


def read_run(folder: Path) -> tuple[str, dict[str, Path]]:
    """Day and verdict of a run, and the executed notebook of each chapter, by the page that it replaces."""
    path = folder / "result.json"
    result = read_json(path)
    try:
        when = f"{result['date'][:10]} ({result['verdict']})"
        names = {each["name"]: folder / each["executed"] for each in result["notebooks"] if each["executed"]}
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: it is not one that `xpulab run` wrote: {error!r}") from error
    ran = {page_of(name, notebook): notebook for name, notebook in names.items()}
    executed = {page: notebook for page, notebook in ran.items() if (ROOT / page).exists()}
    if not executed:
        raise InputError(f"{path}: this run executed no chapter of the book")
    return when, executed


def read_json(path: Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def page_of(name: str, executed: Path) -> str:
    """The page that an executed notebook replaces: that of its language."""
    language = read_json(executed).get("metadata", {}).get("xpulab", {}).get("language", "en")
    return f"notebooks/{'' if language == 'en' else f'{language}/'}{name}.ipynb"


def origin(book: Book, page: str, when: str, executed: dict[str, Path]) -> str:
    """Where the outputs of a chapter come from, in a book of a run; otherwise empty."""
    if page in executed:
        return book.text("executed").format(when=when)
    return book.text("committed") if when else ""


def for_the_book(notebook: dict, page: str, book: Book, note: str) -> dict:
    """The notebook with tags by which myst-nb collapses cells, links that work in the book, and a note below its title."""
    texts = [cell for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    for cell in texts:
        cell["source"] = with_links(WRITTEN_BY_TOOLS.sub("", "".join(cell["source"])), page, book)
    if note:
        title, _, rest = texts[0]["source"].partition("\n")
        texts[0]["source"] = f"{title}\n\n```{{note}}\n{note}\n```\n{rest}"
    for cell in notebook["cells"]:
        for tag in COLLAPSED.keys() & set(cell["metadata"].get("tags", [])):
            collapse(cell, tag, book)
    return notebook


def collapse(cell: dict, own_tag: str, book: Book) -> None:
    """Collapse a cell in the book; the outputs of one with an error, or a check that is not good, stay visible."""
    tag, prompt = COLLAPSED[own_tag], book.text(own_tag)
    outputs = cell.get("outputs", [])
    checks = [output.get("metadata", {}).get("xpulab", {}).get("check", {}) for output in outputs]
    outcomes = Counter(check["outcome"] for check in checks if "outcome" in check)
    if outcomes.keys() - GOOD or any(output["output_type"] == "error" for output in outputs):
        tag = "hide-input"
    if tag == "hide-cell" and outcomes:
        counts = (book.text("count").format(count=count, outcome=book.text(outcome)) for outcome, count in outcomes.items())
        prompt += book.text("of") + book.text(", ").join(counts)
    cell["metadata"]["tags"].append(tag)
    cell["metadata"]["mystnb"] = {"code_prompt_show": prompt, "code_prompt_hide": prompt}


def with_links(text: str, page: str, book: Book) -> str:
    """The Markdown text of a page with links that work in the book. A picture that it shows is copied beside.

    page: its path in the repository. A link to a page of the book leads to that page, one to a page of the other book there,
    one to another file of the repository to that file: on GitHub where GITHUB_REPOSITORY says which one this is, else in this
    clone. Anchors of chapters are written as JupyterLab makes them, those of the book are written as GitHub's.
    """
    folder = posixpath.dirname(book.pages[page])

    def in_the_book(link: re.Match[str]) -> str:
        target, anchor = link[1], link[2] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) if target else page
        if path.endswith(".ipynb"):
            anchor = re.sub(r"[^\w\-#]", "", anchor.lower())
        if path in book.pages:
            return (posixpath.relpath(book.pages[path], folder or ".") if target else "") + anchor
        if path in book.elsewhere:
            return f"other:{posixpath.relpath(book.elsewhere[path], posixpath.join(book.site, folder))}{anchor}"
        if ":" in target or not (ROOT / path).exists():
            return target + anchor
        if path.endswith(PICTURES):
            (book.source / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, book.source / path)
            return posixpath.relpath(path, folder or ".")
        return file_of_repository(path) + anchor

    return LINK.sub(in_the_book, text)


def file_of_repository(path: str) -> str:
    """The address of a file or folder that is not in the book."""
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    server, repository = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    if server and repository:
        return f"{server}/{repository}/{kind}/{os.environ.get('GITHUB_SHA', 'HEAD')}/{path}"
    return (ROOT / path).as_uri().replace("file:", "clone:", 1)  # a scheme of docs/conf.py: Markdown allows no link to a file


def format_contents(book: Book, pages: list[str], titles: dict[str, str]) -> str:
    """The navigation as directives of Sphinx, a hidden one for each group; titles are the short ones of chapters."""
    named = {name for names in CONTENTS.values() for name in names}
    left, text = list(pages), ""
    for caption, names in CONTENTS.items():
        group = [page for name in names for page in left if page == name or (fnmatch(page, name) and page not in named)]
        group = list(dict.fromkeys(group))
        left = [page for page in left if page not in group]
        lines = [f"{titles[page]} <{page}>" if page in titles else page for page in group]
        text += (
            "\n".join(["", "```{toctree}", ":hidden:", f":caption: {book.text(caption)}", *lines, "```", ""]) if lines else ""
        )
    return text


def write(book: Book, name: str, text: str) -> None:
    (book.source / name).parent.mkdir(parents=True, exist_ok=True)
    (book.source / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
