"""Every block of Python in README, docs and CONTRIBUTING runs, page by page, top to bottom."""

from __future__ import annotations

import ast
import re
from html import unescape
from importlib import import_module

import pytest
import sklearn

from tests import docs_pages

PAGES = [*docs_pages.pages(), docs_pages.ROOT / "CONTRIBUTING.md"]
TEXTS = {docs_pages.name(path): path.read_text("utf-8") for path in PAGES}
WITH_CODE = {name: text for name, text in TEXTS.items() if docs_pages.blocks(text)}


@pytest.fixture
def clean_state(tmp_path, monkeypatch):
    """An empty folder, and no figure or setting that stays behind."""
    from matplotlib import pyplot as plt

    monkeypatch.chdir(tmp_path)
    plt.close("all")  # other tests leave figures behind
    with sklearn.config_context():
        yield
    plt.close("all")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[getattr(pytest.mark, mark) for mark in docs_pages.marks(text)])
        for name, text in WITH_CODE.items()
    ],
)
@pytest.mark.usefixtures("clean_state")
def test_a_page_shows_what_its_code_prints_and_draws(name):
    """Numbers within 5 %: pages are written on one machine and run on others."""
    page = docs_pages.ROOT / name
    for package in docs_pages.needs(WITH_CODE[name]):
        pytest.importorskip(package)
    for block, printed, figures in docs_pages.run(WITH_CODE[name], name):
        where = f"{name}, line {block.line}; python -m tests.docs.write {name} would mend it"
        assert not docs_pages.differences(block.printed, printed), where
        assert len(figures) == len(block.figures), where
        for figure, (alt, link) in zip(figures, block.figures, strict=True):
            picture = unescape((page.parent / link).read_text("utf-8"))
            shown = re.search(r"<dc:description>(.*?)</dc:description>", picture, re.S)[1]
            assert alt
            assert not docs_pages.differences(shown, docs_pages.data_of(figure)), where


def test_outputs_are_compared_by_words_and_by_numbers():
    same = docs_pages.differences
    assert not same("a 0.124\n", "a   0.125\n")
    assert not same("share 1,204 rows, -0.0 %", "share 1,210 rows, 0.0 %")
    assert same("share 0.124", "share 0.224") == ["0.124 is 0.224"]
    assert same("share 1", "limit 1") == ["limit 1"]
    assert not same("", "")
    assert same("", "printed") == ["printed"]


def imported(code):
    """The names that a block takes from scalefair, with their modules."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "scalefair":
            yield from ((node.module, alias.name) for alias in node.names)
        is_ours = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if is_ours and node.value.id == "scalefair":
            yield "scalefair", node.attr


@pytest.mark.parametrize("name", WITH_CODE)
def test_what_a_page_imports_is_there(name):
    """Also of pages that are slow and of blocks that are not run."""
    for block in docs_pages.blocks(WITH_CODE[name]):
        block.compiled(name)
        for module, attribute in imported(block.code):
            assert hasattr(import_module(module), attribute), f"{name}: {module}.{attribute}"


def test_few_blocks_are_not_run_and_each_says_why():
    found = [block for text in WITH_CODE.values() for block in docs_pages.blocks(text)]
    left_out = [block for block in found if block.reason is not None]
    assert all(block.reason for block in left_out)
    assert len(left_out) <= len(found) / 5


def test_blocks_are_found_with_their_lines_and_reasons():
    text = "# Page\n\n```python\na = 1\n```\n\n<!-- not run: needs a cluster -->\n\n"
    text += "```python\nb\n```\n"
    text += "```bash\nls\n```\n<!-- preamble\nx = 2\n-->\n"
    first, second = docs_pages.blocks(text)
    assert (first.code, first.line, first.reason) == ("a = 1\n", 4, None)
    assert (second.code, second.line, second.reason) == ("b\n", 10, "needs a cluster")
    assert docs_pages.preamble(text) == "x = 2\n"
