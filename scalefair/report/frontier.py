"""The main job: fit the whole path, choose a model under the limit, judge it on held-out rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri
from sklearn.metrics import roc_auc_score

from scalefair._typing import Array
from scalefair.plots import row_at
from scalefair.report.groups import Groups, Share, between_share, cross
from scalefair.report.problem import Problem

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Scores:
    """How one model does on the held-out rows; accuracy and auc only where the target is 0 or 1."""

    r2: float
    rmse: float
    share: Share
    accuracy: float | None = None
    auc: float | None = None


@dataclass(frozen=True)
class Cost:
    """What fairness costs: the loss of R² relative to R² without it, and its 95 % interval.

    NaN where the model without the penalty predicts no better than the mean.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Frontier:
    """A fitted path, and two of its models judged on the held-out rows.

    Parameters
    ----------
    problem : Problem
        The data.
    estimator : fitted estimator with `path_`, `alpha_` and `eta_`
        The chosen model.
    unpenalized : DataFrame of one row
        The most accurate row of the path with the least eta: the model called "before".
    before, after : arrays of shape (n,)
        Predictions for the held-out rows, without and with the penalty.
    groups : Groups
        The groups of the held-out rows.
    seconds : float
        How long fitting took.
    notes : tuple of str
        Warnings raised on the way.
    """

    problem: Problem
    estimator: Any
    unpenalized: pd.DataFrame
    before: Array
    after: Array
    groups: Groups
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def limit(self) -> float | None:
        """The largest share allowed, None where the estimator chose by itself."""
        limit: float | None = getattr(self.estimator, "unfairness", None)
        return limit

    @property
    def table(self) -> pd.DataFrame:
        """The path: one row per (alpha, eta)."""
        table: pd.DataFrame = self.estimator.path_.table
        return table

    @property
    def front(self) -> pd.DataFrame:
        """The rows of the path that no other beats in both accuracy and fairness."""
        front: pd.DataFrame = self.estimator.path_.front()
        return front

    @property
    def chosen(self) -> pd.DataFrame | None:
        """The row of the path at the chosen model, None where the model lies between rows."""
        return row_at(self.table, self.estimator.alpha_, self.estimator.eta_)

    def scores(self) -> tuple[Scores, Scores]:
        """Return the scores without and with the penalty."""
        return self._score(self.before), self._score(self.after)

    def cost(self) -> Cost:
        """Return the relative loss of R²; its interval is that of the paired squared errors."""
        y = self.problem.test.y
        r2 = _r2(y, self.before)
        if r2 <= 0:
            return Cost(np.nan, np.nan, np.nan)
        loss = ((y - self.after) ** 2 - (y - self.before) ** 2) / (y.var() * r2)
        half = float(ndtri(0.975)) * loss.std(ddof=1) / np.sqrt(len(y))
        mean = float(loss.mean())
        return Cost(mean, mean - half, mean + half)

    def _score(self, f: Array) -> Scores:
        y = self.problem.test.y
        rmse = float(np.sqrt(np.mean((y - f) ** 2)))
        share = between_share(self.groups, f)
        if not self.problem.is_binary:
            return Scores(_r2(y, f), rmse, share)
        accuracy = float(np.mean((f >= 0.5) == (y == 1)))
        auc = float(roc_auc_score(y, f)) if np.ptp(y) else None
        return Scores(_r2(y, f), rmse, share, accuracy, auc)


def fit_frontier(
    problem: Problem, estimator: Any, progress: Callable[[str], None] = lambda _: None
) -> Frontier:
    """Fit a cross-validated fair estimator and predict the held-out rows with and without penalty.

    Parameters
    ----------
    problem : Problem
        The data.
    estimator : unfitted FairKernelRidgeCV
        It is fitted here, on the training rows.
    progress : callable
        Called with the name of each step as it begins.
    """
    start = perf_counter()
    train, test = problem.train, problem.test
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        progress(f"fitting the path on {train.n_rows:,} rows, with cross-validation")
        estimator.fit(
            train.X, train.y, sensitive_features=train.sensitive, sample_weight=train.weight
        )
        path = estimator.path_
        row = _unpenalized(path.table)
        plain = path.estimator(float(row["alpha"].iloc[0]), float(row["eta"].iloc[0]))
        progress(f"predicting {test.n_rows:,} held-out rows")
        before, after = _predict(plain, test.X), _predict(estimator, test.X)
    notes = tuple(dict.fromkeys(" ".join(str(w.message).split()) for w in caught))
    seconds = perf_counter() - start
    groups = cross(test.sensitive)
    return Frontier(problem, estimator, row, before, after, groups, seconds, notes)


def _unpenalized(table: pd.DataFrame) -> pd.DataFrame:
    least = table[table["eta"] == table["eta"].min()]
    error = least["mse_cv"] if "mse_cv" in least else least["mse"]
    best: pd.DataFrame = least.iloc[[int(np.argmin(error))]]
    return best


def _predict(estimator: Any, X: Any) -> Array:
    return np.asarray(estimator.predict(X), dtype=np.float64).reshape(-1)


def _r2(y: Array, f: Array) -> float:
    return float(1.0 - np.mean((y - f) ** 2) / y.var()) if y.var() > 0 else np.nan
