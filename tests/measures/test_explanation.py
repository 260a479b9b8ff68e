"""The share split over the columns of X: it adds up, its errors are right, carriers are found."""

from __future__ import annotations

import tracemalloc
from itertools import product

import cloudpickle
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, Ridge

from scalefair import (
    BatchSource,
    FairGPRegressor,
    FairKernelClassifier,
    FairKernelRidge,
    FairRidge,
    config_context,
    explain_share,
    proxies,
    scan_parquet,
)
from scalefair._typing import Chunk
from scalefair.datasets import make_biased_income
from scalefair.features.base import whitened
from scalefair.moments import Moments
from scalefair.penalties import share_of_block
from tests import models, naive
from tests.errors import refused

N, SMALL = 150, {"n_components": 12, "n_sensitive_components": 8, "random_state": 0}
ALL = "sex × ethnicity"


def of(table, attribute, when="after"):
    own = table[table["attribute"] == attribute]
    return dict(zip(own["column"], own[when], strict=True))


def totals(table, when="after"):
    return table.groupby("attribute", sort=False)[when].sum()


def share_of_scores(model, X, **beside):
    """The one share, of the scores of a model, with the attributes as the model maps them."""
    design = model._design
    mean = getattr(model, "_distribution", None)
    encoded = design.preparation.encode(Chunk(X)).x if mean else None
    scores = mean.mean(encoded) if mean else model._scores(X)
    names = {"s": beside.get("sensitive_features"), "c": beside.get("control_features")}
    prepared, blocks = design.preparation, {}
    if names["s"] is None:
        names["s"] = X[[X.columns[j] for j in prepared.sensitive_columns]]
    s = prepared.sensitive_encoder.transform(names["s"])
    blocks["psi"] = whitened(design.psi, s)
    if names["c"] is not None:
        c = prepared.control_encoder.transform(names["c"])
        control, crossed = design.beside[:2]
        blocks |= {"upsilon": whitened(control.upsilon, c), "xi": crossed.xi.rows(s, c)}
    rows = Moments.of_rows({"phi": scores, **blocks}, np.ones(len(scores)), design.units)
    return share_of_block(rows)


def beside(name):
    if models.MODELS[name].sensitive_columns:
        return {}
    own = models.pay().sensitive_features if name == "sums" else models.groups()
    own = own[["sex"]] if name == "gaps" else own
    control = models.pay().data[["education", "experience"]]
    return {"sensitive_features": own} | ({"control_features": control} if name == "controlled" else {})


EXACT = ("exact", "exact_process")


@pytest.mark.parametrize("name", [name for name in models.MODELS if name not in EXACT])
def test_contributions_add_up_to_the_share_of_every_model(name):
    model, X = models.fitted(name), models.rows(name)
    table = explain_share(model, X, **beside(name))
    total = totals(table).iloc[0]
    if name != "float32":  # its own scores are rounded to single precision
        assert total == pytest.approx(share_of_scores(model, X, **beside(name)), abs=1e-12)
    # In training base models predict out of fold, and rows that lack s are judged by others.
    if model.base_estimator is None and name != "gaps":
        assert total == pytest.approx(model.explained_share_, rel=1e-6, abs=1e-12)
    assert (table["after_error"] > 0).all()


CASES = list(
    product(("linear", "nystroem", "fourier"), (None, Ridge()), ("normalized", "hsic", "nocco"), (False, True))
)


