"""Every block of Python in README, docs and CONTRIBUTING runs, page by page, top to bottom."""

from __future__ import annotations

import ast
from importlib import import_module

import pytest
import sklearn

from tests import docs_pages

PAGES = [*docs_pages.pages(), docs_pages.ROOT / "CONTRIBUTING.md"]
TEXTS = {docs_pages.name(path): path.read_text("utf-8") for path in PAGES}
WITH_CODE = {name: text for name, text in TEXTS.items() if docs_pages.blocks(text)}
PRINTED = {
    "docs/auditing.md": (
        "Audit of 16,281 rows",
        "- age explains 20.5 %",
        "sex         0.0758  0.0048",
    ),
    "docs/explaining.md": (
        "sex    occupation   0.351       0.339        0.362      0.351",
        "occupation  0.0166        0.0015  0.0061       0.0009",
        "sex × ethnicity  0.0256  0.0095",
    ),
}
"""Lines that a page shows and its code prints."""


@pytest.fixture
def clean_state(tmp_path, monkeypatch):
    """An empty folder, and no figure or setting that stays behind."""
    from matplotlib import pyplot as plt

    monkeypatch.chdir(tmp_path)
    with sklearn.config_context():
        yield
    plt.close("all")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if docs_pages.is_slow(text) else [])
        for name, text in WITH_CODE.items()
    ],
)
@pytest.mark.usefixtures("clean_state")
def test_the_code_of_a_page_runs(name, capsys):
    text = WITH_CODE[name]
    names: dict[str, object] = {"__name__": "page"}
    exec(compile(docs_pages.preamble(text), f"{name}, preamble", "exec"), names)
    for block in docs_pages.blocks(text):
        if block.reason is None:
            exec(block.compiled(name), names)
    printed = capsys.readouterr().out
    assert not [line for line in PRINTED.get(name, ()) if line not in printed or line not in text]


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
