"""Measures of dependence of each model on each set of attributes, for the rows of an audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import product
from operator import add
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from scalefair import measures
from scalefair._hash import balanced_fold, distinct
from scalefair._typing import Accumulator, Chunk
from scalefair.data import Sums, Together, frames
from scalefair.data.sources import ArraySource
from scalefair.data.survey import View
from scalefair.kernels.stationary import plain_name
from scalefair.measures._features import FeaturePair, feature_pair, moment_sums
from scalefair.measures._null import streamed_pair, takes_moments
from scalefair.measures._pair import Pair, TooFineError, UndefinedError, Variable, numeric_rows, numeric_sample
from scalefair.measures.distances import distance_features, distance_of
from scalefair.measures.group_statistics import PASS_ROWS, SURVEY_SAMPLE_ROWS, SurveyedRows, count_cells
from scalefair.measures.independence import MAX_EXACT_HSIC_ROWS, alignment_of, hsic_of, nocco_of
from scalefair.measures.scorers import MEASURES
from scalefair.measures.share import open_share, share_columns, share_interval, share_of_folds
from scalefair.moments import FoldMoments, Folds, Moments
from scalefair.penalties import share_of_block

NEIGHBOUR_ROWS = SURVEY_SAMPLE_ROWS  # Mutual information looks for neighbours among at most so many rows
DISTANCE_ROWS = SURVEY_SAMPLE_ROWS
"""The distance correlation with several attributes together comes from at most so many rows."""

DISTANCE_PARTS = 20  # Parts of that sample that are left out in turn for the standard error
CONDITIONAL_ROWS = 3_000  # Independence given the target is tested on at most so many rows
N_COMPONENTS = 200  # Most features of each variable for HSIC, NOCCO and distances, as in their functions


@dataclass(frozen=True)
class DependenceSettings:
    """How dependence is measured."""

    names: tuple[str, ...]
    sensitive_kernel: Any
    n_sensitive_components: int
    eps: float
    seed: int


class Measurement(NamedTuple):
    """The value of one measure, how many rows it was computed from, and its interval, if any."""

    measure: str
    value: float
    rows: int
    low: float = np.nan
    high: float = np.nan
    reason: str = ""  # why the value is NaN


FROM_MOMENTS: dict[str, tuple[str, Callable[[Moments, float], float]]] = {
    "normalized_hsic": ("kernel", lambda m, _: alignment_of(m)),
    "hsic": ("kernel", lambda m, _: hsic_of(m)),
    "nocco": ("kernel", nocco_of),
    "distance_correlation": ("distance", lambda m, _: distance_of(m)),
    "hsic_pvalue": ("kernel", lambda m, _: streamed_pair(m).pvalue("features")),
}
"""Measures from the moments of features of a kind, and ε."""

IN_MEMORY: dict[str, Callable[..., float]] = {
    **MEASURES,
    "hsic_pvalue": lambda *pair, **options: measures.hsic_test(*pair, **options).pvalue,
}
"""Measures of rows in memory, which compare all pairs of rows where they are few."""

SHARE, IN_SAMPLE = "explained_share", "explained_share_in_sample"

INFORMATION, CONDITIONAL = "mutual_information", "conditional_hsic_pvalue"

MEASURE_NAMES = (
    SHARE, IN_SAMPLE, "normalized_hsic", "hsic", "nocco", "distance_correlation", INFORMATION,
    "hsic_pvalue", CONDITIONAL,
)  # fmt: skip

WITHOUT_WEIGHTS = (INFORMATION, "hsic_pvalue", CONDITIONAL)  # Not defined for weighted rows


@dataclass(frozen=True, eq=False)
class AttributeSet:
    """Attributes measured together, at `columns` among all; in `share_variable` numbers may be categories, too."""

    name: str
    columns: tuple[int, ...]
    variable: Variable
    share_variable: Variable


def attribute_sets(surveyed: SurveyedRows, settings: DependenceSettings) -> tuple[list[AttributeSet], list[str]]:
    """Return each attribute alone and all together; a note where they are too fine together."""
    names = [attribute.name for attribute in surveyed.plan.attributes]
    columns: list[tuple[int, ...]] = [(j,) for j in range(len(names))]
    columns += [tuple(range(len(names)))] if len(names) > 1 else []
    sets: list[AttributeSet] = []
    for at in columns:
        name = " × ".join(names[j] for j in at)
        try:
            plain = shared = _variable(surveyed, at, every=False)
            if plain_name(settings.sensitive_kernel) == "categorical":
                shared = _variable(surveyed, at, every=True)
        except TooFineError as error:
            if len(at) == 1:
                raise
            return sets, [not_together(name, error)]
        sets.append(AttributeSet(name, at, plain, shared))
    return sets, []


def not_together(name: str, error: Exception) -> str:
    """Return the note that attributes are measured alone only."""
    return f"{name} are not measured together: {error}"


def _variable(surveyed: SurveyedRows, columns: tuple[int, ...], *, every: bool) -> Variable:
    part, plan = surveyed.survey.parts["s"], surveyed.plan
    chosen = [plan.attributes[j] for j in columns]
    coded = np.array([attribute.is_coded for attribute in chosen])
    groups = None
    if every or coded.any():
        table = frames.columns(part.groups, "s")
        rows = np.column_stack([plan.attributes[j].values(table[j]) for j in columns])
        groups = rows[np.sort(distinct(rows[:, coded | every]).first)]
    spreads = [part.columns.columns[j].spread for j in columns]
    levels = tuple(len(a.levels) * code for a, code in zip(chosen, coded, strict=True))
    span = np.array([[spread.low for spread in spreads], [spread.high for spread in spreads]])
    names = tuple(attribute.name for attribute in chosen)
    variable = Variable("sensitive_features", names, coded, levels, groups, span)
    return variable.check_groups(surveyed.survey.n_present)


@dataclass(frozen=True, eq=False)
class Subject:
    """One model and some attributes; `features`, by kind, are what moments are taken of, with folds and columns."""

    model: int
    attributes: AttributeSet
    pair: Pair
    features: Mapping[str, tuple[FeaturePair, tuple[Any, ...]]]


def _view(model: int, columns: tuple[int, ...], chunk: Chunk) -> Chunk:
    """The predictions of one model and some attributes, from a numeric chunk."""
    return replace(chunk, x=chunk.x[:, [model]], s=chunk.s[:, list(columns)])


def subjects(surveyed: SurveyedRows, sets: Sequence[AttributeSet], settings: DependenceSettings) -> list[Subject]:
    """Return every model with every set of attributes, and the features of what is measured."""
    rows, plan, survey = surveyed.rows, surveyed.plan, surveyed.survey
    source, sample = numeric_rows(rows, survey, plan.numeric)
    chosen = []
    for (model, name), s in product(enumerate(plan.models), sets):
        spread = surveyed.predictions[model].spread
        span = np.array([[spread.low], [spread.high]])
        predictions = Variable("y_pred", (name,), np.array([False]), (0,), None, span)
        view = partial(_view, model, s.columns)
        pair = Pair(
            source.then(view), predictions, s.variable, survey.n_present,
            rows.in_memory, settings.seed, numeric_sample(sample, view),
        )  # fmt: skip
        chosen.append(Subject(model, s, pair, _features_of(pair, s, settings)))
    return chosen


def _features_of(
    pair: Pair, attributes: AttributeSet, settings: DependenceSettings
) -> dict[str, tuple[FeaturePair, tuple[Any, ...]]]:
    names = settings.names
    features: dict[str, tuple[FeaturePair, tuple[Any, ...]]] = {}
    if SHARE in names or IN_SAMPLE in names:
        shared = open_share(
            replace(pair, b=attributes.share_variable), None, None, kernel=settings.sensitive_kernel,
            length_scale="median", size=settings.n_sensitive_components, random_state=settings.seed,
        )  # fmt: skip
        features["share"] = shared, share_columns(shared, min(5, pair.n_rows // 2))
    kinds = {FROM_MOMENTS[name][0] for name in names if _origin(name, pair) == "moments"}
    if "kernel" in kinds:
        features["kernel"] = feature_pair(pair, n_components=N_COMPONENTS), ()
    if "distance" in kinds:
        features["distance"] = distance_features(pair, N_COMPONENTS), ()
    return features


def _origin(name: str, pair: Pair) -> str:
    """Return what a measure comes from: a sample, moments of features that several measures share, or rows."""
    if name == "distance_correlation" and len(pair.b.columns) > 1 and pair.n_rows > DISTANCE_ROWS:
        return "sample"  # features of all rows would cost more than all other measures
    if name == "hsic_pvalue":
        return "moments" if takes_moments(pair) else "rows"
    many = pair.n_rows > MAX_EXACT_HSIC_ROWS and name in ("normalized_hsic", "hsic", "nocco")
    return "moments" if name in FROM_MOMENTS and (many or not pair.in_memory) else "rows"


def second_pass(
    surveyed: SurveyedRows, chosen: Sequence[Subject]
) -> tuple[Sums[Any] | None, list[Mapping[str, FoldMoments]]]:
    """Return the statistics of groups (None in memory) and the moments of each subject's features, in one pass."""
    if surveyed.rows.in_memory:
        return None, [
            {kind: pair.moments(*options) for kind, (pair, options) in one.features.items()} for one in chosen
        ]
    # A view holds two numbers only: it travels to the workers of a cluster, the rows do not.
    views = [
        (partial(_view, one.model, one.attributes.columns), partial(moment_sums, f.phi, f.psi, *rest))
        for one in chosen
        for f, rest in one.features.values()
    ]
    plan = surveyed.plan
    parts: list[tuple[View, Callable[[], Accumulator]]] = [
        (copy, partial(count_cells, plan)),
        (plan.numeric, partial(Together, views)),
    ]
    crossed, moments = surveyed.rows.source.fold(partial(Together, parts), PASS_ROWS)
    each = iter(moments)
    return crossed, [{kind: next(each) for kind in one.features} for one in chosen]


