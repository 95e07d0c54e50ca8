"""What all tests share: small notebooks, tier, order, what one worker runs, and no kernel that waits for a port in use."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode, v4

from xpulab import files, messages, warm
from xpulab.harness.chapter import Chapter, read_chapter
from xpulab.harness.plan import Plan, plan_of

_SOCKETS = str(Path(__file__).parent / "kernels_on_sockets")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_SOCKETS, os.environ.get("PYTHONPATH"))))


TIERS = ("unit", "integration", "environments", "notebooks", "cluster", "real", "formers")
"""unit: in this process, or in one short other one. integration: starts processes that last: kernels, ranks, simulated cards,
the command line. environments: makes environments, or starts what is in a broken one. notebooks: runs the committed notebooks,
whole or in part, and the files that they write. cluster: needs what a scheduler has: Slurm, ssh, the node exporter, Kubernetes.
real: with a pretrained model from the cache. formers: chapter 19 in its own environment. The last five run when -m asks."""

ONE_WORKER = {
    "the run of the whole suite, for which another worker would wait": (
        "tests/notebooks/test_capability_lanes.py::TestLanes",
        "tests/notebooks/test_clean_run.py::TestTheWholeSuite",
        "tests/notebooks/test_clean_run.py::TestSimulatedCards",
    ),
}
"""By reason the modules and classes that run one after another in one of pytest-xdist's workers."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test without a tier is a unit test; the longest tests start first, before them those that wait for a cluster."""
    for item in items:
        if not any(item.get_closest_marker(tier) for tier in TIERS):
            item.add_marker(pytest.mark.unit)
    items.sort(key=lambda item: TIERS.index(tier_of(item)), reverse=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """With --dist loadscope one worker runs a module or a class, or those that ONE_WORKER names together."""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling  # only here: pytest-xdist may be switched off

    class OneWorker(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            scope = super()._split_scope(nodeid)
            return next((name for name, scopes in ONE_WORKER.items() if scope in scopes), scope)

    return OneWorker(config, log)


def tier_of(item: pytest.Item) -> str:
    """The tier of a test."""
    return next(tier for tier in TIERS if item.get_closest_marker(tier))


HOSTILE = ("typer", "json", "paddle", "numpy", "sitecustomize", "runpy", "pip", "pytest", "ipykernel_launcher", "jupyterlab")


def make_hostile(folder: Path) -> Path:
    """Put modules into a folder that no command may import from where it is started; returns the file that they write."""
    executed = folder / "EXECUTED"
    source = f"import os\nopen({str(executed)!r}, 'a').write(__name__ + '\\n')\nos._exit(99)\n"
    (folder / "xpulab").mkdir(parents=True)
    for name in (*HOSTILE, "xpulab/__init__"):
        (folder / f"{name}.py").write_text(source)
    return executed


# ---------------------------------------------------------------------------------------------------------------- the book


@cache
def chapters() -> tuple[Chapter, ...]:
    """The committed chapters, read once in each process: several modules have a test for each check."""
    return tuple(read_chapter(path) for path in sorted(files.NOTEBOOKS.glob("*.ipynb")))


@cache
def release() -> tuple[Chapter, ...]:
    """The committed notebooks that judge a release."""
    return tuple(map(read_chapter, files.release_notebooks()))


@cache
def plans(level: str) -> dict[str, Plan]:
    """The plans of all chapters at this level by their names, also of those with an environment of their own."""
    return {chapter.path.stem: plan_of(chapter, level) for chapter in chapters()}


@cache
def usual_plans(level: str) -> dict[str, Plan]:
    """Those that run when no notebook is named."""
    return {name: plan for name, plan in plans(level).items() if not plan.chapter.environment}


# ------------------------------------------------------------------------------------------------------- small notebooks


IMPORTS = "from xpulab.checks import check\nfrom xpulab.checks.verdict import verdict"
PARAMETERS = 'device = "auto"\nlevel = "quick"\ncards = 1\nseed = 0'
GOOD = 'check.equal("demo.good", 2, 2, control=3, means="two is two")'
BUDGET = {"smoke": 20, "quick": 30, "standard": 60}
METADATA = {"title": "A demo", "capabilities": ["demo"], "cards": 1, "budget_seconds": BUDGET}
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def make(
    *cells: str | NotebookNode,
    parameters: str | None = PARAMETERS,
    ends: bool = True,
    kernel: dict | None = KERNEL,
    metadata: object = METADATA,
    level: str = "quick",
    **changed: object,
) -> NotebookNode:
    """A notebook: cell 1 the parameters, cell 2 the imports, from 3 on the given cells, last verdict().

    level: of the section "all", which begins with the given cells. changed: entries of the xpulab metadata; budget is that of
    all levels.
    """
    head = [] if parameters is None else [v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})]
    body = [cell if isinstance(cell, NotebookNode) else v4.new_code_cell(cell) for cell in cells]
    tail = [v4.new_code_cell("verdict()", metadata={"tags": ["nbval-ignore-output"]})] if ends else []
    notebook = v4.new_notebook(cells=[*head, v4.new_code_cell(IMPORTS), section("all", level=level), *body, *tail])
    if "budget" in changed:
        budget = changed.pop("budget")
        changed["budget_seconds"] = {"smoke": budget, "quick": budget, "standard": budget}
    if isinstance(metadata, dict):
        metadata = {**metadata, **changed}
    notebook.metadata.update({key: value for key, value in {"kernelspec": kernel, "xpulab": metadata}.items() if value})
    return notebook


