"""Numerical honesty: what rounding leaves is said, and fewer than four digits are warned of."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy.linalg import LinAlgError, LinAlgWarning, hilbert
from sklearn.base import clone

from scalefair import FairGPRegressor, FairKernelRidge, FairRidge
from scalefair.solve.fit import Diagnostics, diagnose, of_eigenvalues, single_rounding
from tests.errors import refused
from tests.models import MODELS, fit_within, fitted


def rational_solution(A, b):
    """Solve A x = b in fractions: the exact answer for the numbers given."""
    rows = [[Fraction(float(v)) for v in [*row, right]] for row, right in zip(A, b, strict=True)]
    n = len(rows)
    for i in range(n):
        pivot = next(j for j in range(i, n) if rows[j][i] != 0)
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in range(n):
            if j != i:
                rows[j] = [a - rows[j][i] * c for a, c in zip(rows[j], rows[i], strict=True)]
    return np.array([float(row[-1]) for row in rows])


def exact_ridge(X, y, alpha):
    """Ridge with an intercept in fractions, from the rows themselves."""
    F = np.vectorize(Fraction, otypes=[object])
    X, y, n = F(X.astype(float)), F(y.astype(float)), len(X)
    X, y = X - X.sum(axis=0) / n, y - y.sum() / n
    A = X.T @ X / n + Fraction(alpha) * F(np.eye(X.shape[1]))
    rows = [[*row, right] for row, right in zip(A.tolist(), (X.T @ y / n).tolist(), strict=True)]
    for i in range(len(rows)):
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in range(len(rows)):
            if j != i:
                rows[j] = [a - rows[j][i] * c for a, c in zip(rows[j], rows[i], strict=True)]
    return np.array([float(row[-1]) for row in rows])


def quiet(model, *data, **options):
    """Fit without the warning that the test is not about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinAlgWarning)
        return model.fit(*data, **options)


@pytest.mark.parametrize("name", MODELS)
def test_every_fit_says_what_it_is_worth(name):
    found = fitted(name).diagnostics_
    assert isinstance(found, Diagnostics)
    assert found.condition >= 1
    assert found.jitter == 0
    assert found.digits >= (2 if name == "float32" else 4)
    assert found.rank is None or 1 <= found.rank <= found.n_features


@pytest.mark.parametrize("m", [2, 4, 6, 8])
def test_condition_and_digits_of_hilbert_matrices(m):
    """Of a matrix whose condition is known, and whose solution is known exactly."""
    A, b = hilbert(m), np.ones(m)
    found = diagnose(A, A, scaled=False)
    exact = np.linalg.cond(A, 1)
    assert exact / 3 <= found.condition <= 3 * exact
    error = np.abs(np.linalg.solve(A, b) / rational_solution(A, b) - 1).max()
    assert -np.log10(error + 1e-17) >= found.digits - 0.5
    assert found.rank == m


def test_digits_of_units_are_not_lost():
    """A Cholesky factor stands any scaling of the columns, and its condition number says so."""
    rng = np.random.default_rng(0)
    B = rng.normal(size=(6, 6))
    A = B @ B.T + np.eye(6)
    D = np.diag(10.0 ** np.arange(-15, 15, 5))
    plain, scaled = diagnose(A, A), diagnose(D @ A @ D, D @ A @ D)
    assert scaled.condition == pytest.approx(plain.condition, rel=1e-6)
    assert diagnose(D @ A @ D, A, scaled=False).digits < 4


def test_eigenvalues_and_factors_agree():
    rng = np.random.default_rng(1)
    B = rng.normal(size=(40, 8)) * np.logspace(0, -3, 8)
    C = B.T @ B / 40
    by_values = of_eigenvalues(np.linalg.eigvalsh(C), 1e-5)
    by_factor = diagnose(C + 1e-5 * np.eye(8), C, scaled=False)
    assert by_values.condition / 8 <= by_factor.condition <= 8 * by_values.condition
    assert by_values.rank == by_factor.rank == 8


def rows(n=60, d=4):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, d))
    s = (rng.random(n) > 0.5).astype(int)
    return X, X @ np.arange(1.0, d + 1) + s, s


def test_columns_1e12_apart():
    """Fifteen digits of the exact ridge fit, in spite of a condition number of 1e48."""
    X, y, _ = rows()
    X = X * np.array([1e-12, 1.0, 1e6, 1e12])
    model = FairRidge(eta=0.0, alpha=1e-3).fit(X, y)
    np.testing.assert_allclose(model.coef_, exact_ridge(X, y, 1e-3), rtol=1e-11)
    assert model.diagnostics_.digits > 12


