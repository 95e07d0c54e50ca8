"""What people read is in their language; what programs read stays English, whatever the language."""

from __future__ import annotations

import html
import importlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from tests.conftest import CHINESE, assert_chinese
from tests.harness.test_report import record, result_of, verdict
from tests.test_cli import COMMAND, put
from xpulab import cli, files, messages
from xpulab.checks.rows import known_or_fixed
from xpulab.harness import report
from xpulab.harness.chapter import read_chapter
from xpulab.harness.explain import Explanation
from xpulab.harness.judge import Group
from xpulab.harness.report.text import format_result
from xpulab.messages import N_, Catalogue, labelled, padded, shown, width
from xpulab.records import known_issues, refusals
from xpulab.records.record import Row, record_in


@pytest.fixture
def tool(monkeypatch):
    """tools/messages.py as a module."""
    monkeypatch.syspath_prepend(str(files.ROOT / "tools"))
    return importlib.import_module("messages")


def invoke(*arguments, **environ):
    return CliRunner(env=environ).invoke(cli.app, [str(each) for each in arguments], catch_exceptions=False)


# ------------------------------------------------------------------------------------------------------------ the catalogue


def test_the_committed_catalogue_is_complete_and_its_compiled_file_is_that_of_its_source(tool):
    assert tool.check("zh") == []
    assert len(tool.read("zh")) > 500


def test_what_is_wrong_with_a_catalogue_is_found(tool):
    wanted = tool.Catalog()
    for id in ("kept", "{count} cells", "new", "{at} of {all} rows", "{one} of {two} rows", "not sure", "empty"):
        wanted.add(id)
    committed = tool.Catalog(locale="zh")
    translated = {"kept": "留", "{count} cells": "{cells} 个", "{at} of {all} rows": "{all} 行中的 {at} 行", "gone": "走"}
    for id, text in translated.items():
        committed.add(id, text)
    committed.add("{one} of {two} rows", "{two} 行中的 {one} 行")
    committed.add("not sure", "也许", flags=["fuzzy"])
    committed.add("empty", "")
    committed.obsolete["once"] = tool.read("zh")["ok"]
    found = [line.partition(":")[0] for line in tool.problems(committed, wanted)]
    assert sorted(found) == sorted(
        ["missing", "stale", "obsolete", "fuzzy", "not translated", "other placeholders", "ambiguous"]
    )


def test_messages_are_read_from_python_pages_and_data(tool):
    source = """
seen = N_(f"{len(cells)} of {self.plan.checks} cells, {seconds:.1f} s, {'; '.join(names)}")
other = shown("plain {braces}"), labelled("cause: ", seen), shown(seen), print("not marked")
"""
    assert [message for message, _ in tool.in_python(source, "a.py")] == [
        "{cells} of {checks} cells, {seconds} s, {names}",
        "plain {{braces}}",
        "cause: ",
    ]
    page = b'<p>{{ shown("Cards") }} {{ text("{count} rows", count=3) }} {{ shown(title) }}</p>'
    assert [message for message, _ in tool.in_page(page)] == ["Cards", "{count} rows"]
    rows = '- id: a\n  cause: "{install} and {x: 1}"\n  remedy: "{install}"\n'
    assert list(tool.in_data(rows, ("cause", "remedy"))) == [("{install} and {{x: 1}}", 2)]


NOTEBOOK = (
    'check.equal("demo.one", 1, 1, control=2, means="one {is} one")',
    'means, bound = f"below {words(size.share)}", 0.1\ncheck.below("demo.two", 0, bound, control=1, means=means)',
    'means = "all match" if whole else "the first matches"\ncheck.equal("demo.three", 1, 1, control=2, means=means)\n'
    'check.equal("demo.four", 1, 1, control=2, means=size.means)',
    'def lacking(n):\n    return "" if n else f"{n} cards are needed"\n'
    'if reason := lacking(2):\n    check.skip("demo.five", reason)\ncheck.skip("demo.six", "not here")',
    'unsupported = {"a": "it blocks"} if slow else {}\nskipped = {}\nskipped["b"] = f"{size} is too much"\n'
    'with check.table("demo.rows", means="rows") as rows:\n    rows.skip("a", unsupported["a"])\n'
    '    for case, reason in skipped.items():\n        rows.skip(case, reason)\n    rows.skip("c", lacking(2) or "it waits")',
)


