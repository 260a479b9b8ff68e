"""The audit of one or several models."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from scalefair.auditing.dependence import (
    CONDITIONAL,
    MEASURE_NAMES,
    N_COMPONENTS,
    WITHOUT_WEIGHTS,
    DependenceSettings,
    Measurement,
    Subject,
    attribute_sets,
    measure,
    not_together,
    second_pass,
    subjects,
)
from scalefair.auditing.result import Audit, ModelAudit
from scalefair.data.encoding import numbers_or_codes
from scalefair.errors import CannotJudgeError
from scalefair.measures._pair import TooFineError, UndefinedError, check_kernel
from scalefair.measures.group_metrics import count_groups
from scalefair.measures.group_rows import Missing, open_audit
from scalefair.measures.group_statistics import SURVEY_SAMPLE_ROWS, GroupSettings, SurveyedRows, survey_groups
from scalefair.measures.groups import MIN_GROUP_SIZE, GroupGaps, group_frames

MIN_AUDIT_ROWS = 20  # With fewer rows neither mutual information nor tests of independence are meaningful
MAX_NAMED_GROUPS = 5  # Small groups that a warning names


def audit(
    y_pred: Any, *, sensitive_features: Any, y_true: Any = None, sample_weight: Any = None,
    measures: Sequence[str] | None = None, threshold: float | None = None,
    metrics: str | Sequence[str] | None = None, quantiles: Sequence[float] = (0.1, 0.5, 0.9),
    bins: Mapping[str, Sequence[float]] | None = None, intersections: bool = True,
    missing: Missing = "error", confidence: float = 0.95,
    sensitive_kernel: Any = "auto", n_sensitive_components: int = 100, eps: float = 1e-6,
    random_state: int = 0,
) -> Audit:  # fmt: skip
    """Measure how far predictions depend on sensitive attributes, in one table.

    Parameters
    ----------
    y_pred : array-like, Series, dask collection or Scan of shape (n,), or dict of them
        Predictions: scores, probabilities, or labels 0 and 1. Several models by name, or as the columns of a frame. Or
        a `BatchSource` whose X are predictions, and which brings the attributes (None then) and targets.
    sensitive_features : array-like, frame, dask collection or Scan of shape (n,) or (n, p)
        Attributes: categories, numbers or both. Each is measured alone, and all together.
    y_true : array-like of shape (n,), optional
        Targets: numbers, or labels 0 and 1.
    sample_weight : array-like of shape (n,), optional
        Relative: a common factor changes nothing. In the values weight 2 equals the row twice,
        intervals and corrections for chance count rows by Kish's (Σw)²/Σw². Mutual information and
        the tests of independence do not support weights and are left out if weights differ.
    measures : sequence of str, optional
        Measures of dependence; by default explained_share (cross-fitted, for new rows), explained_share_in_sample,
        normalized_hsic, hsic, nocco, distance_correlation, mutual_information (of at most 20,000 rows), hsic_pvalue
        and, with targets, conditional_hsic_pvalue (a test of equalised odds, on at most 3,000 rows). The first has an
        interval.
    threshold, metrics, quantiles, bins, intersections, missing, confidence
        How groups are compared, as in :func:`scalefair.measures.group_gaps`.
    sensitive_kernel, n_sensitive_components, eps
        As in the estimators: explained_share_in_sample of a fitted model on its training rows is
        the `explained_share_` that it reports.
    random_state : int
        Seed of landmarks, folds, and samples.

    Returns
    -------
    Audit

    Raises
    ------
    ValueError
        If something cannot be measured: constant predictions, decisions that are all equal, a metric of decisions
        for scores without a threshold, text as predictions, attributes that are constant or are missing without a
        stated policy, categories with a group of one or with thousands of levels, lengths that differ.

    Warns
    -----
    UserWarning
        Whole numbers with few levels as attributes: numbers or codes of groups? Groups of fewer than 30 rows, by name;
        measures that an attribute does not allow, whose value is NaN; attributes that are not measured together,
        because there are more than a thousand intersections, or most rows are the only one in theirs.

    Notes
    -----
    Files, batches and dask collections are read twice: a survey with a sample, then all statistics
    together. Mutual information, the test given the target and the width of the interval of an
    explained share are those of the sample, of at least 20,000 rows.

    Examples
    --------
    >>> import numpy as np, scalefair
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.choice(["f", "m"], 1000)
    >>> score = rng.normal(size=1000) + (sex == "m")
    >>> result = scalefair.audit(score, sensitive_features={"sex": sex})
    >>> round(float(result.compare("mean_prediction_difference").loc["sex", "y_pred"]), 2)
    1.12
    """
    groups = GroupSettings(tuple(quantiles), threshold, metrics, bins, intersections, missing, confidence, random_state)
    rows = open_audit(y_pred, sensitive_features, y_true, sample_weight)
    surveyed = survey_groups(
        rows,
        groups,
        size=max(SURVEY_SAMPLE_ROWS, 4 * n_sensitive_components, 4 * N_COMPONENTS),
        groups=True,
        every=check_kernel("sensitive_kernel", sensitive_kernel) == "categorical",
    )
    _check_predictions(surveyed)
    settings = DependenceSettings(
        _possible(measures, surveyed), sensitive_kernel, n_sensitive_components, eps, random_state
    )
    sets, too_fine = attribute_sets(surveyed, settings)
    everyone = subjects(surveyed, sets, settings)
    crossed, moments = second_pass(surveyed, everyone)
    counted = count_groups(surveyed, crossed)
    measured, undefined = _dependence(surveyed, everyone, moments, settings)
    models = {name: ModelAudit(name, measured[m], group_frames(counted, m)) for m, name in enumerate(rows.models)}
    first, survey = models[rows.models[0]].gaps, surveyed.survey
    notes = list(dict.fromkeys(_notes(surveyed, settings, [*too_fine, *undefined], first)))
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=2)
    return Audit(models, survey.n_present, survey.n_missing, notes, confidence)


def _possible(asked: Sequence[str] | None, surveyed: SurveyedRows) -> tuple[str, ...]:
    """Leave out what these rows do not allow; raise ValueError where it was requested."""
    names = MEASURE_NAMES if asked is None else tuple(asked)
    survey, truth, obstacles = surveyed.survey, surveyed.truth, dict[str, str]()
    n = survey.n_present
    # Weights that are all equal are none.
    if survey.weight < n * survey.heaviest * (1 - 1e-9):
        obstacles = dict.fromkeys(WITHOUT_WEIGHTS, "is not defined for weighted rows; leave it out")
    elif n < MIN_AUDIT_ROWS:
        reason = f"needs at least {MIN_AUDIT_ROWS} rows, here are {n}; leave it out"
        obstacles = dict.fromkeys(WITHOUT_WEIGHTS, reason)
    elif truth is None:
        obstacles = {CONDITIONAL: "needs targets; give y_true"}
    elif truth.is_constant:
        obstacles = {CONDITIONAL: "needs targets that differ; leave it out"}
    for name in names if asked is not None else ():
        if name not in MEASURE_NAMES:
            reason = f"is unknown; choose among {', '.join(MEASURE_NAMES)}"
            raise ValueError(f"measures has {name!r}, which {reason}")
        if name in obstacles:
            raise ValueError(f"measures has {name!r}, which {obstacles[name]}")
    return tuple(name for name in names if name not in obstacles)


def _check_predictions(surveyed: SurveyedRows) -> None:
    """Raise an error if the predictions of a model, or its decisions, are the same in all rows."""
    plan = surveyed.plan
    for model, numbers, cut in zip(plan.models, surveyed.predictions, plan.cuts, strict=True):
        low, high = numbers.spread.low, numbers.spread.high
        if numbers.is_constant:
            raise CannotJudgeError(
                f"y_pred {model!r} is {low:g} in every row: how far a constant "
                "depends on anything is undefined, not 0; audit a model whose predictions differ between rows"
            )
        if np.isfinite(cut) and not low < cut <= high:
            raise ValueError(
                f"threshold={cut:g} selects {'no row' if cut > high else 'every row'} of y_pred "
                f"{model!r}, so decisions cannot be compared; give a threshold between its "
                "least and its largest prediction"
            )


def _dependence(
    surveyed: SurveyedRows, everyone: Sequence[Subject], moments: Sequence[Any], settings: DependenceSettings
) -> tuple[list[dict[str, list[Measurement]]], list[str]]:
    """Return the measures of each model by attributes, and notes on what is not available."""
    measured: list[dict[str, list[Measurement]]] = [{} for _ in surveyed.plan.models]
    notes = []
    for subject, sums in zip(everyone, moments, strict=True):
        attributes, lines = subject.attributes, []
        try:
            for name in settings.names:
                try:
                    lines.append(measure(name, subject, sums, surveyed, settings))
                except UndefinedError as error:
                    reason = str(error)
                    notes.append(f"{attributes.name}: {name} is not known: {reason}")
                    lines.append(Measurement(name, np.nan, subject.pair.n_rows, reason=reason))
        except TooFineError as error:
            # The attributes alone are still measured.
            if len(attributes.columns) == 1:
                raise
            notes.append(not_together(attributes.name, error))
            continue
        measured[subject.model][attributes.name] = lines
    return measured, notes


def _notes(surveyed: SurveyedRows, settings: DependenceSettings, left_out: list[str], gaps: GroupGaps) -> Iterator[str]:
    """Yield notes for users: on the rows, on what is not measured, on small groups."""
    survey = surveyed.survey
    if survey.n_missing:
        yield f"{survey.n_missing:,} rows in which a sensitive attribute is missing were left out"
    columns = survey.parts["s"].columns.columns
    if settings.sensitive_kernel == "auto" and (doubt := numbers_or_codes(columns, survey.n_present)):
        yield doubt
    yield from left_out
    for frame in gaps.frames.values():
        small = np.flatnonzero(frame.counts < MIN_GROUP_SIZE)
        if len(small):
            groups, more = frame.groups, len(small) - MAX_NAMED_GROUPS
            named = [f"{groups[i]} ({frame.counts[i]})" for i in small[:MAX_NAMED_GROUPS]]
            yield (
                f"{frame.name}: groups of fewer than {MIN_GROUP_SIZE} rows are too small to judge, "
                f"their intervals are wide: {', '.join(named)}" + f" and {more} more" * (more > 0)
            )
