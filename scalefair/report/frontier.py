"""The main job: fit the path, choose a model under the limit, judge it on held-out rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri
from sklearn.base import is_classifier
from sklearn.metrics import roc_auc_score

from scalefair._typing import Array
from scalefair.plots import row_at
from scalefair.plots._predicted import predicted, scores
from scalefair.report.family import check_fair, fit_arguments, front_of, judged, relatives
from scalefair.report.groups import Groups, Share, between_share, cross
from scalefair.report.independence import independence
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
    estimator : fitted estimator
        The chosen model.
    baseline : fitted estimator
        The most accurate model with the least eta: the model called "before".
    before, after : arrays of shape (n,)
        Predictions for the held-out rows, without and with the penalty; of classes the
        probability of the second one.
    groups : Groups
        The groups of the held-out rows.
    seconds : float
        How long fitting took.
    notes : tuple of str
        Warnings raised on the way.
    scored : pair of arrays of shape (n,), default=None
        The scores whose dependence is limited, where predictions are a function of them.
    judged : DataFrame, default=None
        The models of the frontier on the held-out rows, where there is no cross-validation.
    tests : DataFrame, default=None
        Tests of independence; None where there are none, for the reason `untested`.
    """

    problem: Problem
    estimator: Any
    baseline: Any
    before: Array
    after: Array
    groups: Groups
    seconds: float
    notes: tuple[str, ...] = ()
    scored: tuple[Array, Array] | None = None
    judged: pd.DataFrame | None = None
    tests: pd.DataFrame | None = None
    untested: str = ""

    @property
    def limit(self) -> float | None:
        """The largest share allowed, None where the estimator chose by itself."""
        limit: float | None = getattr(self.estimator, "unfairness", None)
        return limit

    @property
    def table(self) -> pd.DataFrame:
        """The models of the frontier: one row per (alpha, eta), or per eta."""
        if self.judged is not None:
            return self.judged
        table: pd.DataFrame = self.estimator.path_.table
        return table

    @property
    def front(self) -> pd.DataFrame:
        """The rows of the table that no other beats in both accuracy and fairness."""
        if self.judged is not None:
            return front_of(self.judged)
        front: pd.DataFrame = self.estimator.path_.front()
        return front

    @property
    def is_on_front(self) -> bool:
        """Whether the chosen model is on the front, or lies between rows of the table."""
        return self.chosen is None or row_at(self.front, *self._place) is not None

    @property
    def _place(self) -> tuple[float, float]:
        return getattr(self.estimator, "alpha_", np.nan), self.estimator.eta_

    @property
    def chosen(self) -> pd.DataFrame | None:
        """The row of the table at the chosen model, None where the model lies between rows."""
        return row_at(self.table, *self._place)

    def scores(self) -> tuple[Scores, Scores]:
        """Return the scores without and with the penalty."""
        before, after = (self.before, self.after) if self.scored is None else self.scored
        return self._score(self.before, before), self._score(self.after, after)

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

    def _score(self, f: Array, limited: Array) -> Scores:
        y = self.problem.test.y
        rmse = float(np.sqrt(np.mean((y - f) ** 2)))
        share = between_share(self.groups, limited)
        if not self.problem.is_binary:
            return Scores(_r2(y, f), rmse, share)
        accuracy = float(np.mean((f >= 0.5) == (y == 1)))
        auc = float(roc_auc_score(y, f)) if np.ptp(y) else None
        return Scores(_r2(y, f), rmse, share, accuracy, auc)


def fit_frontier(
    problem: Problem, estimator: Any, progress: Callable[[str], None] = lambda _: None
) -> Frontier:
    """Fit a fair estimator and predict the held-out rows with and without penalty.

    Parameters
    ----------
    problem : Problem
        The data.
    estimator : unfitted estimator of scalefair
        It is fitted here, on the training rows. `FairKernelRidgeCV` brings its own frontier,
        cross-validated; that of other models is their relatives at other weights of the penalty,
        judged on the held-out rows.
    progress : callable
        Called with the name of each step as it begins.
    """
    start = perf_counter()
    check_fair(estimator)
    if is_classifier(estimator) and not problem.is_binary:
        raise ValueError(
            f"target: {problem.target!r} does not have two levels, as the report of a classifier "
            "needs; use a regressor, or tell one class from the rest"
        )
    train, test = problem.train, problem.test
    groups = cross(test.sensitive)
    table: pd.DataFrame | None = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        progress(f"fitting the path on {train.n_rows:,} rows{_how(estimator)}")
        estimator.fit(train.X, train.y, **fit_arguments(estimator, train))
        if hasattr(estimator, "path_"):
            baseline = _plain(estimator.path_)
        else:
            progress("fitting other weights of the penalty")
            models = relatives(estimator, train)
            baseline, table = models[min(models)], judged(models, test, groups)
        progress(f"predicting {test.n_rows:,} held-out rows")
        before, after = predicted(baseline, test.X), predicted(estimator, test.X)
        scored = scores(baseline, test.X), scores(estimator, test.X)
    notes = tuple(dict.fromkeys(" ".join(str(w.message).split()) for w in caught))
    seconds = perf_counter() - start
    progress("testing independence")
    tests, reason = independence(before, after, test.sensitive, test.y)
    same = np.array_equal(scored[1], after) and np.array_equal(scored[0], before)
    return Frontier(
        problem, estimator, baseline, before, after, groups, seconds, notes,
        None if same else scored, table, tests, reason,
    )  # fmt: skip


def _how(estimator: Any) -> str:
    return ", with cross-validation" if hasattr(estimator, "cv") else ""


def _plain(path: Any) -> Any:
    """Return the model of a path without penalty."""
    row = _unpenalized(path.table)
    return path.at(alpha=float(row["alpha"].iloc[0]), eta=float(row["eta"].iloc[0]))


def _unpenalized(table: pd.DataFrame) -> pd.DataFrame:
    least = table[table["eta"] == table["eta"].min()]
    error = least["mse_cv"] if "mse_cv" in least else least["mse"]
    best: pd.DataFrame = least.iloc[[int(np.argmin(error))]]
    return best


def _r2(y: Array, f: Array) -> float:
    return float(1.0 - np.mean((y - f) ** 2) / y.var()) if y.var() > 0 else np.nan