def measure(
    name: str,
    subject: Subject,
    moments: Mapping[str, FoldMoments],
    surveyed: SurveyedRows,
    settings: DependenceSettings,
) -> Measurement:
    """Return one measure of dependence of one model on some attributes together."""
    pair = subject.pair
    if name == CONDITIONAL:
        return _conditional(surveyed, subject)
    if name == SHARE:
        features, _ = subject.features["share"]
        estimate = share_of_folds(features, moments["share"])
        value, low, high = share_interval(features, estimate, surveyed.plan.settings.confidence)
        return Measurement(name, value, pair.n_rows, low, high)
    if name == IN_SAMPLE:
        value = float(np.clip(share_of_block(reduce(add, moments["share"])), 0.0, 1.0))
    elif name == INFORMATION:
        value = measures.mutual_information(pair, None, max_rows=NEIGHBOUR_ROWS)
        return Measurement(name, value, min(pair.n_rows, NEIGHBOUR_ROWS))
    elif (origin := _origin(name, pair)) == "sample":
        return _sampled_distance(pair, surveyed.plan.settings.confidence)
    elif origin == "rows":
        options = {"eps": settings.eps} if name == "nocco" else {"random_state": settings.seed}
        value = IN_MEMORY[name](pair, None, **options)
    else:
        kind, function = FROM_MOMENTS[name]
        value = function(moments[kind][0], settings.eps)
    return Measurement(name, value, pair.n_rows)


