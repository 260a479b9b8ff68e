"""How much of the sensitive attributes columns give away: closed forms, invariances, intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from scalefair import BatchSource, config_context, proxies, scan_parquet
from scalefair.datasets import make_biased_income
from tests.errors import refused

N = 4_000
SHARES = ["linear", "linear_low", "linear_high", "nonlinear", "nonlinear_low", "nonlinear_high"]


def people(n=N, seed=0):
    """A number and a category, which columns tell linearly, by a curve, in part, and not at all."""
    rng = np.random.default_rng(seed)
    sex, age = rng.choice(["f", "m", "x"], n, p=[0.5, 0.4, 0.1]), rng.normal(size=n)
    X = pd.DataFrame(
        {
            "height": 0.8 * (sex == "m") + 0.3 * age + rng.normal(size=n),
            "bend": age**2 + 0.5 * rng.normal(size=n),
            "job": np.where(rng.random(n) < 0.3, "any", np.where(sex == "f", "a", "b")),
            "nothing": rng.normal(size=n),
        }
    )
    return X, pd.DataFrame({"sex": sex, "age": age})


def cell(table, attribute, column):
    return table.set_index(["attribute", "column"]).loc[(attribute, column)]


def adjusted(r, freedom, n):
    return max((r - freedom / (n - 1)) / (1 - freedom / (n - 1)), 0.0)


def test_closed_forms():
    X, s = people()
    table = proxies(X, sensitive_features=s)
    # A number by a number: the squared correlation.
    r = np.corrcoef(X["height"], s["age"])[0, 1] ** 2
    assert cell(table, "age", "height")["linear"] == pytest.approx(adjusted(r, 1, N), abs=1e-5)
    # A category by a category: Goodman and Kruskal's tau.
    counts = pd.crosstab(s["sex"], X["job"]).to_numpy() / N
    whole = 1 - np.sum(counts.sum(axis=1) ** 2)
    tau = 1 - (1 - np.sum(counts**2 / counts.sum(axis=0))) / whole
    assert cell(table, "sex", "job")["linear"] == pytest.approx(adjusted(tau, 2, N), abs=1e-9)
    assert cell(table, "sex", "job")["nonlinear"] == cell(table, "sex", "job")["linear"]
    # All together: R² of a regression.
    inputs = pd.get_dummies(X).to_numpy(float)
    r = LinearRegression().fit(inputs, s["age"]).score(inputs, s["age"])
    every = cell(table, "age", "(all columns)")
    assert every["linear"] == pytest.approx(adjusted(r, 5, N), abs=1e-5)


def test_a_curve_is_seen_by_smooth_functions_only():
    X, s = people()
    table = proxies(X[["bend"]], sensitive_features=X["bend"] ** 2 - X["bend"] * 2)
    own = table.iloc[0]
    assert own["nonlinear"] > 0.98 > own["linear"]
    bend = cell(proxies(s[["age"]], sensitive_features=X["bend"]), "bend", "age")
    assert bend["linear"] < 0.02
    assert bend["nonlinear"] == pytest.approx(2 / 2.25, abs=0.02)


def test_what_tells_nothing_and_what_tells_all():
    X, s = people()
    table = proxies(X.assign(copy=s["sex"]), sensitive_features=s)
    for attribute in s:
        nothing = cell(table, attribute, "nothing")
        assert nothing["linear_low"] == nothing["nonlinear_low"] == 0.0
        assert max(nothing["linear_high"], nothing["nonlinear_high"]) < 0.01
        own = table[table["attribute"] == attribute]
        assert own["linear"].idxmax() in own.index[[-1, -2]]
    assert cell(table, "sex", "copy")["linear"] == pytest.approx(1.0, abs=1e-9)
    assert cell(table, "sex", "(all columns)")["nonlinear"] == pytest.approx(1.0, abs=1e-6)


def test_intervals_cover():
    inside, truth = [], None
    X, s = people(200_000, seed=99)
    truth = proxies(X, sensitive_features=s)
    for seed in range(60):
        table = proxies(*(part for part in [people(500, seed)[0]]), sensitive_features=people(500, seed)[1])
        for way in ("linear", "nonlinear"):
            low, high = table[f"{way}_low"] <= truth[way], truth[way] <= table[f"{way}_high"]
            inside.append((low & high).to_numpy())
    coverage = np.mean(inside, axis=0)
    assert coverage.min() > 0.8
    assert coverage.mean() > 0.92


def test_chunks_containers_and_weights_change_nothing(tmp_path):
    X, s = people(600)
    expected = proxies(X, sensitive_features=s)[SHARES]
    path = tmp_path / "people.parquet"
    X.join(s).to_parquet(path)
    scan = scan_parquet(path)

    def batches():
        return [(X[i : i + 70], None, s[i : i + 70]) for i in range(0, 600, 70)]

    with config_context(chunk_rows=50):
        for table in (
            proxies(BatchSource(batches), sensitive_features=None),
            proxies(scan[list(X)], sensitive_features=scan[list(s)]),
            proxies(X, sensitive_features=s, sample_weight=np.full(600, 30.0)),
        ):
            np.testing.assert_allclose(table[SHARES], expected, rtol=1e-7, atol=1e-10)
    scaled = proxies(X.assign(height=X["height"] * 100 - 3), sensitive_features=s.assign(age=7 * s["age"]))
    np.testing.assert_allclose(scaled[SHARES], expected, rtol=1e-6, atol=1e-9)
    wide = proxies(X, sensitive_features=s, confidence=0.99)[SHARES]
    assert (wide["linear_high"] >= expected["linear_high"]).all()


def test_the_biased_incomes_show_the_proxies_they_were_made_with():
    pay = make_biased_income(20_000, random_state=0)
    X = pay.data.drop(columns=["sex", "ethnicity", "age"])
    table = proxies(X, sensitive_features=pay.sensitive_features)
    tells = {"sex": {"occupation", "hours"}, "ethnicity": {"region", "occupation"}, "age": {"experience", "tenure"}}
    for attribute, names in tells.items():
        own = table[(table["attribute"] == attribute) & (table["column"] != "(all columns)")]
        assert set(own.nlargest(2, "nonlinear")["column"]) == names
        assert (own[~own["column"].isin(names)]["nonlinear"] < 0.002).all()


def test_missing_values_tell_too():
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], N)
    x = np.where((sex == "f") & (rng.random(N) < 0.5), np.nan, rng.normal(size=N))
    own = proxies(pd.DataFrame({"x": x}), sensitive_features=sex).iloc[0]
    assert own["linear"] == pytest.approx(1 / 3, abs=0.03)


def test_what_cannot_be_measured_is_refused():
    X, s = people(100)
    for given, more, words in (
        (X, {"sensitive_features": None}, ["sensitive"]),
        (X, {"sensitive_features": s[:9]}, ["9", "100"]),
        (X, {"sensitive_features": s.assign(age=1.0)}, ["age", "1"]),
        (X, {"sensitive_features": s, "confidence": 2}, ["confidence=2"]),
        (X, {"sensitive_features": s, "sample_weight": np.zeros(100)}, ["sample_weight"]),
        (None, {"sensitive_features": s}, ["X=None"]),
    ):
        with refused(*words):
            proxies(given, **more)
