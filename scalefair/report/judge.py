"""Rows that models are judged by: held out, in memory, the same for all."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import roc_auc_score

from scalefair._typing import Array, DataFrame
from scalefair.auditing import audit
from scalefair.data import MAX_LEVELS_OF_NUMBERS, frames
from scalefair.errors import CannotJudgeError
from scalefair.measures import group_gaps
from scalefair.measures.group_metrics import Mask
from scalefair.report.position import DEPENDENCE, SHARE, Entry, Position, audit_entries, normal_ends, rows_of
from scalefair.report.rates import RANGES, calibration, distributions, impact_ratios

MIN_TESTED = 20
"""Rows that a test of independence takes at least."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Of the predictions of each group."""

OF_DECISIONS = ("selection_rate", "true_", "false_", "accuracy", "equalized_odds")
"""How the names of measures of decisions begin; all others are of predictions."""

STEP = 0.1
"""A prediction of numbers rises or falls if it moves by so many standard deviations."""


class Outputs(NamedTuple):
    """What a model says of n rows: predictions, and what it limits or decides if that is another.

    `scores` (n,) are what a limit is about, `decided` (n,) the model's own decisions.
    """

    f: Array
    scores: Array | None = None
    decided: Mask | None = None

    def take(self, rows: Any) -> Outputs:
        """Return some of the rows."""
        scores, decided = (x if x is None else x[rows] for x in self[1:])
        return Outputs(self.f[rows], scores, decided)


