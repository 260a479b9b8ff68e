"""Numbers and findings in plain words, and the code that the page shows."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import is_classifier

from scalefair._files import plain
from scalefair.auditing.result import listed
from scalefair.report.frontier import Frontier, Scores
from scalefair.report.groups import Interval, group_table

if TYPE_CHECKING:
    import pandas as pd

ABSENT = "–"
SIGNIFICANT = 0.05
TITLES = {
    "hsic_pvalue": "HSIC test of independence, p",
    "conditional_hsic_pvalue": "The same given the target (equalised odds), p",
    "normalized_hsic": "Normalised HSIC, 0 to 1",
    "distance_correlation": "Distance correlation, 0 to 1",
    "mutual_information": "Mutual information, nats",
}
"""Measures of dependence, as the page calls them."""


def number(x: float) -> str:
    """Write a number with three significant digits."""
    if math.isnan(x):
        return ABSENT
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    if x != 0 and not 1e-4 <= abs(x) < 1e9:
        return f"{x:.2e}".replace("-", "−")
    return fixed(x, decimals(x))


def decimals(scale: float) -> int:
    """Return how many decimals show three significant digits of numbers of this size."""
    if not scale or not math.isfinite(scale):
        return 0
    return min(max(2 - math.floor(math.log10(abs(scale))), 0), 12)


def fixed(x: float, decimals: int) -> str:
    """Write a number with so many decimals and thousands separators."""
    if math.isnan(x):
        return ABSENT
    text = f"{x:,.{decimals}f}"
    return text.lstrip("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")


def as_percent(x: float) -> str:
    """Write a share of 1 as a percentage."""
    if math.isnan(x):
        return ABSENT
    return f"{fixed(100 * x, 1).removesuffix('.0')} %"


def pvalue(p: float, sign: str = "= ") -> str:
    """Write a p-value."""
    return "< 0.001" if p < 0.001 else f"{sign}{fixed(p, 3)}"


def headline(frontier: Frontier) -> str:
    """Return what fairness costs and what it brings, on the held-out rows, in two sentences."""
    before, after = frontier.scores()
    rows = f"{frontier.problem.test.n_rows:,} held-out rows"
    if math.isnan(after.share.value):
        return f"{_aim(frontier)}; judged on {rows} the predictions are constant."
    verdict = f"R² goes from {fixed(before.r2, 3)} to {fixed(after.r2, 3)}"
    # Ranges of a number explain less than the number itself: that is another share.
    what = "the share between the groups" if frontier.groups.cut else "the share"
    shares = f"{what} from {as_percent(before.share.value)} to {as_percent(after.share.value)}"
    sentence = f"{_aim(frontier)} {_price(frontier)}: on {rows} {verdict} and {shares}"
    return f"{sentence}{against_limit(after.share, frontier.limit)}."


def _aim(frontier: Frontier) -> str:
    names = listed(frontier.problem.sensitive)
    explain = "explains" if len(frontier.problem.sensitive) == 1 else "explain"
    kind = "predictions" if frontier.scored is None else "scores"
    what = f"the share of the variance of the {kind} that {names} {explain}"
    if frontier.limit is None:
        return f"Reducing {what}"
    return f"Limiting {what} to {as_percent(frontier.limit)}"


def _price(frontier: Frontier) -> str:
    cost = frontier.cost()
    if np.array_equal(frontier.before, frontier.after):
        how = "cross-validation finds it so" if frontier.is_cross_validated else "it is met"
        return f"costs nothing, for {how} without any penalty"
    if math.isnan(cost.value):
        return "has no price, for the model without the penalty predicts no better than the mean"
    part = "no measurable part" if cost.low <= 0 else as_percent(cost.value)
    return f"costs {part} of R² (95 % interval {as_percent(cost.low)} to {as_percent(cost.high)})"


def against_limit(share: Interval, limit: float | None) -> str:
    """Return how a share on held-out rows compares with the limit; "" where it keeps it."""
    if limit is None or share.value <= limit:
        return ""
    if share.low <= limit:
        return ", above the limit but within its sampling error"
    return f", above the limit (95 % interval {as_percent(share.low)} to {as_percent(share.high)})"


def verdict(table: pd.DataFrame | None, names: str) -> str:
    """Return what the test of the chosen model finds; "" where there is none."""
    tested = [] if table is None else table.loc[table["measure"] == "hsic_pvalue", "after"].tolist()
    if not tested or math.isnan(p := tested[0]):
        return ""
    if p >= SIGNIFICANT:
        return (
            f"The test finds no evidence that the predictions of the chosen model depend on "
            f"{names} (p {pvalue(p)})."
        )
    return (
        f"The predictions of the chosen model still depend on {names} in some way (p {pvalue(p)}): "
        "the penalty equalises means, and equal means are not independence. With many rows the "
        "test also finds dependence that hardly matters, so read the measures beside it."
    )


def refit_code(frontier: Frontier) -> str:
    """Return Python that fits the chosen model again, on all rows."""
    estimator = frontier.estimator
    weight = frontier.problem.weight
    weight = "" if weight is None else f", sample_weight=data[{weight!r}]"
    apart = ", sensitive_features=S" if estimator.sensitive_columns is None else ""
    lines = [
        "import scalefair",
        frontier.problem.code,
        f"est = scalefair.{estimator!r}",
        f"est.fit(X, y{apart}{weight})",
        "",
    ]
    if frontier.is_cross_validated:
        lines += [
            "est.path_.table                 # every fit of this page, as a data frame",
            "est.path_.at(unfairness=0.02)   # another limit, without the data",
        ]
    sees = estimator.sensitive_columns is not None and not estimator.hide_sensitive
    needs = "S is among its inputs" if sees else "needs no S"
    return "\n".join([*lines, f"est.predict(X)                  # {needs}"])


def load_code(frontier: Frontier, name: str) -> str:
    """Return Python that loads the model of the page and predicts."""
    columns = (
        "a table with the inputs listed above" if frontier.problem.inputs else "rows as in the fit"
    )
    method = "predict_proba" if is_classifier(frontier.estimator) else "predict"
    load = f"model = scalefair.load({name!r})"
    return f"import scalefair\n\n{load}\nmodel.{method}(X)   # X: {columns}"


def as_record(frontier: Frontier) -> dict[str, Any]:
    """Return the result as plain numbers, lists and text, ready for JSON; NaN becomes None."""
    problem, estimator = frontier.problem, frontier.estimator
    before, after = frontier.scores()
    groups = group_table(frontier.groups, problem.test.y, frontier.before, frontier.after)
    certificate = vars(estimator).get("certificate_")
    record = {
        "finding": headline(frontier),
        "data": problem.source,
        "target": problem.target,
        "target_levels": problem.levels,
        "sensitive": list(problem.sensitive),
        "rows": {"train": problem.train.n_rows, "test": problem.test.n_rows},
        "limit": frontier.limit,
        "estimator": type(estimator).__name__,
        "chosen": None if frontier.choice is None else frontier.choice.name,
        "errors": None if frontier.choice is None else frontier.choice.errors,
        "alpha": frontier.alpha,
        "eta": estimator.eta_,
        "cost": frontier.cost()._asdict(),
        "before": _as_dict(before),
        "after": _as_dict(after),
        "groups": groups.to_dict("records"),
        "independence": [] if frontier.tests is None else frontier.tests.to_dict("records"),
        "certificate": None if certificate is None else asdict(certificate),
        "notes": list(frontier.notes),
        "seconds": frontier.seconds,
    }
    return dict(plain(record))


def _as_dict(scores: Scores) -> dict[str, Any]:
    return {**asdict(scores), "share": scores.share._asdict()}
