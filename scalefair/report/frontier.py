"""The main job: fit the path, choose a model under the limit, judge it on held-out rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.metrics import roc_auc_score

from scalefair._typing import Array, WithPath
from scalefair.data import frames
from scalefair.errors import InputError
from scalefair.estimators import FairGPClassifier, FairGPRegressor
from scalefair.estimators.choice import ModelChoice, choose_model
from scalefair.estimators.classifier import Classification
from scalefair.estimators.loss import LossRegression
from scalefair.estimators.loss_cv import LossCV
from scalefair.moments.products import CrossMoments
from scalefair.plots.figures import predicted
from scalefair.plots.path import held_out, row_at, unbeaten
from scalefair.report.groups import (
    Groups,
    Interval,
    between_share,
    cross,
    distribution_of_share,
    independence,
    normal_interval,
)
from scalefair.report.problem import ReportProblem, ReportRows

if TYPE_CHECKING:
    import pandas as pd

STEPS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
"""Weights about the one that a model has."""


@dataclass(frozen=True)
class Scores:
    """How one model does on the held-out rows; accuracy and auc only where the target is 0 or 1."""

    r2: float
    rmse: float
    share: Interval
    accuracy: float | None = None
    auc: float | None = None


@dataclass(frozen=True, eq=False)
class Frontier:
    """A fitted path, and two of its models judged on the held-out rows.

    Parameters
    ----------
    problem : ReportProblem
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
    table : DataFrame
        The models of the frontier: one row per (alpha, eta) with cross-validated values, or one
        per eta with those of the held-out rows.
    front : DataFrame
        The rows of the table that no other beats in both accuracy and fairness.
    seconds : float
        How long fitting took.
    notes : tuple of str
        Warnings raised on the way.
    scored : pair of arrays of shape (n,), default=None
        The scores whose dependence is limited, where predictions are a function of them.
    tests : DataFrame, default=None
        Tests of independence; None where there are none, for the reason `untested`.
    choice : ModelChoice, default=None
        Where there were several to choose from, their held-out errors.
    """

    problem: ReportProblem
    estimator: Any
    baseline: Any
    before: Array
    after: Array
    groups: Groups
    table: pd.DataFrame
    front: pd.DataFrame
    seconds: float
    notes: tuple[str, ...] = ()
    scored: tuple[Array, Array] | None = None
    tests: pd.DataFrame | None = None
    untested: str = ""
    choice: ModelChoice | None = None

    @property
    def limit(self) -> float | None:
        """The largest share allowed, None where the estimator chose by itself."""
        limit: float | None = self.estimator.unfairness
        return limit

    @property
    def is_cross_validated(self) -> bool:
        """Whether the table comes from cross-validation."""
        return held_out(self.table) == "_cv"

    @property
    def alpha(self) -> Any:
        """The ridge of the chosen model, None for a Gaussian process."""
        return vars(self.estimator).get("alpha_")

    @property
    def chosen(self) -> pd.DataFrame | None:
        """The row of the table at the chosen model, None where the model lies between rows."""
        return row_at(self.table, self.alpha, self.estimator.eta_)

    @property
    def is_on_front(self) -> bool:
        """Whether the chosen model is on the front, or lies between rows of the table."""
        on_front = row_at(self.front, self.alpha, self.estimator.eta_)
        return self.chosen is None or on_front is not None

    def scores(self) -> tuple[Scores, Scores]:
        """Return the scores without and with the penalty."""
        before, after = (self.before, self.after) if self.scored is None else self.scored
        return self._score(self.before, before), self._score(self.after, after)

    def cost(self) -> Interval:
        """Return the loss of R² relative to R² without the penalty, from paired squared errors.

        NaN where the model without the penalty predicts no better than the mean.
        """
        y = self.problem.test.y
        r2 = _r2(y, self.before)
        if r2 <= 0:
            return Interval(np.nan, np.nan, np.nan)
        loss = ((y - self.after) ** 2 - (y - self.before) ** 2) / (y.var() * r2)
        return normal_interval(float(loss.mean()), float(loss.std(ddof=1) / np.sqrt(len(y))))

    def _score(self, f: Array, limited: Array) -> Scores:
        y = self.problem.test.y
        rmse = float(np.sqrt(np.mean((y - f) ** 2)))
        share = between_share(self.groups, limited)
        if not self.problem.is_binary:
            return Scores(_r2(y, f), rmse, share)
        accuracy = float(np.mean((f >= 0.5) == (y == 1)))
        auc = float(roc_auc_score(y, f)) if np.ptp(y) else None
        return Scores(_r2(y, f), rmse, share, accuracy, auc)


def _r2(y: Array, f: Array) -> float:
    return float(1.0 - np.mean((y - f) ** 2) / y.var()) if y.var() > 0 else np.nan


def fit_frontier(
    problem: ReportProblem, estimator: Any, progress: Callable[[str], None] = lambda _: None
) -> Frontier:
    """Fit a fair estimator on the training rows; predict the others with and without penalty.

    Of several by name, which cross-validate, the one of least held-out error is taken. One that
    cross-validates brings its own frontier, `path_`; that of other models is their
    relatives at other weights, judged on the held-out rows. `progress` hears the name of each step.
    """
    start = perf_counter()
    named = estimator if isinstance(estimator, Mapping) else {"": estimator}
    for one in named.values():
        check_fair(one)
        _check_target(one, problem)
    train, test = problem.train, problem.test
    groups = cross(test.sensitive)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        progress(f"fitting the path on {train.n_rows:,} rows")
        choice = choose_model(
            named, lambda one: one.fit(train.X, train.y, **fit_arguments(one, train)), progress
        )
        estimator = choice.model
        # That of a general loss has no squared errors, which the page compares.
        if isinstance(estimator, WithPath) and "mse_cv" in estimator.path_.table:
            table, front = estimator.path_.table, estimator.path_.front()
            baseline = _unpenalized(estimator.path_)
        else:
            progress("fitting other weights of the penalty")
            models = relatives(estimator, train)
            baseline, table = models[min(models)], compare(models, test, groups)
            front = unbeaten(table, table["explained_share_test"], table["mse_test"])
        progress(f"predicting {test.n_rows:,} held-out rows")
        before, after = predicted(baseline, test.X), predicted(estimator, test.X)
        scored = scores(baseline, test.X), scores(estimator, test.X)
    notes = tuple(dict.fromkeys(" ".join(str(w.message).split()) for w in caught))
    notes = (f"Model {choice.summary}", *notes) if len(named) > 1 else notes
    seen = vars(estimator).get("n_base_samples_", train.n_rows)
    if seen < train.n_rows:
        notes = (*notes, f"the base model learnt from a sample of {seen:,} rows")
    seconds = perf_counter() - start
    progress("testing independence")
    tests, reason = independence(before, after, test.sensitive, test.y)
    same = np.array_equal(scored[1], after) and np.array_equal(scored[0], before)
    return Frontier(
        problem, estimator, baseline, before, after, groups, table, front, seconds, notes,
        None if same else scored, tests, reason, choice if len(named) > 1 else None,
    )  # fmt: skip


def check_fair(estimator: Any) -> None:
    """Raise TypeError if a model has no fairness penalty."""
    known = estimator.get_params(deep=False) if isinstance(estimator, BaseEstimator) else {}
    if not {"eta", "unfairness"} & {*known}:
        raise TypeError(
            f"estimator is a {type(estimator).__name__}, which has no fairness penalty; expected "
            "an estimator of scalefair: FairKernelRidge(base_estimator=...) makes any model fair"
        )


def _check_target(estimator: Any, problem: ReportProblem) -> None:
    if is_classifier(estimator) and not problem.is_binary:
        raise InputError(
            f"target: {problem.target!r} does not have two levels, as a classifier needs here",
            "use a regressor, or tell one class from the rest", column=problem.target,
        )  # fmt: skip


def _unpenalized(path: Any) -> Any:
    """Return the model of least error among those of a cross-validated path with the least eta."""
    table = path.table
    least = table[table["eta"] == table["eta"].min()]
    row = least.iloc[int(np.argmin(least["mse_cv"]))]
    return path.at(alpha=float(row["alpha"]), eta=float(row["eta"]))


def fit_arguments(estimator: Any, part: ReportRows) -> dict[str, Any]:
    """Return the keywords of `fit`: sensitive attributes are given where no columns are named."""
    own: dict[str, Any] = {} if part.weight is None else {"sample_weight": part.weight}
    if estimator.sensitive_columns is None:
        own["sensitive_features"] = part.sensitive
    return own


def scores(model: Any, X: Any) -> Array:
    """Return the f(x) whose dependence is limited, of shape (n,): before any link function."""
    if is_classifier(model):
        return np.asarray(model.decision_function(X), dtype=np.float64).reshape(-1)
    if isinstance(model, LossRegression):
        return np.asarray(model.predict_scores(X), dtype=np.float64).reshape(-1)
    return predicted(model, X)


def weights_around(eta: float) -> Array:
    """Return 0, weights about `eta`, and ∞."""
    unit = eta if 0 < eta < np.inf else 1.0
    return np.array([0.0, *(unit * step for step in STEPS), np.inf])


def relatives(estimator: Any, train: ReportRows) -> dict[float, Any]:
    """Return fitted models by eta that differ from a fitted one in it alone; itself among them.

    From the stored moments where they are enough (ridge, Gaussian process), in a few passes over
    the rows each for general losses, by fitting anew where nothing else is possible. A Gaussian
    process without penalty learns hyperparameters of its own.
    """
    etas = [float(eta) for eta in weights_around(float(estimator.eta_)) if eta != estimator.eta_]
    if _output_kernel(estimator) is not None:  # it has no limit of η → ∞
        etas = [eta for eta in etas if eta < np.inf]
    models = _at_weights(estimator, train, etas)
    if isinstance(estimator, FairGPRegressor | FairGPClassifier) and estimator.eta_ != 0:
        models[0.0] = _refitted(estimator, train, 0.0)
    return dict(sorted({**models, float(estimator.eta_): estimator}.items()))


def _at_weights(estimator: Any, train: ReportRows, etas: list[float]) -> dict[float, Any]:
    if isinstance(estimator, FairGPRegressor):
        return {eta: estimator._at(eta) for eta in etas}
    if has_closed_form_path(estimator):
        path = estimator.path(etas=etas)
    elif has_loss_path(estimator):
        path = estimator.path(train.X, train.y, etas, **fit_arguments(estimator, train))
    else:
        return {eta: _refitted(_settled(estimator), train, eta) for eta in etas}
    return {eta: path.at(eta=eta) for eta in etas}


def has_closed_form_path(estimator: Any) -> bool:
    """Return True if the moments of a fitted estimator give every other weight, without rows.

    They do not with a penalty that is no square of β; and `feature_map="exact"` keeps no moments,
    an iterative solver not all of them.
    """
    if not hasattr(estimator, "solve_from") or not hasattr(estimator, "moments_"):
        return False
    return _is_quadratic(estimator) and not isinstance(estimator.moments_, CrossMoments)


def has_loss_path(estimator: Any) -> bool:
    """Return True if passes over the training rows give every other weight.

    They do not with a base model that was fitted on them, whose errors there are too small.
    """
    if not isinstance(estimator, Classification | LossRegression):
        return False
    return _is_quadratic(estimator) and (
        estimator.base_estimator is None or not estimator.n_base_samples_
    )


def _is_quadratic(estimator: Any) -> bool:
    return estimator.penalty != "nocco_output" and _output_kernel(estimator) is None


def _output_kernel(estimator: Any) -> Any:
    return estimator.get_params(deep=False).get("output_kernel")


def _settled(estimator: Any) -> Any:
    """Return an unfitted copy that keeps what a Gaussian process of classes has learnt."""
    copied = clone(estimator._model if isinstance(estimator, LossCV) else estimator)
    if isinstance(estimator, FairGPClassifier) and isinstance(estimator.feature_map, str):
        kernel, amplitude = estimator.kernel_.kernel, estimator.amplitude_
        copied.set_params(kernel=kernel, amplitude=amplitude, optimizer=None)
    return copied


def _refitted(estimator: Any, train: ReportRows, eta: float) -> Any:
    fresh = clone(estimator).set_params(eta=eta, unfairness=None)
    return fresh.fit(train.X, train.y, **fit_arguments(fresh, train))


def compare(models: dict[float, Any], test: ReportRows, groups: Groups) -> pd.DataFrame:
    """Return error and share of each model on the held-out rows, with their standard errors."""
    rows = [_compared_row(eta, model, test, groups) for eta, model in models.items()]
    return frames.make_frame({name: [row[name] for row in rows] for name in rows[0]})


def _compared_row(eta: float, model: Any, test: ReportRows, groups: Groups) -> dict[str, float]:
    f = predicted(model, test.X)
    squares = (test.y - f) ** 2
    found = distribution_of_share(groups, scores(model, test.X))
    return {
        "eta": eta,
        "mse_test": float(squares.mean()),
        "mse_test_error": float(squares.std(ddof=1) / np.sqrt(len(squares))),
        "r2_test": _r2(test.y, f),
        "explained_share_test": np.nan if found is None else max(float(found.share[0]), 0.0),
        "explained_share_test_error": np.nan if found is None else float(found.error[0]),
    }
