"""env/book.sh refuses what is not a run; env/make_book.py collapses cells, keeps red ones visible, and makes links work."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

from xpulab.files import NOTEBOOKS, ROOT


@pytest.fixture
def make_book(tmp_path, monkeypatch):
    """env/make_book.py as a module of its own, which writes its copies elsewhere."""
    spec = importlib.util.spec_from_file_location("make_book", ROOT / "env/make_book.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # where dataclasses look
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "WORK", tmp_path)
    monkeypatch.setattr(module, "SOURCES", {"en": tmp_path / "source", "zh": tmp_path / "source-zh"})
    monkeypatch.setattr(module, "BOTH", tmp_path / "both")
    monkeypatch.setattr(module, "WORDS", tmp_path / "words")
    for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_SHA"):
        monkeypatch.delenv(name, raising=False)
    return module


def a_run(folder, **changed):
    """The folder of a run that executed chapter 00 only: the committed notebook with a check that failed."""
    notebook = json.loads((NOTEBOOKS / "00_environment.ipynb").read_text(encoding="utf-8"))
    cell = next(cell for cell in notebook["cells"] if "proof" in cell["metadata"].get("tags", []))
    cell["outputs"] = [shown("passed"), shown("failed")]
    (folder / "00_environment.ipynb").write_text(json.dumps(notebook))
    ran = [{"name": "00_environment", "executed": "00_environment.ipynb"}, {"name": "01_first_lora", "executed": None}]
    result = {"date": "2026-11-23T12:00:00+00:00", "verdict": "XPU: NOT READY", "notebooks": ran, **changed}
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def shown(outcome):
    """What a check shows."""
    return {"output_type": "display_data", "data": {}, "metadata": {"xpulab": {"check": {"outcome": outcome}}}}


@pytest.mark.parametrize("given", [["no-such-folder"], ["."], ["--help"], ["a", "b"]])
def test_what_is_not_the_folder_of_a_run_is_refused_before_anything_is_made(given, tmp_path):
    done = subprocess.run(["bash", str(ROOT / "env/book.sh"), *given], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "run" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"notebooks": 3}, "not one that `xpulab run` wrote"),
        ({"notebooks": [{"name": "00_environment", "executed": None}]}, "executed no chapter of the book"),
        ({"notebooks": [{"name": "00_environment", "executed": "gone.ipynb"}]}, "gone.ipynb: cannot be read"),
    ],
)
def test_a_run_that_cannot_be_shown_is_refused(changed, said, make_book, tmp_path, capsys):
    assert make_book.main([str(a_run(tmp_path, **changed))]) == 2
    assert said in capsys.readouterr().err


def book(make_book, *pages, language="en", **elsewhere):
    """A book with these pages, and the front page."""
    names = {page: page.replace("/zh/", "/") for page in pages}
    front = {"en": "README.md", "zh": "README_cn.md"}[language]
    return make_book.Book(language, {**names, front: "index.md"}, elsewhere.get("elsewhere", {}))


def test_a_chapter_that_a_run_executed_replaces_the_committed_one(make_book, tmp_path):
    make_book.prepare(a_run(tmp_path))
    ready, lora = (
        json.loads((make_book.SOURCES["en"] / f"notebooks/{name}.ipynb").read_text())
        for name in ("00_environment", "01_first_lora")
    )
    assert "Executed by the run of 2026-11-23 (XPU: NOT READY)" in ready["cells"][0]["source"]
    assert "did not execute this chapter" in lora["cells"][0]["source"]
    tags = [cell["metadata"]["tags"] for cell in ready["cells"] if "proof" in cell["metadata"].get("tags", [])]
    assert "hide-input" in tags[0] and {"hide-cell"} == {each[-1] for each in tags[1:]}


@pytest.mark.parametrize(
    ("tag", "outputs", "collapsed", "prompt"),
    [
        ("helper", [shown("passed")], "hide-input", "Helper code"),
        ("proof", [], "hide-cell", "Code of the proof"),
        ("proof", [shown("passed"), shown("known"), shown("passed")], "hide-cell", "Code of the proof: 2 passed, 1 known"),
        ("proof", [shown("passed"), shown("broken")], "hide-input", "Code of the proof"),
        ("proof", [{"output_type": "error"}], "hide-input", "Code of the proof"),
    ],
)
def test_proof_and_helper_cells_are_collapsed_and_what_is_red_is_not(make_book, tag, outputs, collapsed, prompt):
    cell = {"metadata": {"tags": [tag]}, "outputs": outputs}
    make_book.collapse(cell, tag, book(make_book))
    assert cell["metadata"]["tags"] == [tag, collapsed]
    assert cell["metadata"]["mystnb"]["code_prompt_show"] == prompt


@pytest.mark.parametrize(
    ("page", "link", "in_the_book"),
    [
        ("docs/fleet.md", "../README.md#terms", "../index.md#terms"),
        ("docs/fleet.md", "faults.md#a-b", "faults.md#a-b"),
        ("docs/fleet.md", "../notebooks/03_lora.ipynb#It-is-LoRA,-twice", "../notebooks/03_lora.ipynb#it-is-lora-twice"),
        ("docs/fleet.md", "../env/venv.sh", f"clone://{ROOT}/env/venv.sh"),
        ("notebooks/03_lora.ipynb", "#Two-Words", "#two-words"),
        ("README.md", "docs/fleet.md", "docs/fleet.md"),
    ],
)
def test_a_link_works_in_the_book(make_book, page, link, in_the_book):
    english = book(make_book, "docs/fleet.md", "docs/faults.md", "notebooks/03_lora.ipynb")
    assert make_book.with_links(f"see [this]({link}).", page, english) == f"see [this]({in_the_book})."


@pytest.mark.parametrize(
    ("page", "link", "in_the_book"),
    [
        ("docs/zh/fleet.md", "../../notebooks/zh/03_lora.ipynb#适配器,-两个", "../notebooks/03_lora.ipynb#适配器-两个"),
        ("notebooks/zh/03_lora.ipynb", "../../docs/zh/fleet.md#一", "../docs/fleet.md#一"),
        ("docs/zh/fleet.md", "../faults.md#a", "other:../../docs/faults.html#a"),
        ("docs/zh/fleet.md", "../report.png", "report.png"),
        ("README_cn.md", "docs/zh/fleet.md", "docs/fleet.md"),
        ("README_cn.md", "README.md", "other:../index.html"),
    ],
)
def test_a_link_of_the_chinese_book_leads_to_its_own_page_or_to_the_english_book(make_book, page, link, in_the_book):
    english = {"docs/faults.md": "docs/faults.html", "README.md": "index.html"}
    chinese = book(make_book, "docs/zh/fleet.md", "notebooks/zh/03_lora.ipynb", language="zh", elsewhere=english)
    assert make_book.with_links(f"[x]({link})", page, chinese) == f"[x]({in_the_book})"


def test_the_chinese_book_has_the_pages_that_are_translated_by_their_english_names(make_book):
    english, chinese = make_book.prepare(None)
    assert set(chinese.pages.values()) < set(english.pages.values())
    both = make_book.BOTH.read_text(encoding="utf-8").split()
    assert {"docs/glossary.md", "docs/faults.md"} < set(both) and "CONTRIBUTING.md" not in both
    assert "微调" in (make_book.SOURCES["zh"] / "index.md").read_text(encoding="utf-8")


def test_a_run_of_chinese_notebooks_is_shown_in_the_chinese_book(make_book, tmp_path):
    folder = a_run(tmp_path)
    executed = json.loads((folder / "00_environment.ipynb").read_text(encoding="utf-8"))
    executed["metadata"]["xpulab"]["language"] = "zh"
    (folder / "00_environment.ipynb").write_text(json.dumps(executed))
    assert list(make_book.read_run(folder)[1]) == ["notebooks/zh/00_environment.ipynb"]


def test_the_environment_of_the_book_lies_beside_the_other_and_has_its_own_packages(repository):
    assert repository.make("--set", "book")[0] == 0
    assert not repository.venv.exists()
    assert (repository.venv.with_name(".venv-book") / "xpulab.json").exists()
    assert [call.endswith("-r " + str(repository.folder / "env/requirements/book.txt")) for call in repository.calls] == [True]
    repository.write("pyproject.toml", "# other\n")
    assert repository.make("--set", "book") == (0, "")  # the book does not depend on it
