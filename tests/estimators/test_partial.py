"""Rows that lack s or y: no formula needs both in one row."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import KFold

import scalefair
from scalefair import (
    FairGPRegressor,
    FairKernelClassifier,
    FairKernelRegressor,
    FairKernelRidge,
    FairKernelRidgeCV,
    FairRidge,
    Moments,
)
from scalefair.features.partial import Propensity
from scalefair.moments.partial import RIDGES, Calibration, PartialMoments
from tests import naive
from tests.containers import CONTAINERS, contained
from tests.errors import refused

CLASSES = (
    FairRidge(unfairness=0.05),
    FairRidge(eta=3.0, fit_intercept=False, penalty="hsic"),
    FairKernelRidge(unfairness=0.05, n_components=20, random_state=0),
    FairKernelRidgeCV(unfairness=0.1, n_components=20, random_state=0),
)


def table(n=600, seed=0, known=0.2, inputs=5):
    """x, groups of which a share is known, y; and the groups themselves."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, inputs))
    group = (x[:, 0] + x[:, 1] + rng.logistic(size=n) > 0).astype(int)
    y = x @ np.linspace(1, -1, inputs) + group + 0.5 * rng.normal(size=n)
    s = pd.Series(np.array(["a", "b"])[group], name="group")
    return x, s.where(rng.random(n) < known, None), y, s


def partial(model, **parameters):
    return scalefair_clone(model).set_params(missing_labels="partial", **parameters)


def scalefair_clone(model):
    return type(model)(**model.get_params(deep=False))


@pytest.mark.parametrize("model", CLASSES, ids=lambda model: type(model).__name__)
def test_with_all_rows_known_it_is_the_ordinary_fit(model):
    x, _, y, s = table()
    ordinary = scalefair_clone(model).fit(x, y, sensitive_features=s)
    fit = partial(model).fit(x, y, sensitive_features=s)
    assert isinstance(fit.moments_, PartialMoments)
    naive.close(fit.coef_, ordinary.coef_, 1e-12)
    assert fit.explained_share_ == pytest.approx(ordinary.explained_share_, abs=1e-12)


def test_covariances_are_those_of_the_rows_that_tell_of_them():
    x, s, y, _ = table()
    known = s.notna().to_numpy()
    y[5:50] = np.nan
    moments = partial(FairRidge(eta=1.0)).fit(x, y, sensitive_features=s).moments_
    has_y = ~np.isnan(y)
    Psi = np.eye(2)[(s[known] == "b").astype(int)]
    naive.close(moments.covariance("phi", "y"), naive.covariance(x[has_y], y[has_y]), 1e-12)
    naive.close(moments.covariance("phi", "phi"), naive.covariance(x[has_y], x[has_y]), 1e-12)
    naive.close(moments.covariance("psi", "psi"), naive.covariance(Psi, Psi), 1e-12)
    ridges = RIDGES * np.linalg.eigvalsh(naive.covariance(x[known], x[known])).mean()
    errors = [naive.leave_one_out(x[known], Psi, ridge) for ridge in ridges]
    ridge, everyone = ridges[int(np.argmin(errors))], x[known | has_y]
    tau = known.sum() / len(everyone)
    expected = naive.calibrated(x[known], Psi, ridge=ridge, tau=tau, everyone=everyone)
    naive.close(moments.covariance("phi", "psi"), expected, 1e-10)
    other = moments.calibrated(Calibration(10.0, 0.3))
    expected = naive.calibrated(x[known], Psi, ridge=10 * ridge, tau=0.3, everyone=everyone)
    naive.close(other.covariance("psi", "phi"), expected.T, 1e-10)
    naive.close(moments.judged.covariance("phi", "psi"), naive.covariance(x[known], Psi), 1e-12)


def test_the_limit_is_met_on_the_rows_that_know_s():
    x, s, y, _ = table()
    fit = partial(FairRidge(unfairness=0.03)).fit(x, y, sensitive_features=s)
    known = s.notna().to_numpy()
    share = naive.between_group_share(fit.predict(x[known]), s[known])
    assert fit.explained_share_ == pytest.approx(share, abs=1e-9)
    assert share == pytest.approx(0.03, abs=1e-6)
    at = fit.path().at(unfairness=0.01)
    assert naive.between_group_share(at.predict(x[known]), s[known]) <= 0.01 + 1e-9