def test_titles_meanings_and_reasons_are_read_from_a_notebook(tool, tmp_path):
    put(tmp_path, "demo", *NOTEBOOK)
    assert [message for message, _ in tool.in_notebook(read_chapter(tmp_path / "demo.ipynb"))][-11:] == [
        "one {{is}} one",
        "below {share}",
        "all match",
        "the first matches",
        "{n} cards are needed",
        "not here",
        "rows",
        "it blocks",
        "{size} is too much",
        "{n} cards are needed",
        "it waits",
    ]


def test_a_meaning_whose_text_is_not_found_is_refused(tool, tmp_path):
    put(tmp_path, "demo", 'check.equal("demo.one", 1, 1, control=2, means=elsewhere)')
    with pytest.raises(tool.WrongMark, match=r"demo.ipynb cell \d+: elsewhere has no text in this notebook"):
        list(tool.in_notebook(read_chapter(tmp_path / "demo.ipynb")))


def test_a_title_that_is_not_the_heading_of_the_chinese_notebook_is_found(tool, monkeypatch):
    monkeypatch.setattr(tool, "of_headings", lambda language: {"Proof": ["另一个标题"]})
    assert [line for line in tool.check("zh") if "another title: 'Proof' is '另一个标题'" in line]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("a = 1\nN_(text)", "line 2: N_ takes a literal or an f-string"),
        ('N_(f"{a} {b} of")', "line 1: '{a} {b} of' has fewer than 3 letters"),
        ('N_(f"the file {name}{ending}")', "two placeholders with nothing between them"),
    ],
)
def test_a_mark_that_makes_no_message_is_refused_with_its_line(tool, source, why):
    with pytest.raises(tool.WrongMark, match=re.escape(why)):
        list(tool.in_python(source, "a.py"))


def test_every_message_is_found_in_its_text_and_says_the_same_with_its_values(tool, chinese):
    for message in tool.read("zh"):
        names = set(tool.placeholders(message.id)) if message.id else set()
        values = {name: "7" if name in messages.NUMBERS else f"<{number}>" for number, name in enumerate(sorted(names))}
        if message.id and message.id not in (messages.COLON, messages.SEMICOLON):
            assert shown(message.id.format(**values)) == message.string.format(**values)


def test_what_a_check_of_the_book_means_and_where_it_stands_is_shown_in_chinese(chinese):
    meanings = {}
    for path in sorted(files.NOTEBOOKS.glob("*.ipynb")):
        chapter = read_chapter(path)
        records = [
            record_in(output.get("metadata", {})) for cell in chapter.notebook.cells for output in cell.get("outputs", ())
        ]
        meanings |= {record.name: record.means for record in records if record and record.outcome != "skipped"}
        for section in chapter.sections:
            assert CHINESE.search(shown(section.title)) or section.title in ("AutoTrainer", "All-to-all"), section.title
    assert len(meanings) > 450
    for name, meaning in meanings.items():
        assert CHINESE.search(shown(meaning)) and not re.search(r"\b(the|is|are|and|with) ", shown(meaning)), name


def test_known_issues_and_what_devices_lack_are_shown_in_chinese_whole(chinese):
    for issue in known_issues.load():
        failed = known_or_fixed(Row("a case", "failed", 1.0, "< 1", "rejected", None), issue)
        reference = "；".join(shown(sentence) for sentence in issue.reference.split("; "))
        whole = f"{shown(issue.symptom)}（{reference}）。规避方法：{shown(issue.workaround)}"
        assert CHINESE.search(shown(issue.symptom)) and shown(failed.reason) == whole, issue.id
        both = shown(f"{failed.reason}; other: {failed.reason}")
        assert both.replace("other: ", "other：") == f"{whole}；other：{whole}", issue.id
    for refusal in refusals.load():
        assert CHINESE.search(shown(refusal.format_reason()).partition("（")[0]), refusal.reason


# ---------------------------------------------------------------------------------------------------- how a text is translated