@dataclass(frozen=True, eq=False)
class Judge:
    """Rows in memory that models are judged by: attributes (n, p), targets (n,), what decides.

    Predictions from `threshold` on are positive decisions of models that decide nothing themselves; None: there are no
    decisions. `outcome` is what is right to decide, None where that is not known. Numbers of many values make groups
    between `bins`, their quartiles. Pictures of distributions go from `low` to `high`.
    """

    sensitive: DataFrame
    y: Array
    threshold: float | None
    bins: Mapping[str, Sequence[float]] = field(default_factory=dict)
    rows: Any = None
    """Numbers of the rows that are judged, among those that were held out."""
    outcome: Mask | None = None
    low: float = 0.0
    high: float = 1.0

    @classmethod
    def of(
        cls, sensitive: Any, y: Array, threshold: float | None, *, has_outcome: bool = True, like: Array | None = None
    ) -> Judge:
        """Return the judge of held-out rows; rows alone in their level are left out.

        `like` are predictions: pictures show the range that they have.
        """
        table, lone = _canonical(sensitive)
        rows = np.flatnonzero(~lone)
        table, y = table.iloc[rows].reset_index(drop=True), y[rows]
        most = min(MAX_LEVELS_OF_NUMBERS, len(rows) // 2)
        bins = {
            str(name): np.unique(np.nanquantile(values, (0.25, 0.5, 0.75))).tolist()
            for name, values in table.items()
            if values.dtype == float and values.nunique() > most
        }
        judge = cls(table, y, threshold, bins, rows)
        if threshold is not None and has_outcome:
            judge = replace(judge, outcome=y > threshold)
        if not judge.is_binary:
            low, high = np.quantile(y if like is None else like[rows], (0.001, 0.999))
            judge = replace(judge, low=low, high=high) if high > low else judge
        return judge

    @property
    def is_binary(self) -> bool:
        """Whether the targets are 0 and 1, so that predictions are probabilities."""
        return bool(np.isin(self.y, (0.0, 1.0)).all())

    def position(self, name: str, given: Outputs, against: Outputs | None = None, **point: Any) -> Position:
        """Return the numbers of a model, from what it says of the held-out rows.

        `against` is what the model without a limit says.
        """
        own = self._decide(given)
        start = None if against is None else self._decide(against)
        entries = [*self._errors(own.f), *([] if start is None else self._cost(own, start))]
        tables: dict[str, Any] = {}
        try:
            with warnings.catch_warnings(action="ignore", category=UserWarning):
                entries += self._audit(own)
                entries += [] if own.scores is None else self._score_shares(own.scores)
                entries += [] if start is None else self._changes(own, start)
                tables = self._tables(own)
        except CannotJudgeError as error:
            return Position(name, tuple(entries), **point, reason=str(error))
        return Position(name, tuple(entries), **point, **tables)

    def _decide(self, given: Outputs) -> Outputs:
        """Return the rows that are judged, with decisions where there are any."""
        own = given.take(self.rows)
        if own.decided is None and self.threshold is not None:
            return own._replace(decided=own.f >= self.threshold)
        return own

    @property
    def groups(self) -> dict[str, Any]:
        """Arguments of measures by group."""
        return {"sensitive_features": self.sensitive, "bins": self.bins, "missing": "group"}

    def _audit(self, own: Outputs) -> list[Entry]:
        tested = DEPENDENCE if len(self.y) >= MIN_TESTED else DEPENDENCE[1:3]
        result = audit({"f": own.f}, y_true=self.y, quantiles=QUANTILES, measures=[SHARE, *tested], **self.groups)
        entries = [e for e in audit_entries(result, "f") if not e.measure.startswith(OF_DECISIONS)]
        # An audit refuses to compare decisions that are all equal.
        if own.decided is None or len(np.unique(own.decided)) == 1:
            return entries
        outcome = None if self.outcome is None else self.outcome.astype(float)
        decided = audit({"f": own.decided.astype(float)}, y_true=outcome, measures=[], **self.groups)
        known = audit_entries(decided, "f")
        return entries + [e for e in known if e.measure.startswith(OF_DECISIONS)]

    def _tables(self, own: Outputs) -> dict[str, Any]:
        """Return calibration, distributions and impact ratios."""
        f = own.f
        edges = RANGES if self.is_binary else np.unique(np.quantile(f, (0.25, 0.5, 0.75)))
        column = "/".join([*self.sensitive, "prediction"])  # no attribute has this name
        table = self.sensitive.assign(**{column: f})
        pairs = {str(n): table[[n, column]] for n in self.sensitive}
        rates: dict[str, Array] = {"Scoring rate": f}
        if own.decided is not None:
            rates = {"Selection rate": own.decided.astype(float), **rates}
        options: dict[str, Any] = {"sensitive_features": self.sensitive, "bins": self.bins}
        return {
            "calibration": calibration(f, self.y, pairs, {**self.bins, column: list(edges)}),
            "distributions": distributions(f, table, self.bins, self.low, self.high),
            "impacts": {name: impact_ratios(values, **options) for name, values in rates.items()},
        }

    def _errors(self, f: Array) -> list[Entry]:
        """R² and, of classes, the area under the ROC curve."""
        squares = (self.y - f) ** 2
        error = float(squares.std(ddof=1) / np.sqrt(len(squares)))
        numbers = {"r2": _r2(self.y, f)}
        if self.is_binary and np.ptp(self.y):
            numbers["auc"] = float(roc_auc_score(self.y, f))
        mse = float(squares.mean())
        entries = [Entry("", "", name, x) for name, x in numbers.items()]
        return [*entries, Entry("", "", "mean_squared_error", mse, *normal_ends(mse, error))]

    def _cost(self, own: Outputs, start: Outputs) -> list[Entry]:
        """The relative loss of R², from paired squared errors, and of decisions that are right."""
        r2, y = _r2(self.y, start.f), self.y
        if r2 > 0:
            loss = ((y - own.f) ** 2 - (y - start.f) ** 2) / (y.var() * r2)
            error = float(loss.std(ddof=1) / np.sqrt(len(y)))
            ends = normal_ends(float(loss.mean()), error)
            cost = Entry("", "", "cost_of_r2", float(loss.mean()), *ends)
        else:
            cost = Entry("", "", "cost_of_r2", np.nan)
        up, down = _moves(own, start)
        counts = {"rising": up.sum(), "falling": down.sum()}
        if own.decided is not None:
            counts["changed_decisions"] = up.sum() + down.sum()
        if own.decided is not None and self.outcome is not None:
            right = [np.sum(x.decided == self.outcome) for x in (start, own)]
            counts["fewer_right_decisions"] = right[0] - right[1]
        return [cost, *(Entry("", "", n, float(x), rows=len(y)) for n, x in counts.items())]

    def _changes(self, own: Outputs, start: Outputs) -> list[Entry]:
        """What changes in each group: mean prediction, and the shares that rise and fall."""
        up, down = _moves(own, start)
        rates: dict[str, Any] = {"metrics": ["selection_rate"], "threshold": 0.5}
        means: dict[str, Any] = {"metrics": ["mean_prediction"]}
        entries = []
        for name, values, options in (
            ("mean_change", own.f - start.f, means),
            ("rising", up, rates),
            ("falling", down, rates),
        ):
            gaps = group_gaps(values.astype(float), quantiles=(), **options, **self.groups)
            rows = gaps.table[["attribute", "group", "value", "low", "high", "count", "small"]]
            for attribute, group, *numbers in rows.to_numpy().tolist():
                entries.append(Entry(attribute, group, name, *numbers))
        return entries

    def _score_shares(self, scores: Array) -> list[Entry]:
        found = audit({"f": scores}, measures=[SHARE], **self.groups).table
        rows = rows_of(found[found["measure"] == SHARE], "f", ["attribute", "value", "low", "high", "rows"])
        return [Entry(attribute, "", f"score_{SHARE}", *numbers) for attribute, *numbers in rows]


def _moves(own: Outputs, start: Outputs) -> tuple[Mask, Mask]:
    """Which decisions become positive and negative; or which numbers rise and fall."""
    if own.decided is not None and start.decided is not None:
        return own.decided & ~start.decided, ~own.decided & start.decided
    step = STEP * start.f.std()
    return own.f - start.f > step, start.f - own.f > step


def _canonical(sensitive: Any) -> tuple[DataFrame, Any]:
    """Return attributes as text and numbers, and which rows have a level that no other has."""
    table = frames.as_table(sensitive, one_column=True)
    values: dict[str, Any] = {}
    lone = np.zeros(frames.n_rows(table), dtype=bool)
    for column in frames.columns(table, prefix="s"):
        if column.kind == "categorical":
            codes, names = column.codes()
            values[column.name] = np.array([*names, None], dtype=object)[codes]
            counts = np.bincount(codes + 1, minlength=len(names) + 1)[codes + 1]
            lone |= (counts == 1) & (codes >= 0)
        else:
            values[column.name] = column.floats()
    return frames.make_frame(values), lone


def _r2(y: Array, f: Array) -> float:
    return float(1.0 - np.mean((y - f) ** 2) / y.var()) if y.var() > 0 else np.nan