def test_parts_chunks_and_order_change_nothing():
    x, s, y, _ = table()
    y[:40] = np.nan
    model = partial(FairRidge(unfairness=0.05))
    whole = scalefair_clone(model).fit(x, y, sensitive_features=s)
    order = np.random.default_rng(1).permutation(len(x))
    shuffled = scalefair_clone(model).fit(x[order], y[order], sensitive_features=s[order].reset_index(drop=True))
    naive.close(shuffled.coef_, whole.coef_, 1e-10)
    with scalefair.config_context(chunk_rows=37):
        chunked = scalefair_clone(model).fit(x, y, sensitive_features=s)
    naive.close(chunked.coef_, whole.coef_, 1e-10)
    parts = [
        whole.collect(x[at], y[at], sensitive_features=s[at].reset_index(drop=True))
        for at in (slice(0, 30), slice(30, 200), slice(200, None))
    ]
    parts.append(whole.collect(x[:9], np.full(9, np.nan)))  # which tell nothing
    naive.close(scalefair_clone(model).fit(x, y, sensitive_features=s).solve_from(sum(parts)).coef_, whole.coef_, 1e-10)
    batches = scalefair_clone(model)
    for at in (slice(0, 400), slice(400, None)):
        batches.partial_fit(x[at], y[at], sensitive_features=s[at].reset_index(drop=True))
    naive.close(batches.coef_, whole.coef_, 1e-10)


def test_moments_and_models_survive_a_file(tmp_path):
    x, s, y, _ = table(known=0.5)
    model = FairKernelRidgeCV(unfairness=0.1, feature_map="linear", random_state=0)
    fit = partial(model).fit(x, y, sensitive_features=s)
    fit.moments_.save(tmp_path / "a.moments")
    again = Moments.load(tmp_path / "a.moments")
    assert again.calibration == fit.moments_.calibration
    scalefair.save(fit, tmp_path / "model")
    loaded = scalefair.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(x), fit.predict(x))
    naive.close(loaded.solve_from(again).coef_, fit.coef_, 1e-12)
    ordinary = FairRidge(unfairness=0.1).fit(x[s.notna()], y[s.notna()], sensitive_features=s[s.notna()])
    with refused("PartialMoments", "missing_labels"):
        ordinary.solve_from(again)


def test_two_tables_are_one_with_gaps():
    x, _, y, s = table()
    first, second = slice(0, 450), slice(450, None)
    for model in (CLASSES[0], FairKernelRidge(unfairness=0.05, feature_map="linear")):
        two = scalefair_clone(model).fit(x[first], y[first], sensitive_data=(x[second], s[second]))
        gaps_y, gaps_s = y.copy(), s.copy()
        gaps_y[second], gaps_s[first] = np.nan, None
        one = partial(model).fit(x, gaps_y, sensitive_features=gaps_s)
        naive.close(two.coef_, one.coef_, 1e-10)
        assert two.explained_share_ == pytest.approx(0.05, abs=1e-6)


def test_a_split_of_one_table_agrees_with_it():
    x, _, y, s = table(n=40_000)
    joint = FairRidge(unfairness=0.05).fit(x, y, sensitive_features=s)
    half = slice(0, 20_000), slice(20_000, None)
    two = FairRidge(unfairness=0.05).fit(x[half[0]], y[half[0]], sensitive_data=(x[half[1]], s[half[1]]))
    new, _, _, groups = table(n=20_000, seed=1)
    assert naive.between_group_share(two.predict(new), groups) == pytest.approx(0.05, abs=0.01)
    difference = np.mean((two.predict(new) - joint.predict(new)) ** 2)
    assert difference < 0.005 * np.var(joint.predict(new))