@pytest.fixture
def small():
    return Catalogue(
        {
            "passed": "通过",
            "because: ": "依据：",
            "; ": "；",
            ": ": "：",
            "{a} is {b}": "{a} 是 {b}",
            "{a} is {b} cards": "{a} 是 {b} 张卡",
            "the {name} of the {name}": "{name} 的 {name}",
            "a set {{1}}": "集合 {{1}}",
            "{count} cards": "{count} 张卡",
            "{label} raised": "{label} 抛出异常",
            "cell {number} of section {name}": "小节 {name} 的单元 {number}",
            "{label} [{reason}]": "{label}【{reason}】",
            "one [of two]": "二者之一",
            "it waits; it blocks": "它等待；它阻塞",
        }
    )


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("passed", "通过"),
        ("this is 8 cards", "this 是 8 张卡"),
        ("this is passed", "this 是通过"),
        ("the x of the x", "x 的 x"),
        ("the x of the y", "the x of the y"),
        ("a set {1}", "集合 {1}"),
        ("8 cards", "8 张卡"),
        ("simulated cards", "simulated cards"),
        ("cell 5 of section merge raised", "小节 merge 的单元 5 抛出异常"),
        ("cell 5 of section passed raised", "小节 passed 的单元 5 抛出异常"),
        ("/实验 一/x is passed", "/实验 一/x 是通过"),
        ("  passed\n\nother\n  because: it is 1 cards", "  通过\n\nother\n  依据：it 是 1 张卡"),
        ("passed; other", "通过；other"),
        ("one; other", "one; other"),
        ("it waits; it blocks; this is passed", "它等待；它阻塞；this 是通过"),
        ("one [of two] [passed]", "二者之一【通过】"),
        ("passed [one [of two]]", "通过【二者之一】"),
        ("lora.merge: passed", "lora.merge: 通过"),
        (".", "."),
        ("", ""),
    ],
)
def test_a_text_is_translated_whole_by_its_values_by_lines_and_by_sentences(small, text, translation):
    assert small.translate(text) == translation


def test_a_column_has_room_for_wide_characters():
    assert [width(padded(text, 8)) for text in ("ok", "正常", "未通过", "a 通过")] == [8, 8, 8, 8]
    assert padded("正常", 6) == "正常  "


# ------------------------------------------------------------------------------------------------------------- the language


def test_only_the_option_and_the_variable_choose_a_language():
    for environ, asked, language in (
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "zh_CN.UTF-8", "LANGUAGE": "zh"}, None, "en"),
        ({"XPULAB_LANG": "zh"}, None, "zh"),
        ({"XPULAB_LANG": "zh"}, "en", "en"),
        ({"XPULAB_LANG": ""}, "zh", "zh"),
    ):
        messages.choose(asked, environ)
        assert messages.language() == language


@pytest.mark.parametrize(("arguments", "environ"), [(["--lang", "fr"], {}), ([], {"XPULAB_LANG": "fr"})], ids=["option", "var"])
def test_another_language_is_refused(arguments, environ):
    done = invoke("doctor", "--host", *arguments, **environ)
    assert done.exit_code == 2 and "fr: no such language; choose en or zh" in done.stderr


def test_a_program_that_imports_the_package_is_spoken_to_in_english_whatever_the_variables():
    program = "import sys; from xpulab.messages import shown; print(shown('passed'), {*sys.modules} & {'babel', 'yaml'})"
    environ = {**os.environ, "XPULAB_LANG": "zh", "LANG": "zh_CN.UTF-8"}
    ran = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert ran.stdout == "passed set()\n"


# ------------------------------------------------------------------------------------------------------------- the commands


def test_the_option_changes_what_the_doctor_prints_and_nothing_that_programs_read(monkeypatch, tmp_path):
    english, translated = invoke("doctor", "--host"), invoke("doctor", "--host", "--lang", "zh")
    assert "findings about host" in english.stdout and not CHINESE.search(english.stdout)
    assert "项结果中有" in translated.stdout and "原因：" in translated.stdout and "findings" not in translated.stdout
    assert english.exit_code == translated.exit_code
    for option in ("--json", "--reason"):
        asked = invoke("doctor", "--host", option, "--lang", "zh")
        assert not CHINESE.search(asked.stdout) and asked.exit_code == english.exit_code


def test_a_refusal_is_translated_and_so_is_a_mistake_of_the_user():
    refused = invoke("run", "--device", "xpu", XPULAB_LANG="zh")
    assert refused.exit_code == 2 and refused.stderr.startswith("xpulab: 本机没有 xpu") and "Looked for" not in refused.stderr
    mistaken = invoke("run", "--resume", "--lang", "zh")
    assert mistaken.exit_code == 2 and mistaken.stderr == f"xpulab: {_of('--resume needs the folder')}\n"


def _of(beginning):
    """The translation of the message that begins so."""
    catalogue = messages.catalogue("zh")
    return next(text for message, text in catalogue._translations.items() if message.startswith(beginning))


# -------------------------------------------------------------------------------------------------------------- the reports


MEANING, TITLE = "合并后的模型给出的 logits 与基座模型加适配器的相同", "文件，以及秩的选择"