@pytest.mark.parametrize(("kind", "base", "penalty", "control"), CASES)
def test_contributions_add_up_for_every_map_base_penalty_and_control(kind, base, penalty, control):
    pay = models.pay()
    X, s = pay.data.select_dtypes("number"), models.groups()
    own = {"sensitive_features": s}
    if control:
        own["control_features"] = pay.data[["education"]]
    model = FairKernelRidge(feature_map=kind, base_estimator=base, penalty=penalty, eta=2.0, **SMALL).fit(
        X, pay.target, **own
    )
    table = explain_share(model, X, **own)
    plain = model._without_penalty()
    assert totals(table)[ALL] == pytest.approx(share_of_scores(model, X, **own), abs=1e-12)
    assert totals(table, "before")[ALL] == pytest.approx(share_of_scores(plain, X, **own), abs=1e-12)
    shown = set(table["column"])
    assert ("(base model)" in shown) == (base is not None)
    assert ("(nonlinear rest)" in shown) == (kind != "linear")
    assert shown >= set(X.columns)


def law(n, seed=0):
    """Numbers of which x0 and x1 carry sex, x2 and x3 do not; y is linear in x0, x1 and x2."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    X = rng.normal(size=(n, 4)) + np.outer(sex == "m", [1.0, 0.5, 0.0, 0.0])
    return X, X[:, 0] + X[:, 1] + X[:, 2] + 0.5 * rng.normal(size=n), sex


def test_contributions_are_those_of_the_rows():
    X, y, sex = law(N)
    weight = naive.weights(N)
    linear = FairRidge(eta=0.7).fit(X, y, sensitive_features=sex)
    curved = FairKernelRidge(eta=0.7, **SMALL).fit(X, y, sensitive_features=sex)
    Psi = np.column_stack([sex == "f", sex == "m"]).astype(float)
    f = curved.predict(X)[:, None]
    slopes = LinearRegression().fit(X, f, weight).coef_[0]
    for model, beta in ((linear, linear.coef_), (curved, slopes)):
        parts = [beta[j] * X[:, [j]] for j in range(4)]
        parts += [] if model is linear else [f - X @ beta[:, None]]
        table = explain_share(model, X, sensitive_features=sex, sample_weight=weight)
        names = [*(f"x{j}" for j in range(4)), *["(nonlinear rest)"] * (model is curved)]
        got = [of(table, "s0")[name] for name in names]
        np.testing.assert_allclose(got, naive.contributions(parts, Psi, weight=weight), atol=1e-10)


def test_carriers_are_ranked_and_what_carries_nothing_is_within_two_errors_of_0():
    X, y, sex = law(20_000, seed=3)
    for model in (FairRidge(unfairness=0.02), FairKernelRidge(unfairness=0.02, **SMALL)):
        model.fit(X, y, sensitive_features=sex)
        table = explain_share(model, X, sensitive_features=sex)
        before, error = of(table, "s0", "before"), of(table, "s0", "before_error")
        assert before["x0"] > before["x1"] > 0.02
        assert all(abs(before[name]) < 2 * error[name] for name in ("x2", "x3"))
        # The law: Var E[f_j | s] = β_j² δ_j² / 4, and the deviations of f add up to 3 + (1.5/2)².
        if isinstance(model, FairRidge):
            expected = np.array([1.0, 0.5]) * 1.5 / 4 / (3 + 0.75**2)
            np.testing.assert_allclose([before["x0"], before["x1"]], expected, rtol=0.06)
    assert totals(table)["s0"] == pytest.approx(0.02, abs=1e-6)


def test_the_biased_incomes_show_the_proxies_they_were_made_with():
    pay = make_biased_income(20_000, random_state=1)
    X, s = pay.data.drop(columns=["sex", "ethnicity", "age"]), pay.sensitive_features
    model = FairRidge(unfairness=0.05).fit(X, pay.target, sensitive_features=s)
    table = explain_share(model, X, sensitive_features=s)
    carriers = {"sex": ["occupation", "hours"], "ethnicity": ["region", "occupation"]}
    for attribute, names in carriers.items():
        before, error = of(table, attribute, "before"), of(table, attribute, "before_error")
        assert sorted(before, key=before.get)[::-1][:2] == names
        assert all(before[name] > 2 * error[name] for name in names)
        others = [name for name in before if name not in names]
        assert all(abs(before[name]) < 2 * error[name] for name in others)
    assert list(totals(table).index) == ["sex × ethnicity × age", "sex", "ethnicity", "age"]


@pytest.mark.parametrize("control", [False, True])
def test_standard_errors_are_the_deviations_between_samples(control):
    X, y, sex = law(3_000)
    levels = np.random.default_rng(1).choice(["a", "b"], 3_000)
    more = {"control_features": levels} if control else {}
    model = FairKernelRidge(unfairness=0.03, n_components=30, random_state=0)
    model.fit(X, np.sin(2 * X[:, 0]) + y, sensitive_features=sex, **more)
    values, errors = [], []
    for seed in range(80):
        X, _, sex = law(400, seed=100 + seed)
        more = {"control_features": levels[:400]} if control else {}
        table = explain_share(model, X, sensitive_features=sex, **more).sort_values("column")
        values.append(table[["before", "after"]])
        errors.append(table[["before_error", "after_error"]])
    ratio = np.mean(errors, axis=0) / np.std(values, axis=0)
    assert ratio.min() > 0.75
    assert ratio.max() < 1.4


def test_a_linear_model_needs_its_moments_only():
    X, y, sex = law(N)
    model = FairRidge(unfairness=0.05).fit(X, y, sensitive_features=sex)
    alone, rows = explain_share(model), explain_share(model, X, sensitive_features=sex)
    for when in ("before", "after"):
        np.testing.assert_allclose(alone[when], rows[when], rtol=1e-9, atol=1e-13)
        assert alone[f"{when}_error"].isna().all()
    # Merging changes nothing: the moments of two halves are those of the whole.
    parts = [model.collect(X[at], y[at], sensitive_features=sex[at]) for at in (slice(50), slice(50, N))]
    merged = explain_share(model.solve_from(parts[0] + parts[1]))
    np.testing.assert_allclose(merged["after"], alone["after"], rtol=1e-8, atol=1e-13)


def test_each_attribute_alone_and_all_together():
    pay = models.pay()
    X = pay.data.select_dtypes("number")
    model = FairRidge(eta=1.0).fit(X, pay.target, sensitive_features=models.groups())
    table, f = explain_share(model), model.predict(X)
    for name in ("sex", "ethnicity"):
        share = naive.between_group_share(f, models.groups()[name].astype(str).to_numpy())
        assert totals(table)[name] == pytest.approx(share, abs=1e-12)
    both = models.groups().astype(str).agg(" ".join, axis=1).to_numpy()
    assert totals(table)[ALL] == pytest.approx(naive.between_group_share(f, both), abs=1e-12)
    numbers = explain_share(model, X, sensitive_features=models.groups())
    np.testing.assert_allclose(numbers["after"], table["after"], rtol=1e-9, atol=1e-13)


def test_any_chunks_and_containers_give_the_same(tmp_path):
    pay = models.pay()
    model, X, s = models.fitted("nystroem"), pay.data, models.groups()
    expected = explain_share(model, X, sensitive_features=s)

    def batches(rows):
        return [(X[i : i + rows], None, s[i : i + rows]) for i in range(0, len(X), rows)]

    path = tmp_path / "pay.parquet"
    X.to_parquet(path)
    scan = scan_parquet(path)
    with config_context(chunk_rows=37):
        tables = [explain_share(model, BatchSource(batches(rows))) for rows in (7, 50)]
        tables.append(explain_share(model, scan, sensitive_features=scan[list(s)]))
    for table in tables:
        assert list(table["column"]) == list(expected["column"])
        numbers = ["after", "after_error"]
        np.testing.assert_allclose(table[numbers], expected[numbers], rtol=1e-8, atol=1e-12)


def test_dask_gives_the_same():
    dask = pytest.importorskip("dask.dataframe")
    pay = models.pay()
    model, s = models.fitted("controlled"), models.groups()
    c = pay.data[["education", "experience"]]
    expected = explain_share(model, pay.data, sensitive_features=s, control_features=c)
    X, s, c = (dask.from_pandas(part, npartitions=3) for part in (pay.data, s, c))
    table = explain_share(model, X, sensitive_features=s, control_features=c)
    numbers = ["before", "before_error", "after", "after_error"]
    np.testing.assert_allclose(table[numbers], expected[numbers], rtol=1e-7, atol=1e-11)


def test_rows_that_lack_the_attributes_are_left_out():
    model, X, s = models.fitted("gaps"), models.rows("gaps"), models.groups()[["sex"]]
    known = np.arange(len(X)) % 3 > 0
    some = s.astype(object).where(pd.Series(known, s.index), None, axis=0)
    table = explain_share(model, X, sensitive_features=some)
    expected = explain_share(model, X[known], sensitive_features=s[known])
    numbers = ["before", "before_error", "after", "after_error"]
    np.testing.assert_allclose(table[numbers], expected[numbers], rtol=1e-7, atol=1e-12)
    X, y, sex = law(N)  # a linear fit needs no rows, whatever they lack
    linear = FairRidge(unfairness=0.05, missing_labels="partial", random_state=0)
    linear.fit(X, y, sensitive_features=np.where(np.arange(N) % 3 > 0, sex, None))
    assert explain_share(linear)["after"].sum() == pytest.approx(linear.explained_share_, abs=1e-12)


def test_weights_are_rows_and_have_no_unit():
    X, y, sex = law(N)
    model = FairKernelRidge(eta=1.0, **SMALL).fit(X, y, sensitive_features=sex)
    weight = np.where(np.arange(N) < 40, 2.0, 1.0)
    twice = np.r_[np.arange(N), np.arange(40)]
    first = explain_share(model, X, sensitive_features=sex, sample_weight=weight)
    rows = explain_share(model, X[twice], sensitive_features=sex[twice])
    scaled = explain_share(model, X, sensitive_features=sex, sample_weight=100 * weight)
    np.testing.assert_allclose(first["after"], rows["after"], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(first[["after", "after_error"]], scaled[["after", "after_error"]], rtol=1e-8, atol=1e-12)


def test_predictions_of_any_model():
    pay = models.pay()
    model, s = models.fitted("nystroem"), models.groups()
    own = explain_share(model, pay.data, sensitive_features=s)
    given = explain_share(model.predict(pay.data), pay.data, sensitive_features=s)
    assert list(given["column"]) == list(own["column"])
    np.testing.assert_allclose(given["after"], own["after"], rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(given["after_error"], own["after_error"], rtol=1e-6, atol=1e-12)
    # Units and origins of columns change nothing, copies share, and a baseline stands beside.
    X, y, sex = law(N)
    first = of(explain_share(y, X, sensitive_features=sex), "s0")
    moved = of(explain_share(3 * y - 5, X * [1, 1e-3, 1e4, 1] + 7, sensitive_features=sex), "s0")
    assert moved == pytest.approx(first, rel=1e-7, abs=1e-10)
    copied = explain_share(y, X[:, [0, 0, 1, 2, 3]], sensitive_features=sex, baseline=y)
    halves = of(copied, "s0")
    assert halves["x0"] == pytest.approx(halves["x1"]) == pytest.approx(first["x0"] / 2)
    np.testing.assert_array_equal(copied["before"], copied["after"])


def test_what_a_model_does_not_use_carries_nothing_and_its_rest_is_0():
    X, y, sex = law(N)
    f = X[:, 0] - 2 * X[:, 3]
    table = of(explain_share(f, X, sensitive_features=sex), "s0")
    assert [table[name] for name in ("x1", "x2", "(nonlinear rest)")] == pytest.approx([0] * 3, abs=1e-12)
    model = FairKernelClassifier(eta=0.0, feature_map="linear").fit(X, y > 0, sensitive_features=sex)
    assert list(explain_share(model)) == ["attribute", "column", "after", "after_error"]


def test_what_cannot_be_explained_is_refused():
    X, y, sex = law(N)
    frame = pd.DataFrame(X, columns=list("abcd"))
    with refused("FairRidge"):
        explain_share(FairRidge(), X, sensitive_features=sex)
    linear = FairRidge(eta=1.0).fit(frame, y, sensitive_features=sex)
    kernel = FairKernelRidge(eta=1.0, **SMALL).fit(X, y, sensitive_features=sex)
    named = FairRidge(eta=1.0, sensitive_columns=["a"]).fit(frame, y)
    plain = FairRidge(eta=0.0).fit(X, y)
    exact = FairKernelRidge(feature_map="exact", eta=1.0).fit(X, y, sensitive_features=sex)
    process = FairGPRegressor(feature_map="exact", eta=1.0, optimizer=None, noise=0.1, amplitude=1.0)
    process.fit(X[:40], y[:40], sensitive_features=sex[:40])
    controlled = {"X": frame, "sensitive_features": sex, "control_features": sex}
    for model, given, words in (
        (linear, {"X": frame}, ["sensitive_features"]),
        (linear, {"X": frame[["a", "b"]], "sensitive_features": sex}, ["c"]),
        (linear, controlled, ["control_features"]),
        (named, {"X": frame, "sensitive_features": sex}, ["sensitive_features"]),
        (kernel, {}, ["X=None", "FairKernelRidge"]),
        (plain, {"X": X, "sensitive_features": sex}, ["FairRidge", "sensitive attributes"]),
        (exact, {"X": X, "sensitive_features": sex}, ["FairKernelRidge", "exact", "nystroem"]),
        (process, {"X": X, "sensitive_features": sex}, ["FairGPRegressor", "exact"]),
        (np.ones(N), {"X": X, "sensitive_features": sex}, ["constant"]),
        (Ridge().fit(X, y), {"X": X, "sensitive_features": sex}, ["Ridge", "predict"]),
        (y, {}, ["X=None"]),
        (y, {"X": X}, ["sensitive"]),
        (y[:5], {"X": X, "sensitive_features": sex}, ["5", N]),
        (np.full(N, np.nan), {"X": X, "sensitive_features": sex}, ["missing"]),
        (y, {"X": X, "sensitive_features": np.full(N, "f")}, ["s0", "f"]),
    ):
        with refused(*words):
            explain_share(model, **given)


def peak_of(n):
    """Most bytes that explaining n streamed rows, and measuring their proxies, ever held."""

    def batches():
        return ((*law(1_000, seed=start)[:2], law(1_000, seed=start)[2]) for start in range(n // 1_000))

    X, y, sex = law(1_000)
    model = FairKernelRidge(eta=1.0, n_components=50, random_state=0).fit(X, y, sensitive_features=sex)
    tracemalloc.start()
    explain_share(model, BatchSource(batches, n_threads=1))
    proxies(BatchSource(batches, n_threads=1), sensitive_features=None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_does_not_grow_with_rows():
    few, many = peak_of(20_000), peak_of(80_000)
    assert many < 1.1 * few


@pytest.mark.parametrize("name", ["seen", "controlled", "joined", "three"])
def test_a_pass_can_be_sent_to_workers(name):
    given = Chunk(
        models.rows(name), beside(name).get("sensitive_features"), None, c=beside(name).get("control_features")
    )
    sent = []

    class Spy(BatchSource):
        def fold(self, start, rows):
            sent.append(cloudpickle.dumps(start))
            return super().fold(cloudpickle.loads(sent[-1]), rows)

    source = Spy([(given.x, None, given.s, None, given.c)])
    table = explain_share(models.fitted(name), source)
    expected = explain_share(models.fitted(name), models.rows(name), **beside(name))
    assert len(sent) >= 2
    np.testing.assert_allclose(table["after_error"], expected["after_error"], rtol=1e-6)
