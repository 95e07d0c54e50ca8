"""A known message leads to its own remedy only, as people send it: with a traceback, prefixes of a launcher, in a long log."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from xpulab import files
from xpulab.doctor.remedies import match, remedies

TEXTS = yaml.safe_load((Path(__file__).parent / "user_errors.yaml").read_text(encoding="utf-8"))
BEFORE = "LAUNCH INFO 2026-02-03 18:20:01,120 Run Pod: bqkzhf, replicas 2, status ready\nloss: 1.2, global_step: 3\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 12, in <module>\n    trainer.train()\n'


@pytest.mark.parametrize("row", [row for row in remedies() if row.example], ids=lambda row: row.id)
def test_example_leads_to_its_own_remedy_only(row):
    assert [found.id for found in match(row.example)] == [row.id]


@pytest.mark.parametrize(("id", "text"), TEXTS["known"], ids=[f"{id}-{place}" for place, (id, _) in enumerate(TEXTS["known"])])
def test_what_users_send_leads_to_one_remedy(id, text):
    assert [found.id for found in match(f"{BEFORE}{TRACEBACK}{text}\nbye\n")] == [id]


@pytest.mark.parametrize("text", TEXTS["unknown"])
def test_unrelated_text_leads_nowhere(text):
    assert match(text) == []


def test_every_page_has_the_section_that_a_row_names():
    for page, _, section in {row.page.partition("#") for row in remedies()}:
        headings = re.findall(r"(?m)^#+ (.+)$", (files.ROOT / page).read_text(encoding="utf-8"))
        assert not section or section in {re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in headings}, page


# ----------------------------------------------------------------------------------------------- the command of the user


def doctor(*options, text=b""):
    command = [sys.executable, "-m", "xpulab", "doctor", *map(str, options)]
    return subprocess.run(command, input=text, capture_output=True, timeout=60, check=False)


ERROR = f"{BEFORE}{TRACEBACK}AssertionError: optimizer Tensor linear_2.w_0_moment1_0 not found\n"
FORMS = {
    "utf-8": ERROR.encode(),
    "with a BOM": ERROR.encode("utf-8-sig"),
    "utf-16": ERROR.encode("utf-16"),
    "of Windows": ERROR.replace("\n", "\r\n").encode(),
    "coloured": ERROR.replace("AssertionError", "\x1b[0;31mAssertionError\x1b[0m").encode(),
    "not UTF-8": ERROR.encode() + b"\xff\xfe\x80\n",
    "long": b"loss: 1.0\n" * 600_000 + ERROR.encode(),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_log_is_read_in_every_form_and_the_line_is_named(tmp_path, form):
    path = tmp_path / "workerlog.0"
    path.write_bytes(FORMS[form])
    done = doctor("--log", path, "--json")
    error = json.loads(done.stdout)["errors"][0]
    assert (done.returncode, error["id"], error["line"]) == (1, "optimizer-names", 600_006 if form == "long" else 6)


def test_cause_fix_and_page_are_printed_for_what_comes_in_by_a_pipe():
    done = doctor("--log", "-", text=ERROR.encode())
    said = done.stdout.decode()
    assert (done.returncode, said.splitlines()[0]) == (1, "standard input line 6: optimizer-names")
    assert "cause: moments are saved under names" in said and "unique_name.guard()" in said
    assert "page: docs/trouble.md#training" in said


def test_a_log_without_a_known_error_gets_no_advice_but_its_last_error_line():
    done = doctor("--log", "-", text=f"{TRACEBACK}ValueError: my own\n".encode())
    said = done.stdout.decode()
    assert done.returncode == 0 and "no known error" in said and "ValueError: my own" in said and "fix:" not in said


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--log", "nowhere.log"), "nowhere.log: cannot be read"),
        (("--log", "."), ".: is no file"),
        (("--log", "-", "--timeout", "3"), "--timeout has no effect beside --log"),
        (("--log", "-", "--device", "npu"), "device 'npu': unknown"),
    ],
)
def test_what_cannot_be_read_is_one_line(options, says):
    done = doctor(*options)
    assert (done.returncode, done.stdout) == (2, b"")
    assert says in done.stderr.decode() and done.stderr.decode().count("\n") == 1
