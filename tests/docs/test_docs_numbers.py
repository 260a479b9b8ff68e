"""Numbers that pages quote are those of the files in benchmarks/results.

Pages of the site read them when they are built: the directives, and the role `result`. Where a page
is read as it stands, as the README is, a number is followed by a comment that names its place:
``43 s<!-- waiting; what=ten million rows; seconds -->``.
"""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from tests import docs_pages

ROOT = docs_pages.ROOT
MARK = re.compile(r"([\d.,]+)[^\d<]{0,12}<!-- ([\w]+; .+?) -->")
ROLE = re.compile(r"\{result\}`(.+?)`")
MEASURED = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.])|\b\d[\d,]*\s(?:s|times)\b")
READ_WHEN_BUILT = ["docs/project/benchmarks.md", "docs/decisions.md"]


@pytest.fixture
def one_result(monkeypatch):
    pytest.importorskip("sphinx", reason="pip install '.[docs]'")
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    return import_module("results").one_result


def prose(text):
    """A page without code, directives, mathematics, roles and comments."""
    for away in (r"^```.*?^```", r"<!--.*?-->", r"\{\w+\}`.*?`", r"`.*?`", r"\$.*?\$", r"\(.*?\)"):
        text = re.sub(away, "", text, flags=re.S | re.M)
    return text


def same(written, kept):
    """Whether a number is the kept one, rounded to as many digits."""
    digits = len(written.partition(".")[2])
    return float(written.replace(",", "")) == round(float(kept), digits)


@pytest.mark.parametrize("page", docs_pages.pages(), ids=docs_pages.name)
def test_numbers_of_a_page_are_those_of_their_files(page, one_result):
    text = page.read_text("utf-8")
    for written, place in MARK.findall(text):
        assert same(written.strip(",."), one_result(place)), f"{written}: {place}"
    for place in ROLE.findall(text):
        one_result(place)


@pytest.mark.parametrize("name", READ_WHEN_BUILT)
def test_no_number_is_typed_where_tables_are_read(name):
    found = MEASURED.findall(prose((ROOT / name).read_text("utf-8")))
    assert not found, f"{name}: take {found} from a file, with the role `result`"


def test_a_number_is_found_and_compared(monkeypatch, one_result, tmp_path):
    results = import_module("results")
    (tmp_path / "made.csv").write_text("# commit abc; 2026-11-18\nwhat,seconds\nfit,43.21\naudit,2\n")
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    assert results.made_with("made") == ["commit abc; 2026-11-18"]
    assert one_result("made; what=fit; seconds") == "43.21"
    assert MARK.findall("took 43 s<!-- made; what=fit; seconds --> here") == [("43", "made; what=fit; seconds")]
    assert same("43", "43.21")
    assert same("43.2", "43.21")
    assert not same("44", "43.21")
    for wrong in ("made; what=predict; seconds", "made; what=fit; minutes"):
        with pytest.raises(KeyError):
            one_result(wrong)
    assert MEASURED.findall(prose("0.816 of `0.5` in 43 s, ten $1.5$ rows")) == ["0.816", "43 s"]
