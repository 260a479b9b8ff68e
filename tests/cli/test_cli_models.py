"""Which model the command line fits, and the options that fit and frontier share."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import scalefair
from scalefair import FairKernelRidgeCV
from scalefair.cli import main
from scalefair.estimators import path
from tests.cli_tools import refuse, succeed

OPTIONS = ["--target", "y", "--sensitive", "s", "--components", 30, "--json"]


def steps(n=1500, seed=0):
    """y is a step of x and of the levels of c, which trees learn and kernels do not."""
    rng = np.random.default_rng(seed)
    x, c, s = rng.normal(size=(n, 3)), rng.integers(0, 12, n), rng.integers(0, 2, n)
    y = (x[:, 0] > 0) * np.where(c % 3 == 0, 2.0, -1.0) + 0.5 * s + 0.1 * rng.normal(size=n)
    columns = {f"x{j}": x[:, j] for j in range(3)}
    return pd.DataFrame({**columns, "c": [f"c{j}" for j in c], "s": np.take(["f", "m"], s), "y": y})


@pytest.mark.parametrize("command", ["fit", "frontier"])
def test_the_model_of_least_held_out_error_is_taken(tmp_path, command):
    """And is no worse on new rows than those that were not."""
    steps().to_csv(tmp_path / "d.csv", index=False)
    own = ["--target", "y", "--sensitive", "s", "--components", "50", "--json", "--out"]
    out = tmp_path / ("m.scalefair" if command == "fit" else "out")
    records = {}
    for model in ("auto", "kernel", "trees", "linear"):
        given = [command, str(tmp_path / "d.csv"), *own, str(out), "--model", model]
        records[model] = json.loads(CliRunner().invoke(main, given).stdout)
    errors = records["auto"]["errors"]
    assert records["auto"]["chosen"] == "boosted trees" == min(errors, key=errors.get)
    assert errors["boosted trees"] < 0.5 * errors["Gaussian kernel"]
    r2 = {name: each["r2_cv"] if command == "fit" else each["after"]["r2"] for name, each in records.items()}
    assert r2["auto"] == pytest.approx(r2["trees"])
    assert r2["auto"] > max(r2["kernel"], r2["linear"])


@pytest.mark.parametrize(("kernel", "chosen"), [(0.995, "trees"), (0.985, "kernel")])
def test_a_tie_within_one_percent_goes_to_trees(kernel, chosen, monkeypatch):
    """Cross-validation overstates the error of a model whose features were cross-fitted."""
    made = {
        "kernel": FairKernelRidgeCV(n_components=kernel),
        "trees": FairKernelRidgeCV(base_estimator="trees", n_components=1.0),
    }
    monkeypatch.setattr(path, "held_out_error", lambda model: model.n_components)
    taken = path.choose_model(made, lambda model: model)
    assert taken.name == chosen
    taken.model.path_ = SimpleNamespace(table={})
    assert (f"{chosen} {taken.errors[chosen]:.4f} (within 1% of the least)" in taken.summary) == (chosen == "trees")


def test_frontier_has_the_options_of_fit(tmp_path):
    steps(500).assign(w=np.arange(500) % 3).to_csv(tmp_path / "w.csv", index=False)
    given = ["frontier", tmp_path / "w.csv", *OPTIONS, "--model", "linear", "--out"]
    plain, weighted, hidden = (
        json.loads(succeed(*given, tmp_path / "out", *more))
        for more in ([], ["--weight", "w"], ["--weight", "w", "--hide-sensitive"])
    )
    assert plain["rows"]["train"] == 400
    assert weighted["rows"]["train"] < 400
    assert weighted["before"] != plain["before"]
    model = scalefair.load(tmp_path / "out" / "model.scalefair")
    assert list(model.feature_names_in_) == ["x0", "x1", "x2", "c"]
    assert hidden["sensitive"] == ["s"]
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "sample_weight=data[" in page


def test_two_classes_have_a_classifier_unless_told_otherwise(tmp_path):
    table = steps(500)
    table.assign(y=table["y"] > 0).to_csv(tmp_path / "two.csv", index=False)
    given = ["frontier", tmp_path / "two.csv", *OPTIONS, "--out", tmp_path / "out"]
    for own, kind in (([], "Classifier"), (["--kind", "regression"], "Ridge")):
        assert kind in json.loads(succeed(*given, *own))["estimator"]
    line = refuse(*given, "--target", "x0", "--kind", "classification")
    assert "'x0'" in line


def test_options_that_do_not_go_together_are_named(tmp_path):
    steps(100).to_csv(tmp_path / "d.csv", index=False)
    given = ["fit", tmp_path / "d.csv", *OPTIONS, "--out", tmp_path / "m"]
    assert "--alpha" in refuse(*given, "--alpha", 1, "--model", "trees")
    assert "--model" in refuse(*given, "--model", "gp", "--confidence", 0.9)
    assert "'forest'" in refuse(*given, "--model", "forest")