@pytest.mark.parametrize("kind", sorted(set(CONTAINERS) - {"batches"}))
def test_every_container_gives_the_same(kind, tmp_path):
    x, s, y, _ = table()
    y[::7] = np.nan
    frame = pd.DataFrame(x, columns=list("abcde")).assign(group=s, y=y)
    X, S, Y = contained(kind, frame, tmp_path, X=list("abcde"), S=["group"], y="y")
    model = partial(FairKernelRidge(unfairness=0.05, n_components=20, random_state=0))
    expected = scalefair_clone(model).fit(x, y, sensitive_features=s)
    fit = scalefair_clone(model).fit(X, Y, sensitive_features=S)
    naive.close(fit.coef_, expected.coef_, 1e-9)
    known = s.notna().to_numpy()
    pair = contained(kind, frame[known].reset_index(drop=True), tmp_path, X=list("abcde"), S=["group"])
    two = scalefair_clone(model).fit(frame[list("abcde")], y, sensitive_data=pair)
    assert two.explained_share_ == pytest.approx(0.05, abs=1e-6)


def test_a_checkpoint_goes_with_gaps_and_two_tables(tmp_path):
    x, s, y, _ = table(known=0.5)
    known = s.notna().to_numpy()
    for beside in ({"sensitive_features": s}, {"sensitive_data": (x[known], s[known])}):
        model = partial(FairKernelRidgeCV(unfairness=0.1, feature_map="linear", random_state=0))
        plain = scalefair_clone(model).fit(x, y, **beside)
        with scalefair.config_context(checkpoint=tmp_path / "sums", chunk_rows=50):
            fit = model.fit(x, y, **beside)
        naive.close(fit.coef_, plain.coef_, 1e-9)
        assert not (tmp_path / "sums").exists()


def test_weights_count_as_rows():
    x, s, y, _ = table(n=300)
    weight = np.random.default_rng(2).integers(1, 3, len(x))
    twice = np.repeat(np.arange(len(x)), weight)
    model = partial(FairRidge(eta=2.0))
    fit = scalefair_clone(model).fit(x, y, sensitive_features=s, sample_weight=weight)
    parts = (
        fit.moments_,
        scalefair_clone(model).fit(x[twice], y[twice], sensitive_features=s[twice].reset_index(drop=True)).moments_,
    )
    for name in ("judged", "scored"):
        weighted, repeated = (getattr(part, name) for part in parts)
        naive.close(weighted.covariance("phi", "phi"), repeated.covariance("phi", "phi"), 1e-10)


def test_hidden_columns_of_an_array_may_have_gaps():
    x, s, y, full = table()
    code = (full == "b").astype(float).where(s.notna(), np.nan).to_numpy()
    X = np.column_stack([x, code])
    fit = partial(FairRidge(unfairness=0.05, sensitive_columns=[5], hide_sensitive=True)).fit(X, y)
    apart = partial(FairRidge(unfairness=0.05)).fit(x, y, sensitive_features=code)
    naive.close(fit.coef_, apart.coef_, 1e-10)
    naive.close(fit.predict(X), apart.predict(x), 1e-10)


def test_rows_that_tell_by_x_are_weighted():
    x, _, y, s = table(n=8_000)
    rng = np.random.default_rng(3)
    by_x = rng.random(len(x)) < 1 / (1 + np.exp(2 - 1.5 * x[:, 0]))
    fit = partial(FairRidge(eta=1.0)).fit(x, y, sensitive_features=s.where(by_x, None))
    propensity = fit._design.propensity
    assert isinstance(propensity, Propensity)
    mean, plain = fit.moments_.judged.mean("phi")[0], x[by_x, 0].mean()
    assert abs(mean - x[:, 0].mean()) < 0.2 * abs(plain - x[:, 0].mean())
    naive.close(fit.moments_.judged.mean("phi"), np.average(x[by_x], axis=0, weights=propensity.weights(x[by_x])), 1e-9)
    at_random = s.where(rng.random(len(x)) < 0.2, None)
    assert partial(FairRidge(eta=1.0)).fit(x, y, sensitive_features=at_random)._design.propensity is None


