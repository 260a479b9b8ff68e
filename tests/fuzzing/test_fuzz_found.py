"""What fuzzing found, one by one: each raised an error that nobody wrote, or worse."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import LinAlgWarning

from scalefair import FairKernelClassifier, FairKernelRegressor, FairKernelRidge, FairRidge, audit, measures
from scalefair.features.landmarks import kmeans_plus_plus
from scalefair.kernels import RBF, Laplace, Matern
from scalefair.maps import Nystroem, RandomFourier
from tests.errors import refused
from tests.models import fit_within


def rows(n=30):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + rng.normal(size=n), rng.integers(0, 2, n)


@pytest.mark.parametrize("where", ["X", "y", "sample_weight", "sensitive_features"])
def test_numbers_too_large_to_square(where):
    X, y, s = rows()
    given = {"X": X, "y": y, "sample_weight": np.ones(30), "sensitive_features": s.astype(float)}
    given[where] = given[where].copy()
    given[where][3] = 1e155
    with refused("1e+75"):
        FairRidge().fit(**given)


def test_numbers_too_large_to_square_in_predict():
    X, y, s = rows()
    for options in ({}, {"dtype": "float32"}):
        model = FairKernelRidge(random_state=0)
        fit_within(options, model, X, y, sensitive_features=s)
        for value in (1e200, 1e20 if options else 1e80):
            with refused("1e+"):
                model.predict(np.full((1, 2), value))


def test_float32_rows_that_overflow_in_fit():
    X, y, s = rows()
    with refused("float32", "X", "1e+15"):
        fit_within({"dtype": "float32"}, FairRidge(), X * 1e20, y, sensitive_features=s)


@pytest.mark.parametrize("kernel", [RBF(1e-160), Matern(1e-160), Laplace(1e-320)])
def test_length_scales_too_small_for_the_data(kernel):
    with refused("length_scale", "X"):
        kernel(rows()[0])
    with refused("length_scale", "X"):
        kernel.against(rows()[0])(rows()[0], np.empty((30, 30)))


def test_a_length_scale_beyond_float32():
    """It warned of an overflow in a cast; the kernel is 1 everywhere, as in float64."""
    X = rows()[0].astype(np.float32)
    for kernel in (RBF(1e200), Matern((1.0, 1e200)), Laplace(1e200)):
        np.testing.assert_allclose(kernel(X), kernel(X.astype(np.float64)), rtol=1e-5)


@pytest.mark.parametrize("eta", [1e50, 1e300])
@pytest.mark.parametrize("penalty", ["normalized", "hsic", "nocco", "nocco_output"])
@pytest.mark.parametrize("kind", [FairRidge, FairKernelRegressor])
def test_weights_too_large_to_compute_with(kind, penalty, eta):
    """They overflowed, or gave a constant."""
    X, y, s = rows()
    with refused("eta", "1e"):
        kind(eta=eta, penalty=penalty).fit(X, y, sensitive_features=s)


def test_a_loss_without_a_limit():
    """It went on with infinite numbers; a limit on the share is no infinite weight."""
    X, y, s = rows()
    given = {"penalty": "nocco_output", "random_state": 0}
    with refused("eta=inf"):
        FairKernelRegressor(eta=np.inf, **given).fit(X, y, sensitive_features=s)
    fair = FairKernelRegressor(unfairness=0.01, **given).fit(X, y, sensitive_features=s)
    assert fair.output_share_ <= 0.01 + 1e-6


def test_no_direction_is_left():
    """A decrement of 1e160 was squared."""
    X = np.array([[0.12573022], [-0.13210486], [0.64042265], [0.10490012]])
    model = FairKernelRegressor(loss="quantile", eta=np.inf, alpha=1e-3, n_components=1, random_state=0)
    with pytest.warns(LinAlgWarning, match="0.0 digits"):
        model.fit(X, X[:, 0], sensitive_features=np.array([2, 1, 1, 0]))
    assert np.ptp(model.predict(X)) < 1e-6


def test_angles_without_digits():
    """cos(1e18 x) depended on which rows were beside x."""
    with refused("float64"):
        RandomFourier(length_scale=1e-18).fit(rows()[0])
    fitted = RandomFourier(length_scale=1e-6, random_state=0).fit(rows()[0])
    with refused("float64"):
        fitted.transform(1e12 * rows()[0])


def test_a_level_that_only_rows_of_weight_zero_have():
    s = np.array(["a", "b"] * 40 + ["c", "c"])
    weight = np.array([1.0] * 80 + [0.0, 0.0])
    y = np.random.default_rng(0).normal(size=82)
    found = audit(y, sensitive_features=s, sample_weight=weight, measures=["hsic"])
    without = audit(y[:80], sensitive_features=s[:80], measures=["hsic"])
    assert found.table.equals(without.table)


def test_weights_too_large_to_multiply():
    X, y, s = rows()
    for measure in (measures.hsic, measures.explained_share, measures.distance_correlation):
        with refused("sample_weight", "1e+75"):
            measure(y, s, sample_weight=np.full(30, 1e200))
    with refused("sample_weight", "1e+75"):
        measures.group_gaps(y, sensitive_features=s, sample_weight=np.full(30, 1e200))
    with refused("sample_weight", "1e+75"):
        Nystroem().fit(X, sample_weight=np.full(30, 1e200))


@pytest.mark.parametrize("size", [1e-155, 1e-160, 1e-300])
def test_distances_whose_squares_vanish(size):
    X, y, _ = rows()
    plain = measures.distance_correlation(X, y)
    try:
        tiny = measures.distance_correlation(X * size, y)
    except ValueError as error:
        assert "rescale it" in str(error)  # noqa: PT017
    else:
        assert tiny == pytest.approx(plain, rel=1e-6)


def test_weights_that_leave_one_row():
    """Centred, 1e-13 of the weight is rounding error, and an angle would be 0/0."""
    a = np.array([0.12573022, -0.13210486])
    with refused("weight"):
        measures.alignment(a, a, sample_weight=[1.61220083e07, 2.02560054e-06])


def test_predictions_that_differ_between_folds_only():
    """Within each fold f is constant: nothing of its variance is left to explain."""
    s = [0.12573022, -0.13210486, 0.64042265, 0.10490012]
    with refused("cv=2"):
        measures.explained_share([2.0, 0.0, 0.0, 2.0], s, cv=2)


def test_landmarks_of_rows_that_hardly_differ():
    """Squared distances of 1e-312 do not add up to 1 when divided by their sum."""
    X = rows()[0] * 1e-4
    chosen = kmeans_plus_plus(RBF(), X, np.full(30, 1e-304), 5, 0)
    assert len(set(chosen)) == 5


def test_constant_predictions_have_no_distribution():
    y, s = np.array([0, 1] * 10), np.array(["a", "b", "c", "c"] * 5)
    model = FairKernelClassifier(penalty="nocco_output", unfairness=0.0, fit_intercept=False, length_scale=1.0)
    with refused("constant"):
        model.fit(np.zeros((20, 3)), y, sensitive_features=s)


def test_the_smallest_of_weights_has_no_inverse():
    X, y, s = rows()
    tiny, none = (FairRidge(eta=eta).fit(X, y, sensitive_features=s) for eta in (2e-309, 0.0))
    np.testing.assert_array_equal(tiny.predict(X), none.predict(X))


def test_a_chunk_of_weight_zero_with_control_features():
    X, y, s = rows()
    weight = np.r_[np.ones(24), np.zeros(6)]
    control = np.arange(30) % 5
    given = {"sensitive_features": s, "sample_weight": weight, "control_features": control}
    model, whole = (
        fit_within({"chunk_rows": rows}, FairKernelRidge(n_components=6, random_state=0), X, y, **given)
        for rows in (6, None)
    )
    np.testing.assert_allclose(model.predict(X), whole.predict(X), rtol=1e-10)
