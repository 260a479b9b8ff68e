"""Models judged on the same rows: every number of the page, of its csv and of its JSON twin."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtri
from sklearn.metrics import roc_auc_score

from scalefair._typing import Array
from scalefair.auditing import Audit, audit
from scalefair.data import MAX_LEVELS_OF_NUMBERS, frames
from scalefair.errors import CannotJudgeError
from scalefair.measures import group_gaps
from scalefair.measures.group_metrics import Mask

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.95
"""Of all intervals of the page."""

SHARE = "explained_share"
DEPENDENCE = ("hsic_pvalue", "normalized_hsic", "distance_correlation", "mutual_information")
"""Measures of dependence; 0 means independent for all but p-values."""

MIN_TESTED = 20
"""Rows that a test of independence takes at least."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Of the predictions of each group."""

STEP = 0.1
"""A prediction of numbers rises or falls if it moves by so many standard deviations."""


class Entry(NamedTuple):
    """A number of a model: over all rows, by attribute, or of one group; NaN ends: no interval."""

    attribute: str
    group: str
    measure: str
    value: float
    low: float = np.nan
    high: float = np.nan
    rows: int = 0
    small: bool = False

    @property
    def error(self) -> float:
        """The standard error that belongs to the interval."""
        return (self.high - self.low) / (2 * float(ndtri(0.5 + LEVEL / 2)))


@dataclass(frozen=True, eq=False)
class Position:
    """One model of the page with all its numbers: a position of the slider, or a model beside it.

    Attributes
    ----------
    name : str
        What the page calls it, such as "at most 5 %".
    entries : tuple of Entry
        Its numbers, those of :func:`scalefair.audit` among them.
    limit : float or None
        The limit on the explained share that the model was chosen under.
    alpha, eta : float or None
        Ridge, and weight of the penalty.
    reason : str
        Why groups could not be judged, "" where they could.
    """

    name: str
    entries: tuple[Entry, ...] = ()
    limit: float | None = None
    alpha: float | None = None
    eta: float | None = None
    reason: str = ""

    @cached_property
    def _index(self) -> dict[tuple[str, str, str], Entry]:
        return {entry[:3]: entry for entry in self.entries}

    def get(self, measure: str, attribute: str = "", group: str = "") -> Entry:
        """Return a number; NaN where there is none."""
        key = (attribute, group, measure)
        return self._index.get(key, Entry(*key, np.nan))

    def has(self, measure: str) -> bool:
        """Return True if a measure is known for some attribute, group or all rows."""
        return any(entry.measure == measure for entry in self.entries)

    @cached_property
    def attributes(self) -> list[str]:
        """Attributes alone, then all together."""
        return list(dict.fromkeys(e.attribute for e in self.entries if e.measure == SHARE))

    @property
    def together(self) -> str:
        """The name of all attributes together."""
        return self.attributes[-1] if self.attributes else ""

    def groups(self, attribute: str) -> list[Entry]:
        """Return the mean predictions of the groups of an attribute, the largest group first."""
        means = (e for e in self.entries if e.attribute == attribute and e.group)
        return sorted((e for e in means if e.measure == "mean_prediction"), key=lambda e: -e.rows)

    def quantiles(self, group: Entry) -> list[Entry]:
        """Return the quantiles of the predictions of a group, all of them known or none."""
        own = [e for e in self.entries if e[:2] == group[:2] and e.measure.startswith("quantile_")]
        return [] if any(np.isnan(e.value) for e in own) else own

    def records(self) -> list[dict[str, Any]]:
        """Return the numbers as rows of the csv."""
        own = {"model": self.name, "limit": self.limit, "alpha": self.alpha, "eta": self.eta}
        return [own | entry._asdict() for entry in self.entries]


def audit_entries(result: Audit, model: str) -> list[Entry]:
    """Return every number that an audit has of one model."""
    table, groups = result.table, result.groups
    columns = ["attribute", "measure", "value", "low", "high", "rows"]
    entries = [
        Entry(attribute, "", measure, *numbers)
        for attribute, measure, *numbers in _rows_of(table, model, columns)
    ]
    columns = ["attribute", "group", "metric", "value", "low", "high", "count", "small"]
    if len(groups):
        entries += [Entry(*row) for row in _rows_of(groups, model, columns)]
        overall = result.overall.set_index("model").loc[model]
        entries += [Entry("", "", str(name), float(x)) for name, x in overall.to_dict().items()]
    bias = {e[:2]: e.value for e in entries if e.measure == "bias"}
    means = [e for e in entries if e.measure == "mean_prediction" and e[:2] in bias]
    targets = [e._replace(measure="mean_target", value=e.value - bias[e[:2]], low=np.nan,
                          high=np.nan) for e in means]  # fmt: skip
    return entries + targets


def _rows_of(table: pd.DataFrame, model: str, columns: list[str]) -> list[list[Any]]:
    rows: list[list[Any]] = table.loc[table["model"] == model, columns].to_numpy().tolist()
    return rows


