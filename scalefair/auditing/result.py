"""The result of an audit: tables, dictionaries, and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from scalefair.auditing.dependence import Measurement
from scalefair.auditing.words import (
    dependence_columns,
    equalized_odds,
    gap_rows,
    group_rows,
    listed,
)
from scalefair.data import frames
from scalefair.measures.groups import GroupGaps, records, stacked

if TYPE_CHECKING:
    import pandas as pd

HEADLINES = ("explained_share", "selection_rate_difference", "mean_prediction_difference")


@dataclass(frozen=True, eq=False)
class ModelAudit:
    """What was found for one model.

    Parameters
    ----------
    name : str
        Of the model.
    dependence : dict of str to list of Measurement
        Measures of dependence, by attribute.
    gaps : GroupGaps
        The groups; without frames where no attribute has groups.
    """

    name: str
    dependence: dict[str, list[Measurement]]
    gaps: GroupGaps


class Audit:
    """What :func:`scalefair.audit` returns.

    Attributes
    ----------
    models : dict of str to ModelAudit
        By the name of the model.
    n_rows : int
        Rows that were judged.
    n_missing : int
        Rows left out because an attribute was missing (``missing="drop"``).
    notes : list of str
        Warnings in plain words.
    """

    def __init__(
        self,
        models: Sequence[ModelAudit],
        n_rows: int,
        n_missing: int,
        notes: list[str],
        confidence: float = 0.95,
    ) -> None:
        self.models = {model.name: model for model in models}
        self.n_rows, self.n_missing, self.notes = n_rows, n_missing, notes
        self._confidence = confidence

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per model, attribute and measure: value, low, high, rows, words."""
        parts = []
        for model in self.models.values():
            for attribute, found in model.dependence.items():
                parts.append(dependence_columns(model.name, attribute, found, self._confidence))
            for frame in model.gaps.frames.values():
                parts += [gap_rows(model.name, frame), equalized_odds(model.name, frame)]
        return frames.make_frame(stacked(parts))

    @cached_property
    def groups(self) -> pd.DataFrame:
        """One row per model, attribute, group and metric: count, value, low, high, small."""
        return self._of_frames("table")

    @cached_property
    def gaps(self) -> pd.DataFrame:
        """One row per model, attribute and metric: difference and ratio with intervals."""
        return self._of_frames("gaps")

    @cached_property
    def overall(self) -> pd.DataFrame:
        """One row per model: its metrics over all rows."""
        rows = [group_rows(model.name, model.gaps) for model in self.models.values()]
        names = list(dict.fromkeys(name for row in rows for name in row))
        return frames.make_frame({name: [row.get(name) for row in rows] for name in names})

    def compare(self, measure: str | None = None) -> pd.DataFrame:
        """Return the values with one column per model.

        Parameters
        ----------
        measure : str, optional
            One measure of `table`, by attribute; by default all, by attribute and measure.
        """
        table = self.table
        if measure is not None and measure not in set(table["measure"]):
            known = ", ".join(dict.fromkeys(table["measure"]))
            raise ValueError(f"measure={measure!r} is not in the table; choose among {known}")
        rows = table if measure is None else table[table["measure"] == measure]
        index = ["attribute", "measure"] if measure is None else ["attribute"]
        wide: pd.DataFrame = rows.pivot_table(
            index=index, columns="model", values="value", sort=False, dropna=False
        )
        wide.columns.name = None
        return wide[list(self.models)]

    def to_frame(self) -> pd.DataFrame:
        """Return `table`."""
        return self.table

    def to_dict(self) -> dict[str, Any]:
        """Return everything as lists of plain records, ready for JSON."""
        tables = ("table", "groups", "gaps", "overall")
        return {
            "n_rows": self.n_rows,
            "n_missing": self.n_missing,
            "notes": list(self.notes),
            **{name: records(getattr(self, name)) for name in tables},
        }

    @property
    def summary(self) -> str:
        """The audit in a few sentences."""
        attributes = list(next(iter(self.models.values())).dependence)
        lines = [f"Audit of {self.n_rows:,} rows by {listed(attributes)}."]
        for name in self.models:
            lines += [f"{name}:" if len(self.models) > 1 else "", *self._sentences(name)]
        lines += [f"Note: {note}" for note in self.notes]
        return "\n".join(line for line in lines if line)

    def plot(self, measure: str | None = None, ax: Any = None) -> Any:
        """Draw one measure by attribute and model, or a metric by group; return the display."""
        from scalefair.plots import AuditDisplay

        return AuditDisplay.from_audit(self, measure, ax=ax)

    def _sentences(self, model: str) -> list[str]:
        rows = self.table[(self.table["model"] == model) & self.table["measure"].isin(HEADLINES)]
        pairs = zip(rows["attribute"], rows["words"], strict=True)
        by: dict[str, list[str]] = {}
        for attribute, words in pairs:
            by.setdefault(attribute, []).append(words)
        # Shares name their attributes themselves.
        named = self.models[model].dependence
        starts = ("" if attribute in named else f"{attribute}: " for attribute in by)
        lines = zip(starts, by.values(), strict=True)
        return [f"- {start}{'; '.join(words)}." for start, words in lines]

    def _of_frames(self, name: str) -> pd.DataFrame:
        parts = []
        for model in self.models.values():
            if model.gaps.frames:
                table = getattr(model.gaps, name)
                columns = {column: list(table[column]) for column in table}
                parts.append({"model": [model.name] * len(table), **columns})
        return frames.make_frame(stacked(parts))

    def __str__(self) -> str:
        return self.summary

    def __repr__(self) -> str:
        return f"<Audit of {self.n_rows:,} rows: {', '.join(self.models)}>"

    def _repr_html_(self) -> str:
        lines = "<br>".join(escape(line) for line in self.summary.splitlines())
        table = self.table.to_html(index=False, float_format="{:.4g}".format, na_rep="")
        return f"<p>{lines}</p>{table}"
