"""The paper's ARD table: what is computed, and that its claims hold."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests import naive

# At the end, so that an installed scalefair goes before the one of the checkout.
sys.path.append(str(Path(__file__).resolve().parents[1]))
ard = import_module("benchmarks.paper.ard")


def test_scores_are_the_definitions():
    train, test = ard.split(ard.load(), seed=0, rows=80)
    model = ard.fit(train, eta=5.0, max_iter=2)
    found = ard.scores(model, test)
    f, n = model.predict(test.X), len(test.y)
    H = naive.centring(n)
    L = np.exp(-np.sum((test.s[:, None] - test.s) ** 2, axis=2) / (2 * 0.5**2))
    assert found["HSIC"] == pytest.approx(np.trace(np.outer(f, f) @ H @ L @ H) / n**2)
    assert found["RMSE"] == pytest.approx(np.linalg.norm(f - test.y) / np.sqrt(n))
    assert list(found) == list(ard.PRINTED)
    # exp(−Σ(x − z)²/θ²) is the kernel that the model has.
    theta = np.sqrt(2) * np.array(model.kernel_.length_scale)
    a, b = test.X.to_numpy()[:2]
    scaled = model.kernel_(a[None], b[None])[0, 0] / model.amplitude_**2
    assert scaled == pytest.approx(np.exp(-np.sum((a - b) ** 2 / theta**2)))
    assert found["racePctWhite"] == pytest.approx(theta[list(test.X).index("racePctWhite")])


def test_the_splits_do_not_overlap():
    crime = ard.load()
    assert crime.X.shape == (1993, 100)
    np.testing.assert_allclose([crime.y.mean(), crime.y.std()], [0, 1], atol=1e-12)
    train, test = ard.split(crime, seed=1, rows=1594)
    assert len(train.y) == 1594
    assert not set(train.X.index) & set(test.X.index)


def printed():
    models = zip(("GP", "fair GP"), (0, 1), strict=True)
    return pd.DataFrame(
        {"split": 0, "model": name, **{key: pair[at] for key, pair in ard.PRINTED.items()}}
        for name, at in models
    )


def test_the_printed_table_fulfils_its_own_claims():
    assert all(ard.claims(printed()).values())
    assert "length scales grow of most of the ten inputs (8)" in ard.claims(printed())
    swapped = printed().replace({"GP": "fair GP", "fair GP": "GP"})
    assert not any(ard.claims(swapped).values())
    table = ard.beside_the_print(printed())
    np.testing.assert_allclose(table["fair GP"], table["fair GP printed"])


@pytest.mark.slow
def test_unfairness_falls_and_the_error_rises_on_a_subset():
    """Which length scales grow depends on the split: see results/paper_ard.csv."""
    found = ard.claims(ard.trials(3, rows=400, eta=100.0))
    assert found["unfairness falls more than tenfold"]
    assert found["RMSE rises"]
