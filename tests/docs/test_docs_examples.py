"""What examples of the gallery find on their short tables; building the pages runs all of them."""

from __future__ import annotations

import ast
import runpy

import pytest

from tests import docs_pages

EXAMPLES = sorted((docs_pages.ROOT / "docs" / "examples").glob("plot_*.py"))


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """An empty folder, short tables, and no figure that stays behind."""
    from matplotlib import pyplot as plt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCALEFAIR_QUICK", "1")
    yield monkeypatch
    plt.close("all")


def run(path):
    from matplotlib import pyplot as plt

    names = runpy.run_path(str(path), run_name="__main__")
    return names, len(plt.get_fignums())


def test_there_are_five_examples_that_say_how_to_run_them_quickly():
    assert len(EXAMPLES) == 5
    for path in EXAMPLES:
        tree = ast.parse(path.read_text("utf-8"))
        title, underline = ast.get_docstring(tree).splitlines()[:2]
        assert underline == "=" * len(title), path.name


def test_the_crime_example_meets_its_limit(quick, capsys):
    path = next(path for path in EXAMPLES if path.name == "plot_crime.py")
    names, figures = run(path)
    table = names["table"].loc["explained share"]
    assert table["limit of 5 %"] < 0.1 < 0.5 < table["no penalty"]
    assert figures == 2
    assert "held-out share" in capsys.readouterr().out


@pytest.mark.slow
def test_the_pay_gap_takes_adult_where_there_is_no_survey(quick, capsys):
    path = next(path for path in EXAMPLES if path.name == "plot_pay_gap.py")
    quick.delenv("SCALEFAIR_DATA", raising=False)
    names, _ = run(path)
    assert "6,000 people of the Adult census table" in capsys.readouterr().out
    shares = [row["explained share"] for row in names["rows"].values()]
    assert shares[-1] < 0.04 < 0.1 < shares[0]


@pytest.mark.slow
def test_a_fit_of_batches_finds_fair_pay(quick):
    path = next(path for path in EXAMPLES if path.name == "plot_ten_million_rows.py")
    rows = run(path)[0]["rows"]
    ordinary, fair = (rows[name]["error against fair pay"] for name in rows)
    assert fair < 0.7 * ordinary
