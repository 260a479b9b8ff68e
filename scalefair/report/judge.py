"""Rows that models are judged by: held out, in memory, the same for all."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import roc_auc_score

from scalefair._typing import Array, DataFrame
from scalefair.auditing import audit
from scalefair.data import MAX_LEVELS_OF_NUMBERS, frames
from scalefair.data.sources.threads import one_blas_thread
from scalefair.errors import CannotJudgeError
from scalefair.held_out import mean_and_error
from scalefair.measures.group_metrics import Mask
from scalefair.measures.group_rows import open_audit
from scalefair.measures.group_statistics import GroupSettings
from scalefair.measures.groups import gaps_of_models
from scalefair.report.position import DEPENDENCE, SHARE, Entry, Position, audit_entries, normal_ends
from scalefair.report.rates import RANGES, calibration, distributions, impact_ratios

MIN_TESTED = 20  # Rows that a test of independence takes at least
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # Of the predictions of each group
OF_DECISIONS = ("selection_rate", "true_", "false_", "accuracy", "equalized_odds")
"""How the names of measures of decisions begin; all others are of predictions."""

MAX_VALUES = 250_000  # predictions of several models that are judged at once
STEP = 0.1  # a prediction of numbers rises or falls if it moves by so many standard deviations


class Outputs(NamedTuple):
    """What a model says of n rows: f, the `scores` that a limit is about, and `decided`, its own decisions."""

    f: Array
    scores: Array | None = None
    decided: Mask | None = None

    def take(self, rows: Any) -> Outputs:
        """Return some of the rows."""
        scores, decided = (x if x is None else x[rows] for x in self[1:])
        return Outputs(self.f[rows], scores, decided)


@dataclass(frozen=True, eq=False)
class Judge:
    """Rows in memory that models are judged by: attributes (n, p), targets (n,), what decides."""

    sensitive: DataFrame
    y: Array
    threshold: float | None  # predictions from there on are positive decisions, of models that make none; None: none
    bins: Mapping[str, Sequence[float]] = field(default_factory=dict)  # quartiles, between which numbers make groups
    rows: Any = None  # numbers of the rows that are judged, among those that were held out
    outcome: Mask | None = None  # what is right to decide, None where that is not known
    low: float = 0.0  # ends of the pictures of distributions
    high: float = 1.0

    @classmethod
    def of(
        cls, sensitive: Any, y: Array, threshold: float | None, *, has_outcome: bool = True, like: Array | None = None
    ) -> Judge:
        """Return the judge of rows that are not alone in their level; pictures show the range of `like`."""
        table, lone = _canonical(sensitive)
        rows = np.flatnonzero(~lone)
        table, y = table.iloc[rows].reset_index(drop=True), y[rows]
        most = min(MAX_LEVELS_OF_NUMBERS, len(rows) // 2)
        bins = {
            str(name): np.unique(np.nanquantile(values, (0.25, 0.5, 0.75))).tolist()
            for name, values in table.items()
            if values.dtype == float and values.nunique() > most
        }
        judge = cls(table, y, threshold, bins, rows, y > threshold if has_outcome and threshold is not None else None)
        if not judge.is_binary:
            low, high = np.quantile(y if like is None else like[rows], (0.001, 0.999))
            judge = replace(judge, low=low, high=high) if high > low else judge
        return judge

    @property
    def is_binary(self) -> bool:
        """Whether the targets are 0 and 1, so that predictions are probabilities."""
        return bool(np.isin(self.y, (0.0, 1.0)).all())

    @one_blas_thread()  # sums of few rows, whose threads would wait for each other
    def positions(self, given: Sequence[Outputs], against: Outputs | None = None) -> list[Position]:
        """Return the numbers of models, without names, from their outputs, `against` those without a limit."""
        most = max(MAX_VALUES // len(self.y), 1)
        if len(given) > most:
            return self.positions(given[:most], against) + self.positions(given[most:], against)
        own = [self._decide(one) for one in given]
        start = None if against is None else self._decide(against)
        entries = [[*self._errors(one.f), *([] if start is None else self._cost(one, start))] for one in own]
        try:
            with warnings.catch_warnings(action="ignore", category=UserWarning):
                for part in (self._audits, self._score_shares, partial(self._changes, start)):
                    entries = [known + more for known, more in zip(entries, part(own), strict=True)]
                tables = [self._tables(one) for one in own]
        except CannotJudgeError as error:
            if len(own) > 1:  # the others may be judged
                return [part for one in given for part in self.positions([one], against)]
            return [Position("", tuple(entries[0]), reason=str(error))]
        return [Position("", tuple(e), **more) for e, more in zip(entries, tables, strict=True)]

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

    def _audits(self, given: Sequence[Outputs]) -> list[list[Entry]]:
        tested = DEPENDENCE if len(self.y) >= MIN_TESTED else DEPENDENCE[1:3]
        f = {str(i): one.f for i, one in enumerate(given)}
        result = audit(f, y_true=self.y, quantiles=QUANTILES, measures=[SHARE, *tested], **self.groups)
        entries = [[e for e in audit_entries(result, i) if not e.measure.startswith(OF_DECISIONS)] for i in f]
        # An audit refuses to compare decisions that are all equal.
        pairs = [(i, one.decided) for i, one in zip(f, given, strict=True) if one.decided is not None]
        decisions = {i: decided.astype(float) for i, decided in pairs if 0 < decided.mean() < 1}
        if decisions:
            outcome = None if self.outcome is None else self.outcome.astype(float)
            decided = audit(decisions, y_true=outcome, measures=[], **self.groups)
            for i in decisions:
                entries[int(i)] += [e for e in audit_entries(decided, i) if e.measure.startswith(OF_DECISIONS)]
        return entries

    def _tables(self, own: Outputs) -> dict[str, Any]:
        """Return calibration, distributions and impact ratios."""
        f = own.f
        edges = RANGES if self.is_binary else np.unique(np.quantile(f, (0.25, 0.5, 0.75)))
        column = "/".join([*self.sensitive, "prediction"])  # no attribute has this name
        table = self.sensitive.assign(**{column: f})
        pairs = {str(n): table[[n, column]] for n in self.sensitive}
        decided = {} if own.decided is None else {"Selection rate": own.decided.astype(float)}
        rates: dict[str, Array] = {**decided, "Scoring rate": f}
        options: dict[str, Any] = {"sensitive_features": self.sensitive, "bins": self.bins}
        return {
            "calibration": calibration(f, self.y, pairs, {**self.bins, column: list(edges)}),
            "distributions": distributions(f, table, self.bins, self.low, self.high),
            "impacts": {name: impact_ratios(values, **options) for name, values in rates.items()},
        }

    def _errors(self, f: Array) -> list[Entry]:
        """R² and, of classes, the area under the ROC curve."""
        mse, error = map(float, mean_and_error((self.y - f) ** 2))
        numbers = {"r2": _r2(self.y, f)}
        if self.is_binary and np.ptp(self.y):
            numbers["auc"] = float(roc_auc_score(self.y, f))
        entries = [Entry("", "", name, x) for name, x in numbers.items()]
        return [*entries, Entry("", "", "mean_squared_error", mse, *normal_ends(mse, error))]

    def _cost(self, own: Outputs, start: Outputs) -> list[Entry]:
        """The relative loss of R², from paired squared errors, and of decisions that are right."""
        r2, y, cost = _r2(self.y, start.f), self.y, Entry("", "", "cost_of_r2", np.nan)
        if r2 > 0:
            loss = ((y - own.f) ** 2 - (y - start.f) ** 2) / (y.var() * r2)
            mean, error = map(float, mean_and_error(loss))
            cost = Entry("", "", "cost_of_r2", mean, *normal_ends(mean, error))
        up, down = _moves(own, start)
        counts = {"rising": up.sum(), "falling": down.sum()}
        if own.decided is not None:
            counts["changed_decisions"] = up.sum() + down.sum()
        if own.decided is not None and self.outcome is not None:
            right = [np.sum(x.decided == self.outcome) for x in (start, own)]
            counts["fewer_right_decisions"] = right[0] - right[1]
        return [cost, *(Entry("", "", n, float(x), rows=len(y)) for n, x in counts.items())]

    def _changes(self, start: Outputs | None, given: Sequence[Outputs]) -> list[list[Entry]]:
        """What changes in each group: mean prediction, and the shares that rise and fall."""
        entries: list[list[Entry]] = [[] for _ in given]
        if start is None:
            return entries
        moves = [_moves(own, start) for own in given]
        for name, values, metric in (
            ("mean_change", [own.f - start.f for own in given], "mean_prediction"),
            ("rising", [up for up, _ in moves], "selection_rate"),
            ("falling", [down for _, down in moves], "selection_rate"),
        ):
            rows = open_audit({str(i): x.astype(float) for i, x in enumerate(values)}, self.sensitive, None, None)
            cut = 0.5 if metric == "selection_rate" else None
            settings = GroupSettings((), cut, [metric], self.bins, missing="group")
            for own, gaps in zip(entries, gaps_of_models(rows, settings), strict=True):
                table = gaps.table[["attribute", "group", "value", "low", "high", "count", "small"]]
                own += [Entry(attribute, group, name, *x) for attribute, group, *x in table.to_numpy().tolist()]
        return entries

    def _score_shares(self, given: Sequence[Outputs]) -> list[list[Entry]]:
        scores = {str(i): x.scores for i, x in enumerate(given) if x.scores is not None}
        models = audit(scores, measures=[SHARE], **self.groups).models if scores else {}
        known = [models[str(i)].dependence if str(i) in models else {} for i in range(len(given))]
        return [
            [Entry(name, "", f"score_{SHARE}", x.value, x.low, x.high, x.rows) for name, (x,) in one.items()]
            for one in known
        ]


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
    text = [name for name, x in values.items() if x.dtype == object]
    return frames.make_frame(values).astype(dict.fromkeys(text, "category")), lone  # coded once, read often


def _r2(y: Array, f: Array) -> float:
    return float(1.0 - np.mean((y - f) ** 2) / y.var()) if y.var() > 0 else np.nan
