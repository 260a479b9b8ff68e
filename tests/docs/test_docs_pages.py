"""The pages hang together: links lead somewhere, and the reference has every public name."""

from __future__ import annotations

import csv
import re
import tomllib
from html import unescape
from importlib import import_module
from inspect import isclass, signature

import numpy as np
import pytest

from tests import docs_pages

ROOT = docs_pages.ROOT
PUBLIC = [*("", ".any_model", ".auditing", ".datasets", ".kernels", ".losses", ".maps", ".measures"), ".plots"]


def target(page, link):
    """The file and the anchor that a link of a page means."""
    path, _, anchor = link.partition("#")
    return (page if not path else (page.parent / path).resolve()), anchor


@pytest.mark.parametrize("page", docs_pages.pages(), ids=docs_pages.name)
def test_links_and_anchors_exist(page):
    for link in docs_pages.links(page.read_text("utf-8")):
        path, anchor = target(page, link)
        assert path.exists(), f"{docs_pages.name(page)} links to {link}, which is not there"
        if anchor and path.suffix == ".md":
            known = docs_pages.anchors(path.read_text("utf-8"))
            assert anchor in known, f"{docs_pages.name(page)}: no heading for {link}; {sorted(known)}"


def test_links_are_found_outside_of_code_only():
    text = "[a](b.md#c) `[x](y)` ![p](q.svg) [w](https://w.org) [me](#what-it-is)\n"
    text += "```text\n[n](o)\n```\n"
    assert docs_pages.links(text) == ["b.md#c", "q.svg", "#what-it-is"]
    assert docs_pages.anchors("# A, b: `c_d`!\n```\n# no\n```\n## x–y\n") == {"a-b-c_d", "xy"}


def listed_names():
    """The names in the reference, with their modules."""
    text = (ROOT / "docs" / "api" / "index.md").read_text("utf-8")
    found = set(re.findall(r"`(scalefair(?:\.\w+)+)`", text))
    module = ""
    for line in text.splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif re.fullmatch(r"   \w+", line):
            found.add(f"{module}.{line.strip()}")
    return found


@pytest.mark.parametrize("room", PUBLIC)
def test_every_public_name_is_in_the_reference(room):
    module = import_module(f"scalefair{room}")
    listed, top = listed_names(), set(import_module("scalefair").__all__)
    missing = {
        f"{module.__name__}.{name}"
        for name in module.__all__
        if f"{module.__name__}.{name}" not in listed and name not in top
    }
    assert not missing, f"add to docs/api/index.md: {sorted(missing)}"
    assert room or {f"scalefair.{name}" for name in top} <= listed


@pytest.mark.parametrize("room", PUBLIC)
def test_every_public_class_lists_its_parameters(room):
    module = import_module(f"scalefair{room}")
    classes = [each for name in module.__all__ if isclass(each := getattr(module, name))]
    for cls in classes:
        if not issubclass(cls, tuple | Exception):  # named tuples name their fields in the signature
            text = cls.__doc__ or ""
            names = [name for name in signature(cls).parameters if name not in ("args", "kwargs")]
            known = re.findall(r"^ {4}\*{0,2}(\w+(?:, \w+)*)(?: :|$)", text, re.M)
            listed = {name for line in known for name in line.split(", ")}
            assert set(names) <= listed, f"{cls.__name__}: {sorted(set(names) - listed)}"


def test_the_reference_has_no_name_that_is_not_there():
    for name in listed_names():
        module, _, attribute = name.rpartition(".")
        assert hasattr(import_module(module), attribute), name


FOLDERS = r"(?:scalefair|tests|benchmarks|docs|\.ci|\.github)"
NAMED = re.compile(
    rf"(?<![\w/.<-])({FOLDERS}/[\w./-]*\.(?:py|md|csv|svg|yml|toml|txt|json)|[A-Z_]{{4,}}\.(?:md|cff))\b"
)
TEXTS = ("*.md", "*.py", "*.toml", "*.yml", "*.cff", "*.rst", ".ci/*")
WRITTEN = ("benchmarks/results/", "docs/_build/")  # by commands that a text names


