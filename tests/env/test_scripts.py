"""env/validate.sh and env/test.sh create the environment and forward arguments and exit codes, from any folder."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.integration

# Replaces `python -m xpulab` and `python -m pytest`: prints what it received.
ECHO = """
import json, os, sys
print(json.dumps({"arguments": sys.argv[1:], "folder": os.getcwd(), "threads": os.environ.get("OMP_NUM_THREADS")}))
sys.exit(7)
"""


@pytest.fixture
def scripts(repository):
    repository.write("xpulab/__main__.py", ECHO)
    repository.write("pytest.py", ECHO)
    return repository


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


def test_validate_prints_nothing_when_the_environment_is_ready(scripts):
    run(scripts, "validate.sh")
    assert run(scripts, "validate.sh", "--help")[2] == ""


@pytest.mark.parametrize("named", [("--device", "xpu"), ("--device=xpu",)])
def test_validate_makes_the_environment_of_the_named_device(scripts, named):
    code, reached, printed = run(scripts, "validate.sh", *named)
    assert (code, reached) == (2, None)
    assert "no xpu on this machine" in printed


def test_test_runs_pytest_in_the_repository_on_several_processes(scripts):
    code, reached, _ = run(scripts, "test.sh", "-k", "one or two")
    assert code == 7
    flag, workers, *rest = reached["arguments"]
    assert flag == "-n"
    assert 2 <= int(workers) <= 4
    assert rest == ["--dist", "loadscope", "--no-loadscope-reorder", "-k", "one or two"]
    assert (reached["folder"], reached["threads"]) == (str(scripts.folder), "1")


@pytest.mark.parametrize("given", [["-n", "0"], ["-n8"], ["--numprocesses=2"]])
def test_test_leaves_the_number_of_processes_to_the_caller(scripts, given):
    assert run(scripts, "test.sh", *given)[1]["arguments"] == given


def test_test_keeps_the_callers_number_of_threads(scripts):
    assert run(scripts, "test.sh", OMP_NUM_THREADS="3")[1]["threads"] == "3"


def test_a_python_that_does_not_run_is_passed_over(scripts):
    scripts.tool("python", (scripts.bin / "python3").read_text())
    scripts.tool("python3", "#!/bin/sh\nexit 127\n")
    assert run(scripts, "validate.sh")[0] == 7


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
