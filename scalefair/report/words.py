"""Numbers and findings in plain words."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from scalefair._files import plain
from scalefair.auditing.result import listed
from scalefair.data import frames
from scalefair.report.frontier import Frontier, Scores
from scalefair.report.groups import Share, group_table
from scalefair.report.problem import Problem

ABSENT = "–"


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


def percent(x: float) -> str:
    """Write a share of 1 as a percentage."""
    if math.isnan(x):
        return ABSENT
    return f"{fixed(100 * x, 1).removesuffix('.0')} %"


def headline(frontier: Frontier) -> str:
    """Return what fairness costs and what it brings, on the held-out rows, in two sentences."""
    before, after = frontier.scores()
    rows = f"{frontier.problem.test.n_rows:,} held-out rows"
    if math.isnan(after.share.value):
        return f"{_aim(frontier)}; judged on {rows} the predictions are constant."
    verdict = f"R² goes from {fixed(before.r2, 3)} to {fixed(after.r2, 3)}"
    # Ranges of a number explain less than the number itself: that is another share.
    what = "the share between the groups" if frontier.groups.cut else "the share"
    shares = f"{what} from {percent(before.share.value)} to {percent(after.share.value)}"
    sentence = f"{_aim(frontier)} {_price(frontier)}: on {rows} {verdict} and {shares}"
    return f"{sentence}{_against_limit(after.share, frontier.limit)}."


def _aim(frontier: Frontier) -> str:
    names = listed(frontier.problem.sensitive)
    explain = "explains" if len(frontier.problem.sensitive) == 1 else "explain"
    kind = "predictions" if frontier.scored is None else "scores"
    what = f"the share of the variance of the {kind} that {names} {explain}"
    if frontier.limit is None:
        return f"Reducing {what}"
    return f"Limiting {what} to {percent(frontier.limit)}"


def _price(frontier: Frontier) -> str:
    cost = frontier.cost()
    if np.array_equal(frontier.before, frontier.after):
        how = "cross-validation finds it so" if frontier.test_table is None else "it is met"
        return f"costs nothing, for {how} without any penalty"
    if math.isnan(cost.value):
        return "has no price, for the model without the penalty predicts no better than the mean"
    part = "no measurable part" if cost.low <= 0 else percent(cost.value)
    return f"costs {part} of R² (95 % interval {percent(cost.low)} to {percent(cost.high)})"


def _against_limit(share: Share, limit: float | None) -> str:
    if limit is None or share.value <= limit:
        return ""
    if share.low <= limit:
        return ", above the limit but within its sampling error"
    return f", above the limit (95 % interval {percent(share.low)} to {percent(share.high)})"


def refit_code(frontier: Frontier) -> str:
    """Return Python that fits the chosen model again, on all rows."""
    estimator = frontier.estimator
    seen = estimator.sensitive_columns is None
    lines = [
        "import scalefair",
        frontier.problem.code,
        f"est = scalefair.{estimator!r}",
        f"est.fit(X, y{', sensitive_features=S' if seen else ''})",
        "",
    ]
    if frontier.test_table is None:
        lines += [
            "est.path_.table                 # every fit of this page, as a data frame",
            "est.path_.at(unfairness=0.02)   # another limit, without the data",
        ]
    return "\n".join([*lines, "est.predict(X)                  # never needs S"])


def load_code(frontier: Frontier, name: str) -> str:
    """Return Python that loads the model of the page and predicts."""
    named = names_of_inputs(frontier.problem)
    columns = "a table with the inputs listed above" if named else "rows as in the fit"
    what = ".predict_proba(X)" if is_classifier(frontier.estimator) else ".predict(X)"
    return "\n".join(
        [
            "import scalefair",
            "",
            f"model = scalefair.load({name!r})",
            f"model{what}   # X: {columns}",
        ]
    )


def names_of_inputs(problem: Problem) -> list[str]:
    """Return the names of the inputs, none for arrays."""
    return frames.column_names(problem.test.X) or []


def _parameter(estimator: Any, name: str) -> Any:
    return estimator.get_params(deep=False).get(name)


def as_record(frontier: Frontier) -> dict[str, Any]:
    """Return the result as plain numbers, lists and text, ready for JSON; NaN becomes None."""
    problem, estimator = frontier.problem, frontier.estimator
    before, after = frontier.scores()
    groups = group_table(frontier.groups, problem.test.y, frontier.before, frontier.after)
    record = {
        "finding": headline(frontier),
        "data": problem.source,
        "target": problem.target,
        "target_levels": problem.levels,
        "sensitive": list(problem.sensitive),
        "rows": {"train": problem.train.n_rows, "test": problem.test.n_rows},
        "limit": frontier.limit,
        "estimator": type(estimator).__name__,
        "alpha": estimator.alpha_
        if frontier.test_table is None
        else _parameter(estimator, "alpha"),
        "eta": estimator.eta_,
        "cost": asdict(frontier.cost()),
        "before": _as_dict(before),
        "after": _as_dict(after),
        "groups": groups.to_dict("records"),
        "independence": [] if frontier.tests is None else frontier.tests.to_dict("records"),
        "notes": list(frontier.notes),
        "seconds": frontier.seconds,
    }
    return dict(plain(record))


def _as_dict(scores: Scores) -> dict[str, Any]:
    return {**asdict(scores), "share": scores.share._asdict()}
