"""Measures of dependence of one model on some attributes, for the rows of an audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import product
from operator import add
from typing import Any, NamedTuple

import numpy as np

from scalefair._hash import distinct
from scalefair._typing import Accumulator, Array, Chunk
from scalefair.data import Together, frames
from scalefair.data.sources import ArraySource
from scalefair.data.survey import View
from scalefair.measures import (
    conditional_hsic_test,
    distance_correlation,
    hsic,
    hsic_test,
    mutual_information,
    nocco,
    normalized_hsic,
)
from scalefair.measures._features import FeaturePair, feature_pair
from scalefair.measures._kernels import check_kernel
from scalefair.measures._pair import Pair, TooFineError, UndefinedError, Variable, numeric_sample
from scalefair.measures.distance import distance_features, distance_of
from scalefair.measures.grouping.cells import CrossedStatistics, GroupAccumulator
from scalefair.measures.grouping.judged import PASS_ROWS, SURVEY_SAMPLE_ROWS, Judged, Prepared
from scalefair.measures.independence import alignment_of, hsic_of, nocco_of
from scalefair.measures.share import estimate_of, opened, share_columns, share_interval
from scalefair.measures.testing import pvalue_of
from scalefair.moments import FoldMoments, Moments
from scalefair.penalties.share import share_of_block

NEIGHBOUR_ROWS = SURVEY_SAMPLE_ROWS
"""Mutual information looks for neighbours among at most so many rows."""

CONDITIONAL_ROWS = 3_000
"""Independence given the target is tested on at most so many rows."""

N_COMPONENTS = 200
"""Most features of each variable for HSIC, NOCCO and distances, as in their functions."""


@dataclass(frozen=True)
class Kernels:
    """How dependence is measured; as in the estimators.

    Parameters
    ----------
    sensitive_kernel : str or kernel
        Of the sensitive attributes, for the explained share.
    n_sensitive_components : int
        Features of it.
    eps : float
        Of the explained share and of NOCCO.
    seed : int
        Of landmarks, folds and samples.
    """

    sensitive_kernel: Any = "auto"
    n_sensitive_components: int = 100
    eps: float = 1e-6
    seed: int = 0

    @property
    def every(self) -> bool:
        """Whether numbers are categories, too, for the explained share."""
        return bool(check_kernel("sensitive_kernel", self.sensitive_kernel) == "categorical")

    @property
    def sample_rows(self) -> int:
        """Rows that one sample must have for all measures."""
        return max(SURVEY_SAMPLE_ROWS, 4 * self.n_sensitive_components, 4 * N_COMPONENTS)


class Measurement(NamedTuple):
    """The value of one measure, how many rows it was computed from, and its interval, if any.

    Where the value is NaN, `reason` says why.
    """

    measure: str
    value: float
    rows: int
    low: float = np.nan
    high: float = np.nan
    reason: str = ""


IN_MEMORY: dict[str, Callable[[Pair, Kernels], float]] = {
    "normalized_hsic": lambda pair, k: normalized_hsic(pair, None, random_state=k.seed),
    "hsic": lambda pair, k: hsic(pair, None, random_state=k.seed),
    "nocco": lambda pair, k: nocco(pair, None, eps=k.eps, random_state=k.seed),
    "distance_correlation": lambda pair, k: distance_correlation(pair, None, random_state=k.seed),
    "hsic_pvalue": lambda pair, k: hsic_test(pair, None, random_state=k.seed).pvalue,
}
"""Measures of rows in memory, which compare all pairs of rows where they are few."""

STREAMED: dict[str, Callable[[Moments, Kernels], float]] = {
    "normalized_hsic": lambda m, _: alignment_of(m),
    "hsic": lambda m, _: hsic_of(m),
    "nocco": lambda m, k: nocco_of(m, k.eps),
    "distance_correlation": lambda m, _: distance_of(m),
    "hsic_pvalue": lambda m, _: pvalue_of(m),
}
"""The same from the moments of features."""

SHARE, IN_SAMPLE = "explained_share", "explained_share_in_sample"

INFORMATION, CONDITIONAL = "mutual_information", "conditional_hsic_pvalue"

MEASURE_NAMES = (
    SHARE, IN_SAMPLE, "normalized_hsic", "hsic", "nocco", "distance_correlation", INFORMATION,
    "hsic_pvalue", CONDITIONAL,
)  # fmt: skip

WITHOUT_WEIGHTS = (INFORMATION, "hsic_pvalue", CONDITIONAL)
"""Not defined for weighted rows."""


@dataclass(frozen=True, eq=False)
class AttributeSet:
    """Attributes that are judged together.

    Parameters
    ----------
    name : str
        Such as "sex × race".
    columns : tuple of int
        Their positions among all attributes.
    variable, share_variable : Variable
        What is known of them; for the explained share numbers may be categories, too.
    """

    name: str
    columns: tuple[int, ...]
    variable: Variable
    share_variable: Variable


def attribute_sets(prepared: Prepared, kernels: Kernels) -> tuple[list[AttributeSet], list[str]]:
    """Return each attribute alone and all together; a note where they are too fine together."""
    names = [attribute.name for attribute in prepared.plan.attributes]
    sets = [_attribute_set(prepared, kernels, name, (j,)) for j, name in enumerate(names)]
    if len(names) == 1:
        return sets, []
    together = " × ".join(names)
    try:
        return [*sets, _attribute_set(prepared, kernels, together, tuple(range(len(names))))], []
    except TooFineError as error:
        return sets, [not_together(together, error)]


def not_together(name: str, error: Exception) -> str:
    """Return the note that attributes are judged alone only."""
    return f"{name} are not judged together: {error}"


def _attribute_set(
    prepared: Prepared, kernels: Kernels, name: str, columns: tuple[int, ...]
) -> AttributeSet:
    variable = shared = _variable(prepared, columns, every=False)
    if kernels.every:
        shared = _variable(prepared, columns, every=True)
    return AttributeSet(name, columns, variable, shared)


def _variable(prepared: Prepared, columns: tuple[int, ...], *, every: bool) -> Variable:
    part, attributes = prepared.survey.parts["s"], prepared.plan.attributes
    chosen = [attributes[j] for j in columns]
    coded = np.array([attribute.is_coded for attribute in chosen])
    groups = None
    if every or coded.any():
        rows = prepared.plan.numbers(part.groups)[:, list(columns)]
        groups = rows[np.sort(distinct(rows[:, coded | every]).first)]
    spreads = [part.columns.columns[j].spread for j in columns]
    return Variable(
        "sensitive_features",
        tuple(attribute.name for attribute in chosen),
        tuple("categorical" if attribute.is_coded else "numeric" for attribute in chosen),
        tuple(len(attribute.levels) * attribute.is_coded for attribute in chosen),
        groups,
        np.array([[spread.low for spread in spreads], [spread.high for spread in spreads]]),
    ).check_groups(prepared.survey.n_present)


@dataclass(frozen=True, eq=False)
class Subject:
    """One model and some attributes, whose dependence is measured.

    Parameters
    ----------
    model : int
        Position of the model.
    attributes : AttributeSet
        The attributes.
    pair : Pair
        Predictions and attributes as numbers.
    features : dict of str to FeaturePair
        What moments are computed of: "share" and, of a stream, "kernel" and "distance".
    """

    model: int
    attributes: AttributeSet
    pair: Pair
    features: Mapping[str, FeaturePair]

    @property
    def view(self) -> View:
        """What takes the predictions and the attributes from a numeric chunk."""
        # Of two numbers only: it travels to the workers of a cluster, the rows do not.
        return partial(_view, self.model, self.attributes.columns)

    def options(self, kind: str) -> tuple[Any, ...]:
        """Return the folds and further columns whose moments are asked for, if any."""
        if kind != "share":
            return ()
        return share_columns(self.features[kind], min(5, self.pair.n_rows // 2))


def _view(model: int, columns: tuple[int, ...], chunk: Chunk) -> Chunk:
    return replace(chunk, x=chunk.x[:, [model]], s=chunk.s[:, list(columns)])


def subjects(
    prepared: Prepared, sets: Sequence[AttributeSet], kernels: Kernels, names: Sequence[str]
) -> list[Subject]:
    """Return every model with every set of attributes, and the features of what is measured."""
    rows, plan, survey = prepared.rows, prepared.plan, prepared.survey
    source, sample = rows.source.then(plan.numeric), None
    if rows.in_memory:
        (chunk,) = source.chunks(survey.n_rows)
        source = ArraySource(chunk.x, chunk.s, None, chunk.weight)
    else:
        sample = numeric_sample(survey.sample, plan.numeric)
    chosen = []
    for model, s in product(range(len(rows.models)), sets):
        view = partial(_view, model, s.columns)
        pair = Pair(
            source.then(view), _predictions(prepared, model), s.variable, survey.n_present,
            rows.in_memory, kernels.seed, sample and numeric_sample(sample, view),
        )  # fmt: skip
        chosen.append(Subject(model, s, pair, _features_of(pair, s, kernels, names)))
    return chosen


def _predictions(prepared: Prepared, model: int) -> Variable:
    spread = prepared.predictions[model].spread
    span = np.array([[spread.low], [spread.high]])
    return Variable("y_pred", (prepared.plan.models[model],), ("numeric",), (0,), None, span)


def _features_of(
    pair: Pair, attributes: AttributeSet, kernels: Kernels, names: Sequence[str]
) -> dict[str, FeaturePair]:
    features: dict[str, FeaturePair] = {}
    if {SHARE, IN_SAMPLE} & set(names):
        features["share"] = opened(
            replace(pair, b=attributes.share_variable), None, None,
            kernel=kernels.sensitive_kernel, length_scale="median",
            size=kernels.n_sensitive_components, random_state=kernels.seed,
        )  # fmt: skip
    kinds = set() if pair.in_memory else {_kind(name) for name in names if name in STREAMED}
    if "kernel" in kinds:
        features["kernel"] = feature_pair(pair, None, None, N_COMPONENTS)
    if "distance" in kinds:
        features["distance"] = distance_features(pair, N_COMPONENTS)
    return features


def _kind(name: str) -> str:
    """Which features a measure of a stream is computed from."""
    return "distance" if name == "distance_correlation" else "kernel"


def second_pass(
    prepared: Prepared, chosen: Sequence[Subject]
) -> tuple[CrossedStatistics | None, list[Mapping[str, FoldMoments]]]:
    """Return the statistics of groups and the moments of each subject's features, in one pass.

    Rows in memory are read as often as is convenient; their groups are left to `judge`.
    """
    if prepared.rows.in_memory:
        return None, [
            {kind: pair.fold_moments(*one.options(kind)) for kind, pair in one.features.items()}
            for one in chosen
        ]
    views = [
        (one.view, pair.accumulator(*one.options(kind)))
        for one in chosen
        for kind, pair in one.features.items()
    ]
    plan = prepared.plan
    parts: list[tuple[View, Callable[[], Accumulator]]] = [
        (_same, partial(GroupAccumulator, plan)),
        (plan.numeric, partial(Together, views)),
    ]
    crossed, moments = prepared.rows.source.fold(partial(Together, parts), PASS_ROWS)
    each = iter(moments)
    return crossed, [{kind: next(each) for kind in one.features} for one in chosen]


def _same(chunk: Chunk) -> Chunk:
    return chunk


def measure(
    subject: Subject, moments: Mapping[str, FoldMoments], judged: Judged, kernels: Kernels,
    names: Sequence[str],
) -> list[Measurement]:  # fmt: skip
    """Return the measures of dependence of one model on some attributes together."""
    measured = []
    for name in names:
        try:
            measured.append(_measured(name, subject, moments, judged, kernels))
        except UndefinedError as error:
            n_rows = subject.pair.n_rows
            measured.append(Measurement(name, np.nan, n_rows, reason=str(error)))
    return measured


def _measured(
    name: str, subject: Subject, moments: Mapping[str, FoldMoments], judged: Judged,
    kernels: Kernels,
) -> Measurement:  # fmt: skip
    pair = subject.pair
    if name == CONDITIONAL:
        return _conditional(judged, subject, kernels)
    if name == SHARE:
        features = subject.features["share"]
        estimate = estimate_of(features, moments["share"])
        ends = share_interval(features, estimate, judged.settings.confidence)
        return Measurement(name, ends.value, pair.n_rows, ends.low, ends.high)
    if name == IN_SAMPLE:
        share = share_of_block(reduce(add, moments["share"]))
        return Measurement(name, float(np.clip(share, 0.0, 1.0)), pair.n_rows)
    if name == INFORMATION:
        value = mutual_information(
            pair, None, max_rows=NEIGHBOUR_ROWS, random_state=kernels.seed
        )  # fmt: skip
        return Measurement(name, value, min(pair.n_rows, NEIGHBOUR_ROWS))
    if pair.in_memory:
        return Measurement(name, IN_MEMORY[name](pair, kernels), pair.n_rows)
    return Measurement(name, STREAMED[name](moments[_kind(name)][0], kernels), pair.n_rows)


def _conditional(judged: Judged, subject: Subject, kernels: Kernels) -> Measurement:
    """Test independence given the target, on a sample of the rows that count."""
    given = judged.survey.sample.chunk()
    rows = subject.view(judged.plan.numeric(given))
    index = np.arange(given.n_rows)
    if len(index) > CONDITIONAL_ROWS:
        # Evenly spaced rows of a sample by hash are a sample all the same.
        index = index[np.linspace(0, len(index) - 1, CONDITIONAL_ROWS).astype(np.int64)]
    target = given.y[index, 0]
    labels = judged.truth is not None and judged.truth.is_binary
    control = np.where(target > 0, "positive", "negative").astype(object) if labels else target
    s = _written(judged, subject.attributes.columns, rows.s[index])
    try:
        test = conditional_hsic_test(rows.x[index], s, control, random_state=kernels.seed)
    except UndefinedError as error:
        raise UndefinedError(f"in the {len(index):,} rows of the test, {error}") from error
    return Measurement(CONDITIONAL, test.pvalue, len(index))


def _written(judged: Judged, columns: tuple[int, ...], numbers: Array) -> Any:
    """Numbers as numbers, codes as the text of their levels."""
    chosen = zip([judged.attributes[j] for j in columns], numbers.T, strict=True)
    return frames.make_frame(
        {
            a.name: np.array(sorted(a.levels), dtype=object)[x.astype(np.int64)]
            if a.is_coded
            else x
            for a, x in chosen
        }
    )
