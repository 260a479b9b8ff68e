"""The main job: fit the path, choose a model under the limit, judge it on held-out rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, is_classifier

from scalefair import explain_share, proxies
from scalefair._typing import Array, WithPath
from scalefair.data import frames
from scalefair.errors import CannotJudgeError, InputError
from scalefair.estimators.choice import ModelChoice, choose_model
from scalefair.plots.figures import predicted
from scalefair.report.numbers import as_percent, number
from scalefair.report.position import SHARE, Judge, Position
from scalefair.report.problem import ReportProblem, ReportRows
from scalefair.report.rates import (
    RANGES,
    CalibrationLine,
    ImpactRatio,
    calibration,
    impact_ratios,
)
from scalefair.report.relatives import fit_arguments, relatives, scores
from scalefair.solve.limit import NotAttainableError

if TYPE_CHECKING:
    import pandas as pd

SLIDER_LIMITS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5)
"""Limits on the explained share, of which those that matter are positions of the slider."""

CUT = 0.5
"""From here on a prediction of 0 or 1 is a positive decision."""

NO_LIMIT = "no limit"


class Candidate(NamedTuple):
    """A fitted model of the frontier."""

    name: str
    model: Any
    limit: float | None = None


@dataclass(frozen=True, eq=False)
class Frontier:
    """Models between the strictest limit and none, judged on the held-out rows.

    Parameters
    ----------
    problem : ReportProblem
        The data.
    estimator, baseline : fitted estimators
        The chosen model, and the most accurate one without a limit.
    positions : tuple of Position
        The models by increasing limit; the last has none.
    chosen : int
        Which of them is the chosen one.
    table : DataFrame
        Every fit that was tried, with cross-validated values, or those of the positions.
    judge : Judge
        The held-out rows, as all were judged by them.
    seconds : float
        How long fitting took.
    notes : tuple of str
        Warnings raised on the way.
    choice : ModelChoice, default=None
        Where there were several to choose from, their held-out errors.
    calibration, selection, scoring : lists
        CalibrationLine of the chosen model, impact ratios of its decisions and of its scores.
    proxies, contributions : DataFrame, default=None
        How much of the sensitive attributes the inputs tell; which inputs carry the share.
    others : tuple of Position
        Other models, judged on the same rows.
    """

    problem: ReportProblem
    estimator: Any
    baseline: Any
    positions: tuple[Position, ...]
    chosen: int
    table: pd.DataFrame
    judge: Judge
    seconds: float
    notes: tuple[str, ...] = ()
    choice: ModelChoice | None = None
    calibration: list[CalibrationLine] = field(default_factory=list)
    selection: list[ImpactRatio] = field(default_factory=list)
    scoring: list[ImpactRatio] = field(default_factory=list)
    proxies: pd.DataFrame | None = None
    contributions: pd.DataFrame | None = None
    others: tuple[Position, ...] = ()

    @property
    def limit(self) -> float | None:
        """The largest share allowed, None where the estimator chose by itself."""
        limit: float | None = self.estimator.unfairness
        return limit

    @property
    def is_cross_validated(self) -> bool:
        """Whether the table comes from cross-validation."""
        return isinstance(self.estimator, WithPath)

    @property
    def limited(self) -> str:
        """What the limit is about: "score_explained_share" where predictions are not scores."""
        share = f"score_{SHARE}"
        return share if self.before.has(share) else SHARE

    @property
    def before(self) -> Position:
        """The model without a limit."""
        return self.positions[-1]

    @property
    def after(self) -> Position:
        """The chosen model."""
        return self.positions[self.chosen]

    @property
    def is_already_met(self) -> bool:
        """Whether the chosen model is the one without a limit."""
        return self.chosen == len(self.positions) - 1


def fit_frontier(
    problem: ReportProblem,
    estimator: Any,
    progress: Callable[[str], None] = lambda _: None,
) -> Frontier:
    """Fit a fair estimator on the training rows; judge it at every limit on the other rows.

    Of several by name, which cross-validate, the one of least held-out error is taken. One that
    cross-validates brings its own frontier, `path_`; that of other models is their
    relatives at other weights. `progress` hears the name of each step.
    """
    start = perf_counter()
    named = estimator if isinstance(estimator, Mapping) else {"": estimator}
    for one in named.values():
        check_fair(one)
        _check_target(one, problem)
    train, test = problem.train, problem.test
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        progress(f"fitting the path on {train.n_rows:,} rows")
        choice = choose_model(
            named, lambda one: one.fit(train.X, train.y, **fit_arguments(one, train)), progress
        )
        estimator = choice.model
        models, chosen = candidates(estimator, train, progress)
    notes = _notes(choice if len(named) > 1 else None, estimator, train.n_rows, caught)
    seconds = perf_counter() - start
    progress(f"judging {len(models)} models on {test.n_rows:,} held-out rows")
    judge = Judge.of(test.sensitive, test.y, CUT if problem.is_binary else None)
    if left_out := test.n_rows - len(judge.y):
        notes = (*notes, f"{left_out:,} held-out rows are alone in their group and are not judged")
    positions = judge_models(models, chosen, judge, test.X)
    cv = isinstance(estimator, WithPath)
    return Frontier(
        problem, estimator, models[-1].model, positions, chosen,
        estimator.path_.table if cv else position_table(positions), judge, seconds, notes,
        choice if len(named) > 1 else None, **_for_auditors(judge, predicted(estimator, test.X)),
        **_reasons(estimator, problem),
    )  # fmt: skip


def _notes(
    choice: ModelChoice | None, estimator: Any, rows: int, caught: list[warnings.WarningMessage]
) -> tuple[str, ...]:
    """Return what readers should know of the fit."""
    notes = list(dict.fromkeys(" ".join(str(w.message).split()) for w in caught))
    if choice is not None:
        notes.insert(0, f"Model {choice.summary}")
    if (seen := vars(estimator).get("n_base_samples_", rows)) < rows:
        notes.append(f"the base model learnt from a sample of {seen:,} rows")
    if vars(estimator).get("limit_on", "scores") != "scores":
        notes.append(f"decisions here are those at {CUT}, not those that `predict` makes")
    return tuple(notes)


def with_model(frontier: Frontier, name: str, f: Array, score: Array | None = None) -> Frontier:
    """Return the frontier beside another model, given by its predictions of the held-out rows."""
    against = predicted(frontier.baseline, frontier.problem.test.X)
    other = frontier.judge.position(name, f, score, against, full=True)
    return replace(frontier, others=(*frontier.others, other))


def candidates(
    estimator: Any, train: ReportRows, progress: Callable[[str], None]
) -> tuple[list[Candidate], int]:
    """Return the models of the frontier, the strictest first, and which one was chosen."""
    path = estimator.path_ if isinstance(estimator, WithPath) else None
    if path is None:
        progress("fitting other weights of the penalty")
        found = relatives(estimator, train)
        made = [Candidate(f"weight {number(eta)}", model) for eta, model in found.items()]
        made = [made[0]._replace(name=NO_LIMIT), *made[1:]][::-1]
        return made, next(i for i, one in enumerate(made) if one.model is estimator)
    baseline, own = _unpenalized(path), estimator.unfairness
    seen, made = {_point(baseline), _point(estimator)}, []
    for limit in SLIDER_LIMITS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of a constant
                model = path.at(unfairness=limit)
        except NotAttainableError:
            continue
        if _point(model) not in seen and np.any(model.coef_):
            made.append(Candidate(f"at most {as_percent(limit)}", model, limit))
            seen.add(_point(model))
    if _point(estimator) == _point(baseline):
        return [*made, Candidate(NO_LIMIT, estimator, own)], len(made)
    name = "chosen by cross-validation" if own is None else f"at most {as_percent(own)}"
    at = own if own is not None else float(estimator.explained_share_cv_)
    # A limit on decisions has no place among limits on the share: it comes first.
    chosen = sum(one.limit < at for one in made if one.limit is not None)
    made.insert(chosen, Candidate(name, estimator, own))
    return [*made, Candidate(NO_LIMIT, baseline)], chosen


def _point(model: Any) -> tuple[float, float]:
    own = vars(model)
    return float(own["alpha_"] if "alpha_" in own else own["alpha"]), float(model.eta_)


def _unpenalized(path: Any) -> Any:
    """Return the model of least error among those of a cross-validated path with the least eta."""
    table = path.table
    least = table[table["eta"] == table["eta"].min()]
    row = least.iloc[int(np.argmin(least["mse_cv" if "mse_cv" in table else "loss_cv"]))]
    return path.at(alpha=float(row["alpha"]), eta=float(row["eta"]))


def judge_models(
    models: list[Candidate], chosen: int, judge: Judge, X: Any
) -> tuple[Position, ...]:
    """Return the numbers of each model, against those of the last, which has no limit."""
    against, positions = predicted(models[-1].model, X), []
    for i, (name, model, limit) in enumerate(models):
        f, score = predicted(model, X), scores(model, X)
        point = {"limit": limit, "alpha": vars(model).get("alpha_"), "eta": float(model.eta_)}
        full = i in (chosen, len(models) - 1)
        positions.append(judge.position(name, f, score, against, full=full, **point))
    return tuple(positions)


def position_table(positions: tuple[Position, ...]) -> pd.DataFrame:
    """Return error and share of positions on the held-out rows, with their standard errors."""
    rows = []
    for one in positions:
        measure = f"score_{SHARE}" if one.has(f"score_{SHARE}") else SHARE
        mse, share = one.get("mean_squared_error"), one.get(measure, one.together)
        rows.append({
            "eta": one.eta, "mse_test": mse.value, "mse_test_error": mse.error,
            "r2_test": one.get("r2").value, "explained_share_test": share.value,
            "explained_share_test_error": share.error,
        })  # fmt: skip
    return frames.make_frame({name: [row[name] for row in rows] for name in rows[0]})


def _for_auditors(judge: Judge, f: Array) -> dict[str, Any]:
    """Return calibration and impact ratios of the chosen model."""
    f, cut = f[judge.rows], judge.threshold
    edges = RANGES if cut is not None else np.unique(np.quantile(f, (0.25, 0.5, 0.75)))
    column = "/".join([*judge.sensitive, "prediction"])  # no attribute has this name
    pairs = {str(n): judge.sensitive[[n]].assign(**{column: f}) for n in judge.sensitive}
    bins = {**judge.bins, column: list(edges)}
    options: dict[str, Any] = {"sensitive_features": judge.sensitive, "bins": judge.bins}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return {
                "calibration": calibration(f, judge.y, pairs, bins),
                "selection": [] if cut is None else impact_ratios(f, threshold=cut, **options),
                "scoring": impact_ratios(f, **options),
            }
    except CannotJudgeError:
        return {}


def _reasons(estimator: Any, problem: ReportProblem) -> dict[str, Any]:
    """Return proxies among the inputs and contributions to the share, where they can be had."""
    test, found = problem.test, dict[str, Any]()
    apart = estimator.sensitive_columns is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            rest = [name for name in problem.inputs if name not in problem.sensitive]
            X = frames.take_columns(test.X, rest) if rest else test.X
            found["proxies"] = proxies(X, sensitive_features=test.sensitive)
            found["contributions"] = explain_share(
                estimator, test.X, sensitive_features=test.sensitive if apart else None
            )
        except (ValueError, TypeError):  # of maps that have no contributions by column
            pass
    return found


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
            "use a regressor, or tell one class from the rest",
            column=problem.target,
        )
