"""Measures of dependence of one model on some attributes, for the rows of an audit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from scalefair import _frames
from scalefair._typing import Array, Chunk
from scalefair.measures import (
    distance_correlation,
    explained_share,
    hsic,
    hsic_test,
    mutual_information,
    nocco,
    normalized_hsic,
)
from scalefair.measures.grouping.attributes import MISSING, Attribute
from scalefair.measures.grouping.cells import Plan
from scalefair.measures.grouping.judged import Judged
from scalefair.measures.grouping.rows import floats_of
from scalefair.measures.grouping.survey import absent

PAIRED_ROWS = 5_000
"""Distance correlation compares all pairs of at most so many rows."""

NEIGHBOUR_ROWS = 20_000
"""Mutual information looks for neighbours among at most so many rows."""


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


class Rows(NamedTuple):
    """Predictions and attributes as the measures take them: arrays, or a source and None."""

    f: Any
    s: Any
    weight: Array | None
    n_rows: int


class Found(NamedTuple):
    """The value of one measure, and how many rows it was computed from."""

    measure: str
    value: float
    rows: int


Measure = Callable[[Rows, Kernels], float]


def _share(rows: Rows, kernels: Kernels, cv: int | None = 5) -> float:
    cv = None if cv is None else min(cv, rows.n_rows // 2)
    return explained_share(
        rows.f, rows.s, kernel=kernels.sensitive_kernel, eps=kernels.eps, cv=cv,
        n_components=kernels.n_sensitive_components, sample_weight=rows.weight,
        random_state=kernels.seed,
    )  # fmt: skip


def _hsic(rows: Rows, kernels: Kernels) -> float:
    return hsic(rows.f, rows.s, sample_weight=rows.weight, random_state=kernels.seed)


def _normalized(rows: Rows, kernels: Kernels) -> float:
    return normalized_hsic(rows.f, rows.s, sample_weight=rows.weight, random_state=kernels.seed)


def _nocco(rows: Rows, kernels: Kernels) -> float:
    options: dict[str, Any] = {"sample_weight": rows.weight, "random_state": kernels.seed}
    return nocco(rows.f, rows.s, eps=kernels.eps, **options)


def _distance(rows: Rows, kernels: Kernels) -> float:
    return distance_correlation(
        rows.f, rows.s, sample_weight=rows.weight, random_state=kernels.seed
    )


def _information(rows: Rows, kernels: Kernels) -> float:
    options: dict[str, Any] = {"max_rows": NEIGHBOUR_ROWS, "random_state": kernels.seed}
    return mutual_information(rows.f, rows.s, **options)


def _pvalue(rows: Rows, kernels: Kernels) -> float:
    return hsic_test(rows.f, rows.s, random_state=kernels.seed).pvalue


MEASURES: dict[str, Measure] = {
    "explained_share": _share,
    "explained_share_in_sample": partial(_share, cv=None),
    "normalized_hsic": _normalized,
    "hsic": _hsic,
    "nocco": _nocco,
    "distance_correlation": _distance,
    "mutual_information": _information,
    "hsic_pvalue": _pvalue,
}

WITHOUT_WEIGHTS = ("mutual_information", "hsic_pvalue")
"""Not defined for weighted rows."""


def dependence(
    judged: Judged, model: int, attributes: Sequence[int], kernels: Kernels, names: Sequence[str]
) -> list[Found]:
    """Return the measures of dependence of one model on some attributes together."""
    change = partial(chosen_columns, judged.plan, model, tuple(attributes))
    whole = _all_rows(judged, change)
    found = []
    for name in names:
        rows = _sample(judged, change) if name == "distance_correlation" else whole
        used = min(rows.n_rows, NEIGHBOUR_ROWS) if name == "mutual_information" else rows.n_rows
        found.append(Found(name, float(MEASURES[name](rows, kernels)), used))
    return found


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


def _all_rows(judged: Judged, change: Callable[[Chunk], Chunk]) -> Rows:
    n, source = judged.survey.n_kept, judged.rows.source.then(change)
    if not judged.rows.in_memory:
        return Rows(source, None, None, n)
    (chunk,) = source.chunks(judged.survey.n_rows)
    return _present(chunk)


def _sample(judged: Judged, change: Callable[[Chunk], Chunk]) -> Rows:
    whole = _present(change(judged.survey.sample.chunk()))
    if whole.n_rows <= PAIRED_ROWS:
        return whole
    # Evenly spaced rows of a sample by hash are a sample all the same.
    index = np.linspace(0, whole.n_rows - 1, PAIRED_ROWS).astype(np.int64)
    weight = None if whole.weight is None else whole.weight[index]
    return Rows(whole.f[index], _frames.take_rows(whole.s, index), weight, PAIRED_ROWS)


def _present(chunk: Chunk) -> Rows:
    """The rows of positive weight."""
    if chunk.weight is None:
        return Rows(chunk.x, chunk.s, None, chunk.n_rows)
    index = np.flatnonzero(chunk.weight > 0)
    s = _frames.take_rows(chunk.s, index)
    weight = chunk.weight[index]
    # Weights of one each are none: tests of independence know no others.
    return Rows(chunk.x[index], s, None if (weight == 1).all() else weight, len(index))
