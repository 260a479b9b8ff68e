"""The results that are kept, and what the documentation shows, are those of the kept seeds."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest

from scalefair.paper import EXPERIMENTS, load, runs
from tests import docs_pages

KEPT = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "paper"
PAGE = docs_pages.ROOT / "docs" / "project" / "paper.md"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_tables_and_figures_are_drawn_from_the_kept_seeds(name, tmp_path):
    experiment = load(name)
    values = runs.earlier(KEPT / f"{name}_trials.csv")
    for path in runs.written(experiment, values, tmp_path, name).files:
        if path.suffix == ".csv" and path.exists():
            kept = pd.read_csv(KEPT / path.name)
            pd.testing.assert_frame_equal(pd.read_csv(path), kept, rtol=1e-3)
        elif path.suffix != ".csv":
            assert (KEPT / path.name).stat().st_size > 1000


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_all_seeds_are_kept(name):
    seeds = runs.earlier(KEPT / f"{name}_trials.csv")["seed"].unique()
    assert sorted(seeds) == list(range(load(name).full.seeds))


def kept_claims(name):
    return pd.read_csv(KEPT / f"{name}_claims.csv").set_index("claim")


def test_the_page_shows_every_experiment_with_its_claims(monkeypatch):
    pytest.importorskip("sphinx", reason="pip install '.[docs]'")
    text = PAGE.read_text("utf-8")
    monkeypatch.syspath_prepend(docs_pages.ROOT / "docs" / "_ext")
    paper = import_module("paper")
    for name in EXPERIMENTS:
        assert f"```{{paper-table}} {name}\n" in text
        assert f"```{{paper-table}} {name}_claims\n" in text
        assert f"results/paper/{name}.svg" in text
        assert len(paper.rows(name)) == len(pd.read_csv(KEPT / f"{name}.csv")) + 1
    found = paper.rows("toy1", "approach, here=mean±error", "measure=obs,model=GPR")
    assert found[0] == ["approach", "here"]
    assert len(found) == 8
    assert "±" in found[1][1]
