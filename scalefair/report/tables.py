"""Tables of the page: models side by side, groups, relevance of inputs, provenance, the record."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import sklearn

from scalefair import __version__
from scalefair._files import plain
from scalefair.auditing.result import listed
from scalefair.data import frames
from scalefair.estimators import FairGPClassifier, FairGPRegressor
from scalefair.kernels import Product, Sum
from scalefair.report.frontier import Frontier
from scalefair.report.numbers import as_percent, fixed, number, pvalue
from scalefair.report.position import DEPENDENCE, SHARE, Entry, Position
from scalefair.report.words import headline

if TYPE_CHECKING:
    import pandas as pd

FITTED = {
    "alpha_": "alpha", "eta_": "eta", "noise_": "noise", "amplitude_": "amplitude",
    "log_marginal_likelihood_value_": "log evidence",
}  # fmt: skip
"""What estimators find, and what the page calls it."""

OVERALL = {
    "accuracy": "Accuracy", "auc": "Area under the ROC curve", "r2": "R²",
    "root_mean_squared_error": "Root mean squared error", "mean_absolute_error": "Mean absolute error",
    "changed_decisions": "Decisions that change",
}  # fmt: skip
BY_ATTRIBUTE = {
    f"score_{SHARE}": "Explained share of the scores", SHARE: "Explained share of the predictions",
    "selection_rate_difference": "Gap of positive decisions",
    "selection_rate_ratio": "Ratio of positive decisions, least to largest",
    "mean_prediction_difference": "Gap of mean predictions",
    "true_positive_rate_difference": "Gap of true positive rates",
    "false_positive_rate_difference": "Gap of false positive rates",
    "root_mean_squared_error_difference": "Gap of root mean squared errors",
}  # fmt: skip
OF_NUMBERS = ("mean_prediction_difference", "root_mean_squared_error_difference")
"""Gaps that are left out where there are decisions."""
DEPENDENCES = {
    "hsic_pvalue": "HSIC test of independence, p", "normalized_hsic": "Normalised HSIC, 0 to 1",
    "distance_correlation": "Distance correlation, 0 to 1",
    "mutual_information": "Mutual information, nats",
}  # fmt: skip
GROUPS = {
    "mean_target": "Target", "mean_prediction": "Prediction", "mean_change": "Change",
    "selection_rate": "Positive decisions", "rising": "Gain", "falling": "Lose",
    "true_positive_rate": "True positive rate", "false_positive_rate": "False positive rate",
    "accuracy": "Accuracy", "root_mean_squared_error": "Root mean squared error",
}  # fmt: skip
"""Measures in the order of the page, and what it calls them."""

_PERCENT = re.compile(r"(rate|accuracy|share|rising|falling)(_difference)?$")


class Strip(NamedTuple):
    """Quantiles and mean of the predictions of a group, in percent of the width of a picture."""

    label: str
    quantiles: list[float]
    mean: float


def write_number(measure: str, x: float) -> str:
    """Write a number of some measure."""
    if measure.endswith("pvalue"):
        return pvalue(x, "") if x == x else number(x)
    if measure.endswith("_ratio"):
        return fixed(x, 2)
    if measure in ("r2", "auc", *DEPENDENCE):
        return fixed(x, 3)
    if measure in ("changed_decisions", "count"):
        return fixed(x, 0)
    return f"{fixed(100 * x, 1)} %" if _PERCENT.search(measure) else number(x)


def write_interval(entry: Entry) -> str:
    """Write the interval of a number, "" where it has none."""
    low, high = (write_number(entry.measure, x) for x in (entry.low, entry.high))
    if np.isnan(entry.low):
        return ""
    return f"{low.removesuffix(' %')} to {high}" if "−" in low + high else (
        f"{low.removesuffix(' %')}–{high}")


def comparison(
    models: Sequence[Position], overall: dict[str, str] = OVERALL, by: dict[str, str] = BY_ATTRIBUTE,
    *, brief: bool = False,
) -> list[tuple[str, str, list[Entry]]]:  # fmt: skip
    """Return title, attribute and the numbers of all models, of what any of them has.

    If `brief`, gaps are those between the groups of all attributes together.
    """
    attributes = next((one.attributes[::-1] for one in models if one.attributes), [])
    decided = any(one.has("accuracy") for one in models)
    keys = [(m, "", title) for m, title in overall.items()]
    for m, title in by.items():
        if not (decided and m in OF_NUMBERS):
            few = brief and not m.endswith(SHARE)
            keys += [(m, attribute, title) for attribute in (attributes[:1] if few else attributes)]
    rows = ((title, a, [one.get(m, a) for one in models]) for m, a, title in keys)
    return [row for row in rows if any(entry.value == entry.value for entry in row[2])]


def group_columns(position: Position) -> dict[str, str]:
    """Return the measures of groups that a model has, and their titles."""
    found = {e.measure for e in position.entries if e.group}
    if "accuracy" in found:
        found -= {"root_mean_squared_error"}
    return {name: title for name, title in GROUPS.items() if name in found}


def strip_range(positions: Sequence[Position]) -> tuple[float, float]:
    """Return the interval that holds all quantiles of groups."""
    quantiles = [e.value for p in positions for e in p.entries if e.measure.startswith("quantile_")]
    known = [x for x in quantiles if np.isfinite(x)] or [0.0]
    low, high = min(known), max(known)
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def strip(position: Position, group: Entry, ends: tuple[float, float]) -> Strip | None:
    """Return a picture of the distribution of the predictions of a group, None if unknown."""
    entries = (e for e in position.entries if e[:2] == group[:2])
    found = [e for e in entries if e.measure.startswith("quantile_")]
    if not found or any(np.isnan(e.value) for e in found):
        return None
    at = [round(100 * (x - ends[0]) / (ends[1] - ends[0]), 1)
          for x in (*(e.value for e in found), group.value)]  # fmt: skip
    said = listed([f"{100 * float(e.measure.split('_')[1]):g} % at {number(e.value)}"
                   for e in found])  # fmt: skip
    return Strip(f"Quantiles: {said}; mean {number(group.value)}", at[:-1], at[-1])


def compare_relevance(baseline: Any, estimator: Any) -> pd.DataFrame | None:
    """Return length scales and relevance (sd/θ)² by input, the fair model's most relevant first.

    None where the model is no Gaussian process, or has one length scale for all.
    """
    if not all(_has_scales_of_inputs(model) for model in (estimator, baseline)):
        return None
    fair, plain_one = estimator.relevance(), baseline.relevance()
    if len(fair) > 1 and fair["length_scale"].nunique() == 1:
        return None
    fair, plain_one = fair.set_index("input"), plain_one.set_index("input")
    order = fair["relevance"].sort_values(ascending=False, kind="stable").index
    columns: dict[str, Any] = {"input": [str(name) for name in order]}
    for name, table in (("before", plain_one), ("after", fair)):
        columns[name] = table.loc[order, "length_scale"].to_numpy()
        columns[f"{name}_relevance"] = table.loc[order, "relevance"].to_numpy()
    return frames.make_frame(columns)


def _has_scales_of_inputs(model: Any) -> bool:
    """Return True if a model is a Gaussian process whose length scales belong to its inputs."""
    if not isinstance(model, FairGPRegressor | FairGPClassifier) or model.kernel_ is None:
        return False
    kernel = model.kernel_.kernel
    return kernel.theta.size > 0 and not isinstance(kernel, Sum | Product)


def software() -> dict[str, str]:
    """Return when, and with what, a page is made."""
    versions = f"scikit-learn {sklearn.__version__}, numpy {np.__version__}"
    return {
        "Date": datetime.now(UTC).isoformat(timespec="seconds"),
        "Software": f"scalefair {__version__}, {versions}, Python {platform.python_version()}",
    }


def settings(frontier: Frontier, given: dict[str, str]) -> dict[str, str]:
    """Return where the page comes from: what was given, read, left out, fitted, and with what."""
    problem, estimator = frontier.problem, frontier.estimator
    sees = "may use them as inputs" if problem.sees_sensitive else "does not see them"
    inputs, levels = problem.inputs, ""
    if problem.levels is not None:
        levels = f": “{problem.levels[0]}” read as 0, “{problem.levels[1]}” as 1"
    values = [(label, vars(estimator).get(name)) for name, label in FITTED.items()]
    fitted = ", ".join(f"{label} {number(float(x))}" for label, x in values if x is not None)
    n, m, judged = problem.train.n_rows, problem.test.n_rows, len(frontier.judge.y)
    made = {
        **given, **software(),
        "Data": problem.source, "Hash of the data": problem.fingerprint,
        "Rows": f"{n + m:,} read, {n:,} to fit, {m:,} held out: {problem.held_out}; "
                f"{m - judged:,} of these left out",
        "Target": problem.target + levels,
        "Sensitive": f"{listed(problem.sensitive)}; the model {sees} when it predicts",
        "Inputs": f"{len(inputs)}: {', '.join(inputs)}" if inputs else "",
        "Seed": number(estimator.random_state) if isinstance(estimator.random_state, int) else "",
        "Chosen": fitted, "Time": f"{number(frontier.seconds)} s to fit",
        "Notes": "; ".join(frontier.notes),
    }  # fmt: skip
    return {name: text for name, text in made.items() if text}


def as_record(frontier: Frontier) -> dict[str, Any]:
    """Return the result as plain numbers, lists and text, ready for JSON; NaN becomes None."""
    problem, estimator, choice = frontier.problem, frontier.estimator, frontier.choice
    before, after = frontier.before, frontier.after
    certificate = vars(estimator).get("certificate_")
    both = [("before", before), ("after", after)]
    return dict(plain({
        "finding": headline(frontier),
        "data": problem.source,
        "target": problem.target,
        "target_levels": problem.levels,
        "sensitive": list(problem.sensitive),
        "rows": {"train": problem.train.n_rows, "test": problem.test.n_rows},
        "limit": frontier.limit,
        "estimator": type(estimator).__name__,
        "chosen": None if choice is None else choice.name,
        "errors": None if choice is None else choice.errors,
        "alpha": after.alpha,
        "eta": after.eta,
        "cost": _ends(after.get("cost_of_r2")),
        **{name: _scores(one, frontier.limited) for name, one in both},
        "groups": [{
            "group": e.group, "rows": e.rows, "small": e.small,
            "target": after.get("mean_target", *e[:2]).value,
            **{name: _ends(one.get("mean_prediction", *e[:2])) for name, one in both},
        } for e in after.groups(after.together)],
        "independence": [
            {"attribute": e[0].attribute, "measure": e[0].measure, "before": e[0].value,
             "after": e[1].value, "rows": e[1].rows}
            for _, _, e in comparison([before, after], {}, DEPENDENCES)
        ],
        "certificate": None if certificate is None else asdict(certificate),
        "notes": list(frontier.notes),
        "seconds": frontier.seconds,
    }))  # fmt: skip


def _scores(position: Position, limited: str) -> dict[str, Any]:
    names = ("r2", "root_mean_squared_error", "accuracy", "auc")
    share = _ends(position.get(limited, position.together))
    return {name: position.get(name).value for name in names} | {"share": share}


def _ends(entry: Entry) -> dict[str, float]:
    return {"value": entry.value, "low": entry.low, "high": entry.high}


def twin(frontier: Frontier, provenance: dict[str, str]) -> dict[str, Any]:
    """Return every number of the page, ready for JSON."""
    lists = {
        "calibration": frontier.calibration, "selection_rates": frontier.selection,
        "scoring_rates": frontier.scoring,
    }  # fmt: skip
    tables = {"proxies": frontier.proxies, "contributions": frontier.contributions}
    return as_record(frontier) | dict(plain({
        "provenance": provenance,
        "positions": [r for p in (*frontier.positions, *frontier.others) for r in p.records()],
        **{name: [line._asdict() for line in lines] for name, lines in lists.items()},
        **{name: [] if x is None else x.to_dict("records") for name, x in tables.items()},
    }))  # fmt: skip
