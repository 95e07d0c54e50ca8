"""What foreign text holds is shown, and never obeyed: not by the terminal, not by a shell into which a line is pasted."""

from __future__ import annotations

import json
import shlex
import subprocess

import pytest

from tests.fleet.compare.made_up import card, check, notebook, result, row

pytestmark = pytest.mark.integration

NASTY = "\x1b]0;title\x07\x1b[2J\r\u202egreen\x9b31m\nfleet: nothing found"
HERE = "$(touch pasted); touch pasted #"


def red(**changed):
    return result(
        notebook(check(outcome="failed", reason="too large", **changed), outcome="failed", reason="it failed"),
        outcome="failed",
    )


def everywhere():
    """A red result with nasty text in each field that has no grammar."""
    rows = [row(NASTY, "failed", measured=NASTY, expected=NASTY, reason=NASTY)]
    made = red(measured=NASTY, expected=NASTY, means=NASTY, rows=rows)
    made |= {"scope": NASTY, "versions": {NASTY: NASTY}, "machine": {"processor": NASTY, NASTY: NASTY, "system": NASTY}}
    made |= {"card_facts": [card(model=NASTY, firmware=NASTY, state=NASTY, link=NASTY, serial=NASTY)], "node": NASTY}
    made["notebooks"][0] |= {"reason": NASTY, "title": NASTY}
    return made


def test_escape_characters_reach_no_terminal(xpulab, packed, tmp_path):
    nasty = packed("a", everywhere(), notes=[NASTY], made=NASTY, xpulab=NASTY, left_out={NASTY: NASTY})
    others = [packed(name, red()) for name in ("b", "c")]
    for arguments in (
        ("judge", nasty),
        ("bundle", nasty, "--list"),
        ("compare", nasty, *others),
        ("compare", others[0], nasty),
    ):
        code, shown = xpulab(*arguments)
        assert "\\x1b" in shown and code == (0 if "--list" in arguments else 1), shown
        assert "fleet: nothing found" not in shown.splitlines()


def test_escape_characters_of_a_file_name_reach_no_terminal(xpulab, tmp_path):
    bad = tmp_path / f"{NASTY}.zip"
    bad.write_bytes(b"x")
    for arguments in (("judge", bad), ("bundle", bad, "--list"), ("compare", bad, bad.parent)):
        assert xpulab(*arguments)[0] == 2


def test_a_line_that_repeats_can_be_pasted(xpulab, packed, tmp_path):
    changed = red()
    changed["notebooks"][0]["name"] = HERE
    files = [packed(name, each) for name, each in (("a", changed), ("b", red()), ("c", red()))]
    files.append(packed("d", b"[]").rename(tmp_path / f"{HERE}.zip"))
    _, shown = xpulab("compare", *files)
    lines = [line.partition("repeat: ")[2] for line in shown.splitlines() if "repeat: " in line]
    assert any(shlex.quote(HERE) in line for line in lines) and any(shlex.quote(f"{HERE}.zip") in line for line in lines)
    subprocess.run(["sh", "-c", "xpulab() { :; }\n" + "\n".join(lines)], cwd=tmp_path, check=True, timeout=10)
    assert not (tmp_path / "pasted").exists()


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("check", HERE),
        ("check", "demo.sum\n"),
        ("check", "--out"),
        ("notebook", "--out=x"),
        ("notebook", "a\x1b"),
        ("notebook", "/etc/07_demo"),
        ("notebook", "release/../../07_demo"),
        ("device", HERE),
    ],
)
def test_a_name_without_grammar_is_refused(xpulab, packed, what, name):
    changed = red()
    part = {"check": changed["notebooks"][0]["checks"][0], "notebook": changed["notebooks"][0], "device": changed}[what]
    part["device" if what == "device" else "name"] = name
    code, shown = xpulab("judge", packed("a", changed))
    assert code == 2 and "a.zip: run/result.json: not what" in shown, shown


@pytest.mark.parametrize("node", [HERE, "../../x", "-oProxyCommand=x", "a\n"])
def test_a_node_without_grammar_is_refused(xpulab, packed, node):
    code, shown = xpulab("judge", packed("a", red(), node=node))
    assert code == 2 and "no manifest that can be read" in shown, shown


def test_the_issue_for_paddle_can_be_pasted_and_holds_no_escape_characters(xpulab, tmp_path):
    import nbformat

    from tests.conftest import make

    changed = everywhere()
    changed["notebooks"][0] |= {"name": HERE, "executed": "demo.ipynb"}
    (tmp_path / "result.json").write_text(json.dumps(changed))
    nbformat.write(make('check.equal("demo.sum", 1, 2, control=3)'), tmp_path / "demo.ipynb")
    assert xpulab("report", "demo.sum", "--run", ".", "--out", "issue.md")[0] == 0
    text = (tmp_path / "issue.md").read_text()
    assert "\x1b" not in text and f"xpulab run {shlex.quote(HERE)} --check demo.sum " in text
