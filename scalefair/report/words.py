"""Findings in plain words, and the code that the page shows."""

from __future__ import annotations

import math

from sklearn.base import is_classifier

from scalefair.auditing.result import listed
from scalefair.report.frontier import Frontier
from scalefair.report.numbers import as_percent, fixed, number, table_percent
from scalefair.report.position import Entry, Position

WORSE = 0.005  # A measure between 0 and 1 that grows by more, and by more than 1/√n, got worse
GROWING = (
    "mutual_information",
    "normalized_hsic",
    "distance_correlation",
    "selection_rate_difference",
    "true_positive_rate_difference",
    "false_positive_rate_difference",
)
"""Measures that a limit may make worse; 0 is best."""


def headline(frontier: Frontier) -> str:
    """Return what fairness costs and what it achieves, on the held-out rows."""
    return " ".join(findings(frontier))


def findings(frontier: Frontier) -> list[str]:
    """Return the findings on the chosen model, one sentence each, the main one first."""
    before, after = frontier.before, frontier.after
    sees = "sees" if frontier.problem.sees_sensitive else "does not see"
    sight = f"The model {sees} {listed(frontier.problem.sensitive)} when it predicts."
    said = [_main(frontier), decisions(after, before), sight]
    said.append(_worse(before, after, _least(frontier)))
    return [sentence for sentence in said if sentence]


def _least(frontier: Frontier) -> float:
    return float(max(WORSE, len(frontier.judge.y) ** -0.5))


def _main(frontier: Frontier) -> str:
    before, after = frontier.before, frontier.after
    rows = f"on {len(frontier.judge.y):,} held-out rows"
    share = after.get(frontier.limited, after.together)
    if after.reason:
        return f"{_aim(frontier)}; {rows} the model cannot be judged: {after.reason}."
    if frontier.is_already_met:
        limit = "" if frontier.limit is None else f", the limit is {as_percent(frontier.limit)}"
        return (
            f"Already met: {rows} {_explains(frontier)} {as_percent(share.value)} of the variance "
            f"without any penalty{limit}{against_limit(share, frontier.limit)}."
        )
    start = before.get(frontier.limited, before.together)
    what = "gap" if frontier.is_about_decisions else "share"
    shares = f"the {what} from {as_percent(start.value)} to {as_percent(share.value)}"
    if frontier.limit is not None and start.value <= frontier.limit:
        shares += ", within the limit even without it"
    return (
        f"{_aim(frontier)} {price(after, before)}: {rows} {_change(after, before)} and {shares}"
        f"{against_limit(share, frontier.limit)}."
    )


def _explains(frontier: Frontier) -> str:
    names = frontier.problem.sensitive
    return f"{listed(names)} {'explains' if len(names) == 1 else 'explain'}"


def _aim(frontier: Frontier) -> str:
    if frontier.is_about_decisions:
        rates = frontier.limited.removesuffix("_difference").replace("_", " ")
        rates = rates.replace("selection rate", "rate of positive decisions")
        names = listed(frontier.problem.sensitive)
        return f"Limiting the gap in the {rates} by {names} to {as_percent(frontier.limit or 0.0)}"
    kind = "predictions" if frontier.limited == "explained_share" else "scores"
    what = f"the share of the variance of the {kind} that {_explains(frontier)}"
    if frontier.limit is None:
        return f"Reducing {what}"
    return f"Limiting {what} to {as_percent(frontier.limit)}"


def _change(after: Position, before: Position) -> str:
    measure, name = ("accuracy", "accuracy") if after.has("accuracy") else ("r2", "R²")
    values = (one.get(measure).value for one in (before, after))
    start, end = (table_percent(x) if name == "accuracy" else fixed(x, 3) for x in values)
    return f"{name} goes from {start} to {end}"


