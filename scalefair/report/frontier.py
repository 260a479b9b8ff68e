"""The main job: fit the path, choose a model under the limit, judge it on held-out rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, is_classifier

from scalefair import proxies
from scalefair._typing import Array, Chunk, DataFrame, WithPath
from scalefair.data import frames
from scalefair.data.sources.files.scan import release_memory
from scalefair.errors import InputError
from scalefair.estimators.path import ModelChoice, choose_model
from scalefair.measures.explanation import explain_models
from scalefair.report.judge import Judge, Outputs
from scalefair.report.numbers import as_percent, number
from scalefair.report.position import CONTRIBUTION, SHARE, Entry, Position, normal_ends
from scalefair.report.problem import JudgedRows, ReportProblem, ReportRows
from scalefair.report.relatives import at_limits, outputs, relatives
from scalefair.solve.limit import NotAttainableError

SLIDER_LIMITS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5)
"""Limits on the explained share, of which those that matter are positions of the slider."""

CUT = 0.5  # From here on a prediction of 0 or 1 is a positive decision
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
    proxies : DataFrame, default=None
        How much of the sensitive attributes the inputs reveal.
    others : tuple of Position
        Other models, judged on the same rows.
    """

    problem: ReportProblem
    estimator: Any
    baseline: Any
    positions: tuple[Position, ...]
    chosen: int
    table: DataFrame
    judge: Judge
    seconds: float
    notes: tuple[str, ...] = ()
    choice: ModelChoice | None = None
    proxies: DataFrame | None = None
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
    def is_about_decisions(self) -> bool:
        """Whether the limit is on rates of decisions, not on the explained share."""
        return "decisions_" in vars(self.estimator)

    @property
    def limited(self) -> str:
        """The measure that the limit is about; "score_..." where predictions are not scores."""
        if self.is_about_decisions:
            odds = self.estimator._asked.limit == "odds"
            return f"{'true_positive' if odds else 'selection'}_rate_difference"
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


def fit_frontier(problem: ReportProblem, estimator: Any, progress: Callable[[str], None] = lambda _: None) -> Frontier:
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
    with warnings.catch_warnings(record=True, action="default") as caught:
        progress(f"fitting the path on {train.n_rows:,} rows")
        choice = choose_model(named, train.fit, progress)
        estimator = choice.model
        models, chosen = candidates(estimator, train, progress)
    several = choice if len(named) > 1 else None
    notes = _notes(several, estimator, train.n_rows, caught)
    seconds = perf_counter() - start
    progress(f"judging {len(models)} models on {test.n_rows:,} held-out rows")
    against = outputs(models[-1].model, test.X)
    release_memory()  # what fitting and reading rows no longer use
    judge = Judge.of(test.sensitive, test.y, **_decision(estimator, problem), like=against.f)
    if left_out := test.n_rows - len(judge.y):
        notes.append(f"{left_out:,} held-out rows are the only one in their group and are left out")
    positions = judge_models(models, judge, test, against, notes)
    table = estimator.path_.table if isinstance(estimator, WithPath) else position_table(positions)
    revealed = measure_proxies(problem, notes)
    return Frontier(
        problem, estimator, models[-1].model, positions, chosen, table, judge, seconds,
        tuple(dict.fromkeys(notes)), several, revealed,
    )  # fmt: skip


def _notes(choice: ModelChoice | None, estimator: Any, rows: int, caught: list[warnings.WarningMessage]) -> list[str]:
    """Return notes on the fit for readers."""
    notes = [" ".join(str(w.message).split()) for w in caught]
    if choice is not None:
        notes.insert(0, f"Model {choice.summary}")
    if (seen := vars(estimator).get("n_base_samples_", rows)) < rows:
        notes.append(f"the base model was fitted on a sample of {seen:,} rows")
    return notes


def _decision(estimator: Any, problem: ReportProblem) -> dict[str, Any]:
    """Return from which prediction on a decision is positive, and whether y says what is right."""
    crossing = vars(vars(estimator).get("decisions_", object)).get("crossing")
    if problem.is_binary or crossing is None:
        return {"threshold": CUT if problem.is_binary else None}
    return {"threshold": crossing.at, "has_outcome": not crossing.ranks}


def with_model(frontier: Frontier, name: str, given: Array | Outputs) -> Frontier:
    """Return the frontier beside another model: its predictions (n,), or `Outputs`, of the held-out rows."""
    given = given if isinstance(given, Outputs) else Outputs(given)
    against = outputs(frontier.baseline, frontier.problem.test.X)
    (other,) = frontier.judge.positions([given], against)
    return replace(frontier, others=(*frontier.others, replace(other, name=name)))