def reported(folder, language):
    """The reports of a run with much that is red, by file name; and what the terminal shows."""
    folder.mkdir()
    rows = (Row("a", "failed", 2.0, "< 1", "rejected", "3 of 4 outside; the worst is 2, expected 1"),)
    known = Explanation("kl2", "cell 7", "Paddle 3 no longer supports K100, K200, R200 and R300", "ibstat; ip link")
    red = verdict(
        "red",
        record("n.failed", "failed", reason="its control is accepted too, so this check cannot fail"),
        record("n.rows", "failed", rows=rows, means="the merged model gives the logits of base and adapter"),
        record("n.missing", "missing", means="planned in the notebook's source, but it never ran"),
        outcome="failed",
        reasons=("2 of 3 checks are red: n.failed, n.rows", "cell 5 of section merge raised"),
        notes=("it took 30 s, its budget is 10 s",),
    )
    red = replace(red, groups=(Group("The files, and the choice of the rank", "proof", ("n.rows",)),))
    result = replace(
        result_of(verdict("good", record("g.one")), replace(red, explanations=(known,)), folder=folder),
        date="2026-11-22T03:10:00+00:00",
    )
    messages.choose(language, {})
    report.write(result)
    shown_at_end = format_result(result)
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())}, shown_at_end


def test_files_for_programs_are_the_same_in_both_languages_and_the_page_is_translated(tmp_path):
    english, translated = reported(tmp_path / "en", "en"), reported(tmp_path / "zh", "zh")
    for name in ("result.json", "junit.xml", "metrics.prom"):
        assert english[0][name] == translated[0][name], name
    assert json.loads(translated[0]["result.json"])["verdict"] == "CPU: NOT READY"
    assert ElementTree.fromstring(translated[0]["junit.xml"]).get("name") == "xpulab"
    page = translated[0]["index.html"]
    assert '<html lang="en">' in english[0]["index.html"] and '<html lang="zh-Hans">' in page
    for text in (
        "CPU：未就绪",
        "比较了 4 个计划内检查中的",
        "它的对照值也被接受",
        "小节 merge 的单元 5",
        "Paddle 3 不再支持",
        MEANING,
        TITLE,
    ):
        assert text in page
    for text in ("NOT READY", "planned checks", "its control is", "Where this was measured", "no longer supports"):
        assert text not in page and text in english[0]["index.html"]


def test_the_page_says_in_chinese_what_is_known_and_why_cases_are_skipped(tmp_path):
    issue = next(issue for issue in known_issues.load() if issue.id == "pissa-reload")
    failed = Row("state loaded", "failed", 1.0, "< 1", "rejected", None)
    skipped = Row("swiglu", "skipped", None, "", "not tried", "no kernel for it here: Paddle refuses it on a CPU")
    rows = (known_or_fixed(failed, issue), skipped, replace(skipped, case="plain", outcome="passed", reason=None))
    unable = "gloo has no all_to_all (measured on the CPU, paddlepaddle 3.3.1: Unimplemented cpu kernel for all_to_all)"
    result = result_of(
        verdict("good", record("g.known", "known", rows=rows), record("g.skipped", "skipped", means=unable, reason=unable)),
        folder=tmp_path,
    )
    pages = {}
    for language in ("en", "zh"):
        messages.choose(language, {})
        report.write(result)
        pages[language] = html.unescape((tmp_path / "index.html").read_text(encoding="utf-8"))
    for english, translated in (
        (issue.symptom, "加载的 PiSSA 适配器给出的答案与基座模型一样"),
        (issue.workaround, "规避方法：先做一次前向传播"),
        ("no kernel for it here", "这里没有它的内核：Paddle 在 CPU 上拒绝它"),
        ("gloo has no all_to_all", "gloo 没有 all_to_all（在 CPU 上测得"),
    ):
        assert english in pages["en"] and translated not in pages["en"], english
        assert translated in pages["zh"] and english not in pages["zh"], english


def test_the_end_of_a_run_is_translated_with_its_columns_and_names_stay(tmp_path):
    _, end = reported(tmp_path / "zh", "zh")
    lines = end.splitlines()
    assert [line.split()[0] for line in lines if " 比较了 " in line][:2] == ["通过", "未通过"]
    assert [width(line.partition(name)[0]) for line, name in zip((lines[0], lines[1]), ("good", "red"), strict=True)] == [8, 8]
    assert lines[-1] == "红色：2 个笔记本中通过 1 个，比较了 3 个检查，拒绝了 3 个对照值，在 cpu 上，用时 12 s"
    assert "CPU：未就绪" in lines and any("未通过 n.failed:" in line for line in lines)
    assert f"        未通过 n.rows: {MEANING}" in lines
    for line in lines:
        assert CHINESE.search(line) or "ip link" in line, line


