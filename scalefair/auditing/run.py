"""The audit of one or several models."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from scalefair.auditing.dependence import (
    CONDITIONAL,
    MEASURE_NAMES,
    WITHOUT_WEIGHTS,
    Kernels,
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
from scalefair.measures._pair import TooFineError
from scalefair.measures.grouping.attributes import Missing
from scalefair.measures.grouping.frames import group_frames
from scalefair.measures.grouping.judged import GroupSettings, Judged, Prepared, judge, prepare
from scalefair.measures.grouping.rows import open_audit
from scalefair.measures.groups import MIN_GROUP_SIZE, GroupGaps

LEAST_AUDIT_ROWS = 20
"""Of fewer rows neither mutual information nor tests of independence tell anything."""

MAX_NAMED_GROUPS = 5
"""Small groups that a warning names."""


def audit(
    y_pred: Any,
    *,
    sensitive_features: Any,
    y_true: Any = None,
    sample_weight: Any = None,
    measures: Sequence[str] | None = None,
    threshold: float | None = None,
    metrics: str | Sequence[str] | None = None,
    quantiles: Sequence[float] = (0.1, 0.5, 0.9),
    bins: Mapping[str, Sequence[float]] | None = None,
    intersections: bool = True,
    missing: Missing = "error",
    confidence: float = 0.95,
    interval: Literal["analytic", "bootstrap"] = "analytic",
    n_resamples: int = 500,
    sensitive_kernel: Any = "auto",
    n_sensitive_components: int = 100,
    eps: float = 1e-6,
    random_state: int = 0,
) -> Audit:
    """Measure how far predictions depend on sensitive attributes, in one table.

    Parameters
    ----------
    y_pred : array-like, Series, dask collection or Scan of shape (n,), or dict of them
        Predictions: scores, probabilities, or labels 0 and 1. Several models by name, or as the
        columns of a frame. Or a `BatchSource` whose X are predictions, and which brings the
        attributes (None then) and targets.
    sensitive_features : array-like, frame, dask collection or Scan of shape (n,) or (n, p)
        Attributes: categories, numbers or both. Each is judged alone, and all together.
    y_true : array-like of shape (n,), optional
        Targets: numbers, or labels 0 and 1.
    sample_weight : array-like of shape (n,), optional
        Relative: a common factor changes nothing. In the values weight 2 equals the row twice,
        intervals and corrections for chance count rows by Kish's (Σw)²/Σw². Mutual information and
        the tests of independence know no weights and are left out where weights differ.
    measures : sequence of str, optional
        Measures of dependence; by default explained_share (cross-fitted, for new rows),
        explained_share_in_sample, normalized_hsic, hsic, nocco, distance_correlation,
        mutual_information (of at most 20,000 rows), hsic_pvalue and, with targets,
        conditional_hsic_pvalue (a test of equalised odds, on at most 3,000 rows). The first
        has an interval.
    threshold, metrics, quantiles, bins, intersections, missing, confidence, interval, n_resamples
        How groups are judged, as in :func:`scalefair.measures.group_gaps`.
    sensitive_kernel, n_sensitive_components, eps
        As in the estimators: explained_share_in_sample of a fitted model on its training rows is
        the `explained_share_` that it reports.
    random_state : int
        Seed of landmarks, folds, samples and resamples.

    Returns
    -------
    Audit

    Raises
    ------
    ValueError
        Where something cannot be judged: constant predictions, decisions that are all the same,
        a metric of decisions for scores without a threshold, text as predictions, attributes that
        are constant or are missing without a stated policy, categories with a group of one or with
        thousands of levels, lengths that differ.

    Warns
    -----
    UserWarning
        Whole numbers with few levels as attributes: numbers or codes of groups? Groups of fewer
        than 30 rows, by name; measures that an attribute does not allow, whose value is NaN;
        attributes that are not judged together, because their intersections are more than a
        thousand or most rows are alone in theirs.

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
    settings = GroupSettings(
        tuple(quantiles), threshold, metrics, bins, intersections, missing, confidence, interval,
        n_resamples, random_state,
    ).check()  # fmt: skip
    kernels = Kernels(sensitive_kernel, n_sensitive_components, eps, random_state)
    chosen = _measures(measures)
    rows = open_audit(y_pred, sensitive_features, y_true, sample_weight)
    prepared = prepare(
        rows, settings, size=kernels.sample_rows, groups=True, every=kernels.every
    )  # fmt: skip
    _check_predictions(prepared)
    names, notes = _possible(chosen, prepared, asked=measures is not None)
    if sensitive_kernel == "auto":
        columns = prepared.survey.parts["s"].columns.columns
        notes += filter(None, [numbers_or_codes(columns, prepared.survey.n_present)])
    sets, too_fine = attribute_sets(prepared, kernels)
    everyone = subjects(prepared, sets, kernels, names)
    crossed, moments = second_pass(prepared, everyone)
    judged = judge(prepared, crossed)
    _check_decisions(judged)
    measured, unknown = _dependence(judged, everyone, moments, kernels, names)
    models = [
        ModelAudit(name, measured[m], GroupGaps(group_frames(judged, m)))
        for m, name in enumerate(rows.models)
    ]
    notes = [*dict.fromkeys([*notes, *too_fine, *unknown]), *_small_groups(models[0].gaps)]
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=2)
    survey = judged.survey
    return Audit(models, survey.n_present, survey.n_missing, notes, settings.confidence)