def candidates(estimator: Any, train: ReportRows, progress: Callable[[str], None]) -> tuple[list[Candidate], int]:
    """Return the models of the frontier, the strictest first, and which one was chosen."""
    path = estimator.path_ if isinstance(estimator, WithPath) else None
    if "decisions_" in vars(estimator) or path is None:
        made = _refitted(estimator, train, progress)
        return made, next(i for i, one in enumerate(made) if one.model is estimator)
    baseline, own = _unpenalized(path), estimator.unfairness
    seen, made = {_point(baseline), _point(estimator)}, []
    for limit in SLIDER_LIMITS:
        try:
            with warnings.catch_warnings(action="ignore", category=UserWarning):  # of a constant
                model = path.at(unfairness=limit)
        except NotAttainableError:
            continue
        if _point(model) not in seen and np.any(model.coef_):
            made.append(Candidate(_named(limit), model, limit))
            seen.add(_point(model))
    if _point(estimator) == _point(baseline):
        return [*made, Candidate(NO_LIMIT, estimator, own)], len(made)
    name = "chosen by cross-validation" if own is None else _named(own)
    at = own if own is not None else float(estimator.explained_share_cv_)
    chosen = sum(one.limit < at for one in made if one.limit is not None)
    made.insert(chosen, Candidate(name, estimator, own))
    return [*made, Candidate(NO_LIMIT, baseline)], chosen


def _refitted(estimator: Any, train: ReportRows, progress: Callable[[str], None]) -> list[Candidate]:
    """Return the models at other limits on decisions, or at other weights of the penalty."""
    if "decisions_" in vars(estimator):
        progress("fitting other limits on decisions")
        found = at_limits(estimator, train)
        made = [Candidate(_named(limit), model, limit) for limit, model in found.items()]
    else:
        progress("fitting other weights of the penalty")
        found = relatives(estimator, train)
        made = [Candidate(f"weight {number(eta)}", model) for eta, model in found.items()][::-1]
    return [*made[:-1], made[-1]._replace(name=NO_LIMIT, limit=None)]


def _named(limit: float) -> str:
    return f"at most {as_percent(limit)}"


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
    models: Sequence[Candidate], judge: Judge, test: JudgedRows, against: Outputs, notes: list[str]
) -> tuple[Position, ...]:
    """Return the numbers of each model, against those of the last one, which has no limit."""
    said = [*(outputs(one.model, test.X) for one in models[:-1]), against]
    positions = []
    explained = contributions([one.model for one in models], test, notes)
    for (name, model, limit), position, more in zip(models, judge.positions(said, against), explained, strict=True):
        point = {"limit": limit, "alpha": vars(model).get("alpha_"), "eta": float(model.eta_)}
        positions.append(replace(position, name=name, entries=(*position.entries, *more), **point))
    return tuple(positions)


def position_table(positions: tuple[Position, ...]) -> DataFrame:
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


def contributions(models: Sequence[Any], test: JudgedRows, notes: list[str]) -> list[list[Entry]]:
    """Return what inputs contribute to the share of each model; models with the same features share the passes."""
    first = models[0]
    if "moments_" not in vars(first):  # its features are not those of columns
        return [[] for _ in models]
    if any(model._design is not first._design for model in models):
        return [part for model in models for part in contributions([model], test, notes)]
    given = Chunk(test.X, test.sensitive if first.sensitive_columns is None else None, None, None)
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            explained = explain_models(models, given)
    except InputError as error:
        notes.append(f"contributions to the share are not available: {error}")
        return [[] for _ in models]
    return [
        [Entry(*key, CONTRIBUTION, value, *normal_ends(value, error)) for key, (value, error) in own.items()]
        for own in explained
    ]


def measure_proxies(problem: ReportProblem, notes: list[str]) -> DataFrame | None:
    """Return how much of the sensitive attributes the inputs reveal."""
    test = problem.test
    rest = [name for name in problem.inputs if name not in problem.sensitive]
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            X = frames.take_columns(test.X, rest) if rest else test.X
            return proxies(X, sensitive_features=test.sensitive)
    except InputError as error:
        notes.append(f"proxies are not available: {error}")
        return None


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
            "use a regressor, or predict one class against the rest",
            column=problem.target,
        )