def test_no_text_names_a_file_that_is_not_here():
    """In pages, docstrings, comments and settings alike."""
    folders = [ROOT / name for name in ("scalefair", "tests", "benchmarks", "docs", ".github")]
    files = [path for folder in folders for kind in TEXTS for path in folder.rglob(kind)]
    files += [path for kind in TEXTS for path in ROOT.glob(kind)]
    files = [path for path in files if not set(docs_pages.GENERATED) & set(path.parts)]
    assert len(files) > 300
    for path in files:
        for name in set(NAMED.findall(path.read_text("utf-8"))) if path.is_file() else ():
            is_there = (ROOT / name).exists() or (path.parent / name).exists()
            assert is_there or name.startswith(WRITTEN), f"{docs_pages.name(path)}: {name}"


def test_folders_that_are_named_are_there():
    beside = [ROOT / f"{name}.md" for name in ("CONTRIBUTING", "SECURITY")]
    named = rf"`({FOLDERS}/[\w/.]*?)(?:::\w+)?`"
    for page in [*docs_pages.pages(), *beside, ROOT / "benchmarks" / "README.md"]:
        found = set(re.findall(named, page.read_text("utf-8")))
        assert not [path for path in found if not (ROOT / path).exists()], docs_pages.name(page)


def test_constants_that_contributors_are_sent_to_are_in_the_files_that_are_named():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    files = [path for room in ("scalefair", "tests") for path in (ROOT / room).rglob("*.py")]
    there = [
        path for path in files if any(str(path).endswith(f"/{name}") for name in re.findall(r"`([\w/]+\.py)`", text))
    ]
    code = "".join(path.read_text("utf-8") for path in there)
    constants = set(re.findall(r"`([A-Z_]{4,})`", text))
    assert constants
    assert not [name for name in constants if not re.search(rf"^{name}\b.*=", code, re.M)]


def test_every_page_is_found_from_the_first_one():
    """Sphinx would warn; this says so without it."""
    listed = set()
    for page in docs_pages.pages():
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text("utf-8"), re.S):
            for entry in [line for line in tree.splitlines() if line and line[0] != ":"]:
                folder = (page.parent / entry).resolve().parent
                listed |= {path.resolve() for path in folder.glob(f"{(page.parent / entry).name}.md")}
    lost = {page for page in docs_pages.pages()[1:] if page.resolve() not in listed}
    assert {docs_pages.name(page) for page in lost} == {"docs/index.md"}


def test_the_readme_is_short_and_has_its_two_commands():
    """`.ci/run` reads both from the fences of bash."""
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 150
    lines = "".join(re.findall(r"^```bash\n(.*?)^```", text, re.M | re.S)).splitlines()
    for end in ("&& scalefair frontier", "&& pytest"):
        assert len([line for line in lines if line.endswith(end)]) == 1, end


def layers_of_the_house():
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return contracts[0]["layers"]


def test_the_picture_of_the_house_has_every_room():
    rooms = {room for layer in layers_of_the_house() for room in layer.split(" | ")}
    picture = (ROOT / "docs" / "images" / "architecture.svg").read_text("utf-8")
    names = re.findall(r'font-weight="bold"[^>]*>([^<]*)<', picture)
    assert {room for line in names for room in line.split(" · ")} == rooms


def test_contributors_are_told_the_order_that_is_checked():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert "```\n" + "\n".join(layers_of_the_house()) + "\n```" in text


def test_the_picture_and_the_numbers_of_the_readme_are_those_of_the_benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    images, text = import_module("make_images"), (ROOT / "README.md").read_text("utf-8")
    picture = unescape((ROOT / "docs" / "images" / "frontier.svg").read_text("utf-8"))
    assert images.description() in picture, "run docs/make_images.py"
    assert "docs/images/frontier.svg" in text
    curves = images.drawn("acs")
    (_, best), *_ = curves["no limit"]
    at_limit = np.interp(0.05, *zip(*curves["scalefair"], strict=True))
    assert f"({best:.2f} to {at_limit:.2f})" in text
    assert 0.28 < 1 - at_limit / best < 0.38  # "a third"
    adult = images.drawn("adult")
    (_, best), *_ = adult["no limit"]
    at_limit = np.interp(0.01, *zip(*adult["scalefair"], strict=True))
    assert best - at_limit < 0.002  # "next to nothing"
    assert best - min(value for _, value in adult["scalefair"]) < 0.005  # "nearly level"


