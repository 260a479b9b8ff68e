"""The same model at other weights of the penalty, each judged on the held-out rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from scalefair import _frames
from scalefair._typing import Array
from scalefair.plots._predicted import predicted, scores
from scalefair.report.groups import Groups, share_and_error
from scalefair.report.problem import Sample

if TYPE_CHECKING:
    import pandas as pd

STEPS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
"""Weights about the one that a model has."""

FAIR = ("eta", "unfairness")
"""Parameters of every estimator that the report knows."""


def check_fair(estimator: Any) -> None:
    """Complain of a model without a penalty, of which there is nothing to tell."""
    if not hasattr(estimator, "get_params") or not {*FAIR} & {*estimator.get_params(deep=False)}:
        raise TypeError(
            f"estimator is a {type(estimator).__name__}, which has no fairness penalty; expected "
            "an estimator of scalefair: FairKernelRidge(base_estimator=...) makes any model fair"
        )


def fit_arguments(estimator: Any, sample: Sample) -> dict[str, Any]:
    """Return the keywords of `fit`: sensitive attributes are given where no columns are named."""
    own: dict[str, Any] = {} if sample.weight is None else {"sample_weight": sample.weight}
    if getattr(estimator, "sensitive_columns", None) is None:
        own["sensitive_features"] = sample.sensitive
    return own


def weights_around(eta: float) -> Array:
    """Return 0, weights about `eta`, and ∞."""
    unit = eta if 0 < eta < np.inf else 1.0
    return np.array([0.0, *(unit * step for step in STEPS), np.inf])


def relatives(estimator: Any, train: Sample) -> dict[float, Any]:
    """Return fitted models by eta that differ from a fitted one in it alone; itself among them.

    From the stored moments where they are enough (ridge, Gaussian process), in a few passes over
    the rows each for general losses, by fitting anew where nothing else is possible. A Gaussian
    process without penalty learns hyperparameters of its own.
    """
    etas = [float(eta) for eta in weights_around(float(estimator.eta_)) if eta != estimator.eta_]
    if getattr(estimator, "output_kernel", None) is not None:  # it has no limit of η → ∞
        etas = [eta for eta in etas if eta < np.inf]
    found = _from_moments(estimator, etas)
    if found is None:
        found = _from_rows(estimator, train, etas)
    if hasattr(estimator, "relevance") and estimator.eta_ != 0:
        found[0.0] = _refitted(estimator, train, 0.0)
    return dict(sorted({**found, float(estimator.eta_): estimator}.items()))


def judged(models: dict[float, Any], test: Sample, groups: Groups) -> pd.DataFrame:
    """Return error and share of each model on the held-out rows, with their standard errors."""
    rows = [_judged_row(eta, model, test, groups) for eta, model in models.items()]
    return _frames.make_frame({name: [row[name] for row in rows] for name in rows[0]})


def front_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that no other row beats in both, by increasing share."""
    share, error = "explained_share_test", "mse_test"
    rows = table[np.isfinite(table[share])].sort_values([share, error], kind="stable")
    best = rows[error].cummin().shift(fill_value=np.inf)
    front: pd.DataFrame = rows[rows[error] < best].reset_index(drop=True)
    return front


def _from_moments(estimator: Any, etas: list[float]) -> dict[float, Any] | None:
    if hasattr(estimator, "noise_"):
        return {eta: estimator._at(eta) for eta in etas}
    if not hasattr(estimator, "solve_from") or hasattr(estimator, "mean_loss_"):
        return None
    try:
        path = estimator.path(etas=etas)
    except ValueError:  # a penalty without a closed form
        return None
    return {eta: path.at(eta=eta) for eta in etas}


def _from_rows(estimator: Any, train: Sample, etas: list[float]) -> dict[float, Any]:
    if hasattr(estimator, "mean_loss_") and not getattr(estimator, "n_base_samples_", 0):
        try:
            path = estimator.path(train.X, train.y, etas, **fit_arguments(estimator, train))
        except ValueError:  # an output kernel has no path
            pass
        else:
            return {eta: path.at(eta=eta) for eta in etas}
    return {eta: _refitted(_settled(estimator), train, eta) for eta in etas}


def _settled(estimator: Any) -> Any:
    """Return an unfitted copy that keeps what a Gaussian process has learnt."""
    copied = clone(estimator)
    if not hasattr(estimator, "relevance") or not isinstance(estimator.feature_map, str):
        return copied
    kept = {"kernel": getattr(estimator.kernel_, "kernel", estimator.kernel_), "optimizer": None}
    kept |= {name: getattr(estimator, f"{name}_") for name in ("noise", "amplitude")
             if hasattr(estimator, f"{name}_")}  # fmt: skip
    return copied.set_params(**kept)


def _refitted(estimator: Any, train: Sample, eta: float) -> Any:
    fresh = clone(estimator).set_params(eta=eta, unfairness=None)
    return fresh.fit(train.X, train.y, **fit_arguments(fresh, train))


def _judged_row(eta: float, model: Any, test: Sample, groups: Groups) -> dict[str, float]:
    squares = (test.y - predicted(model, test.X)) ** 2
    share, share_error = share_and_error(groups, scores(model, test.X))
    variance = float(np.var(test.y))
    return {
        "eta": eta,
        "mse_test": float(squares.mean()),
        "mse_test_error": float(squares.std(ddof=1) / np.sqrt(len(squares))),
        "r2_test": 1.0 - float(squares.mean()) / variance if variance > 0 else np.nan,
        "explained_share_test": max(share, 0.0),
        "explained_share_test_error": share_error,
    }
