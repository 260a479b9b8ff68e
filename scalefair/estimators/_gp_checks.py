"""Parameters of the Gaussian process: what is allowed, and errors that name value and remedy."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalefair._checks import (
    FINITE,
    TINY,
    check_choice,
    check_count,
    check_flag,
    check_number,
    check_penalty,
    check_weight_or_limit,
)
from scalefair._typing import Array
from scalefair.estimators._maps import check_maps


def check_process(estimator: Any) -> None:
    """Check all parameters."""
    check_weight_or_limit(estimator.eta, estimator.unfairness)
    check_penalty(estimator.penalty, estimator.eps)
    check_choice("penalty", estimator.penalty, ("normalized", "hsic"))
    check_maps(estimator)
    if isinstance(estimator.feature_map, str) and estimator.feature_map != "linear":
        _check_scales(estimator)
    for name in _of(estimator, "hide_sensitive", "learn_landmarks"):
        check_flag(name, getattr(estimator, name))
    for name in ("chunk_rows", "n_jobs"):
        if getattr(estimator, name) is not None:
            check_count(name, getattr(estimator, name))
    _check_search(estimator)
    for name in _of(estimator, "noise", "amplitude"):
        _check_positive_or_optimize(name, getattr(estimator, name))
    for name in _of(estimator, "length_scale_bounds", "noise_bounds", "amplitude_bounds"):
        _check_bounds(name, getattr(estimator, name))


def _of(estimator: Any, *names: str) -> list[str]:
    """Return the names that are parameters of the estimator: a classifier has fewer."""
    return [name for name in names if hasattr(estimator, name)]


def _check_scales(estimator: Any) -> None:
    moves = estimator.feature_map == "nystroem"
    if getattr(estimator, "learn_landmarks", False) and not moves:
        raise ValueError(
            f"learn_landmarks=True needs feature_map='nystroem', which has landmarks; got "
            f"feature_map={estimator.feature_map!r}"
        )


def _check_search(estimator: Any) -> None:
    if estimator.optimizer is not None:
        check_choice("optimizer", estimator.optimizer, ("l-bfgs-b",))
    check_count("max_iter", estimator.max_iter)
    check_number("tol", estimator.tol, TINY, 1.0)
    if isinstance(estimator.n_restarts, bool) or estimator.n_restarts != 0:
        check_count("n_restarts", estimator.n_restarts)


def _check_positive_or_optimize(name: str, value: Any) -> None:
    if isinstance(value, str):
        check_choice(name, value, ("optimize",))
    else:
        check_number(name, value, TINY, FINITE)


def _check_bounds(name: str, value: Any) -> None:
    if value is None:
        return
    try:
        low, high = (float(bound) for bound in value)
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    if not 0 < low <= high < np.inf:
        raise ValueError(
            f"{name}={value!r} must be two positive numbers, the smaller first, or None"
        )


def check_theta(
    theta: Any, fitted: Array, others: tuple[str, ...] = ("log amplitude", "log noise")
) -> Array:
    """Return [log θ, log a, log σ²]; those of the fit by default."""
    if theta is None:
        return fitted
    try:
        at = np.asarray(theta, dtype=np.float64)
    except (TypeError, ValueError):
        at = np.array(np.nan)
    if at.shape != fitted.shape or not np.isfinite(at).all():
        raise ValueError(
            f"theta={theta!r} must be {len(fitted)} finite numbers: {len(fitted) - len(others)} "
            f"log length scales, then {' and '.join(others)}, as in theta_"
        )
    return at
