"""The rows of the tables of the page, as text."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import numpy as np
import sklearn
from numpy.typing import NDArray

from scalefair._typing import Array
from scalefair.auditing.result import listed
from scalefair.data import frames
from scalefair.estimators import FairGPClassifier, FairGPRegressor
from scalefair.kernels import Product, Sum
from scalefair.plots import path_points, target_variance
from scalefair.report.frontier import Frontier, Scores
from scalefair.report.groups import decision_table, group_table
from scalefair.report.independence import TITLES, pvalue
from scalefair.report.words import decimals, fixed, names_of_inputs, number, percent

if TYPE_CHECKING:
    import pandas as pd

MAX_GROUPS = 20
MAX_FRONT = 12
MAX_INPUTS = 20
CUT = 0.5
FITTED = {
    "alpha_": "alpha", "eta_": "eta", "noise_": "noise", "amplitude_": "amplitude",
    "log_marginal_likelihood_value_": "log evidence",
}  # fmt: skip
"""What estimators find, and what the page calls it."""


def measure_rows(before: Scores, after: Scores) -> list[tuple[str, str, str]]:
    """Rows of the first table: what is measured, without and with the penalty."""
    rows = [("R²", fixed(before.r2, 3), fixed(after.r2, 3))]
    if before.accuracy is not None and after.accuracy is not None:
        rows.append((f"Accuracy at {CUT}", percent(before.accuracy), percent(after.accuracy)))
    if before.auc is not None and after.auc is not None:
        rows.append(("Area under the ROC curve", fixed(before.auc, 3), fixed(after.auc, 3)))
    rows.append(("Root mean squared error", number(before.rmse), number(after.rmse)))
    return rows


def front_rows(frontier: Frontier) -> list[dict[str, Any]]:
    """Some models of the frontier, spread evenly over the shares, the chosen one among them."""
    # Without cross-validation the models are few, and the chosen one may be beaten by chance.
    rows = frontier.front if frontier.test_table is None else _by_share(frontier.test_table)
    if rows.empty:  # every prediction is constant
        return []
    chosen = frontier.chosen
    if frontier.test_table is None and chosen is not None and not frontier.is_on_front:
        both = {str(name): [*rows[name], *chosen[name]] for name in rows}
        rows = frames.make_frame(both).sort_values("explained_share_cv", kind="stable")
    is_chosen = np.zeros(len(rows), dtype=bool)
    if chosen is not None:
        names = [name for name in ("alpha", "eta") if name in rows]
        is_chosen = np.all([rows[name] == chosen[name].iloc[0] for name in names], axis=0)
    points = path_points(rows, target_variance(frontier.table))
    keep = np.union1d(_spread(points.share, MAX_FRONT), np.flatnonzero(is_chosen))
    return [
        {
            "share": _with_error(100 * points.share[i], 100 * points.share_error[i], 1, " %"),
            "r2": _with_error(points.r2[i], points.r2_error[i], 3),
            "alpha": number(float(rows["alpha"].iloc[i])) if "alpha" in rows else None,
            "eta": number(float(rows["eta"].iloc[i])),
            "chosen": bool(is_chosen[i]),
        }
        for i in keep
    ]


def mean_rows(frontier: Frontier) -> dict[str, Any]:
    """Return the largest groups, written with as many decimals as their differences need."""
    y = frontier.problem.test.y
    table = group_table(frontier.groups, y, frontier.before, frontier.after)
    digits = decimals(float(np.std(frontier.before)) or 1.0)
    rows = [
        {**_before_and_after(row, digits), "target": fixed(row["target"], digits)}
        for _, row in table.head(MAX_GROUPS).iterrows()
    ]
    return {"rows": rows, "others": max(len(table) - MAX_GROUPS, 0), "cut": frontier.groups.cut}


def decision_rows(frontier: Frontier) -> list[dict[str, str]]:
    """Return the rate of positive decisions by group, where the target is 0 or 1."""
    if not frontier.problem.is_binary:
        return []
    table = decision_table(frontier.groups, frontier.before, frontier.after, CUT)
    table[[f"{name}{end}" for name in ("before", "after") for end in ("", "_low", "_high")]] *= 100
    return [_before_and_after(row, 1, " %") for _, row in table.head(MAX_GROUPS).iterrows()]


def independence_rows(frontier: Frontier) -> list[dict[str, str]]:
    """Return the tests of independence."""
    if frontier.tests is None:
        return []
    return [_test_row(row) for _, row in frontier.tests.iterrows()]


def compare_relevance(baseline: Any, estimator: Any) -> pd.DataFrame | None:
    """Return length scales and relevance by input, the most relevant of the fair model first.

    Returns
    -------
    DataFrame or None
        Columns input, before and after (length scales), before_relevance and after_relevance:
        (sd/θ)². None where the model is no Gaussian process, or has one length scale for all.
    """
    if not all(_has_scales_of_inputs(model) for model in (estimator, baseline)):
        return None
    fair, plain = estimator.relevance(), baseline.relevance()
    if len(fair) > 1 and fair["length_scale"].nunique() == 1:
        return None
    fair, plain = fair.set_index("input"), plain.set_index("input")
    order = fair["relevance"].sort_values(ascending=False, kind="stable").index
    columns: dict[str, Any] = {"input": [str(name) for name in order]}
    for name, table in (("before", plain), ("after", fair)):
        columns[name] = table.loc[order, "length_scale"].to_numpy()
        columns[f"{name}_relevance"] = table.loc[order, "relevance"].to_numpy()
    return frames.make_frame(columns)


def _has_scales_of_inputs(model: Any) -> bool:
    """Return True if a model is a Gaussian process whose length scales belong to its inputs."""
    if not isinstance(model, FairGPRegressor | FairGPClassifier) or model.kernel_ is None:
        return False
    kernel = model.kernel_.kernel
    return kernel.theta.size > 0 and not isinstance(kernel, Sum | Product)


def relevance_rows(table: pd.DataFrame) -> list[dict[str, str]]:
    """Return the most relevant inputs of a Gaussian process."""
    names = ("before", "after", "before_relevance", "after_relevance")
    return [
        {"input": str(row["input"]), **{name: number(float(row[name])) for name in names}}
        for _, row in table.head(MAX_INPUTS).iterrows()
    ]


def settings(frontier: Frontier, version: str) -> list[tuple[str, str]]:
    """Return what was used, as names and text."""
    problem, estimator = frontier.problem, frontier.estimator
    sees = "may use them as inputs" if problem.sees_sensitive else "does not see them"
    inputs = names_of_inputs(problem)
    rows = f"{problem.train.n_rows:,} to fit, {problem.test.n_rows:,} held out: {problem.held_out}"
    return [
        ("Data", problem.source),
        ("Target", problem.target + _level_words(problem.levels)),
        ("Sensitive", f"{listed(problem.sensitive)}; the model {sees} when it predicts"),
        *([("Inputs", f"{len(inputs)}: {', '.join(inputs)}")] if inputs else []),
        ("Rows", rows),
        ("Chosen", _fitted(estimator)),
        ("Time", f"{number(frontier.seconds)} s"),
        ("Software", f"scalefair {version}, scikit-learn {sklearn.__version__}, "
                     f"numpy {np.__version__}, Python {platform.python_version()}"),
        *(("Note", note) for note in frontier.notes),
    ]  # fmt: skip


def _level_words(levels: tuple[str, str] | None) -> str:
    return "" if levels is None else f": “{levels[0]}” read as 0, “{levels[1]}” as 1"


def _fitted(estimator: Any) -> str:
    """Write what a fit found: weights, and hyperparameters of a Gaussian process."""
    values = [(label, getattr(estimator, name, None)) for name, label in FITTED.items()]
    return ", ".join(f"{label} {number(float(x))}" for label, x in values if x is not None)


def _by_share(table: pd.DataFrame) -> pd.DataFrame:
    known = table[np.isfinite(table["explained_share_test"])]
    rows: pd.DataFrame = known.sort_values("explained_share_test", kind="stable")
    return rows.reset_index(drop=True)


def _spread(values: Array, count: int) -> NDArray[np.int64]:
    """Return where sorted values come nearest to `count` equidistant ones, without repeats."""
    wanted = np.linspace(values[0], values[-1], count)
    return np.unique(np.abs(values - wanted[:, None]).argmin(axis=1))


def _with_error(value: float, error: float, digits: int, unit: str = "") -> str:
    if not error > 0:
        return fixed(value, digits) + unit
    return f"{fixed(value, digits)} ± {fixed(error, digits)}{unit}"


def _before_and_after(row: pd.Series[Any], digits: int, unit: str = "") -> dict[str, str]:
    """A group, its count, and a number before and after with intervals."""

    def interval(name: str) -> str:
        if np.isnan(row[f"{name}_low"]):
            return ""
        ends = (fixed(row[f"{name}_{end}"], digits) for end in ("low", "high"))
        return " to ".join(ends) + unit.replace(" ", "\u00a0")

    return {
        "group": str(row["group"]),
        "rows": f"{row['rows']:,}",
        "before": fixed(row["before"], digits) + unit,
        "before_interval": interval("before"),
        "after": fixed(row["after"], digits) + unit,
        "after_interval": interval("after"),
    }


def _test_row(row: pd.Series[Any]) -> dict[str, str]:
    is_p = str(row["measure"]).endswith("pvalue")

    def shown(x: float) -> str:
        return pvalue(x).removeprefix("p = ").removeprefix("p ") if is_p else fixed(x, 3)

    return {
        "attribute": str(row["attribute"]),
        "measure": TITLES[row["measure"]],
        "before": shown(row["before"]),
        "after": shown(row["after"]),
        "rows": f"{row['rows']:,}",
    }