@dataclass(frozen=True, eq=False)
class Judge:
    """Rows in memory that models are judged by: attributes (n, p), targets (n,), what decides.

    Predictions from `threshold` on are positive decisions; None: there are none. Numbers of many
    values make groups between `bins`, their quartiles.
    """

    sensitive: pd.DataFrame
    y: Array
    threshold: float | None
    bins: Mapping[str, Sequence[float]] = field(default_factory=dict)
    rows: Any = None
    """Numbers of the rows that are judged, among those that were held out."""

    @classmethod
    def of(cls, sensitive: Any, y: Array, threshold: float | None) -> Judge:
        """Return the judge of held-out rows; rows alone in their level are left out."""
        table, lone = _canonical(sensitive)
        rows = np.flatnonzero(~lone)
        table = table.iloc[rows].reset_index(drop=True)
        most = min(MAX_LEVELS_OF_NUMBERS, len(rows) // 2)
        bins = {
            str(name): np.unique(np.nanquantile(values, (0.25, 0.5, 0.75))).tolist()
            for name, values in table.items()
            if values.dtype == float and values.nunique() > most
        }
        return cls(table, y[rows], threshold, bins, rows)

    def position(
        self, name: str, f: Array, scores: Array | None = None, against: Array | None = None, *,
        full: bool = False, **point: Any,
    ) -> Position:  # fmt: skip
        """Return the numbers of predictions for the held-out rows.

        `scores` are what the limit is about, where that is not `f`; `against` are the predictions
        without a limit; `full` adds measures of dependence that take longer.
        """
        f = f[self.rows]
        scores, against = (x if x is None else x[self.rows] for x in (scores, against))
        entries = [*self._errors(f), *([] if against is None else self._cost(f, against))]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                entries += self._audit(f, full=full)
                entries += [] if scores is None else self._score_shares(scores)
                entries += [] if against is None else self._changes(f, against)
        except CannotJudgeError as error:
            return Position(name, tuple(entries), **point, reason=str(error))
        return Position(name, tuple(entries), **point)

    @property
    def groups(self) -> dict[str, Any]:
        """Arguments of measures by group."""
        return {"sensitive_features": self.sensitive, "bins": self.bins, "missing": "group"}

    def _audit(self, f: Array, *, full: bool) -> list[Entry]:
        tested = DEPENDENCE if len(self.y) >= MIN_TESTED else DEPENDENCE[1:3]
        cut = self.threshold
        if cut is not None and len(np.unique(f >= cut)) == 1:
            cut = None  # an audit refuses to compare decisions that are all the same
        result = audit(
            {"f": f}, y_true=self.y, threshold=cut, quantiles=QUANTILES,
            measures=[SHARE, *(tested if full else ())], **self.groups,
        )  # fmt: skip
        return audit_entries(result, "f")

    def _errors(self, f: Array) -> list[Entry]:
        """R² and, of classes, the area under the ROC curve."""
        squares = (self.y - f) ** 2
        error = float(squares.std(ddof=1) / np.sqrt(len(squares)))
        numbers = {"r2": _r2(self.y, f)}
        if self.threshold is not None and np.ptp(self.y):
            numbers["auc"] = float(roc_auc_score(self.y, f))
        mse = normal_entry("mean_squared_error", float(squares.mean()), error)
        return [*(Entry("", "", name, x) for name, x in numbers.items()), mse]

    def _cost(self, f: Array, against: Array) -> list[Entry]:
        """The relative loss of R², from paired squared errors, and of decisions that are right."""
        r2, y = _r2(self.y, against), self.y
        if r2 > 0:
            loss = ((y - f) ** 2 - (y - against) ** 2) / (y.var() * r2)
            error = float(loss.std(ddof=1) / np.sqrt(len(y)))
            cost = normal_entry("cost_of_r2", float(loss.mean()), error)
        else:
            cost = Entry("", "", "cost_of_r2", np.nan)
        up, down = self._moves(f, against)
        counts = {"rising": up.sum(), "falling": down.sum()}
        if self.threshold is not None:
            counts["changed_decisions"] = up.sum() + down.sum()
            right = [(p >= self.threshold) == (y == 1) for p in (against, f)]
            counts["fewer_right_decisions"] = right[0].sum() - right[1].sum()
        return [cost, *(Entry("", "", n, float(x), rows=len(y)) for n, x in counts.items())]

    def _moves(self, f: Array, against: Array) -> tuple[Mask, Mask]:
        """Which decisions become positive and negative; or which numbers rise and fall."""
        cut = self.threshold
        if cut is not None:
            return (f >= cut) & (against < cut), (f < cut) & (against >= cut)
        step = STEP * against.std()
        return f - against > step, against - f > step

    def _changes(self, f: Array, against: Array) -> list[Entry]:
        """What changes in each group: mean prediction, and the shares that rise and fall."""
        up, down = self._moves(f, against)
        changes = {"mean_change": f - against, "rising": up, "falling": down}
        entries = []
        for name, values in changes.items():
            rate = {"metrics": ["selection_rate"], "threshold": 0.5}
            own: dict[str, Any] = (
                {"metrics": ["mean_prediction"]} if values.dtype == float else rate
            )
            gaps = group_gaps(values.astype(float), quantiles=(), **own, **self.groups)
            rows = gaps.table[["attribute", "group", "value", "low", "high", "count", "small"]]
            for attribute, group, *numbers in rows.to_numpy().tolist():
                entries.append(Entry(attribute, group, name, *numbers))
        return entries

    def _score_shares(self, scores: Array) -> list[Entry]:
        found = audit({"f": scores}, measures=[SHARE], **self.groups).table
        rows = _rows_of(found[found["measure"] == SHARE], "f",
                        ["attribute", "value", "low", "high", "rows"])  # fmt: skip
        return [Entry(attribute, "", f"score_{SHARE}", *numbers) for attribute, *numbers in rows]


def _canonical(sensitive: Any) -> tuple[pd.DataFrame, Any]:
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


def normal_entry(measure: str, value: float, error: float) -> Entry:
    """Return a number of all rows ± 1.96 standard errors."""
    half = float(ndtri(0.5 + LEVEL / 2)) * error
    return Entry("", "", measure, value, value - half, value + half)
