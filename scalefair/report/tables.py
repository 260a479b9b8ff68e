"""Tables of the page that are more than their numbers: models, relevance of inputs, settings."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import numpy as np
import sklearn
from numpy.typing import NDArray

from scalefair import __version__
from scalefair._typing import Array
from scalefair.auditing.result import listed
from scalefair.data import frames
from scalefair.estimators import FairGPClassifier, FairGPRegressor
from scalefair.kernels import Product, Sum
from scalefair.plots import path_points, target_variance
from scalefair.report.frontier import Frontier
from scalefair.report.words import fixed, number

if TYPE_CHECKING:
    import pandas as pd

MAX_FRONT = 12
FITTED = {
    "alpha_": "alpha", "eta_": "eta", "noise_": "noise", "amplitude_": "amplitude",
    "log_marginal_likelihood_value_": "log evidence",
}  # fmt: skip
"""What estimators find, and what the page calls it."""


def front_rows(frontier: Frontier) -> list[dict[str, Any]]:
    """Some models of the frontier, spread evenly over the shares, the chosen one among them."""
    # Without cross-validation the models are few, and the chosen one may be beaten by chance.
    rows = frontier.front if frontier.is_cross_validated else _by_share(frontier.table)
    if rows.empty:  # every prediction is constant
        return []
    chosen = frontier.chosen
    if frontier.is_cross_validated and chosen is not None and not frontier.is_on_front:
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


def compare_relevance(baseline: Any, estimator: Any) -> pd.DataFrame | None:
    """Return length scales and relevance (sd/θ)² by input, the fair model's most relevant first.

    None where the model is no Gaussian process, or has one length scale for all.
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


def settings(frontier: Frontier) -> list[tuple[str, str]]:
    """Return what was used, as names and text."""
    problem = frontier.problem
    sees = "may use them as inputs" if problem.sees_sensitive else "does not see them"
    inputs, levels = problem.inputs, ""
    if problem.levels is not None:
        levels = f": “{problem.levels[0]}” read as 0, “{problem.levels[1]}” as 1"
    values = [(label, vars(frontier.estimator).get(name)) for name, label in FITTED.items()]
    chosen = ", ".join(f"{label} {number(float(x))}" for label, x in values if x is not None)
    certificate = vars(frontier.estimator).get("certificate_")
    rows = f"{problem.train.n_rows:,} to fit, {problem.test.n_rows:,} held out: {problem.held_out}"
    return [
        ("Data", problem.source),
        ("Target", problem.target + levels),
        ("Sensitive", f"{listed(problem.sensitive)}; the model {sees} when it predicts"),
        *([("Inputs", f"{len(inputs)}: {', '.join(inputs)}")] if inputs else []),
        ("Rows", rows),
        ("Chosen", chosen),
        *([("Certificate", str(certificate))] if certificate is not None else []),
        ("Time", f"{number(frontier.seconds)} s"),
        ("Software", f"scalefair {__version__}, scikit-learn {sklearn.__version__}, "
                     f"numpy {np.__version__}, Python {platform.python_version()}"),
        *(("Note", note) for note in frontier.notes),
    ]  # fmt: skip


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