def test_columns_1e12_apart_and_fair():
    """The penalty works in the same units: scaled back, the fit is that of the plain columns."""
    X, y, s = rows()
    scale = np.array([1e-12, 1.0, 1e6, 1e12])
    plain = FairRidge(eta=1.0, alpha=0.0).fit(X, y, sensitive_features=s)
    wide = FairRidge(eta=1.0, alpha=0.0).fit(X * scale, y, sensitive_features=s)
    np.testing.assert_allclose(wide.coef_ * scale, plain.coef_, rtol=1e-9)
    np.testing.assert_allclose(wide.predict(X * scale), plain.predict(X), rtol=1e-9)
    assert wide.explained_share_ == pytest.approx(plain.explained_share_, rel=1e-9)


def test_a_limit_with_columns_1e12_apart_is_met_or_refused():
    X, y, s = rows()
    X = X * np.array([1e-12, 1.0, 1e6, 1e12])
    try:
        model = quiet(FairRidge(unfairness=0.01), X, y, sensitive_features=s)
    except (LinAlgError, ValueError) as error:
        assert "alpha" in str(error)  # noqa: PT017
    else:
        assert model.explained_share_ <= 0.01 + 1e-6
        assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("kind", ["twice", "sum", "constant"])
def test_rank_deficient_columns(kind):
    """The ridge decides: finite, fair, and the rank is said; without it a warning or a refusal."""
    X, y, s = rows()
    more = {"twice": X[:, :1], "sum": X.sum(axis=1, keepdims=True), "constant": np.ones((60, 1))}
    X = np.hstack([X, more[kind]])
    model = FairRidge(eta=1.0).fit(X, y, sensitive_features=s)
    assert (model.diagnostics_.rank, model.diagnostics_.n_features) == (4, 5)
    assert model.diagnostics_.digits > 10
    if kind == "twice":
        assert model.coef_[0] == pytest.approx(model.coef_[-1], rel=1e-9)
    bare = FairRidge(eta=1.0, alpha=0.0)
    with pytest.warns(LinAlgWarning):
        bare.fit(X, y, sensitive_features=s)
    assert bare.diagnostics_.jitter > 0
    assert bare.diagnostics_.digits < 4
    assert np.isfinite(bare.predict(X)).all()


@pytest.mark.parametrize("options", [{"eta": 1.0}, {"unfairness": 0.05}, {"eta": np.inf}])
def test_fewer_rows_than_features(options):
    X, y, s = rows(n=12, d=4)
    for model in (
        FairKernelRidge(feature_map="fourier", n_components=100, random_state=0, **options),
        FairRidge(**options).set_params(alpha=1e-2),
    ):
        Z = np.hstack([X] * 6) if isinstance(model, FairRidge) else X
        model.fit(Z, y, sensitive_features=s)
        found = model.diagnostics_
        assert found.rank <= 11 < found.n_features
        assert found.digits > 8
        assert np.isfinite(model.predict(Z)).all()


@pytest.mark.parametrize(
    "model",
    [
        FairRidge(eta=1.0),
        FairKernelRidge(eta=1.0, length_scale=1.0),
        FairKernelRidge(eta=1.0, feature_map="fourier", n_components=10, length_scale=1.0),
        FairKernelRidge(eta=1.0, feature_map="exact", length_scale=1.0),
    ],
    ids=repr,
)
def test_all_rows_equal(model):
    """Nothing to learn from X: the mean of y for everybody, and a rank that says so."""
    _, y, s = rows()
    X = np.full((60, 3), 0.1)
    model.fit(X, y, sensitive_features=s)
    np.testing.assert_allclose(model.predict(X), y.mean(), rtol=1e-9)
    assert model.diagnostics_.rank <= 1


def test_median_of_equal_rows_is_refused():
    _, y, s = rows()
    with refused("length_scale", error=ValueError):
        FairKernelRidge().fit(np.ones((60, 3)), y, sensitive_features=s)


def test_single_precision_is_judged_by_its_own_rounding():
    X, y, s = rows(n=400)
    noise = np.random.default_rng(5).normal(size=(400, 1))
    X = np.hstack([X, X[:, :1] + 2e-3 * noise])
    model = FairRidge(eta=1.0, alpha=1e-9)
    double = clone(model).fit(X, y, sensitive_features=s)
    with pytest.warns(LinAlgWarning, match="dtype='float64'"):
        single = fit_within({"dtype": "float32"}, model, X, y, sensitive_features=s)
    assert double.diagnostics_.digits > 6 > 4 > single.diagnostics_.digits
    assert single_rounding(100) == pytest.approx(2.0**-24 / 10)


def test_a_process_with_hardly_any_noise_says_so():
    X, y, _s = rows(n=30, d=1)
    options = {"optimizer": None, "amplitude": 1.0, "length_scale": 5.0, "n_components": 30}
    with pytest.warns(LinAlgWarning, match="FairGPRegressor"):
        FairGPRegressor(noise=1e-12, eta=0.0, **options).fit(X, y)
    assert FairGPRegressor(noise=0.1, eta=0.0, **options).fit(X, y).diagnostics_.digits > 10