def price(after: Position, before: Position) -> str:
    """Return what a limit costs, in units that people know."""
    lost = after.get("fewer_right_decisions")
    if not math.isnan(lost.value):
        points = _pts(abs(lost.value) / lost.rows)
        points = "less than 0.1" if points == "0" else points
        people = "person" if abs(lost.value) == 1 else "people"
        fewer = f"{abs(lost.value):,.0f} more {people} in {lost.rows:,} decided"
        change = after.get("changed_decisions").value
        changed = f"{change:,.0f} decision{' changes' if change == 1 else 's change'}"
        if lost.value <= 0:
            gained = f" ({fewer} rightly)" if lost.value else ""
            return f"costs no accuracy{gained}, and {changed}"
        return f"costs {points} points of accuracy ({fewer} wrongly), and {changed}"
    cost = after.get("cost_of_r2")
    if math.isnan(cost.value):
        return "has no measurable cost, since the model without a limit predicts no better than the mean"
    part = "no measurable part" if cost.low <= 0 else as_percent(cost.value)
    errors = [number(one.get("root_mean_squared_error").value) for one in (before, after)]
    ends = f"95 % interval {as_percent(cost.low)} to {as_percent(cost.high)}"
    return f"costs {part} of R² ({ends}; typical error {errors[1]} instead of {errors[0]})"


def decisions(after: Position, before: Position | None = None) -> str:
    """Return how far the rates of positive decisions differ; "" where there are none."""
    gap, ratio = (after.get(f"selection_rate_{n}", after.together) for n in ("difference", "ratio"))
    if math.isnan(gap.value):
        return ""
    started = ["", ""]
    if before is not None and before is not after:
        starts = [before.get(x.measure, before.together).value for x in (gap, ratio)]
        if not math.isnan(starts[0]):
            started = [f" (without a limit {_pts(starts[0])})", f" (without a limit {fixed(starts[1], 2)})"]
    return (
        f"The rate of positive decisions differs by up to {_pts(gap.value)} points between the "
        f"groups of {after.together}{started[0]}; the smallest is {fixed(ratio.value, 2)} times "
        f"the largest{started[1]}."
    )


def _pts(x: float) -> str:
    return as_percent(x).removesuffix(" %")


def _worse(before: Position, after: Position, least: float) -> str:
    """Return what the limit made worse, and for which attribute most; "" where nothing is."""
    grown = []
    for measure in GROWING:
        pairs = [(after.get(measure, a), before.get(measure, a).value) for a in after.attributes]
        rises = [(now.value - then, now, then) for now, then in pairs if now.value > then + least]
        if rises:
            _, now, then = max(rises)
            numbers = f"{fixed(now.value, 3)} instead of {fixed(then, 3)}"
            name = measure.replace("_", " ")
            if measure.endswith("_difference"):
                numbers = f"{fixed(100 * now.value, 1)} points instead of {fixed(100 * then, 1)}"
                name = f"gap of {name.removesuffix(' difference')}s"
            grown.append(f"{name} ({now.attribute}) {numbers}")
    return f"Worse than without a limit: {listed(grown)}." if grown else ""


def position_words(position: Position, frontier: Frontier) -> str:
    """Return what one position of the slider means, in sentences."""
    before = frontier.before
    if position.reason:
        return f"This model cannot be judged: {position.reason}."
    share = position.get(frontier.limited, position.together)
    ends = f"95 % interval {as_percent(share.low)} to {as_percent(share.high)}"
    said = f"{_explains(frontier)} {as_percent(share.value)} of the variance ({ends})"
    said = said[0].upper() + said[1:]
    if position is not before:
        said += f". It {price(position, before)}"
        ups, downs = (position.get(name).value for name in ("rising", "falling"))
        if position.has("selection_rate"):
            said += f": {ups:,.0f} become positive, {downs:,.0f} negative"
        else:
            said += f". {ups:,.0f} predictions rise, {downs:,.0f} fall"
    grown = "" if position is before else _worse(before, position, _least(frontier))
    return " ".join(filter(None, (f"{said}.", decisions(position), grown)))


def against_limit(share: Entry, limit: float | None) -> str:
    """Return how a share on held-out rows compares with the limit; "" where it keeps it."""
    if limit is None or share.value <= limit:
        return ""
    if share.low <= limit:
        return ", above the limit but within its sampling error"
    return f", above the limit (95 % interval {as_percent(share.low)} to {as_percent(share.high)})"


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
    columns = "a table with the inputs listed above" if frontier.problem.inputs else "rows as in the fit"
    method = "predict_proba" if is_classifier(frontier.estimator) else "predict"
    load = f"model = scalefair.load({name!r})"
    return f"import scalefair\n\n{load}\nmodel.{method}(X)   # X: {columns}"
