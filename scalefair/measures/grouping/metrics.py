"""What is judged in every group, computed from the statistics of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalefair._typing import Array
from scalefair.data import Numbers
from scalefair.measures.grouping.cells import GroupStatistics, Plan, unique_rows
from scalefair.measures.grouping.intervals import (
    Distribution,
    Estimate,
    Mean,
    Quantile,
    Rate,
    Resampled,
    Root,
    kish,
)

# Outcomes are numbered 2·decision + target.
RATES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "selection_rate": ((2, 3), (0, 1, 2, 3)),
    "accuracy": ((0, 3), (0, 1, 2, 3)),
    "true_positive_rate": ((3,), (1, 3)),
    "false_positive_rate": ((2,), (0, 2)),
    "false_negative_rate": ((1,), (1, 3)),
}
"""Outcomes that count as hits, and those that the rate refers to."""

ERRORS = {"bias": 1, "mean_absolute_error": 2, "root_mean_squared_error": 3}
"""Which of `Plan.values` the mean is taken of."""

METRIC_NAMES = ("mean_prediction", *RATES, *ERRORS)


@dataclass(frozen=True)
class Metrics:
    """The metrics that are defined for one model.

    Parameters
    ----------
    names : tuple of str
        Names, of `METRIC_NAMES`.
    quantiles : tuple of float
        Levels of the quantiles of the predictions.
    """

    names: tuple[str, ...]
    quantiles: tuple[float, ...]


def choose_metrics(
    numbers: Numbers, truth: Numbers | None, quantiles: Sequence[float], chosen: object, *,
    has_decisions: bool,
) -> Metrics:  # fmt: skip
    """Return the metrics of one model: all that are defined, or those chosen."""
    defined = defined_metrics(numbers, truth, has_decisions=has_decisions)
    if chosen is None:
        labels = numbers.is_binary
        return Metrics(defined, () if labels else tuple(quantiles))
    names = (chosen,) if isinstance(chosen, str) else tuple(chosen)  # type: ignore[arg-type]
    for name in names:
        _check_defined(name, defined, numbers, truth)
    return Metrics(names, tuple(quantiles))


def defined_metrics(
    numbers: Numbers, truth: Numbers | None, *, has_decisions: bool
) -> tuple[str, ...]:
    """Return the names of the metrics that predictions and targets allow.

    Labels have no mean prediction beside their selection rate, and no errors beside error rates.
    """
    names: list[str] = []
    if not numbers.is_binary:
        names.append("mean_prediction")
    if has_decisions:
        names.append("selection_rate")
    if has_decisions and truth is not None and truth.is_binary:
        names += ["accuracy", "true_positive_rate", "false_positive_rate", "false_negative_rate"]
    if truth is not None and not (numbers.is_binary and truth.is_binary):
        names += ERRORS
    return tuple(names)


def _check_defined(
    name: str, defined: Iterable[str], numbers: Numbers, truth: Numbers | None
) -> None:
    if name in defined or name == "mean_prediction":
        return
    if name not in METRIC_NAMES:
        raise ValueError(f"metrics: {name!r} is unknown; choose among {', '.join(METRIC_NAMES)}")
    if name != "selection_rate" and truth is None:
        raise ValueError(f"metrics: {name!r} compares with targets; give y_true")
    spread = numbers.spread
    if name in RATES and not numbers.is_binary and "selection_rate" not in defined:
        raise ValueError(
            f"metrics: {name!r} judges decisions, but the predictions are continuous (from "
            f"{spread.low:.4g} to {spread.high:.4g}): give the threshold= above which a prediction "
            "is a decision, or pass decisions of 0 and 1"
        )
    raise ValueError(
        f"metrics: {name!r} is not defined for these targets and predictions: error rates need "
        "targets of 0 and 1, errors need scores or targets that are not labels; leave it out"
    )


Distributions = Callable[[int, Sequence[int]], list[Distribution]]
"""Gives the distributions of predictions of a model in the groups that cross some attributes."""


def exact_distributions(
    codes: NDArray[np.int64], predictions: Array, weight: Array
) -> Distributions:
    """Return the distributions of rows in memory: their sorted values."""
    orders: dict[int, NDArray[np.intp]] = {}

    def of(model: int, kept: Sequence[int]) -> list[Distribution]:
        x = predictions[:, model]
        # Sorted once by value; a stable sort by group then keeps the values in order.
        if model not in orders:
            orders[model] = np.argsort(x, kind="stable")
        order = orders[model]
        groups, place = unique_rows(codes[order][:, list(kept)])
        # numpy sorts 16 bits by counting; there are at most MAX_CELLS groups.
        order = order[np.argsort(place.astype(np.uint16), kind="stable")]
        ends = np.cumsum(np.bincount(place, minlength=len(groups)))
        parts = np.split(order, ends[:-1])
        return [_distribution(x[part], weight[part]) for part in parts]

    return of


def _distribution(values: Array, weight: Array) -> Distribution:
    return Distribution(values, np.cumsum(weight), float(kish(weight.sum(), weight @ weight)))


def binned_distributions(statistics: GroupStatistics, plan: Plan) -> Distributions:
    """Return the distributions of counted predictions: a value is known up to its bin."""

    def of(model: int, kept: Sequence[int]) -> list[Distribution]:
        groups = statistics.groups(kept)
        edges = np.empty(0) if plan.edges is None else plan.edges[model]
        rows = kish(groups.weight, groups.squares[:, model].sum(axis=1))
        found = []
        for counts, high, n in zip(
            groups.counts[:, model], groups.high[:, model], rows, strict=True
        ):
            values = np.minimum(np.append(edges, np.inf), high)
            used = counts > 0
            found.append(Distribution(values[used], np.cumsum(counts[used]), float(n)))
        return found

    return of


def estimates(
    groups: GroupStatistics, n_models: int, model: int, names: Iterable[str]
) -> dict[str, Estimate]:
    """Return the metrics of one model in each group, but for quantiles."""
    return {name: _estimate(groups, n_models, model, name) for name in names}


def quantile_estimates(
    groups: list[Distribution], quantiles: Iterable[float]
) -> dict[str, Estimate]:
    """Return the quantiles of one model in each group."""
    return {f"quantile_{q:g}": Quantile(q, groups) for q in quantiles}


def _estimate(groups: GroupStatistics, n_models: int, model: int, name: str) -> Estimate:
    resampled = groups.replicates.shape[2] > 0
    if name in RATES:
        value = _rate(groups.outcomes[:, model], name)
        if not resampled:
            parts = (groups.outcomes, groups.squares)
            total, squares = (part[:, model, RATES[name][1]].sum(axis=1) for part in parts)
            return Rate(kish(total, squares), value)
        start = 1 + groups.mean.shape[1] + 4 * model
        return Resampled(value, _rate(groups.replicates[:, start : start + 4], name))
    at = ERRORS.get(name, 0) * n_models + model
    rows = kish(groups.weight, groups.squares[:, model].sum(axis=1))
    mean = Mean(rows, groups.mean[:, at], groups.scatter[:, at] / groups.weight)
    root = name == "root_mean_squared_error"
    if not resampled:
        return Root(mean) if root else mean
    total = groups.replicates[:, 0]
    with np.errstate(invalid="ignore"):
        means = groups.replicates[:, 1 + at] / np.where(total > 0, total, np.nan)
    return Resampled(*(np.sqrt(v) if root else v for v in (mean.value, means)))


def _rate(outcomes: Array, name: str) -> Array:
    """Hits by all that the rate refers to, NaN without any."""
    hits, total = (outcomes[:, which].sum(axis=1) for which in RATES[name])
    return np.asarray(hits / np.where(total > 0, total, np.nan))