def _dependence(
    judged: Judged, everyone: Sequence[Subject], moments: Sequence[Any], kernels: Kernels,
    names: Sequence[str],
) -> tuple[list[dict[str, list[Measurement]]], list[str]]:  # fmt: skip
    """Return the measures of each model by attributes, and notes on what is not known."""
    measured: list[dict[str, list[Measurement]]] = [{} for _ in judged.plan.models]
    notes = []
    for subject, sums in zip(everyone, moments, strict=True):
        attributes = subject.attributes
        try:
            lines = measure(subject, sums, judged, kernels, names)
        except TooFineError as error:
            # The attributes alone are judged all the same.
            if len(attributes.columns) == 1:
                raise
            notes.append(not_together(attributes.name, error))
            continue
        measured[subject.model][attributes.name] = lines
        notes += [
            f"{attributes.name}: {one.measure} is not known: {one.reason}"
            for one in lines
            if one.reason
        ]
    return measured, notes


def _measures(measures: Sequence[str] | None) -> list[str]:
    names = list(MEASURE_NAMES) if measures is None else [*measures]
    for name in names:
        if name not in MEASURE_NAMES:
            raise ValueError(
                f"measures has {name!r}, which is unknown; choose among {', '.join(MEASURE_NAMES)}"
            )
    return names


def _possible(names: list[str], prepared: Prepared, *, asked: bool) -> tuple[list[str], list[str]]:
    """Leave out what these rows do not allow, or refuse it where it was asked for; add notes."""
    survey = prepared.survey
    impossible = {name: reason for name in names if (reason := _obstacle(name, prepared))}
    for name, reason in impossible.items():
        if asked:
            raise ValueError(f"measures has {name!r}, which {reason}")
    notes = []
    if survey.n_missing:
        notes.append(
            f"{survey.n_missing:,} rows in which a sensitive attribute is missing were left out"
        )
    return [name for name in names if name not in impossible], notes


def _obstacle(name: str, prepared: Prepared) -> str:
    """Return why a measure cannot be computed, "" if it can."""
    survey, truth = prepared.survey, prepared.truth
    if name in WITHOUT_WEIGHTS and survey.is_weighted:
        return "is not defined for weighted rows; leave it out"
    if name in WITHOUT_WEIGHTS and survey.n_present < LEAST_AUDIT_ROWS:
        return f"needs at least {LEAST_AUDIT_ROWS} rows, here are {survey.n_present}; leave it out"
    if name == CONDITIONAL and truth is None:
        return "needs targets; give y_true"
    if name == CONDITIONAL and truth is not None and truth.is_constant:
        return "needs targets that differ; leave it out"
    return ""


def _check_predictions(prepared: Prepared) -> None:
    """Raise ValueError if the predictions of a model are constant."""
    for model, numbers in zip(prepared.plan.models, prepared.predictions, strict=True):
        if numbers.is_constant:
            raise CannotJudgeError(
                f"y_pred {model!r} is {numbers.spread.low:g} in every row: how far a constant "
                "depends on anything is undefined, not 0; audit a model that tells rows apart"
            )


def _check_decisions(judged: Judged) -> None:
    """Raise ValueError if a threshold decides alike for all rows."""
    outcomes = judged.statistics(()).outcomes[0]
    for model, weight, cut in zip(judged.plan.models, outcomes, judged.plan.cuts, strict=True):
        chosen = float(weight[2:].sum())
        if np.isfinite(cut) and chosen in (0.0, float(weight.sum())):
            which = "no row" if chosen == 0 else "every row"
            raise ValueError(
                f"threshold={cut:g} selects {which} of y_pred {model!r}, so that decisions cannot "
                "be judged; give a threshold between its least and its largest prediction"
            )


def _small_groups(gaps: GroupGaps) -> list[str]:
    notes = []
    for frame in gaps.frames.values():
        small = np.flatnonzero(frame.counts < MIN_GROUP_SIZE)
        if not len(small):
            continue
        shown = ", ".join(
            f"{frame.groups[i]} ({frame.counts[i]})" for i in small[:MAX_NAMED_GROUPS]
        )
        more = f" and {len(small) - MAX_NAMED_GROUPS} more" if len(small) > MAX_NAMED_GROUPS else ""
        notes.append(
            f"{frame.name}: groups of fewer than {MIN_GROUP_SIZE} rows are too small to judge, "
            f"their intervals are wide: {shown}{more}"
        )
    return notes
