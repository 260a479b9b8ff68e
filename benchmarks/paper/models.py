"""Fair kernel ridge and fair Gaussian processes on the real tables, exact and of low rank.

Each function returns predictions for the test rows at every weight, shape (rows, len(etas)), for
every way to choose length scale and ridge: "" is the paper's as we read it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from benchmarks.paper.data import Sample, gram, sensitive_kernel
from benchmarks.paper.ridge import Grid, chosen, cross_validated
from scalefair._typing import Array
from scalefair.estimators import FairGPRegressor, FairKernelRidgeCV
from scalefair.kernels import median_length_scale

Predictions = dict[str, Array]

ONCE, EVEN = ", tuned at η = 0", ", even grid"
"""Chosen once, without penalty; chosen from 15 ridges α that are evenly spaced, not in ratio."""

RIDGES = np.geomspace(np.exp(-15.0), 1.0, 15)
"""λ of the paper, nα here."""

EVEN_RIDGES = np.linspace(np.exp(-15.0), 1.0, 15)
"""The other reading of "15 values between e^-15 and 1": evenly spaced, and λ the α of section 5."""

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


def exact_ridge(train: Sample, test: Sample, etas: Array, seed: int) -> Predictions:
    """The paper's KRR: 5-fold cross-validation over 11 length scales and 15 ridges at each η."""
    X, X_new = train.X.to_numpy(), test.X.to_numpy()
    grid = Grid(drawn_length_scales(X, seed), RIDGES / len(X), etas)
    found = cross_validated(X, train.y, gram(train.s), X_new, grid, choices=("anew", "once"))
    return {"": found["hsic", "anew"], ONCE: found["hsic", "once"]}


def exact_process(train: Sample, test: Sample, etas: Array) -> Predictions:
    """The paper's GP: length scale, amplitude and noise by the evidence at each η."""
    return _processes(train, test, etas, feature_map="exact", random_state=0)


def low_rank_ridge(train: Sample, test: Sample, etas: Array, seed: int, **options: Any) -> Predictions:
    """The same search from the moments of Nyström features; one pass for each length scale."""
    X, X_new = train.X.to_numpy(), test.X.to_numpy()
    alphas = np.unique(np.concatenate([RIDGES / len(X), EVEN_RIDGES]))
    fits = [
        FairKernelRidgeCV(
            alphas=alphas,
            etas=etas,
            length_scale=float(length_scale),
            penalty="hsic",
            random_state=seed,
            sensitive_kernel=sensitive_kernel(train.s),
            **options,
        ).fit(X, train.y, sensitive_features=train.s)
        for length_scale in drawn_length_scales(X, seed)
    ]
    errors = np.stack([fit.cv_results_["mse"].mean(axis=0) for fit in fits])
    return {
        name: np.column_stack(
            [
                fits[i].path_.at(alpha=float(alphas[a]), eta=float(eta)).predict(X_new)
                for (i, a), eta in zip(pairs, etas, strict=True)
            ]
        )
        for name, pairs in _choices(errors, np.isin(alphas, EVEN_RIDGES)).items()
    }


def _choices(errors: Array, even: NDArray[np.bool_]) -> dict[str, list[tuple[int, int]]]:
    """Length scale and ridge for every weight, in three ways; `even` marks the even grid."""
    in_ratio = np.where(even[:, None], np.inf, errors)
    return {
        "": chosen(in_ratio, "anew"),
        ONCE: chosen(in_ratio, "once"),
        EVEN: chosen(np.where(even[:, None], errors, np.inf), "anew"),
    }


def low_rank_process(train: Sample, test: Sample, etas: Array, seed: int, **options: Any) -> Predictions:
    """Evidence from the moments of Nyström features."""
    return _processes(train, test, etas, random_state=seed, **options)


def _processes(train: Sample, test: Sample, etas: Array, **options: Any) -> Predictions:
    """One process for every weight, each search starting where the last one ended."""
    predictions, start = [], "median"
    for eta in etas:
        model = fitted_process(train.X.to_numpy(), train.s, train.y, eta=float(eta), length_scale=start, **options)
        start = model.kernel_.length_scale
        predictions.append(model.predict(test.X.to_numpy()))
    return {"": np.column_stack(predictions)}


def fitted_process(X: Any, s: Any, y: Array, **options: Any) -> FairGPRegressor:
    """Gaussian process with the HSIC penalty and the paper's kernel on s."""
    model = FairGPRegressor(penalty="hsic", sensitive_kernel=sensitive_kernel(s), **options)
    with warnings.catch_warnings():
        # Length scales of inputs without use run to their bound, and the search says so.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y, sensitive_features=s)
    return model
