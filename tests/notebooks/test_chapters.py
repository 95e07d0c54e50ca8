"""Every chapter is a lesson first and a proof below, in the size that a reader finishes."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import nbformat
import pytest

from tools.arrange_notebooks import anchor, arrange
from tools.chapter_table import check_lines, code_lines, size_of
from xpulab import files
from xpulab.harness.sections import read_sections

CHAPTERS = sorted(files.NOTEBOOKS.glob("*.ipynb"))
LESSONS_FIRST = ("02", "03", "04", "07", "08", "09", "10")
"""The chapters whose visible code must be lesson for the most part."""


@pytest.fixture(params=CHAPTERS, ids=lambda path: path.stem)
def chapter(request):
    return request.param


def test_a_chapter_has_at_most_60_cells_and_its_lesson_30(chapter):
    size = size_of(chapter)
    assert size.cells <= 60
    assert size.lesson_cells <= 30


COPIED_WHOLE = {"14_zero_cost_checkpoints": 28}
"""Lines of a class that a reader copies, so that one cell holds all of it."""


def test_cells_are_short(chapter):
    size = size_of(chapter)
    assert size.longest_lesson_cell <= COPIED_WHOLE.get(chapter.stem, 15)
    assert size.longest_proof_cell <= 30


def test_every_heading_declares_a_section(chapter):
    texts = [cell for cell in nbformat.read(chapter, as_version=4).cells if cell.cell_type == "markdown"]
    headings = [cell for cell in texts if re.match(r"#{2,3} ", cell.source)]
    assert [cell.source.splitlines()[0] for cell in headings if "section" not in cell.metadata.get("xpulab", {})] == []


def test_a_lesson_explains_its_code(chapter):
    size = size_of(chapter)
    assert size.lesson_words >= 4 * size.visible_lines


def test_visible_code_is_lesson_more_than_check(chapter):
    assert size_of(chapter).lesson_share >= (0.6 if chapter.stem[:2] in LESSONS_FIRST else 0.5)


def test_the_proof_comes_after_the_lesson(chapter):
    sections = read_sections(chapter, nbformat.read(chapter, as_version=4))
    parts = [section.part for section in sections]
    last_lesson_but_the_verdict = max(index for index, part in enumerate(parts[:-1]) if part == "lesson")
    assert "proof" not in parts[:last_lesson_but_the_verdict]


def test_a_chapter_is_arranged(chapter):
    assert nbformat.writes(arrange(chapter, CHAPTERS)) + "\n" == chapter.read_text(encoding="utf-8")


def test_every_link_of_the_contents_leads_to_a_heading(chapter):
    notebook = nbformat.read(chapter, as_version=4)
    text = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    headings = {anchor(heading) for source in text for heading in re.findall(r"^## +(.+)", source, re.MULTILINE)}
    links = set(re.findall(r"\]\(#([^)]+)\)", text[0]))
    assert links and links <= headings


def test_no_cell_ends_with_a_value_that_nobody_explains(chapter):
    """A stray number below a cell is a leftover."""
    notebook = nbformat.read(chapter, as_version=4)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    bare = [output.data["text/plain"] for output in outputs if output.output_type == "execute_result"]
    assert [text for text in bare if re.fullmatch(r"[-\d.e]+|array\(.*\)", text, re.DOTALL)] == []


def test_the_first_cell_says_what_is_needed_and_how_long_it_takes(chapter):
    title = nbformat.read(chapter, as_version=4).cells[0].source
    assert re.search(r"(?i)minute|second", title) and re.search(r"(?i)you need|need", title)


# ------------------------------------------------------------------------------------------------------------- the tools


SOURCE = """x = 1
# a comment

check.close("a.b", x, 1, control=2,
            means="it holds")
if x:
    with check.table("a.c", means="all") as rows:
        rows.equal("x", x, 1, control=2)
"""


def test_code_lines_are_neither_blank_nor_comments():
    assert code_lines(SOURCE) == {1, 4, 5, 6, 7, 8}


def test_check_lines_are_calls_and_tables():
    assert check_lines(SOURCE) == {4, 5, 7, 8}


def test_a_heading_with_markup_has_no_anchor():
    with pytest.raises(SystemExit, match="without markup"):
        anchor("The `device`")


def test_anchors_are_those_of_jupyterlab():
    assert anchor("What a rank holds (and why)") == "What-a-rank-holds-(and-why)"


def test_arrange_says_which_notebook_is_not_arranged(tmp_path, monkeypatch):
    """Works on a copy of one chapter whose contents were removed."""
    for path in CHAPTERS:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    broken = tmp_path / CHAPTERS[0].name
    notebook = json.loads(broken.read_text(encoding="utf-8"))
    notebook["cells"][0]["source"] = re.sub(
        r"(<!-- contents -->).*(<!-- /contents -->)", r"\1\n\2", "".join(notebook["cells"][0]["source"]), flags=re.DOTALL
    )
    broken.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    command = f"from xpulab import files; files.NOTEBOOKS = __import__('pathlib').Path({str(tmp_path)!r})\n"
    command += "from tools.arrange_notebooks import main; raise SystemExit(main(['--check']))"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=60, cwd=files.ROOT)
    assert (done.returncode, done.stdout) == (1, f"{broken.name}: run tools/arrange_notebooks.py on it\n")
