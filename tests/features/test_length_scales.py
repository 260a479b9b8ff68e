"""The median heuristic finds the same length scale for the same rows, whatever map asks for it."""

from __future__ import annotations

import numpy as np
import pytest

from scalefair import FairKernelRidge, FairKernelRidgeCV
from scalefair._hash import row_hash
from scalefair.features.mixed import SAMPLE_ROWS
from scalefair.kernels import median_length_scale
from scalefair.maps import Nystroem, RandomFourier

SIZES = [300, 1500, 2600]
"""Below and above the rows whose pairs are looked at, and those of the sample."""


def problem(n, weighted):
    rng = np.random.default_rng(n)
    # Rounded: some rows are there twice.
    X, S = np.round(rng.normal(size=(n, 2)), 1), np.round(rng.gamma(2.0, size=(n, 2)), 1)
    weight = rng.integers(0, 4, n).astype(float) if weighted else None
    return X, S, X[:, 0] + S[:, 0], weight


def scales(model):
    kernel = model.kernel_ if hasattr(model, "dual_coef_") else model.phi_.kernel_
    return kernel.length_scale, model.psi_.kernel_.length_scale


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_every_feature_map_takes_the_same_length_scales(n, weighted):
    X, S, y, weight = problem(n, weighted)
    given = {"sensitive_features": S, "sample_weight": weight}
    models = [
        FairKernelRidge(feature_map="exact", eta=1.0, random_state=0),
        FairKernelRidge(feature_map="fourier", n_components=20, eta=1.0, random_state=0),
        FairKernelRidge(n_components=20, eta=1.0, random_state=0),
        FairKernelRidge(n_components=20, n_sensitive_components=600, eta=1.0, random_state=0),
        FairKernelRidgeCV(n_components=20, etas=[1.0], alphas=[1.0], random_state=0),
    ]
    first, *others = (scales(model.fit(X, y, **given)) for model in models)
    assert others == [first] * (len(models) - 1)


@pytest.mark.parametrize("n", SIZES)
def test_the_median_is_that_of_the_rows_of_smallest_hash(n):
    """Up to 1,000 distinct rows remain: their median by the definition itself."""
    X, S, y, weight = problem(n, weighted=True)
    X = X[:, :1]
    model = FairKernelRidge(n_components=900, eta=1.0, random_state=5)
    model.fit(X, y, sensitive_features=S, sample_weight=weight)
    present = np.flatnonzero(weight)
    chosen = present[np.argsort(row_hash(5, present))[:SAMPLE_ROWS]]
    expected = median_length_scale(X[chosen], weight[chosen])
    assert model.phi_.kernel_.length_scale == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("scale", ["median", "standardized"])
def test_the_maps_themselves_agree_in_any_order_of_rows(scale):
    X, _, _, weight = problem(2600, weighted=True)
    order = np.random.default_rng(0).permutation(len(X))
    found = [
        cls(length_scale=scale, n_components=10, random_state=1).fit(rows, sample_weight=w)
        for cls in (Nystroem, RandomFourier)
        for rows, w in ((X, weight), (X[order], weight[order]))
    ]
    assert len({feature_map.kernel_ for feature_map in found}) == 1
