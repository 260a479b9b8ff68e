"""Another method as an oracle: mean parity in an RKHS, as a constrained kernel ridge regression."""

from __future__ import annotations

import numpy as np
import pytest

from scalefair import FairKernelRidge
from scalefair.kernels import RBF


def mean_parity(K, y, s, alpha):
    """min |y − b − Kc|²/n + α cᵀKc with equal means of f in all groups: its KKT system, solved."""
    n, groups = len(y), np.unique(s)
    means = np.array([(s == g) / (s == g).sum() - 1 / n for g in groups[1:]])  # a row: E[f|g] − E f
    A = means @ K
    top = np.hstack([K @ K / n + alpha * K, (K.mean(axis=1))[:, None], A.T])
    middle = np.hstack([K.mean(axis=0)[None], [[1.0]], np.zeros((1, len(A)))])
    low = np.hstack([A, np.zeros((len(A), 1 + len(A)))])
    right = np.concatenate([K @ y / n, [y.mean()], np.zeros(len(A))])
    solution = np.linalg.lstsq(np.vstack([top, middle, low]), right, rcond=1e-14)[0]
    return solution[:n], solution[n]


@pytest.mark.parametrize("n_groups", [2, 3])
def test_an_infinite_weight_is_mean_parity_in_the_rkhs(n_groups):
    rng = np.random.default_rng(0)
    s = rng.integers(0, n_groups, 120)
    X = rng.normal(size=(120, 2)) + 0.7 * s[:, None]
    y = np.sin(X[:, 0]) + s + 0.1 * rng.normal(size=120)
    new = rng.normal(size=(50, 2))
    kernel = RBF(1.3)
    c, b = mean_parity(kernel(X, X), y, s, 1e-2)
    model = FairKernelRidge(feature_map="exact", kernel=kernel, alpha=1e-2, eta=1e9)
    model.fit(X, y, sensitive_features=s.astype(str))
    np.testing.assert_allclose(model.predict(new), kernel(new, X) @ c + b, atol=1e-5)
    f = model.predict(X)
    means = [f[s == g].mean() for g in range(n_groups)]
    assert np.ptp(means) < 1e-6