def test_benchmark_tables_are_the_files(monkeypatch):
    pytest.importorskip("sphinx", reason="pip install '.[docs]'")
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    results = import_module("results")
    tables = results.tables()
    assert set(tables) == {path.stem for path in (ROOT / "benchmarks" / "results").glob("*.csv")}
    for name, rows in tables.items():
        with (ROOT / "benchmarks" / "results" / f"{name}.csv").open(encoding="utf-8") as file:
            plain = (line for line in file if not line.startswith("#"))
            kept = [row for row in csv.reader(plain) if row]
        assert [len(row) for row in rows] == [len(row) for row in kept]
    assert [results.rounded(cell) for cell in ("3.7239630940002826", "1e-04", "<= 2.00001", "262144")] == [
        *("3.724", "1e-04", "<= 2.00001", "262144")
    ]


def test_broken_links_of_built_pages_are_found(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    check = import_module("check_links")
    (tmp_path / "a").mkdir()
    good = '<a href="a/b.html#x">1</a><a href="https://w.org/no">2</a><a href="#top" id="top">3</a>'
    (tmp_path / "index.html").write_text(f"{good}<img src='p.svg'><a href='a/'>4</a>")
    (tmp_path / "p.svg").write_text("<svg/>")
    (tmp_path / "a" / "b.html").write_text('<a id="x" href="../index.html#top">1</a>')
    (tmp_path / "a" / "index.html").write_text("")
    assert check.broken(tmp_path) == []
    (tmp_path / "a" / "b.html").write_text('<a id="y" href="c.html">1</a>')
    assert check.broken(tmp_path) == ["a/b.html: c.html", "index.html: a/b.html#x"]
    assert check.broken(tmp_path / "empty") == [f"{tmp_path / 'empty'}: no page in it"]


def test_rows_of_a_benchmark_table_can_be_chosen(monkeypatch):
    pytest.importorskip("sphinx", reason="pip install '.[docs]'")
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    selected = import_module("results").selected
    rows = [["data", "s", "error"], ["a", "seen", "1"], ["b", "seen", "2"], ["a", "hidden", "3"]]
    assert selected(rows, "data=a") == [["s", "error"], ["seen", "1"], ["hidden", "3"]]
    assert selected(rows, "data=a; s=hidden") == [["error"], ["3"]]
    assert selected(rows, "") == rows


def test_wide_benchmark_tables_stand_closer(monkeypatch):
    pytest.importorskip("sphinx", reason="pip install '.[docs]'")
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    results = import_module("results")
    for width in (results.WIDE, results.WIDE + 1):
        table = results._table([["a"] * width] * 2)
        assert ("table-wide" in table["classes"]) == (width > results.WIDE)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("V.", "V\\."),
        ("    2.", "    2\\."),
        ("A. Name et al. (2017). Title.", "A\\. Name et al. (2017). Title."),
        ("k. More of them: less variance.", "k\\. More of them: less variance."),
        ("A.b and 2.5 stay.", "A.b and 2.5 stay."),
        ("- a point", "- a point"),
        (">>> V. x", ">>> V. x"),
    ],
)
def test_symbols_at_the_start_of_a_docstring_are_no_lists(monkeypatch, written, read):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    lines = ["Text.", "", written]
    import_module("docstrings").escape(None, "class", "", None, None, lines)
    assert lines[-1] == read


def test_pages_of_named_tuples_do_not_list_what_python_says_of_fields(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    skip, entry = import_module("docstrings").skip, import_module("scalefair.report").Entry
    left_out = {name for name in dir(entry) if skip(None, "", name, getattr(entry, name), None, None)}
    assert {"count", "index", "attribute", "value"} <= left_out
    assert "error" not in left_out


def test_ten_lines_are_ten_lines():
    text = (ROOT / "README.md").read_text("utf-8").partition("## Ten lines\n")[2]
    code = docs_pages.blocks(text)[0].code
    assert len([line for line in code.splitlines() if line.strip()]) == 10