def test_a_base_model_needs_y_alone():
    x, s, y, _ = table(known=0.5)
    base = FairRidge(eta=0.0)
    for model in (FairKernelRidge, FairKernelRidgeCV):
        fit = model(unfairness=0.1, n_components=20, base_estimator=base, random_state=0)
        fit = partial(fit).fit(x, y, sensitive_features=s)
        known = s.notna().to_numpy()
        share = naive.between_group_share(fit.predict(x[known]), s[known])
        assert share < 0.11  # predictions are those of the base model of all rows


def test_units_of_s_do_not_matter():
    x, _, y, _ = table()
    rng = np.random.default_rng(4)
    s = x[:, :2] + rng.normal(size=(len(x), 2))
    s[rng.random(len(x)) < 0.7] = np.nan
    model = partial(FairRidge(unfairness=0.05, sensitive_kernel="linear"))
    fits = [
        scalefair_clone(model).fit(x, y, sensitive_features=s * unit).coef_ for unit in (1.0, np.array([1e3, 1e-2]))
    ]
    naive.close(fits[1], fits[0], 1e-7)


def test_bad_input():
    x, s, y, full = table()
    nobody = pd.DataFrame({"sex": np.full(len(x), None, dtype=object)})
    with refused("'sex'", "600", "sensitive_data") as caught:
        partial(FairRidge(eta=1.0)).fit(x, y, sensitive_features=nobody)
    assert caught.value.column == "sex"
    with refused("2 rows"):
        partial(FairRidge(eta=1.0)).fit(
            x,
            y,
            sensitive_features=full.where(
                full.index.isin([0, 1, 2][:3]) & (full.index != 1) if full[0] != full[2] else two_of(full), None
            ),
        )
    with refused("group"):
        FairRidge(eta=1.0).fit(x, y, sensitive_features=s)
    with refused("y is missing in all 600 rows"):
        partial(FairRidge(eta=1.0)).fit(x, np.full(len(x), np.nan), sensitive_features=s)
    fit = partial(FairRidge(eta=1.0)).fit(x, y, sensitive_features=s)
    with refused("'group'", "'c'"):
        fit.collect(x, y, sensitive_features=s.where(s != "a", "c"))
    visible = pd.DataFrame(x, columns=list("abcde")).assign(group=s)
    with refused("sensitive_columns", "hide_sensitive", "predict"):
        partial(FairKernelRidge(sensitive_columns=["group"])).fit(visible, y)
    with refused("output_kernel"):
        partial(FairRidge(eta=1.0, output_kernel="rbf")).fit(x, y, sensitive_features=s)
    with refused("control_features"):
        partial(FairRidge(eta=1.0)).fit(x, y, sensitive_features=s, control_features=full)
    with refused("exact"):
        partial(FairKernelRidge(feature_map="exact")).fit(x, y, sensitive_features=s)
    with refused("base_estimator"):
        FairRidge(eta=1.0, base_estimator="trees").fit(x, y, sensitive_data=(x, full))


def two_of(groups):
    """A mask of one row of each group."""
    return groups.index.isin([(groups == "a").idxmax(), (groups == "b").idxmax()])


def test_bad_second_tables():
    x, _, y, s = table()
    frame = pd.DataFrame(x, columns=list("abcde"))
    other = frame.rename(columns={"b": "B"})
    with refused("'b'", "'B'", "sensitive_data") as caught:
        FairRidge(eta=1.0).fit(frame, y, sensitive_data=(other, s))
    assert caught.value.column == "b"
    with refused("4 features", "5 features"):
        FairRidge(eta=1.0).fit(x, y, sensitive_data=(x[:, :4], s))
    with refused("cv", "KFold"):
        FairKernelRidgeCV(unfairness=0.1, cv=KFold(3)).fit(x, y, sensitive_data=(x, s))
    with refused("pair"):
        FairRidge(eta=1.0).fit(x, y, sensitive_data=s)
    with refused("sensitive_data[1]", "3"):
        FairRidge(eta=1.0).fit(x, y, sensitive_data=(x, s[:3]))
    for model in (FairKernelRegressor(loss="huber"), FairKernelClassifier()):
        with refused(type(model).__name__, "FairKernelRidgeCV"):
            model.fit(x, y > 0, sensitive_data=(x, s))
    with pytest.raises(TypeError):
        FairGPRegressor().fit(x, y, sensitive_data=(x, s))