def section(name: str, *needs: str, level: str = "quick", **declared: object) -> NotebookNode:
    """A heading cell that declares a section; declared: more of its metadata."""
    declared = {"section": name, "needs": list(needs), "part": "lesson", "level": level, **declared}
    return v4.new_markdown_cell(f"## {name}", metadata={"xpulab": declared})


def save(notebook: NotebookNode, path: Path) -> Path:
    """Write a notebook; returns where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


@pytest.fixture(scope="session")
def book() -> Callable[..., NotebookNode]:
    """Makes a small notebook."""
    return make


@pytest.fixture(scope="session")
def checks_of_the_book() -> frozenset[str]:
    """The names of all checks that the notebooks plan."""
    return frozenset(check.name for chapter in (*chapters(), *release()) for check in chapter.checks)


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    """Makes a small notebook and saves it: put("name", *cells, **options) returns its path."""
    return lambda name, *cells, **options: save(make(*cells, **options), tmp_path / f"{name}.ipynb")


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """once(name, fill): a folder that `fill` has filled, once for all of pytest-xdist's workers."""

    def folder(name: str, fill: Callable[[Path], None]) -> Path:
        base = tmp_path_factory.getbasetemp()
        base = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
        filled = base / name
        with (base / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not filled.exists():
                filled.mkdir()
                fill(filled)
                (filled / "done.json").write_text(json.dumps(True))
        assert (filled / "done.json").exists(), "what all tests share was not made: the first test that needed it says why"
        return filled

    return folder


# ---------------------------------------------------------------------------------------------------------- the language

CHINESE = re.compile(r"[\u4e00-\u9fff]")
_ENGLISH_WORDS = re.compile(r"\b(?:the|is|are|not|and|of|this|with|for|no)\b")


@pytest.fixture
def chinese():
    """Texts are shown in Chinese until the test ends."""
    messages.choose({messages.VARIABLE: "zh"})


@pytest.fixture(autouse=True)
def _english_after():
    """A test that chooses a language, or calls a command that does, leaves none to the next one."""
    yield
    messages.choose({})


def assert_chinese(text):
    """It is a Chinese sentence: no English one is left between the values."""
    assert CHINESE.search(text) and not _ENGLISH_WORDS.search(text), text


# ------------------------------------------------------------------------------------------------- processes without imports


@pytest.fixture(scope="session")
def fork_server() -> Iterator[warm.ForkServer]:
    """The fork server of all tests of this process: to import Paddle and PaddleNLP takes longer than most tests."""
    with warm.ForkServer() as running:
        yield running


@pytest.fixture(scope="module")
def in_fork_server(fork_server: warm.ForkServer) -> Iterator[None]:
    """Runs, kernels and ranks of a module use that fork server, as in a terminal of `xpulab lab`."""
    from xpulab.warm import kernels  # imports Jupyter, which most tests do not need

    with pytest.MonkeyPatch.context() as patch:
        for name, value in kernels.environment(fork_server.address, fork_server.folder, {}).items():
            patch.setenv(name, value)
        yield
