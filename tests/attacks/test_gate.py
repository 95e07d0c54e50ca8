"""A gate answers on standard output whatever lies in its folder, within the memory and time of a health check."""

from __future__ import annotations

import json
import os
from datetime import datetime, timezone

import pytest

from tests.fleet.compare.made_up import check, notebook, result
from xpulab.doctor.system import boot_id
from xpulab.records.origin import node_name

pytestmark = pytest.mark.integration

MIB = 2**20


def large(path):
    path.touch()
    os.truncate(path, 1024 * MIB)


def deep(path):
    path.write_text("[" * 8 * MIB)


def millions_of_lists(path):
    path.write_text("[" + "[]," * (5 * MIB) + "0]")


def endless(path):
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("name", ["result.json", "soak.json"])
@pytest.mark.parametrize("bad", [large, deep, millions_of_lists, endless, os.mkfifo], ids=lambda bad: bad.__name__)
def test_one_file_that_takes_too_much_is_named_and_the_others_are_read(xpulab, tmp_path, bad, name):
    here = {"node": node_name(), "boot": boot_id(), "date": datetime.now(timezone.utc).isoformat()}
    for folder in ("good", "bad"):
        (tmp_path / "all" / folder).mkdir(parents=True)
    (tmp_path / "all/good/result.json").write_text(json.dumps(result(notebook(check()), **here)))
    bad(tmp_path / "all/bad" / name)
    for form in ("--reason", "--json"):
        code, shown = xpulab("gate", "all", form, memory=320 * MIB)
        answer = json.loads(shown) if form == "--json" else {"state": "unknown", "line": shown}
        assert (code, answer["state"], f"all/bad/{name}" in answer["line"]) == (2, "unknown", True), shown
    os.utime(tmp_path / "all/bad" / name, (0, 0), follow_symlinks=False)
    code, shown = xpulab("gate", "all", memory=320 * MIB)
    assert code == 0 and shown.startswith("xpulab: warning, green"), shown
