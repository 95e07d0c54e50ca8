"""The configuration of Sphinx for the book; `bash env/book.sh` builds it from copies that env/make_book.py makes."""

from __future__ import annotations

import logging
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from docutils.nodes import Element, Node, SkipNode, TextElement, document, literal, literal_block, math_block
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.search.zh import SearchChinese
from sphinx.util.logging import getLogger
from sphinx.writers.html5 import HTML5Translator

logger = getLogger(__name__)
SIZES = re.compile(r"\\[bB]igg?[lr]?(?![A-Za-z])")
"""Sizes of parentheses, which docutils does not know and MathML chooses by itself."""
WHOLE = 24
"""Code of so many characters does not break in a table."""
PUNCTUATION, CHINESE = re.compile(r"[\u3000-\u303f\uff00-\uffef\u2014\u2018-\u201d\u2026]"), re.compile(r"[\u3400-\u9fff]")

project = "xpulab"
author = "the contributors of xpulab"
html_title = "xpulab"
extensions = ["myst_nb"]

nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "html_image"]
myst_heading_anchors = 4
myst_url_schemes = {
    **dict.fromkeys(("http", "https", "mailto")),
    "other": "{{path}}#{{fragment}}",  # a page of the book in the other language
    "clone": "file://{{path}}",  # a file of the repository that is no page
}
highlight_language = "none"  # indented blocks of the pages are commands; cells name their language

html_theme = "sphinx_book_theme"
html_static_path = ["book.css"]
html_css_files = ["book.css"]
html_copy_source = False
html_use_index = False
html_show_copyright = False
html_math_renderer = "mathml"
html_theme_options = {"use_download_button": False, "show_navbar_depth": 1, "show_toc_level": 2}
html_theme_options["article_header_end"] = ["book.language.html", "article-header-buttons.html"]
templates_path = ["."]
if "GITHUB_REPOSITORY" in os.environ:
    html_theme_options["repository_url"] = f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"
    html_theme_options["use_repository_button"] = True


def setup(app: Sphinx) -> None:
    """Formulas are MathML, which browsers show without a script from another server; pages lead to their other language."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    app.add_config_value("pages_in_both_languages", "", "html", str)
    app.connect("html-page-context", lead_to_other_language)
    app.connect("doctree-read", join_chinese_lines)
    app.connect("doctree-read", keep_names_whole)
    app.add_search_language(Chinese)
    logging.getLogger("jieba").setLevel(logging.WARNING)  # it writes its progress to stderr


class Chinese(SearchChinese):
    """The search in Chinese pages, whose queries are split into words too."""

    js_splitter_code = Path(__file__).with_name("book.search.js").read_text(encoding="utf-8")


def join_chinese_lines(app: Sphinx, tree: document) -> None:
    """Drop the line breaks of the source between Chinese characters, or beside Chinese punctuation: a browser shows a space."""
    if app.config.language != "zh_CN":
        return
    for element in tree.findall(lambda node: isinstance(node, TextElement) and not isinstance(node, literal_block)):
        kept: list[Node] = []
        for place, node in enumerate(element.children):
            before = "".join(each.astext() for each in kept)
            after = "".join(each.astext() for each in element.children[place + 1 :])
            if not (node.astext() == "\n" and before and after and _joins(before[-1], after[0])):
                kept.append(node)
        element[:] = kept


def keep_names_whole(app: Sphinx, tree: document) -> None:
    """Mark short code, which would else break after a hyphen and between any two letters where a table has little room."""
    for node in tree.findall(literal):
        if len(node.astext()) <= WHOLE:
            node["classes"].append("whole")


def _joins(last: str, first: str) -> bool:
    """Whether nothing may stand between these characters: both are Chinese, or one is Chinese punctuation."""
    return bool(PUNCTUATION.match(last) or PUNCTUATION.match(first) or (CHINESE.match(last) and CHINESE.match(first)))


def lead_to_other_language(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Element | None) -> None:
    """Give the template of a page the address of the same page in the other book, which is in zh/ or one folder above."""
    listed = app.config.pages_in_both_languages
    pages = {Path(name).with_suffix("").as_posix() for name in Path(listed).read_text().splitlines()} if listed else set()
    if page in pages | {"search"} and pages:
        is_chinese = app.config.language == "zh_CN"
        here, there = ("zh", ".") if is_chinese else (".", "zh")
        address = posixpath.relpath(posixpath.join(there, f"{page}.html"), posixpath.dirname(posixpath.join(here, page)))
        context["other_language"] = {"address": address, "name": "English" if is_chinese else "中文"}


def visit_math(translator: HTML5Translator, node: Element) -> None:
    """Write a formula; one that docutils cannot convert is a warning, and shown as TeX."""
    try:
        formula = tex2mathml(SIZES.sub("", node.astext()), as_block=isinstance(node, math_block))
    except MathError as error:
        logger.warning("formula: %s", error, location=node)
        formula = f"<code>{translator.encode(node.astext())}</code>"
    translator.body.append(formula)
    raise SkipNode
