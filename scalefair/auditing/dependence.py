"""Measures of dependence of one model on some attributes, for the rows of an audit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from scalefair import _frames
from scalefair._typing import Chunk
from scalefair.measures import (
    conditional_hsic_test,
    distance_correlation,
    explained_share,
    hsic,
    hsic_test,
    mutual_information,
    nocco,
    normalized_hsic,
)
from scalefair.measures._columns import UndefinedError
from scalefair.measures._kernels import check_kernel
from scalefair.measures._rows import Pair, open_pair
from scalefair.measures._share_error import Interval, share_interval
from scalefair.measures.grouping.attributes import MISSING, Attribute
from scalefair.measures.grouping.cells import Plan
from scalefair.measures.grouping.judged import Judged
from scalefair.measures.grouping.rows import floats_of
from scalefair.measures.grouping.survey import absent
from scalefair.measures.share import estimated, opened

NEIGHBOUR_ROWS = 20_000
"""Mutual information looks for neighbours among at most so many rows."""


CONDITIONAL_ROWS = 3_000
"""Independence given the target is tested on at most so many rows."""


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


class Shared(Pair):
    """Rows that several measures look at: their columns are learnt once, each sample drawn once."""

    @cached_property
    def _samples(self) -> dict[int | None, Chunk]:
        return {}

    def rows(self, size: int | None = None) -> Chunk:
        """Return all rows that count, or at most `size` chosen by their number."""
        if size not in self._samples:
            self._samples[size] = _present(super().rows(size))
        return self._samples[size]


class Found(NamedTuple):
    """The value of one measure, how many rows it was computed from, and its interval, if any.

    Where the value is NaN, `reason` says why.
    """

    measure: str
    value: float
    rows: int
    low: float = np.nan
    high: float = np.nan
    reason: str = ""


Measure = Callable[[Pair, Kernels], float]


def _share(pair: Pair, kernels: Kernels, confidence: float) -> Interval:
    features = opened(
        pair, None, None, kernel=kernels.sensitive_kernel, length_scale="median",
        size=kernels.n_sensitive_components, random_state=kernels.seed,
    )  # fmt: skip
    return share_interval(features, estimated(features, min(5, pair.n_rows // 2)), confidence)


def _share_in_sample(pair: Pair, kernels: Kernels) -> float:
    return explained_share(
        pair, None, kernel=kernels.sensitive_kernel, cv=None,
        n_components=kernels.n_sensitive_components, random_state=kernels.seed,
    )  # fmt: skip


def _hsic(pair: Pair, kernels: Kernels) -> float:
    return hsic(pair, None, random_state=kernels.seed)


def _normalized(pair: Pair, kernels: Kernels) -> float:
    return normalized_hsic(pair, None, random_state=kernels.seed)


def _nocco(pair: Pair, kernels: Kernels) -> float:
    return nocco(pair, None, eps=kernels.eps, random_state=kernels.seed)


def _distance(pair: Pair, kernels: Kernels) -> float:
    return distance_correlation(pair, None, random_state=kernels.seed)


def _information(pair: Pair, kernels: Kernels) -> float:
    options: dict[str, Any] = {"max_rows": NEIGHBOUR_ROWS, "random_state": kernels.seed}
    return mutual_information(pair, None, **options)


def _pvalue(pair: Pair, kernels: Kernels) -> float:
    return hsic_test(pair, None, random_state=kernels.seed).pvalue


MEASURES: dict[str, Measure] = {
    "explained_share_in_sample": _share_in_sample,
    "normalized_hsic": _normalized,
    "hsic": _hsic,
    "nocco": _nocco,
    "distance_correlation": _distance,
    "mutual_information": _information,
    "hsic_pvalue": _pvalue,
}

CONDITIONAL = "conditional_hsic_pvalue"
"""Test of independence given the target: of equalised odds."""

SHARE = "explained_share"
"""The one measure with an interval."""

SHARES = (SHARE, "explained_share_in_sample")
"""Those with the kernel of the estimators."""

NAMES = (SHARE, *MEASURES, CONDITIONAL)

WITHOUT_WEIGHTS = ("mutual_information", "hsic_pvalue", CONDITIONAL)
"""Not defined for weighted rows."""


def dependence(
    judged: Judged, model: int, attributes: Sequence[int], kernels: Kernels, names: Sequence[str]
) -> list[Found]:
    """Return the measures of dependence of one model on some attributes together."""
    change = partial(chosen_columns, judged.plan, model, tuple(attributes))
    pair = shared = _pair(judged, change, kernels.seed)
    if check_kernel("sensitive_kernel", kernels.sensitive_kernel) == "categorical":
        shared = _pair(judged, change, kernels.seed, every=True)
    found = []
    for name in names:
        rows = shared if name in SHARES else pair
        try:
            found.append(_found(name, rows, judged, change, kernels))
        except UndefinedError as error:
            found.append(Found(name, np.nan, rows.n_rows, reason=str(error)))
    return found


def _found(
    name: str, pair: Pair, judged: Judged, change: Callable[[Chunk], Chunk], kernels: Kernels
) -> Found:
    if name == CONDITIONAL:
        return _conditional(judged, change, kernels)
    if name == SHARE:
        value, low, high = _share(pair, kernels, judged.settings.confidence)
        return Found(name, value, pair.n_rows, low, high)
    return Found(name, float(MEASURES[name](pair, kernels)), _used(name, pair.n_rows))


def _conditional(judged: Judged, change: Callable[[Chunk], Chunk], kernels: Kernels) -> Found:
    """Test independence given the target, on a sample of the rows that count."""
    chunk = judged.survey.sample.chunk()
    rows = change(chunk)
    index = np.arange(chunk.n_rows) if rows.weight is None else np.flatnonzero(rows.weight > 0)
    if len(index) > CONDITIONAL_ROWS:
        # Evenly spaced rows of a sample by hash are a sample all the same.
        index = index[np.linspace(0, len(index) - 1, CONDITIONAL_ROWS).astype(np.int64)]
    target = chunk.y[index, 0]
    labels = judged.survey.truth is not None and judged.survey.truth.is_binary
    control = np.where(target > 0, "positive", "negative").astype(object) if labels else target
    values = rows.x[index], _frames.take_rows(rows.s, index), control
    try:
        test = conditional_hsic_test(*values, random_state=kernels.seed)
    except UndefinedError as error:
        raise UndefinedError(f"in the {len(index):,} rows of the test, {error}") from error
    return Found(CONDITIONAL, test.pvalue, len(index))


def _used(measure: str, n_rows: int) -> int:
    return min(n_rows, NEIGHBOUR_ROWS) if measure == "mutual_information" else n_rows


def _pair(
    judged: Judged, change: Callable[[Chunk], Chunk], seed: int, *, every: bool = False
) -> Pair:
    source = judged.rows.source.then(change)
    options: dict[str, Any] = {
        "names": ("y_pred", "sensitive_features"), "seed": seed, "every": (False, every)
    }  # fmt: skip
    if not judged.rows.in_memory:
        pair = open_pair(source, None, **options)
    else:
        # Rows of weight 0 stay: folds and samples go by row number, as in a stream.
        (chunk,) = source.chunks(judged.survey.n_rows)
        pair = open_pair(chunk.x, chunk.s, chunk.weight, **options)
    return Shared(**{field.name: getattr(pair, field.name) for field in fields(pair)})


def chosen_columns(plan: Plan, model: int, attributes: tuple[int, ...], chunk: Chunk) -> Chunk:
    """Return a chunk of one model's predictions and some attributes.

    Rows that are left out for a missing attribute keep their number and get weight 0.
    """
    columns = _frames.columns(_frames.as_table(chunk.s, one_column=True), "s")
    x = floats_of(chunk.x, plan.models, chunk.row)[:, [model]]
    weight = chunk.weight
    if plan.missing == "drop":
        gone = np.any([absent(column) for column in columns], axis=0)
        weight = np.where(gone, 0.0, 1.0 if weight is None else weight)
    s = {plan.attributes[j].name: _written(plan.attributes[j], columns[j]) for j in attributes}
    return replace(chunk, x=x, s=_frames.make_frame(s), y=np.empty((len(x), 0)), weight=weight)


def _written(attribute: Attribute, column: _frames.Column) -> Any:
    """Numbers as numbers, levels as text; what is missing in a row of weight 0 does not matter."""
    if attribute.kind != "categorical" and MISSING not in attribute.levels:
        return np.nan_to_num(column.floats())
    return np.array(attribute.levels, dtype=object)[attribute.codes(column)]


def _present(chunk: Chunk) -> Chunk:
    """The rows of positive weight: dask samples before rows are left out for missing attributes."""
    if chunk.weight is None or (chunk.weight > 0).all():
        return chunk
    index = np.flatnonzero(chunk.weight > 0)
    return replace(
        chunk, x=chunk.x[index], s=chunk.s[index], y=chunk.y[index], weight=chunk.weight[index]
    )
