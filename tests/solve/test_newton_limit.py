"""General losses under a limit that no eta meets."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from scalefair import FairKernelClassifier


@pytest.mark.parametrize("seed", range(3))
def test_beyond_the_path_it_is_the_optimum_within_the_limit(seed):
    """y = s: along every eta the share stays what it is while f shrinks."""
    rng = np.random.default_rng(seed)
    s = rng.normal(size=400)
    X = np.column_stack([s + rng.normal(size=400), 0.5 * s + rng.normal(size=400)])
    y = (s > 0).astype(float)
    alpha, limit = 1e-3, 0.15
    model = FairKernelClassifier(feature_map="linear", unfairness=limit, alpha=alpha)
    model.fit(X, y, sensitive_features=y > 0)
    assert model.eta_ == np.inf
    centred, groups = X - X.mean(axis=0), y > 0
    between = np.outer(*[centred[groups].mean(axis=0)] * 2) * groups.mean() / (1 - groups.mean())
    C = np.cov(X.T, bias=True)

    def value(theta):
        f = centred @ theta[:2] + theta[2]
        return np.mean(np.logaddexp(0, f) - y * f) + alpha * theta[:2] @ theta[:2]

    def within(theta):
        return limit * theta[:2] @ C @ theta[:2] - theta[:2] @ between @ theta[:2]

    coef = model.coef_.ravel()
    ours = np.append(coef, model.intercept_ + X.mean(axis=0) @ coef)
    assert abs(within(ours)) < 1e-9
    constraint = {"type": "ineq", "fun": within}
    options = {"ftol": 1e-15, "maxiter": 500}
    best = minimize(value, ours, constraints=constraint, method="SLSQP", options=options)
    assert value(ours) <= best.fun + 1e-9
    # The limit is a cone: each of its rays has an optimum of its own, of about the same value.
    starts = np.random.default_rng(0).normal(size=(20, 3))
    others = [minimize(value, start, constraints=constraint, method="SLSQP", options=options) for start in starts]
    assert value(ours) <= 1.01 * min(other.fun for other in others if within(other.x) > -1e-9)