def _sampled_distance(pair: Pair, confidence: float) -> Measurement:
    """Return the distance correlation of a sample, with a jackknife interval."""
    rows = pair.rows(DISTANCE_ROWS)
    some = replace(pair, source=ArraySource(rows.x, rows.s, None, rows.weight), sample=None)
    folds = Folds(DISTANCE_PARTS, partial(balanced_fold, DISTANCE_PARTS, pair.seed))
    parts = distance_features(some, N_COMPONENTS).moments(folds)
    value = distance_of(reduce(add, parts))
    others = [distance_of(reduce(add, parts[:k] + parts[k + 1 :])) for k in range(DISTANCE_PARTS)]
    error = np.sqrt(DISTANCE_PARTS - 1) * np.std(others)
    margin = student.ppf((1 + confidence) / 2, DISTANCE_PARTS - 1) * error
    low, high = np.clip([value - margin, value + margin], 0.0, 1.0)
    return Measurement("distance_correlation", value, rows.n_rows, float(low), float(high))


def _conditional(surveyed: SurveyedRows, subject: Subject) -> Measurement:
    """Test independence given the target, on a sample of the rows that count."""
    given, columns = surveyed.survey.sample.chunk, subject.attributes.columns
    rows = _view(subject.model, columns, surveyed.plan.numeric(given))
    index = np.arange(given.n_rows)
    if len(index) > CONDITIONAL_ROWS:
        # Evenly spaced rows of a sample by hash are still a sample.
        index = index[np.linspace(0, len(index) - 1, CONDITIONAL_ROWS).astype(np.int64)]
    target = given.y[index, 0]
    labels = surveyed.truth is not None and surveyed.truth.is_binary
    control = np.where(target > 0, "positive", "negative").astype(object) if labels else target
    table: dict[str, Any] = {}
    for j, x in zip(columns, rows.s[index].T, strict=True):
        a = surveyed.plan.attributes[j]
        table[a.name] = np.array(a.levels, dtype=object)[x.astype(np.int64)] if a.is_coded else x
    try:
        test = measures.conditional_hsic_test(
            rows.x[index], frames.make_frame(table), control, random_state=subject.pair.seed
        )
    except UndefinedError as error:
        raise UndefinedError(f"in the {len(index):,} rows of the test, {error}") from error
    return Measurement(CONDITIONAL, test.pvalue, len(index))
