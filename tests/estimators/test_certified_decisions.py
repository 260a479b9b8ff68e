"""Certified rates of decisions, in a population whose rates are known to any precision."""

from __future__ import annotations

import numpy as np
import pytest

from scalefair import Decisions, FairKernelClassifierCV, FairKernelRegressorCV, NotCertifiedError
from tests.errors import refused

OPTIONS = {"n_components": 20, "alphas": [1e-3], "cv": 3}


def people(n, seed):
    """Return inputs that carry the group, a score and the group: three of unequal size."""
    rng = np.random.default_rng(seed)
    g = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    X = rng.normal(size=(n, 2))
    X[:, 0] += 0.5 * g
    return X, X[:, 0] + X[:, 1] + rng.normal(size=n), np.array(["a", "b", "c"])[g]


def largest_gap(decided, s):
    return np.ptp([np.mean(decided[s == g]) for g in "abc"])


@pytest.mark.parametrize("visible", [False, True])
def test_the_rule_is_certified_and_keeps_its_limit(visible):
    X, y, s = people(4000, 0)
    fresh, _, s_fresh = people(100_000, 1)

    def see(X, s):
        return np.column_stack([X, np.unique(s, return_inverse=True)[1]]) if visible else X

    model = FairKernelClassifierCV(
        limit_on="decisions", unfairness=0.15, confidence=0.9, random_state=0, **OPTIONS
    ).fit(see(X, s), y > 0.5, sensitive_features=s)
    made = model.certificate_
    assert (made.limit_on, made.method, made.limit, made.confidence) == ("decisions", "split", 0.15, 0.9)
    assert 1500 < made.rows < 1700  # four of ten calibrate
    assert made.estimate <= made.upper_bound <= 0.15
    gap = largest_gap(model.predict(see(fresh, s_fresh)), s_fresh)
    assert gap <= 0.15
    assert abs(made.estimate - gap) < 0.08
    assert 0.3 < model.predict(see(fresh, s_fresh)).mean() < 0.7


def test_what_cannot_be_certified():
    X, y, s = people(1000, 0)
    asked = {"confidence": 0.95, "random_state": 0, **OPTIONS}
    with pytest.raises(NotCertifiedError) as caught:
        FairKernelClassifierCV(limit_on="decisions", unfairness=0.01, **asked).fit(X, y > 0.5, sensitive_features=s)
    assert caught.value.least_limit > 0.01
    for more in ({"limit_on": "odds"}, {"limit_on": "decisions", "guarantee": "cross"}):
        with refused("confidence", "certify", error=ValueError):
            FairKernelClassifierCV(unfairness=0.1, **more, **asked).fit(X, y > 0.5, sensitive_features=s)


def test_a_threshold_of_a_regression():
    X, y, s = people(3000, 0)
    fresh, _, s_fresh = people(100_000, 1)
    model = FairKernelRegressorCV(
        limit_on=Decisions(threshold=0.5), unfairness=0.2, confidence=0.9, random_state=0, **OPTIONS
    ).fit(X, y, sensitive_features=s)
    assert model.certificate_.upper_bound <= 0.2
    assert largest_gap(model.decide(fresh), s_fresh) <= 0.2


@pytest.mark.slow
def test_violations_are_rare():
    """A rule above the limit is certified in at most a tenth of the draws, and 3 errors."""
    fresh, _, s_fresh = people(100_000, 10**6)
    above = []
    for seed in range(60):
        X, y, s = people(1000, seed)
        model = FairKernelClassifierCV(
            limit_on="decisions", unfairness=0.2, confidence=0.9, random_state=seed, **OPTIONS
        )
        try:
            model.fit(X, y > 0.5, sensitive_features=s)
        except NotCertifiedError:
            above.append(False)
            continue
        above.append(largest_gap(model.predict(fresh), s_fresh) > 0.2)
    assert np.mean(above) <= 0.1 + 3 * np.sqrt(0.09 / len(above))
