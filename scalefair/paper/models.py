"""Fair kernel ridge and fair Gaussian processes on the real tables, exact and of low rank.

Each function returns predictions for the test rows at every weight, shape (rows, len(etas)).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from scalefair._typing import Array
from scalefair.estimators import FairGPRegressor, FairKernelRidgeCV
from scalefair.kernels import median_length_scale
from scalefair.paper.data import SENSITIVE_LENGTH_SCALE, Sample, gram
from scalefair.paper.ridge import Grid, cross_validated

RIDGES = np.geomspace(np.exp(-15.0), 1.0, 15)
"""λ of the paper, nα here."""

DRAWS, SPREAD = 10, 0.5
"""Length scales drawn around the median heuristic, and the deviation of their logarithm."""

SAMPLE = 2000
"""Rows for the median heuristic."""


def drawn_length_scales(X: Array, seed: int) -> Array:
    """The median heuristic and ten draws around it, shape (11,)."""
    rng = np.random.default_rng(seed)
    sample = X[rng.permutation(len(X))[:SAMPLE]]
    factors = np.exp(SPREAD * np.concatenate([[0.0], rng.standard_normal(DRAWS)]))
    return np.asarray(median_length_scale(sample) * factors)


def exact_ridge(train: Sample, test: Sample, etas: Array, seed: int) -> Array:
    """The paper's KRR: 5-fold cross-validation over 11 length scales and 15 ridges at each η."""
    X, X_new = train.X.to_numpy(), test.X.to_numpy()
    grid = Grid(drawn_length_scales(X, seed), RIDGES / len(X), etas)
    return cross_validated(X, train.y, gram(train.s), X_new, grid)["hsic", "anew"]


def exact_process(train: Sample, test: Sample, etas: Array) -> Array:
    """The paper's GP: length scale, amplitude and noise by the evidence at each η."""
    return _processes(train, test, etas, feature_map="exact", random_state=0)


def low_rank_ridge(train: Sample, test: Sample, etas: Array, seed: int, **options: Any) -> Array:
    """The same search as `exact_ridge` from the moments of Nyström features, one pass each."""
    X = train.X.to_numpy()
    best = np.full(len(etas), np.inf)
    found = np.empty((len(test.y), len(etas)))
    for length_scale in drawn_length_scales(X, seed):
        model = FairKernelRidgeCV(
            alphas=RIDGES / len(X), etas=etas, length_scale=float(length_scale), penalty="hsic",
            random_state=seed, **_sensitive(train), **options,
        ).fit(X, train.y, sensitive_features=train.s)  # fmt: skip
        errors = model.cv_results_["mse"].mean(axis=0)
        for place in np.flatnonzero(errors.min(axis=0) < best):
            alpha = model.cv_results_["alphas"][errors[:, place].argmin()]
            best[place] = errors[:, place].min()
            fitted = model.path_.estimator(float(alpha), float(etas[place]))
            found[:, place] = fitted.predict(test.X.to_numpy())
    return found


def low_rank_process(train: Sample, test: Sample, etas: Array, seed: int, **options: Any) -> Array:
    """Evidence from the moments of Nyström features."""
    return _processes(train, test, etas, random_state=seed, **options)


def _processes(train: Sample, test: Sample, etas: Array, **options: Any) -> Array:
    """One process for every weight, each search starting where the last one ended."""
    found, start = [], "median"
    for eta in etas:
        model = FairGPRegressor(
            length_scale=start, penalty="hsic", eta=float(eta), **_sensitive(train), **options
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(train.X.to_numpy(), train.y, sensitive_features=train.s)
        start = model.kernel_.length_scale
        found.append(model.predict(test.X.to_numpy()))
    return np.column_stack(found)


def _sensitive(train: Sample) -> dict[str, Any]:
    """Kernel on s: groups are exact, numbers as in the paper."""
    if train.s.ndim == 1:
        return {"sensitive_kernel": "categorical"}
    return {"sensitive_kernel": "rbf", "sensitive_length_scale": SENSITIVE_LENGTH_SCALE}