def test_a_run_that_is_refused_leaves_english_files_and_says_so_in_chinese(tmp_path):
    environ = {"XPULAB_EXPECT": "4", "XPULAB_SYSTEM_ROOT": str(tmp_path / "root"), "PATH": str(tmp_path)}
    outputs = {}
    for language in ("en", "zh"):
        done = invoke("run", "03_lora", "--out", tmp_path / language, "--lang", language, **environ)
        result = json.loads((tmp_path / language / "result.json").read_text(encoding="utf-8"))
        outputs[language] = (done.exit_code, {**result, "date": ""}, (tmp_path / language / "junit.xml").read_text())
        assert bool(CHINESE.search(done.stdout)) == (language == "zh")
    assert outputs["en"] == outputs["zh"] and outputs["en"][0] == 1
    assert "本机应当有加速器" in (tmp_path / "zh" / "index.html").read_text(encoding="utf-8")


def test_an_exercise_is_chinese_and_its_names_stay(tmp_path):
    asked = invoke("exercise", "lora", "--answer", "--lang", "zh").stdout
    assert "merge-without-scale" in asked and "lora.merge" in asked
    for line in asked.splitlines():
        assert_chinese(line)
    listed = invoke("exercise", XPULAB_LANG="zh").stdout.splitlines()
    assert len(listed) > 15 and all(CHINESE.search(line) for line in listed)


def test_the_plan_of_a_chapter_has_the_titles_of_the_chinese_notebook():
    listed = invoke("run", "03_lora", "--list", "--lang", "zh").stdout
    assert f"  files  {TITLE} (验证, quick, 需要 " in listed and "    lora.merge\n" in listed


def test_a_label_and_its_text(chinese):
    assert (
        labelled("cause: ", N_("the kernel has killed a process because memory ran out"))
        == "原因：内存用尽，系统内核杀死了一个进程"
    )
    messages.choose("en", {})
    assert labelled("cause: ", "x") == "cause: x"


# --------------------------------------------------------------------------------------------------------------- a whole run


@pytest.mark.integration
def test_a_run_in_chinese_leaves_the_notebook_and_all_files_for_programs_as_they_are(tmp_path):
    put(
        tmp_path,
        "demo",
        'check.equal("{name}.right", 2, 2, control=3, means="two is two")',
        'from xpulab.messages import language, shown\nprint(language(), shown("passed"))\n'
        'check.equal("{name}.wrong", 2, 3, control=4, means="two is three")',
    )
    left = {}
    for language in ("en", "zh"):
        folder = tmp_path / language
        environ = {**os.environ, "XPULAB_LANG": language, "LANG": "zh_CN.UTF-8"}
        command = [*COMMAND, "run", str(tmp_path / "demo.ipynb"), "--device", "cpu", "--cold", "--out", str(folder)]
        ran = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
        (notebook,) = (folder / "notebooks").glob("*.ipynb")
        outputs = [output.get("data", output.get("text")) for cell in _cells(notebook) for output in cell.get("outputs", [])]
        result = _without_times(json.loads((folder / "result.json").read_text(encoding="utf-8")))
        suites = ElementTree.parse(folder / "junit.xml").getroot()
        cases = [(each.get("name"), [(child.tag, child.get("message")) for child in each]) for each in suites.iter("testcase")]
        left[language] = (ran.returncode, outputs, result, cases)
        assert ("demo：未通过，比较了 2 个检查中的 2 个" in ran.stdout) == (language == "zh"), ran.stdout
        assert ("checks compared" in ran.stdout) == (language == "en"), ran.stdout
        assert ("设备 cpu，级别 quick，1 个笔记本，" in ran.stdout) == (language == "zh"), ran.stdout
    assert left["en"] == left["zh"]
    code, outputs, *_ = left["zh"]
    assert code == 1 and "en passed" in json.dumps(outputs)


def _cells(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def _without_times(value):
    """A result without what differs from run to run."""
    if isinstance(value, dict):
        return {key: _without_times(each) for key, each in value.items() if key not in ("seconds", "date", "machine")}
    if isinstance(value, list):  # without the note of a run that a busy machine made long
        return [_without_times(each) for each in value if not (isinstance(each, str) and each.startswith("it took "))]
    return value
