"""docs/faults.md shows what the selftest found; a fault that came since its last whole run may be missing."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

from xpulab import files
from xpulab.faults import CATALOGUE

SPEC = importlib.util.spec_from_file_location("publish_faults", files.ROOT / "tools" / "publish_faults.py")
publish_faults = importlib.util.module_from_spec(SPEC)
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(files.ROOT / "tools"))
    SPEC.loader.exec_module(publish_faults)


def test_the_page_names_no_trial_that_the_catalogue_does_not_have():
    text = publish_faults.PAGE.read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    at = {"quick": "", "standard": ", standard"}
    tried = {(fault.name, f"{lane}{at[fault.level]}") for fault in CATALOGUE for lane in fault.lanes}
    tried |= {(fault.name, f"{fault.device}, smoke") for fault in CATALOGUE if fault.smoke}
    tried |= {(fault.name, "not run") for fault in CATALOGUE if fault.not_run}
    named = {(row[1].strip(), row[3].strip()) for row in rows} - {("fault", "lane")}
    assert named and named <= tried


@pytest.mark.parametrize("content", ["", "[]", json.dumps({"faults": [{}]})])
def test_another_file_is_refused_and_the_page_stays(content, tmp_path):
    file = tmp_path / "other.json"
    file.write_text(content)
    before = publish_faults.PAGE.read_bytes()
    done = subprocess.run([sys.executable, publish_faults.__file__, str(file)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, publish_faults.PAGE.read_bytes()) == (2, before)
    assert "other.json: not what `xpulab selftest --json` prints" in done.stderr
